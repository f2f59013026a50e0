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
from actors.ingress.groups import Group
from actors.ingress.ports import Log, ToRaft
from actors.ingress.proposals import Proposals
from actors.ingress.rebuild import Rebuild
from actors.messages import RotReported
from actors.topology import Counter
from logstore import limits
from logstore.errors import CorruptData
from logstore.format.cursor_entries import Cursor, encode_cursor
from logstore.format.session_entries import ExpireEntry, OpenEntry, encode_expire, encode_open
from logstore.model import NO_INDEX, NO_TERM, EntryKind
from logstore.raft.effects import Accepted, AdmissionClosed, Admit, Committed, TermEnded
from logstore.session.fold import encode_snapshot
from logstore.session.grants import SessionLimits
from logstore.session.session import Session, WindowRow
from logstore.session.table import SessionTable

_log = logging.getLogger(__name__)


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
        open_log: Callable[[], Log],
        clock: Clock,
        slots: memoryview,
        to_raft: ToRaft,
        on_done: Callable[[Group, bool], None],
    ) -> None:
        self.proposals = proposals
        self._acks = acks
        self._session_limits = session_limits
        self._open_log = open_log
        self._clock = clock
        self._slots = slots
        self._to_raft = to_raft
        self._on_done = on_done
        self._rebuild: Rebuild | None = None
        self._is_damage_seen = False
        self._term = NO_TERM
        self._commit = NO_INDEX  # by Committed of self._term
        self._heard = Committed(NO_TERM, NO_INDEX)
        self._ready_index = NO_INDEX
        self._batches_since_snapshot = 0
        self._bytes_since_snapshot = 0
        self._waiting: dict[tuple[int, int], Waiting] = {}
        self._held: deque[tuple[int, Callable[[bool], None]]] = deque()  # by groups committed
        self.table: SessionTable | None = None
        self.on_open: Callable[[int, SessionTable], None] | None = None  # an observer's
        self.gapped: dict[int, tuple[int, int]] = {}  # E9: producer → (epoch, round) told of a gap
        self.used_ns: dict[int, int] = {}  # producer → when it last sent; for expiry

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
        self.proposals.accept(accepted)

    def commit(self, committed: Committed) -> None:
        """Acknowledge what was accepted in this term up to the index."""
        self._heard = committed
        if committed.term != self._term or committed.index <= self._commit:
            return
        self._commit = committed.index
        slots = self._slots
        for group in self.proposals.commit(committed.index):
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
        self.used_ns.clear()

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
        before = rebuild.next_index
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
        return int(is_done or rebuild.next_index != before)

    def _open(self, rebuild: Rebuild, now_ns: int) -> None:
        rebuild.close()
        self._rebuild = None
        self._ready_index = rebuild.admit.last_index
        self._batches_since_snapshot = rebuild.batches
        self._bytes_since_snapshot = rebuild.body_bytes
        self.proposals.begin_at(rebuild.next_lsn)
        self.table = rebuild.table
        self.table.commit = self._commit
        self.used_ns = {each.producer_id: now_ns for each in self.table.sessions()}
        if self.on_open is not None:
            self.on_open(rebuild.admit.gen, self.table)
        _log.info("admission is open in term %d with %d sessions", self._term, len(self.table))

    def propose(self) -> int:
        """Take a snapshot if one is due and possible, then hand groups to raft."""
        if self.table is None:
            return 0
        if self.is_snapshot_due and self.proposals.has_all_lsns:
            self.proposals.add_entry(EntryKind.SESSION, encode_snapshot(self.table))
            self._batches_since_snapshot = self._bytes_since_snapshot = 0
        return self.proposals.propose()

    @property
    def is_snapshot_due(self) -> bool:
        """E6: no batch is read until the snapshot has its place in the stream."""
        return (
            self._batches_since_snapshot >= limits.SNAPSHOT_EVERY_BATCHES
            or self._bytes_since_snapshot >= limits.SNAPSHOT_EVERY_BYTES
        )

    def count_batch(self, size_bytes: int) -> None:
        """A new batch was joined, or a cursor changed: counts towards the next snapshot. Hot."""
        self._batches_since_snapshot += 1
        self._bytes_since_snapshot += size_bytes

    # --- sessions ---

    def take_open(
        self, table: SessionTable, entry: OpenEntry, request_id: int, now_ns: int
    ) -> Session:
        """An OPEN takes its place in the stream; answered at commit (E8)."""
        session = table.apply_open(entry)
        self.proposals.add_entry(EntryKind.OPEN, encode_open(entry), request_id)
        self.gapped.pop(entry.producer_id, None)
        self.used_ns[entry.producer_id] = now_ns
        return session

    def take_cursor(self, table: SessionTable, cursor: Cursor, request_id: int) -> None:
        """A cursor's change takes its place in the stream; answered at commit."""
        table.cursors.apply(cursor)
        body = encode_cursor(cursor)
        self.proposals.add_entry(EntryKind.CURSOR, body, request_id)
        self.count_batch(len(body))

    def expire_idlest(self, table: SessionTable, now_ns: int) -> bool:
        """Give up the nameless session that was idle longest, at least a minute; False: there is
        none.

        A name promises that the session can be asked for again; without one it belongs to one run
        of a producer.
        """
        oldest_ns = now_ns - limits.SESSION_IDLE_MIN_NS
        idle = [
            (self.used_ns[each.producer_id], each)
            for each in table.sessions()
            if not each.name
            and self.used_ns[each.producer_id] <= oldest_ns
            and all(row.is_committed(table.commit) for row in each.rows.values())
        ]
        if not idle:
            return False
        session = min(idle, key=lambda pair: pair[0])[1]
        entry = ExpireEntry(session.producer_id, session.producer_epoch)
        table.apply_expire(entry)
        self.proposals.add_entry(EntryKind.EXPIRE, encode_expire(entry))
        del self.used_ns[session.producer_id]
        self.gapped.pop(session.producer_id, None)
        return True

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
