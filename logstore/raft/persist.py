"""Numbered requests to the writer, and how far this replica's log is flushed (SAFETY F4).

Owns: which Persist and Truncate requests are outstanding, up to which index each counts, and which
ring ranges they need. Must not know: terms, files, peers.

Invariants: requests are answered in order; `persisted` never counts an entry that a later
truncation removed. To match an answer by (index, term) has an ABA race: entry A of index 5 is
written, truncated and written again while its flush is under way. Sequence numbers and clipping
have none (FAULTS.R24):

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
    """A request to the writer: what its answer will prove, and when it was sent."""

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
        """When the oldest unanswered request was sent; None when nothing is outstanding."""
        return self._outstanding[0].ordered_ns if self._outstanding else None

    def append(self, index: Index, *, ring_start: int, ring_end: int, now_ns: int) -> int:
        """Add the Persist of `index`; returns its sequence number."""
        self.last_seq += 1
        self._outstanding.append(Outstanding(self.last_seq, index, ring_start, ring_end, now_ns))
        return self.last_seq

    def truncate(self, first_index: Index, *, now_ns: int) -> int:
        """Add the Truncate at `first_index`, and clip what is claimed and under way; returns its
        sequence number."""
        kept = Index(first_index - 1)
        self.persisted = min(self.persisted, kept)
        for request in self._outstanding:
            request.last_index = min(request.last_index, kept)
        return self.append(kept, ring_start=0, ring_end=0, now_ns=now_ns)

    def start_over(self, start_index: Index, *, now_ns: int) -> int:
        """Add the InstallLog of a log start at `start_index`, which nothing claims before its
        answer; returns its sequence number (G5a)."""
        self.truncate(Index(max(start_index, 1)), now_ns=now_ns)
        self._outstanding[-1].last_index = start_index
        return self.last_seq

    def is_answered(self, seq: int) -> bool:
        """Whether the writer has answered `seq`, and with it all before."""
        return not self._outstanding or self._outstanding[0].seq > seq

    def sizes_above(self, seq: int) -> list[int]:
        """The body sizes of the entries that were ordered after `seq`; a truncation's is 0."""
        return [each.ring_end - each.ring_start for each in self._outstanding if each.seq > seq]

    def on_persisted(self, seq: int) -> list[tuple[int, int]]:
        """Everything up to `seq` is flushed: raise `persisted`, return the ring
        ranges no longer needed."""
        if seq > self.last_seq:
            raise InvariantViolated(f"Persisted({seq}), but only {self.last_seq} were ordered")
        ranges = []
        while self._outstanding and self._outstanding[0].seq <= seq:
            request = self._outstanding.popleft()
            self.persisted = max(self.persisted, request.last_index)
            if request.ring_end > request.ring_start:
                ranges.append((request.ring_start, request.ring_end))
        return ranges
