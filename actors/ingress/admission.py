"""Who may append, and when they are told it is committed (SAFETY E3 to E6).

Owns the gen: closed, rebuilding, open; the leader's session table, which lives for one gen; what
waits for commit. Only in-term Committed counts, never a shared counter (E4). Must not know sockets.

    Admit ──▶ rebuilding ──(table complete)──▶ open ──AdmissionClosed / TermEnded──▶ closed
                  └──(damaged entry: stays, reports it)
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import msgspec

from actors.host import Clock
from actors.ingress.acks import AckFeed
from actors.ingress.expiry import Expiry
from actors.ingress.groups import Group
from actors.ingress.proposals import Proposals
from actors.ingress.rebuild import Rebuild
from actors.ingress.snapshots import Snapshots
from actors.ingress.sockets_and_rings import Log, ToRaft
from actors.messages import RotReported
from actors.observer import AdmissionOpened, Observer
from actors.topology import Counter
from logstore import limits
from logstore.errors import CorruptData, InvariantViolated
from logstore.format.cursor_entries import Cursor, encode_cursor
from logstore.format.session_entries import ExpireEntry, OpenEntry, encode_expire, encode_open
from logstore.limits import POSITION_MAX, ReplicaLimits
from logstore.model import NO_INDEX, NO_TERM, EntryKind
from logstore.raft.effects import Accepted, AdmissionClosed, Admit, Committed, TermEnded
from logstore.session.grants import SessionLimits
from logstore.session.session import Session, WindowRow
from logstore.session.table import SessionTable

_log = logging.getLogger(__name__)

# A log this close to the last LSN takes nothing any more. None gets there: a log begins in the
# lower half of all LSNs, and a gen of 10**9 payloads/s would need two years for this rest.
_LSNS_KEPT = 1 << 56
_EXPIRED_AT_A_TIME = 4


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """A retry, or a question, about a batch that is not committed yet: told under its round."""

    producer_epoch: int
    round: int
    row: WindowRow


class Admission:
    """`on_done(group, is_committed)` hears of every group that carried a client's request."""

    def __init__(
        self,
        proposals: Proposals,
        acks: AckFeed,
        *,
        session_limits: SessionLimits,
        session_expiry_ns: int,
        snapshot_part_max_bytes: int,
        replica_limits: ReplicaLimits,
        open_log: Callable[[], Log],
        clock: Clock,
        slots: memoryview,
        to_raft: ToRaft,
        observer: Observer,
        on_done: Callable[[Group, bool], None],
    ) -> None:
        self.proposals = proposals
        self._acks = acks
        self._session_limits = session_limits
        self._open_log = open_log
        self._clock = clock
        self._slots = slots
        self._to_raft = to_raft
        self._observer = observer
        self._on_done = on_done
        self._rebuild: Rebuild | None = None
        self._is_damage_seen = False
        self._term = NO_TERM
        self._commit = NO_INDEX  # by Committed of self._term
        self._heard = Committed(NO_TERM, NO_INDEX)
        self._ready_index = NO_INDEX
        self._snapshots = Snapshots(
            every_batches=replica_limits.snapshot_every_batches,
            part_max_bytes=snapshot_part_max_bytes,
        )
        self._expiry = Expiry(session_expiry_ns, idle_min_ns=replica_limits.session_idle_min_ns)
        self._requests_max = replica_limits.requests_before_appends_max
        self._committed_ns = 0  # the stamp of the newest entry that is known to be committed
        self._requests_taken = 0  # since appends had their turn
        self._waiting: dict[tuple[int, int], Waiting] = {}
        self._held: deque[tuple[int, Callable[[bool], None]]] = deque()  # by groups committed
        self.table: SessionTable | None = None
        self.gapped: dict[int, tuple[int, int]] = {}  # E9: producer → (epoch, round) told of a gap

    @property
    def used_ns(self) -> dict[int, int]:
        """Producer → when it last sent, by the monotonic clock."""
        return self._expiry.used_ns

    @property
    def is_rebuilding(self) -> bool:
        return self._rebuild is not None

    @property
    def is_ready(self) -> bool:
        """Open, and what the table was rebuilt from is committed, the term's no-op too (E9)."""
        return self.table is not None and self._commit >= self._ready_index

    # --- raft's words ---

    def admit(self, admit: Admit) -> None:
        """A gen opens: rebuild first, then propose."""
        self._drop_table()
        if admit.term != self._term:
            self._term = admit.term
            heard = self._heard
            self._commit = heard.index if heard.term == admit.term else NO_INDEX
        self.proposals.open(admit.term, admit.gen)
        self._is_damage_seen = False
        self._rebuild = Rebuild(
            admit,
            SessionTable(self._session_limits),
            open_log=self._open_log,
            clock=self._clock,
            slots=self._slots,
        )

    def accept(self, accepted: Accepted) -> None:
        group = self.proposals.accept(accepted)
        table = self.table
        if table is None:
            return
        last_id = 0
        for producer_id, _, _, _ in group.origins:
            if producer_id != last_id:
                last_id = producer_id
                _used(table, producer_id, group.timestamp_ns)
        if group.producer_id:
            _used(table, group.producer_id, group.timestamp_ns)

    def commit(self, committed: Committed) -> None:
        """Acknowledge what was accepted in this term up to the index."""
        self._heard = committed
        if committed.term != self._term or committed.index <= self._commit:
            return
        self._commit = committed.index
        slots = self._slots
        for group in self.proposals.commit(committed.index):
            self._committed_ns = group.timestamp_ns
            if group.origins:
                self._acks.acknowledge(group.origins)
                slots[Counter.GROUPS_COMMITTED] += 1
                slots[Counter.PAYLOADS_ACKNOWLEDGED] += group.count
                slots[Counter.PAYLOAD_BYTES_ACKNOWLEDGED] += group.payload_bytes
            elif group.request_id:
                self._on_done(group, True)
        if self.table is not None:
            self.table.commit = self._commit
            if self._waiting:
                self._acknowledge_waiting()
            self._let_go()

    def close(self, closed: AdmissionClosed) -> None:
        """The gen ends. What raft accepted may still be committed in this term; the rest is not in
        the log and never will be."""
        self._forget(self.proposals.close(closed))
        self._drop_table()

    def end_term(self, ended: TermEnded) -> None:
        """Forget what is pending, without an answer (E4)."""
        if ended.term == self._term:
            self._forget(self.proposals.end_term())
            self._drop_table()
            self._term, self._commit = NO_TERM, NO_INDEX

    def _forget(self, groups: list[Group]) -> None:
        for group in groups:
            if group.request_id:
                self._on_done(group, False)

    def _drop_table(self) -> None:
        if self._rebuild is not None:
            self._rebuild.close()
            self._rebuild = None
        self.table = None
        self._waiting.clear()
        while self._held:
            self._held.popleft()[1](False)
        self.gapped.clear()
        self._expiry.clear()
        self._snapshots.forget()

    # --- the work of a loop ---

    def rebuild(self, now_ns: int, *, is_up_to_date: bool) -> int:
        """One slice of rebuilding, if that is the state; returns how much was done.

        Damage is believed only when it is seen again after everything raft has said was heard: a
        new leader's truncation looks the same, and its TermEnded comes before it.

        Args:
          is_up_to_date: nothing of raft's was left unheard when this do_work began.
        """
        rebuild = self._rebuild
        if rebuild is None:
            return 0
        before = rebuild.progress
        try:
            is_done = rebuild.step()
        except CorruptData as damage:
            if not (is_up_to_date and self._is_damage_seen):
                self._is_damage_seen = True
                return 1
            index = rebuild.next_index
            _log.error("admission stays closed: entry %d is damaged: %s", index, damage)
            self._to_raft.send(RotReported(index, *rebuild.damaged_lsns()))
            rebuild.close()
            self._rebuild = None
            return 1
        if is_done:
            self._open(rebuild, now_ns)
        return int(is_done or rebuild.progress != before)

    def _open(self, rebuild: Rebuild, now_ns: int) -> None:
        rebuild.close()
        self._rebuild = None
        if rebuild.next_lsn > POSITION_MAX - _LSNS_KEPT:
            _log.error("admission stays closed: the log ends at LSN %d", rebuild.next_lsn - 1)
            return
        self._ready_index = rebuild.admit.last_index
        self._snapshots.begin_at(batches=rebuild.batches, size_bytes=rebuild.body_bytes)
        self._committed_ns = rebuild.timestamp_ns  # once this gen is ready
        self._requests_taken = 0
        self.proposals.begin_at(rebuild.next_lsn)
        self.table = rebuild.table
        self.table.commit = self._commit
        self._expiry.begin(self.table, now_ns)
        parts, passed_over = rebuild.snapshot_parts, rebuild.passed_over
        self._observer.saw(AdmissionOpened(rebuild.admit.gen, self.table, parts, passed_over))
        _log.info("admission is open in term %d with %d sessions", self._term, len(self.table))

    def tell_counters(self) -> None:
        """How many sessions there are, and what is lent; called once in a do_work."""
        table, slots = self.table, self._slots
        slots[Counter.SESSIONS] = 0 if table is None else len(table)
        slots[Counter.SESSION_NAMES_KEPT] = 0 if table is None else table.kept_count
        slots[Counter.CLIENT_BYTES_LENT] = self.proposals.lent_bytes

    def propose(self) -> int:
        """Take the next part of a snapshot if one is due and possible, then hand groups to raft."""
        if self.table is None:
            return 0
        snapshots, proposals = self._snapshots, self.proposals
        if snapshots.is_due and not proposals.is_held_back:
            # The first part waits until every batch has its LSNs, the others for room only.
            if snapshots.is_under_way or proposals.has_all_lsns:
                part = snapshots.next_part(self.table, self._term)
                if part is None:
                    return 1  # put off: batches are read again
                proposals.add_entry(EntryKind.SESSION, part)
        elif self.is_ready and self.may_take_request:
            self._expire(self.table)
        return proposals.propose()

    @property
    def is_snapshot_due(self) -> bool:
        """E6: nothing that changes the table is taken until the snapshot is in the stream."""
        return self._snapshots.is_due

    def count_batch(self, size_bytes: int) -> None:
        """A new batch was joined, or the table was changed by a request: counts towards the next
        snapshot. Hot."""
        self._snapshots.count(size_bytes)

    @property
    def may_take_request(self) -> bool:
        """Whether a request may change the table now: no snapshot is due, and appends had their
        turn not long ago. So no request, however often it is made, holds up appends."""
        return not self._snapshots.is_due and self._requests_taken < self._requests_max

    def appends_had_their_turn(self) -> None:
        """There was room for a batch, whether or not one was there. Hot."""
        self._requests_taken = 0

    def _take(self, kind: EntryKind, body: bytes, request_id: int, *, producer_id: int = 0) -> None:
        if self._snapshots.is_under_way:
            raise InvariantViolated(f"{kind} between the parts of a snapshot would be lost with it")
        self.proposals.add_entry(kind, body, request_id, producer_id=producer_id)
        self._requests_taken += 1
        self._snapshots.count(len(body))

    # --- sessions ---

    def take_open(
        self, table: SessionTable, entry: OpenEntry, request_id: int, now_ns: int
    ) -> Session:
        """An OPEN takes its place in the stream; answered at commit (E8)."""
        session = table.apply_open(entry)
        self._take(EntryKind.OPEN, encode_open(entry), request_id, producer_id=entry.producer_id)
        self.gapped.pop(entry.producer_id, None)
        self.used_ns[entry.producer_id] = now_ns
        return session

    def take_cursor(self, table: SessionTable, cursor: Cursor, request_id: int) -> None:
        """A cursor's change takes its place in the stream; answered at commit."""
        table.cursors.apply(cursor)
        self._take(EntryKind.CURSOR, encode_cursor(cursor), request_id)

    def take_expire(self, table: SessionTable, entry: ExpireEntry, request_id: int = 0) -> None:
        """An EXPIRE takes its place in the stream; an operator's is answered at commit."""
        table.apply_expire(entry)
        self._take(EntryKind.EXPIRE, encode_expire(entry), request_id)
        self.used_ns.pop(entry.producer_id, None)
        self.gapped.pop(entry.producer_id, None)

    def expire_idlest(self, table: SessionTable, now_ns: int) -> bool:
        """Give up a nameless session to make room for another; False: none can be."""
        entry = self._expiry.idlest_nameless(table, now_ns)
        if entry is not None:
            self.take_expire(table, entry)
        return entry is not None

    def _expire(self, table: SessionTable) -> None:
        """Give up some of those that were idle for too long."""
        for entry in self._expiry.due(table, self._committed_ns, _EXPIRED_AT_A_TIME):
            _log.info("producer %d was idle for too long: its session ends", entry.producer_id)
            self.take_expire(table, entry)

    def acknowledge_when_committed(
        self, producer_id: int, producer_epoch: int, round_: int, row: WindowRow
    ) -> None:
        """A retry of `row`: tell its LSNs if it is committed, else once it is. Bounded by ΣW."""
        if row.is_committed(self._commit):
            self._acks.acknowledge(((producer_id, producer_epoch, round_, row),))
        else:
            self._waiting[producer_id, row.sequence] = Waiting(producer_epoch, round_, row)

    def when_committed(self, tell: Callable[[bool], None]) -> None:
        """Call `tell` once all that the table holds now is committed: True; or False: this gen
        ended before, or too many wait already. Call it only if the gen `is_ready`."""
        mark = self.proposals.taken_in
        if mark <= self.proposals.committed:
            tell(True)
        elif len(self._held) < limits.HELD_ANSWERS_MAX:
            self._held.append((mark, tell))
        else:
            tell(False)

    def _let_go(self) -> None:
        held, committed = self._held, self.proposals.committed
        while held and held[0][0] <= committed:
            held.popleft()[1](True)

    def _acknowledge_waiting(self) -> None:
        commit = self._commit
        done = [key for key, each in self._waiting.items() if each.row.is_committed(commit)]
        for key in done:
            each = self._waiting.pop(key)
            self._acks.acknowledge(((key[0], each.producer_epoch, each.round, each.row),))


def _used(table: SessionTable, producer_id: int, timestamp_ns: int) -> None:
    session = table.get(producer_id)
    if session is not None:
        session.last_used_ns = timestamp_ns
