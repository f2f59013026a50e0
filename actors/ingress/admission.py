"""Who may append, and when that is committed (SAFETY E3 to E6).

Owns the gen, which is closed, rebuilding or open; the leader's session table, which exists for one
gen; what waits for its commit. Only a Committed of the same term counts, never a shared counter
(E4). Every method returns what came of the batch, the request or the message from raft. Must not
know clients, nor how they are answered.

    Admit ──▶ rebuilding ──(table complete)──▶ open ──AdmissionClosed / TermEnded──▶ closed
                  └──(damaged entry: stays, reports it)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from actors.host import Clock
from actors.ingress.ack_levels import UNTOLD, FlushWaits, Held, mark, why_refused
from actors.ingress.expiry import Expiry, note_use
from actors.ingress.groups import Group, Origin, Outcome, Route
from actors.ingress.proposals import Proposals
from actors.ingress.pushes import Push
from actors.ingress.rebuild import Rebuild
from actors.ingress.retries import Retries
from actors.ingress.snapshots import Snapshots
from actors.ingress.sockets_and_rings import Log, ToRaft
from actors.messages import RotReported
from actors.observer import AdmissionOpened, Observer, RetryKnown
from actors.topology import Counter
from logstore.errors import CorruptData, ErrorCode, InvariantViolated
from logstore.format.batch import BatchSizes
from logstore.format.cursor_entries import Cursor, encode_cursor
from logstore.format.meta import NO_START
from logstore.format.session_entries import ExpireEntry, OpenEntry, encode_expire, encode_open
from logstore.format.trim_entry import TrimEntry, encode_trim
from logstore.limits import POSITION_MAX, ReplicaLimits
from logstore.model import NO_INDEX, NO_TERM, EntryKind, Index, Lsn, Term
from logstore.raft.effects import Accepted, AdmissionClosed, Admit, Committed, Flushed, TermEnded
from logstore.session.grants import SessionLimits
from logstore.session.session import Refused, Session, WindowRow
from logstore.session.table import OpenRequest, SessionTable
from logstore.storage.log_reader import BelowLogStart

_log = logging.getLogger(__name__)

# A log this close to the last LSN admits no batch any more. None gets there: a log begins in the
# lower half of all LSNs, and at 10**9 payloads/s these LSNs would last for two years.
_LSNS_KEPT = 1 << 56
_EXPIRED_AT_A_TIME = 4

NOT_OPEN = Refused(ErrorCode.NOT_LEADER, 0, "this replica does not lead")
APPENDS_COME_FIRST = Refused(ErrorCode.OVERLOADED, 0, "appends come first: ask again")


_NO_OUTCOME = Outcome()


class Admission:
    """Admission of one replica. `table` is not None while a gen is open."""

    def __init__(
        self,
        proposals: Proposals,
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
    ) -> None:
        self.proposals = proposals
        self._session_limits = session_limits
        self._open_log = open_log
        self._clock = clock
        self._slots = slots
        self._to_raft = to_raft
        self._observer = observer
        self._rebuild: Rebuild | None = None
        self._damage_seen_at: Index | None = None
        self._term = NO_TERM
        self._office_offset_ns = 0  # wall clock less monotonic clock when the term was admitted
        self._commit = NO_INDEX  # by Committed of self._term
        self._heard = Committed(NO_TERM, NO_INDEX)
        self._ready_index = NO_INDEX
        self.takes_batches = True
        self._snapshots = Snapshots(
            every_entries=replica_limits.snapshot_every_entries,
            every_batches=replica_limits.snapshot_every_batches,
            part_max_bytes=snapshot_part_max_bytes,
        )
        self._expiry = Expiry(session_expiry_ns, idle_min_ns=replica_limits.session_idle_min_ns)
        self._requests_max = replica_limits.requests_before_appends_max
        self._committed_ns = 0  # timestamp of the newest entry that is known to be committed
        self._requests_taken = 0  # since a batch could be read
        self._flush_waits = FlushWaits()
        self.retries = Retries()
        self._gapped: dict[int, tuple[int, Route]] = {}  # E9: producer → (epoch, route) of its Gap
        self.table: SessionTable | None = None
        self.trimmed = NO_START  # all up to it is given up, here or soon

    @property
    def is_rebuilding(self) -> bool:
        return self._rebuild is not None

    @property
    def is_ready(self) -> bool:
        """The gen is open, and every entry that the table was rebuilt from is committed, the term's
        no-op included (E9)."""
        return self.table is not None and self._commit >= self._ready_index

    # --- messages from raft ---

    def admit(self, admit: Admit) -> None:
        """A gen opens: rebuild the table first, then propose."""
        self._drop_table()
        if admit.term != self._term:
            self._term = admit.term
            self._office_offset_ns = self._clock_offset_ns()
            heard = self._heard
            self._commit = heard.index if heard.term == admit.term else NO_INDEX
        self.takes_batches = self._snapshots.takes_batches = admit.takes_batches
        self.proposals.open(admit.term, admit.gen)
        self._damage_seen_at = None
        self._begin_rebuild(admit)

    def _begin_rebuild(self, admit: Admit) -> None:
        self._rebuild = Rebuild(
            admit,
            SessionTable(self._session_limits),
            open_log=self._open_log,
            clock=self._clock,
            slots=self._slots,
        )

    def accept(self, accepted: Accepted) -> None:
        group = self.proposals.accept(accepted)
        self._flush_waits.add(group)
        table = self.table
        if table is None:
            return
        last_id = 0
        for producer_id, _, _, _ in group.origins:
            if producer_id != last_id:
                last_id = producer_id
                note_use(table, producer_id, group.timestamp_ns)
        if group.producer_id:
            note_use(table, group.producer_id, group.timestamp_ns)

    def commit(self, committed: Committed) -> Outcome:
        """What was accepted in this term up to the index is committed."""
        self._heard = committed
        if committed.term != self._term or committed.index <= self._commit:
            return _NO_OUTCOME
        self._commit = committed.index
        slots = self._slots
        groups = self.proposals.commit(committed.index)
        for group in groups:
            self._committed_ns = group.timestamp_ns
            group.count_committed(slots)
        if self.table is not None:
            self.table.commit = self._commit
            self._snapshots.committed(self._kept_index)
        return Outcome(committed=groups, retries=self.retries.take_committed(self._commit))

    def flushed(self, flushed: Flushed) -> Sequence[Origin]:
        """This leader's own disk has it: the batches that are provisional now (E10)."""
        return self._flush_waits.take(flushed.index) if flushed.term == self._term else ()

    def close(self, closed: AdmissionClosed) -> Outcome:
        """The gen ends. What raft accepted of it may still be committed in this term; the rest is
        not in the log and never will be."""
        forgotten = self.proposals.close(closed)
        self.retries.forget_unaccepted()
        self._drop_table()
        return Outcome(forgotten=forgotten)

    def end_term(self, ended: TermEnded) -> Outcome:
        """Forget what is pending (E4)."""
        if ended.term != self._term:
            return _NO_OUTCOME
        forgotten = self.proposals.end_term()
        self._flush_waits.forget()
        self.retries.clear()
        self._drop_table()
        self._term, self._commit = NO_TERM, NO_INDEX
        return Outcome(forgotten=forgotten)

    def _drop_table(self) -> None:
        if self._rebuild is not None:
            self._rebuild.close()
            self._rebuild = None
        self.table = None
        self._gapped.clear()
        self._expiry.clear()
        self._snapshots.forget()

    # --- the work of a loop ---

    def rebuild(self, now_ns: int, *, is_up_to_date: bool) -> int:
        """Do one slice of a rebuild, if one is under way; returns how much was done.

        An entry is reported as damaged only when it reads as damaged a second time, after all
        messages from raft were read: a new leader's truncation looks the same, and TermEnded is
        sent before it.

        Args:
          is_up_to_date: this do_work has read all messages from raft.
        """
        rebuild = self._rebuild
        if rebuild is None:
            return 0
        before = rebuild.progress
        try:
            is_done = rebuild.step()
        except BelowLogStart:
            # A TRIM reaches above the snapshot that the walk began at: a newer one is damaged here.
            # The walk from log start on meets it.
            rebuild.close()
            self._begin_rebuild(rebuild.admit)
            return 1
        except CorruptData as damage:
            index = rebuild.next_index
            if not (is_up_to_date and self._damage_seen_at == index):
                self._damage_seen_at = index
                return 1
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
        self._snapshots.begin_at(rebuild.table, rebuild.since, snapshot=rebuild.snapshot_index)
        self._committed_ns = rebuild.timestamp_ns  # committed once `is_ready`, not read before
        self._requests_taken = 0
        self.trimmed = rebuild.trimmed
        self.proposals.begin_at(rebuild.next_lsn)
        self.table = rebuild.table
        self.table.commit = self._commit
        self._expiry.begin(self.table, now_ns)
        parts, passed_over = rebuild.snapshot_parts, rebuild.passed_over
        self._observer.saw(AdmissionOpened(rebuild.admit.gen, self.table, parts, passed_over))
        _log.info("admission is open in term %d with %d sessions", self._term, len(self.table))

    def update_counters(self) -> None:
        """Show the number of sessions and the bytes lent; called once in a do_work."""
        table, slots = self.table, self._slots
        slots[Counter.SESSIONS] = 0 if table is None else len(table)
        slots[Counter.SESSION_NAMES_KEPT] = 0 if table is None else table.kept_count
        slots[Counter.CLIENT_BYTES_LENT] = self.proposals.lent_bytes

    def propose(self) -> int:
        """Add the next part of a snapshot if one is due and possible, then propose groups."""
        if self.table is None:
            return 0
        snapshots, proposals = self._snapshots, self.proposals
        if snapshots.is_due and not proposals.is_held_back:
            # The first part waits until every batch has its LSNs, for they are in it; the others
            # wait for room only.
            if snapshots.is_under_way or proposals.has_all_lsns:
                part = snapshots.next_part(self.table, self._term)
                if part is None:
                    return 1  # postponed: batches are read again
                snapshots.proposed(proposals.add_entry(EntryKind.SESSION, part))
        elif self.takes_batches and self.is_ready and self.may_take_request:
            self._expire(self.table)
        proposed = proposals.propose()
        snapshots.count_entries(proposed)
        return proposed

    @property
    def has_next_part(self) -> bool:
        """Another part of a snapshot can be proposed now; batches wait for the last one."""
        return self._snapshots.is_under_way and not self.proposals.is_held_back

    @property
    def room_bytes(self) -> int:
        """Bytes of batches that may be read now. It is 0 while disks are full (S9), and while a
        snapshot is due: nothing may change the table until it is in the stream (E6)."""
        is_closed = self._snapshots.is_due or not self.takes_batches
        return 0 if is_closed else self.proposals.room_bytes

    @property
    def may_take_request(self) -> bool:
        """Whether a request may change the table now: no snapshot is due, and few requests were
        taken since a batch could be read. So requests, however many come, do not hold up
        appends."""
        is_their_turn = self._requests_taken < self._requests_max or not self.takes_batches
        return is_their_turn and not self._snapshots.is_due

    def appends_had_their_turn(self) -> None:
        """A batch could be read now, whether or not there was one. Hot."""
        self._requests_taken = 0

    # --- batches ---

    def take_batch(
        self, push: Push, batch: memoryview, now_ns: int
    ) -> Origin | Refused | Held | None:
        """Add a batch to the stream if it is new. Hot: one call a batch.

        Returns:
          What to answer its producer now: an Origin, it is committed, or a refusal. None: nothing
          yet. Held: it is not taken, offer it again.
        """
        table = self.table
        if table is None:
            return NOT_OPEN
        header = push.header
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        verdict = table.offer(
            producer_id, producer_epoch, header.sequence, header.count, header.crc
        )
        if isinstance(verdict, WindowRow):
            origin = (producer_id, producer_epoch, push.route, verdict)
            group = self.proposals.join(batch, origin, push.sizes)
            if producer_id in table.other_levels:
                mark(group, origin, table.other_levels[producer_id])
            self._snapshots.count(len(batch))
            self._expiry.used_ns[producer_id] = now_ns
            return None
        self._expiry.heard_of(table, producer_id, producer_epoch, now_ns)
        is_other_level = producer_id in table.other_levels
        if isinstance(verdict, Refused):
            if is_other_level and verdict.code in UNTOLD:
                return UNTOLD[verdict.code]
            return self._refused(push, verdict)
        row = verdict.row
        self._observer.saw(RetryKnown(row.is_committed(self._commit)))
        if is_other_level:
            return None  # its level sends nothing twice (E10)
        asked = producer_id, producer_epoch, push.route, row
        if row.is_committed(self._commit):
            return asked
        self.retries.await_commit(asked)
        return None

    def _refused(self, push: Push, refused: Refused) -> Refused | None:
        """E9: one Gap answer per (producer, route)."""
        if refused.code is ErrorCode.GAP:
            header = push.header
            answered = (header.producer_epoch, push.route)
            if self._gapped.get(header.producer_id) == answered:
                return None
            self._gapped[header.producer_id] = answered
        return refused

    def take_import(self, batch: memoryview, origin: Origin, sizes: BatchSizes) -> Refused | None:
        """Add a batch of another log to the stream, if this log ends at the LSN that the batch is
        to have, which is its row's sequence."""
        table = self.table
        if table is None:
            return NOT_OPEN
        if table.is_used:
            return Refused(ErrorCode.IMPORT_REFUSED, 0, "the log has sessions")
        end_lsn = self.proposals.end_lsn
        if origin[3].sequence != end_lsn:
            return Refused(ErrorCode.GAP, end_lsn, "the log ends elsewhere")
        self.take_raw(batch, origin, sizes)
        return None

    def take_raw(self, batch: memoryview, origin: Origin, sizes: BatchSizes) -> None:
        """Add a batch that is of no session to the stream."""
        self.proposals.join(batch, origin, sizes, EntryKind.IMPORT)
        self._snapshots.count(len(batch))

    # --- sessions and cursors ---

    def heard_of(self, producer_id: int, now_ns: int) -> None:
        """The producer of an open session asks for it, or for what is refused: it is not idle."""
        self._expiry.used_ns[producer_id] = now_ns

    def decide_open(
        self, request: OpenRequest, random_u64: Callable[[], int], now_ns: int
    ) -> OpenEntry | Refused:
        """The OPEN entry for a request (E8), or why there is none. To make room for it, the session
        without a name that was idle longest ends."""
        table = self.table
        if table is None or not self.takes_batches:
            return NOT_OPEN
        if refused := why_refused(request, self.level if self.is_ready else None):
            return refused
        if not self.may_take_request:
            return APPENDS_COME_FIRST
        entry = table.decide_open(request, random_u64())
        while isinstance(entry, Refused) and entry.code is ErrorCode.OVERLOADED:
            idlest = self._expiry.idlest_nameless(table, now_ns)
            if idlest is None:
                break
            self.take(idlest)
            entry = table.decide_open(request, random_u64())
        return entry

    def take_open(self, entry: OpenEntry, now_ns: int) -> tuple[Session, Group]:
        """Apply an OPEN to the table and add it to the stream."""
        session = self._open_table.apply_open(entry)
        self._gapped.pop(entry.producer_id, None)
        self._expiry.used_ns[entry.producer_id] = now_ns
        return session, self._add_entry(EntryKind.OPEN, encode_open(entry), entry.producer_id)

    # --- the log start ---

    @property
    def trimmed_lsn(self) -> Lsn:
        """The first LSN that is not given up, here or soon."""
        return self.trimmed.next_lsn

    @property
    def gen(self) -> tuple[Term, int] | None:
        """Which gen may propose a TRIM now; None: none may."""
        return self.proposals.gen if self.is_ready else None

    @property
    def snapshot_index(self) -> Index:
        """The first part of the newest SESSION snapshot that is committed and in this replica's
        files; NO_INDEX: there is none."""
        self._snapshots.committed(self._kept_index)
        return self._snapshots.committed_index

    @property
    def _kept_index(self) -> Index:
        """Up to here everything is committed, in this term, and in this replica's files."""
        return Index(min(self._commit, self._slots[Counter.VISIBLE_INDEX]))

    def want_snapshot(self) -> bool:
        """Have a snapshot taken now, because the newest one is in the way of a TRIM. False: another
        one is on its way to be committed, or would say the same."""
        return self._snapshots.want()

    @property
    def snapshot_most_bytes(self) -> int:
        """What a snapshot takes of segments at most if it is wanted now; 0: one is on its way."""
        return 0 if self.table is None else self._snapshots.most_bytes(self.table)

    @property
    def clock_drift_ns(self) -> int:
        """By how much the wall clock has moved against the monotonic one since this replica began
        to lead (G2)."""
        return self._clock_offset_ns() - self._office_offset_ns

    def _clock_offset_ns(self) -> int:
        return self._clock.wall_ns() - self._clock.monotonic_ns()

    @property
    def term(self) -> Term:
        """That this replica leads, or led last; NO_TERM: none."""
        return self._term

    @property
    def level(self) -> int:
        """The committed log's format level; while `is_ready`, for only a Committed of this term
        says it (S11)."""
        return self._heard.level

    def take(self, entry: ExpireEntry | Cursor | TrimEntry) -> Group:
        """Apply the end of a session, or the change of a cursor, to the table and add it to the
        stream; so with a TRIM, which changes no table."""
        table = self._open_table
        if isinstance(entry, TrimEntry):
            self._requests_taken += 1
            self.trimmed = max(self.trimmed, entry.start, key=lambda start: start.index)
            return self.proposals.add_entry(EntryKind.TRIM, encode_trim(entry))
        if isinstance(entry, Cursor):
            table.cursors.apply(entry)
            return self._add_entry(EntryKind.CURSOR, encode_cursor(entry))
        table.apply_expire(entry)
        self._gapped.pop(entry.producer_id, None)
        self._expiry.used_ns.pop(entry.producer_id, None)
        return self._add_entry(EntryKind.EXPIRE, encode_expire(entry))

    @property
    def _open_table(self) -> SessionTable:
        if self.table is None or self._snapshots.is_under_way:
            raise InvariantViolated("the table changes without a gen, or amid a snapshot of it")
        return self.table

    def _add_entry(self, kind: EntryKind, body: bytes, producer_id: int = 0) -> Group:
        self._requests_taken += 1
        self._snapshots.count(len(body))
        return self.proposals.add_entry(kind, body, producer_id)

    def _expire(self, table: SessionTable) -> None:
        """End some of the sessions that were idle for longer than `session_expiry`."""
        for entry in self._expiry.due(table, self._committed_ns, self._clock, _EXPIRED_AT_A_TIME):
            _log.info("producer %d was idle for too long: its session ends", entry.producer_id)
            self.take(entry)
