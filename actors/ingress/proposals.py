"""The stream of proposals of one gen: formed, proposed, accepted, committed (SAFETY E3, E4, M4).

Owns the groups and their order, which is the order in which the session table took them in. Must
not know sessions or sockets. Invariants:
  * a group's bytes enter the payload ring and its Proposed the bulk ring at once, in order (M4);
  * groups are accepted in the order of their props, and committed in the order of their indexes;
  * only a Committed of the term of its Accepted lets a group go (E4);
  * what is lent to clients, the bytes of batches that were read and are not committed, is at most
    `lend_max_bytes` (W6): further batches stay unread, in sockets and at their producers.
"""

from __future__ import annotations

from collections import deque
from itertools import chain

from crc32c import crc32c

from actors.host import Clock
from actors.ingress.groups import Group, Origin
from actors.ingress.sockets_and_rings import ToRaft
from actors.ingress.stampers import Stampers
from actors.trace import is_sampled
from logstore.errors import InvariantViolated
from logstore.format.batch import BatchSizes
from logstore.limits import POSITION_MAX
from logstore.model import NO_TERM, EntryKind, Index, Lsn, Term
from logstore.raft.effects import Accepted, AdmissionClosed
from logstore.raft.events import Proposed
from logstore.session.table import assign_lsns
from transport.payload_ring import PayloadRingWriter

# From this many parts on, joining them (one copy more, 40 µs for 1 MiB) costs less than a CRC call
# and a ring slice each (0.5 µs a part).
_JOIN_FROM_PARTS = 32


