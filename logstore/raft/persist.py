"""Numbered persists and how far this replica's own disk is (SAFETY F4).

Owns: which Persist and Truncate requests are outstanding, up to which index they count, and which
ring ranges they still need. Must not know: terms, files, peers.

Invariants: requests are answered in order; `persisted` never counts an entry that a later
truncation removed. Matching an answer by (index, term) has an ABA race: entry A of index 5 is
written, truncated and rewritten while its flush is in flight. Numbers and clipping do not
(FAULTS.R24):

    1. Persist(seq 1, index 5)     outstanding: 1 -> 5
    2. Truncate(seq 2, first 5)    persisted = min(persisted, 4); outstanding: 1 -> 4, 2 -> 4
    3. Persist(seq 3, index 5)     outstanding: 1 -> 4, 2 -> 4, 3 -> 5
    4. Persisted(1)                raises persisted to 4: the new entry 5 is not claimed
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from logstore.errors import InvariantViolated
from logstore.model import Index


@dataclass(slots=True)
class Outstanding:
    """One request of the writer: what its answer will prove, and when it was ordered."""

    seq: int
    last_index: Index
    ring_start: int
    ring_end: int
    ordered_ns: int


class PersistQueue:
    """The writer's unanswered requests, oldest first."""

    __slots__ = ("_outstanding", "last_seq", "persisted")

    def __init__(self, persisted: Index) -> None:
        self.persisted = persisted
        self.last_seq = 0
        self._outstanding: deque[Outstanding] = deque()

    @property
    def oldest_ordered_ns(self) -> int | None:
        """When the oldest unanswered request was ordered, None when nothing is outstanding."""
        return self._outstanding[0].ordered_ns if self._outstanding else None

    def append(self, index: Index, *, ring_start: int, ring_end: int, now_ns: int) -> int:
        """Number the Persist of `index`."""
        self.last_seq += 1
        self._outstanding.append(Outstanding(self.last_seq, index, ring_start, ring_end, now_ns))
        return self.last_seq

    def truncate(self, first_index: Index, *, now_ns: int) -> int:
        """Number the Truncate at `first_index`, and clip what is claimed and in flight."""
        kept = Index(first_index - 1)
        self.persisted = min(self.persisted, kept)
        for request in self._outstanding:
            request.last_index = min(request.last_index, kept)
        return self.append(kept, ring_start=0, ring_end=0, now_ns=now_ns)

    def on_persisted(self, seq: int) -> list[tuple[int, int]]:
        """Everything up to `seq` is flushed: raise `persisted`, return the ring ranges set free."""
        if seq > self.last_seq:
            raise InvariantViolated(f"Persisted({seq}), but only {self.last_seq} were ordered")
        ranges = []
        while self._outstanding and self._outstanding[0].seq <= seq:
            request = self._outstanding.popleft()
            self.persisted = max(self.persisted, request.last_index)
            if request.ring_end > request.ring_start:
                ranges.append((request.ring_start, request.ring_end))
        return ranges
