"""The batches that were sent and are not resolved: what to resend, in which order (SAFETY E7, E9).

Owns sequences: a sequence, once given, keeps its bytes for ever. Pure: no sockets, clock, threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from logstore.client.core.packs import Pack
from logstore.errors import ErrorCode, Gap, InvariantViolated
from logstore.format.client_messages import ACK_ROW


class Reconciled(msgspec.Struct, frozen=True):
    """What SessionState says of the unresolved batches; the others are queued for resending."""

    committed: list[tuple[Pack, int, int]]  # pack, first LSN, count
    forgotten: list[Pack]  # used by the log, but no longer in its window
    in_log: int  # batches that the leader holds and acknowledges once they are committed


class Unresolved:
    """Sent batches by sequence. The newest is less than `limit` above the oldest, since the log
    remembers so many: an older one that is still unresolved would have lost its LSNs. Of a monotone
    session there is one.

    A monotone session takes any higher sequence. Were two of its batches under way and only the
    second arrived (a connection that breaks takes its queue along), the first would count as a
    duplicate ever after, "committed" without having been stored.
    """

    def __init__(self, *, next_sequence: int, limit: int, is_dense: bool) -> None:
        self._next_sequence = next_sequence
        self._limit = limit if is_dense else 1
        self._is_dense = is_dense
        self._packs: dict[int, Pack] = {}
        self._to_resend: deque[Pack] = deque()

    def __len__(self) -> int:
        return len(self._packs)

    @property
    def has_room(self) -> bool:
        oldest = self.oldest_sequence
        return oldest < 0 or self._next_sequence - oldest < self._limit

    @property
    def oldest_sequence(self) -> int:
        """-1: everything is resolved."""
        return next(iter(self._packs), -1)

    def packs(self) -> list[Pack]:
        return list(self._packs.values())

    def expired(self, now_ns: int) -> Iterator[Pack]:
        """Batches whose appends must fail now; the batches themselves keep their place (E7)."""
        for pack in self._packs.values():
            if pack.deadline_ns > now_ns:
                return
            if not pack.is_settled():
                yield pack

    def first_deadline_ns(self) -> int:
        """When the next append must fail, monotonic; 0: never."""
        waiting = (pack.deadline_ns for pack in self._packs.values() if not pack.is_settled())
        return next(waiting, 0)

    def add(self, pack: Pack) -> None:
        """Add a new pack. It gets the next sequence, unless the caller gave it one."""
        if pack.sequence < 0:
            pack.sequence = self._next_sequence
        if pack.sequence in self._packs or not self.has_room:
            raise InvariantViolated(f"sequence {pack.sequence} of {len(self._packs)} is sent twice")
        self._next_sequence = pack.sequence + 1
        self._packs[pack.sequence] = pack

    def pop(self, sequence: int) -> Pack | None:
        """Remove the batch, which is resolved; None: it was resolved before."""
        return self._packs.pop(sequence, None)

    def queue_again(self, pack: Pack) -> None:
        """The pack could not be sent: it is sent first when there is room."""
        self._to_resend.appendleft(pack)

    @property
    def has_to_resend(self) -> bool:
        """Whether a batch waits for room on the link."""
        return bool(self._to_resend)

    def next_to_resend(self) -> Pack | None:
        """The first batch to send again that was not resolved meanwhile."""
        queue = self._to_resend
        while queue:
            pack = queue.popleft()
            if self._packs.get(pack.sequence) is pack:
                return pack
        return None

    def reconcile(self, next_sequence: int, rows: bytes) -> Reconciled:
        """Sort every unresolved batch by what the leader's session table says of it.

        Committed ones leave; those in the leader's log stay and wait for the feed; everything from
        `next_sequence` on is queued for resending, in order; what is below it and has no row was
        committed before the window.

        Raises:
          Gap: the log expects a dense sequence that is answered for already: it lost something, or
            the replica that says so does not lead. Nothing is sorted then.
        """
        known = {row[0]: row for row in ACK_ROW.iter_unpack(rows)}
        committed: list[tuple[Pack, int, int]] = []
        forgotten: list[Pack] = []
        resend: list[Pack] = []
        for sequence, pack in self._packs.items():
            row = known.get(sequence)
            if row is not None and row[3] == ErrorCode.OK:
                committed.append((pack, row[1], row[2]))
            elif row is None and sequence >= next_sequence:
                resend.append(pack)
            elif row is None:
                forgotten.append(pack)
        oldest = min(map(_sequence_of, resend), default=self._next_sequence)
        if self._is_dense and next_sequence < oldest:
            raise Gap(
                f"the log expects sequence {next_sequence}, this producer's next one is {oldest}: "
                "open a new producer",
                expected=next_sequence,
            )
        for pack in (*(row[0] for row in committed), *forgotten):
            del self._packs[pack.sequence]
        self._to_resend = deque(sorted(resend, key=_sequence_of))
        return Reconciled(committed, forgotten, len(self._packs) - len(resend))


def _sequence_of(pack: Pack) -> int:
    return pack.sequence