class Proposals:
    """`group_max_bytes` bounds what is joined; a single larger batch is a group of its own. Of
    `lend_max_bytes`, at least `batch_max_bytes`, one batch at a time is always left.
    """

    def __init__(
        self,
        ring: PayloadRingWriter,
        to_raft_bulk: ToRaft,
        clock: Clock,
        stampers: Stampers,
        *,
        group_max_bytes: int,
        in_flight_max: int,
        batch_max_bytes: int,
        lend_max_bytes: int,
    ) -> None:
        self._ring = ring
        self._to_raft_bulk = to_raft_bulk
        self._clock = clock
        self._stampers = stampers
        self._group_max_bytes = group_max_bytes
        self.in_flight_max = in_flight_max
        self._lend_max_bytes = max(0, lend_max_bytes - batch_max_bytes)  # before another batch
        self.lent_bytes = 0
        self._term = NO_TERM
        self._gen = 0
        self._next_prop = 0
        self._next_lsn = Lsn(0)  # after all that was accepted
        self._formed: deque[Group] = deque()
        self._proposed: deque[Group] = deque()
        self._accepted: deque[Group] = deque()

    @property
    def gen(self) -> tuple[Term, int]:
        """The term and the number of the newest gen."""
        return self._term, self._gen

    # --- forming ---

    @property
    def room_bytes(self) -> int:
        """Bytes of batches that may be read now, the last batch going over them; 0 without credit,
        or while a group waits that can take no more.
        """
        if len(self._proposed) + len(self._accepted) >= self.in_flight_max:
            return 0
        lendable_bytes = self._lend_max_bytes - self.lent_bytes + 1
        formed = self._formed
        if not formed:
            room_bytes = self._group_max_bytes
        elif len(formed) == 1:
            room_bytes = self._group_max_bytes - formed[0].size_bytes
        else:
            return 0
        return max(0, min(room_bytes, lendable_bytes))

    @property
    def is_held_back(self) -> bool:
        """A formed group waits for room in a ring, or for an earlier group to be committed."""
        return bool(self._formed)

    @property
    def has_all_lsns(self) -> bool:
        """Every batch in the table has its LSNs, so a snapshot may be taken (E6)."""
        return not self._formed and not self._proposed

    @property
    def unaccepted_sizes(self) -> list[int]:
        """The body sizes of the groups that raft has not accepted."""
        return [group.size_bytes for group in chain(self._proposed, self._formed)]

    def newest_pending(self, kind: EntryKind | None) -> Group | None:
        """The newest group, of this kind or (None) of any, that is not committed."""
        pending = chain(reversed(self._formed), reversed(self._proposed), reversed(self._accepted))
        return next((group for group in pending if kind in (None, group.kind)), None)

    @property
    def end_lsn(self) -> Lsn:
        """The LSN that the next batch will get: groups that are not accepted yet get theirs first,
        in order."""
        pending = chain(self._proposed, self._formed)
        return Lsn(self._next_lsn + sum(group.count for group in pending))

    def join(
        self,
        view: memoryview,
        origin: Origin,
        sizes: BatchSizes,
        kind: EntryKind = EntryKind.DATA,
    ) -> Group:
        """Add a new batch to the stream; its group. Hot."""
        size = len(view)
        formed = self._formed
        if (
            not formed
            or (group := formed[-1]).kind is not kind
            or group.size_bytes + size > self._group_max_bytes
        ):
            group = Group(kind, [], [], received_ns=self._clock.monotonic_ns())
            formed.append(group)
        group.add(view, origin, sizes)
        self.lent_bytes += size
        return group

    def expect(self, lsn: Lsn) -> None:
        """The batch that was joined last was taken because it gets this LSN (E11)."""
        group = self._formed[-1]
        group.expectations.append((group.origins[-1][3], lsn))

    def add_entry(self, kind: EntryKind, body: bytes, producer_id: int = 0) -> Group:
        """Add an entry without batches to the stream, as a group of its own. `producer_id`: of an
        OPEN."""
        group = Group(kind, [body], [], size_bytes=len(body), producer_id=producer_id)
        group.received_ns = self._clock.monotonic_ns()
        self._formed.append(group)
        return group

    # --- proposing ---

    def propose(self) -> int:
        """Propose formed groups while rings have room and few groups are in flight; returns how
        many."""
        proposed = 0
        while (
            self._formed
            and len(self._proposed) + len(self._accepted) < self.in_flight_max
            and not self._to_raft_bulk.is_congested
        ):
            group = self._formed[0]
            if not self._propose_one(group):
                break
            self._formed.popleft()
            self._proposed.append(group)
            proposed += 1
        return proposed

    def _propose_one(self, group: Group) -> bool:
        parts = group.parts
        if len(parts) >= _JOIN_FROM_PARTS:
            parts = group.parts = [b"".join(parts)]
        written = self._ring.try_write(parts)
        if written is None:
            return False
        crc = 0
        for part in parts:
            crc = crc32c(part, crc)
        group.parts = []
        group.proposed_ns = self._clock.monotonic_ns()
        group.prop = self._next_prop
        self._next_prop += 1
        self._to_raft_bulk.send(
            Proposed(
                term=self._term,
                gen=self._gen,
                prop=group.prop,
                kind=group.kind,
                count=group.count,
                body_crc=crc,
                ring_start=written[0],
                ring_end=written[1],
                wall_ns=min(max(0, self._clock.wall_ns()), POSITION_MAX),
                waits_for_flush=bool(group.await_flush),
                configuration=group.configuration,
            )
        )
        return True

    # --- raft's answers ---

    def open(self, term: Term, gen: int) -> None:
        """A gen begins at prop 0. Groups accepted earlier in this term still wait for commit."""
        if self._formed or self._proposed:
            raise InvariantViolated(f"gen {gen} opens while groups of gen {self._gen} are pending")
        if term != self._term:
            self._accepted.clear()
            self.lent_bytes = 0
        self._term, self._gen, self._next_prop = term, gen, 0

    def begin_at(self, next_lsn: Lsn) -> None:
        """`next_lsn` follows the last LSN of the log as this gen begins."""
        self._next_lsn = next_lsn

    def accept(self, accepted: Accepted) -> Group:
        """Give the oldest proposed group its index, and its batches their LSNs; returns it.

        Raises:
          InvariantViolated: another prop than the oldest, or one of another gen, was accepted; or
            the LSNs do not follow those before, so that an import would not have its own; or a
            batch does not have the LSN that it was taken for.
        """
        group = self._proposed.popleft() if self._proposed else None
        if (
            group is None
            or (accepted.term, accepted.gen) != (self._term, self._gen)
            or accepted.prop != group.prop
        ):
            raise InvariantViolated(f"{accepted} does not answer {group} of gen {self._gen}")
        index = group.index = accepted.index
        if is_sampled(index):
            self._stampers.received.stamp_at(index, group.received_ns)
            self._stampers.proposed.stamp_at(index, group.proposed_ns)
        group.timestamp_ns = accepted.timestamp_ns
        next_lsn = assign_lsns((row for _, _, _, row in group.origins), index, accepted.first_lsn)
        if next_lsn != accepted.first_lsn + group.count:
            raise InvariantViolated(f"{accepted}: {group.count} payloads end at LSN {next_lsn}")
        if accepted.first_lsn != self._next_lsn:
            raise InvariantViolated(f"{accepted}, but the log ended at LSN {self._next_lsn}")
        for row, lsn in group.expectations:
            if row.first_lsn != lsn:
                raise InvariantViolated(f"{row} was taken because it was to have LSN {lsn}")
        self._next_lsn = next_lsn
        self._accepted.append(group)
        return group

    def commit(self, index: Index) -> list[Group]:
        """Remove and return the groups of this term that are committed up to `index`, in order."""
        accepted = self._accepted
        done: list[Group] = []
        while accepted and accepted[0].index <= index:
            done.append(accepted.popleft())
        self._count_returned(done)
        return done

    def close(self, closed: AdmissionClosed) -> list[Group]:
        """The gen ends: remove and return what raft did not accept, which has no index (E3).

        Raises:
          InvariantViolated: raft accepted another number of props than it answered.
        """
        if closed.accepted != self._next_prop - len(self._proposed):
            raise InvariantViolated(
                f"{closed}, but {len(self._proposed)} of {self._next_prop} props are unanswered"
            )
        dropped = [*self._proposed, *self._formed]
        self._proposed.clear()
        self._formed.clear()
        self._count_returned(dropped)
        return dropped

    def end_term(self) -> list[Group]:
        """Forget all pending groups (E4); returns them, since clients wait for some."""
        forgotten = [*self._accepted, *self._proposed, *self._formed]
        self._accepted.clear()
        self._proposed.clear()
        self._formed.clear()
        self._term = NO_TERM
        self.lent_bytes = 0
        return forgotten

    def _count_returned(self, groups: list[Group]) -> None:
        self.lent_bytes -= sum(group.size_bytes for group in groups if group.count)
