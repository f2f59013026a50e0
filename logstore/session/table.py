"""The session table: which batches are new, which are known, which are refused (SAFETY E1, E2, E7).

Owns every session of one gen of one leader, and its `cursors`. It changes when something is
proposed. So rows exist before their LSNs are known, and a retry finds its first copy in flight
(FAULTS K2); `assign_lsns` adds the LSNs. Must not know time, randomness or where bytes come from.

Invariants:
  * the table equals the fold of the log up to the last accepted proposal (FAULTS I17);
  * a row leaves a window only once it is committed, so "below the window" always means committed;
  * a snapshot can hold all of it: no sequence is above SEQUENCE_MAX;
  * a name that must not repeat its sequences outlives its session: the numbers of a monotone
    session that was idle for too long are kept, and whoever opens the name continues after them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator

import msgspec

from logstore.errors import ErrorCode, InvariantViolated
from logstore.format.session_entries import ExpireEntry, OpenEntry
from logstore.format.session_snapshot import KeptName
from logstore.limits import SESSION_NAME_MAX_BYTES, SESSION_WINDOW_MIN
from logstore.model import NO_INDEX, AckLevel, Index, Lsn, SequenceMode
from logstore.session.cursors import CursorTable
from logstore.session.grants import SessionLimits, grant
from logstore.session.session import SEQUENCE_MAX, Duplicate, Refused, Session, WindowRow

EPOCH_MAX = (1 << 32) - 1
_ACK_LEVELS = frozenset(AckLevel)


class OpenRequest(msgspec.Struct, frozen=True):
    """What a producer asks for (E8). Id 0 and no name: a new producer; window 0:
    as large as possible."""

    producer_id: int
    mode: int
    ack_level: int
    window: int
    name: bytes


class SessionTable:
    """Sessions by producer id. `commit` is the highest index known to be committed in this term."""

    def __init__(self, session_limits: SessionLimits) -> None:
        self._limits = session_limits
        self._sessions: dict[int, Session] = {}
        self._ids_by_name: dict[bytes, int] = {}  # of sessions, and of names kept
        self._kept: dict[int, KeptName] = {}  # by producer id
        self._ids: list[int] = []  # of both, rising
        self._extra_rows = 0  # of all windows, above the least one
        # By producer id: of sessions whose level is not QUORUM. Mostly there are none (E10).
        self.other_levels: dict[int, int] = {}
        self.cursors = CursorTable()
        self.commit = NO_INDEX

    def __len__(self) -> int:
        return len(self._sessions)

    def sessions(self) -> Iterator[Session]:
        """Every session, by producer id."""
        return (self._sessions[key] for key in sorted(self._sessions))

    @property
    def row_count(self) -> int:
        """The rows of all windows: 1 ms for 12,288 sessions."""
        return sum(len(session.rows) for session in self._sessions.values())

    def get(self, producer_id: int) -> Session | None:
        return self._sessions.get(producer_id)

    def known(self, producer_id: int) -> Session | None:
        """The session of this id, or what is kept of it as a session without a
        window. Not to be changed."""
        kept = self._kept.get(producer_id)
        return self._sessions.get(producer_id) if kept is None else _session_of(kept)

    def ids_above(self, producer_id: int, count: int) -> list[int]:
        """The lowest producer ids above this one, rising, of sessions and of what is kept.

        A page of a list takes 0.4 ms. With a search through all of 28,672 ids it took 2 ms, and
        ingress answers up to 256 pages in one do_work (2026-11-22).
        """
        first = bisect_right(self._ids, producer_id)
        return self._ids[first : first + count]

    def kept(self) -> tuple[KeptName, ...]:
        """What is kept of sessions that were idle for too long, by producer id."""
        return tuple(self._kept[key] for key in sorted(self._kept))

    @property
    def kept_count(self) -> int:
        return len(self._kept)

    @property
    def is_used(self) -> bool:
        """Whether there is any session or kept name."""
        return bool(self._sessions or self._kept)

    # --- batches ---

    def offer(
        self, producer_id: int, producer_epoch: int, sequence: int, count: int, crc: int
    ) -> WindowRow | Duplicate | Refused:
        """Add the batch if it is new. Hot: one call a batch.

        Args:
          crc: the header's, which covers every byte of the batch but itself, so equal CRCs mean
            equal bytes.

        Returns:
          The new row, which the caller now must propose; or what is known of the batch.
        """
        session = self._sessions.get(producer_id)
        if (
            session is None
            or session.producer_epoch != producer_epoch
            or session.next_sequence != sequence
            or sequence > SEQUENCE_MAX
            or (
                len(session.rows) >= session.window_max
                and not 0 < next(iter(session.rows.values())).index <= self.commit
            )
        ):
            verdict = self.check(producer_id, producer_epoch, sequence, count, crc)
            if verdict is not None:
                return verdict
            session = self._sessions[producer_id]
        row = WindowRow(sequence, count, crc)
        session.add(row)
        return row

    def check(
        self, producer_id: int, producer_epoch: int, sequence: int, count: int, crc: int
    ) -> Duplicate | Refused | None:
        """What is known of the batch; None: it is new. Changes nothing."""
        session = self._fenced(producer_id, producer_epoch)
        if isinstance(session, Refused):
            return session
        if sequence < session.next_sequence:
            return _known(session, sequence, count, crc)
        if session.is_dense and sequence > session.next_sequence:
            return Refused(
                ErrorCode.GAP, session.next_sequence, f"expected sequence {session.next_sequence}"
            )
        if sequence > SEQUENCE_MAX:
            return Refused(ErrorCode.INVALID_BATCH, 0, "the sequence is above 2**63 - 2")
        if len(session.rows) >= session.window_max:
            oldest = next(iter(session.rows.values()))
            if not oldest.is_committed(self.commit):
                return Refused(
                    ErrorCode.OVERLOADED,
                    0,
                    f"{session.window_max} batches of this session are unresolved (E7): wait",
                )
        return None

    def state_of(self, producer_id: int, producer_epoch: int) -> Session | Refused:
        """The session for a SessionState answer (E9). Its rows are not to be changed."""
        return self._fenced(producer_id, producer_epoch)

    def named(self, name: bytes) -> Session | None:
        """The session of this name, or of a kept name as one without a
        window. Not to be changed."""
        return self.known(self._ids_by_name.get(name, 0))

    def _fenced(self, producer_id: int, producer_epoch: int) -> Session | Refused:
        session = self._sessions.get(producer_id)
        if session is None:
            return Refused(
                ErrorCode.UNKNOWN_PRODUCER,
                0,
                "no such session, or it was idle for too long: open one",
            )
        if producer_epoch < session.producer_epoch:
            text = f"producer epoch {session.producer_epoch} of this producer exists"
            return Refused(ErrorCode.FENCED, session.producer_epoch, text)
        if producer_epoch > session.producer_epoch:
            text = f"producer epoch {producer_epoch} was never opened"
            return Refused(ErrorCode.UNKNOWN_PRODUCER, 0, text)
        return session

    # --- opening and expiry ---

    def decide_open(self, request: OpenRequest, new_producer_id: int) -> OpenEntry | Refused:
        """The OPEN entry for a request (E8), or why there is none. Changes nothing.

        Args:
          new_producer_id: random, not 0, used if the request is a new producer's.
        """
        refused = _open_fault(request)
        if refused is not None:
            return refused
        producer_id = (
            self._ids_by_name.get(request.name, 0) if request.name else request.producer_id
        )
        if request.producer_id and producer_id not in (0, request.producer_id):
            return _invalid("this name belongs to another producer id: send one of the two")
        session = self.known(producer_id or request.producer_id)
        if session is None:
            if request.producer_id:
                return Refused(ErrorCode.UNKNOWN_PRODUCER, 0, "no such producer id: open without")
            if not new_producer_id or self.known(new_producer_id) is not None:
                return Refused(ErrorCode.OVERLOADED, 0, "the new producer id is taken: ask again")
        elif request.mode != session.mode:
            return _invalid(f"this producer's mode is {session.mode.name}, and stays so")
        elif session.producer_epoch == EPOCH_MAX:
            return _invalid("this producer has no epoch left: open a new one")
        return self._open_entry(request, session, new_producer_id)

    def _open_entry(
        self, request: OpenRequest, session: Session | None, new_producer_id: int
    ) -> OpenEntry | Refused:
        others, extra_rows, floor = len(self._sessions), self._extra_rows, 0
        if session is not None and session.producer_id in self._sessions:
            others, extra_rows = others - 1, extra_rows - _extra_rows_of(session)
            floor = 0 if session.is_dense else session.window_max
        granted = grant(
            self._limits,
            others=others,
            extra_rows=extra_rows,
            requested=self._requested(request),
            floor=floor,
        )
        if granted is None:
            text = f"the log has {others} sessions, as many as it may: end one, or ask later"
            return Refused(ErrorCode.OVERLOADED, 0, text)
        return OpenEntry(
            producer_id=session.producer_id if session is not None else new_producer_id,
            producer_epoch=session.producer_epoch + 1 if session is not None else 1,
            mode=request.mode,
            ack_level=request.ack_level,
            window=granted.window,
            window_bytes=granted.window_bytes,
            name=session.name if session is not None else request.name,
        )

    def _requested(self, request: OpenRequest) -> int:
        """The window to grant if it can be; 0: as large as may be."""
        if request.ack_level == AckLevel.QUORUM or not request.window:
            return request.window
        return max(request.window, self._limits.provisional_window_min)

    def apply_open(self, entry: OpenEntry, timestamp_ns: int = 0) -> Session:
        """Apply an OPEN entry that is proposed: the session, or its next epoch, begins.

        Args:
          timestamp_ns: the entry's; 0: not known yet.

        Raises:
          InvariantViolated: the entry does not follow from the table.
        """
        old = self.known(entry.producer_id)
        if entry.producer_epoch != (old.producer_epoch if old is not None else 0) + 1:
            raise InvariantViolated(f"OPEN of epoch {entry.producer_epoch} follows {old}")
        mode = SequenceMode(entry.mode)
        keeps_history = old is not None and mode is SequenceMode.MONOTONE
        session = Session(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            mode=mode,
            ack_level=entry.ack_level,
            window_max=entry.window,
            window_bytes=entry.window_bytes,
            name=entry.name,
            next_sequence=old.next_sequence if old is not None and keeps_history else 0,
            rows=old.rows if old is not None and keeps_history else OrderedDict(),
            last_used_ns=timestamp_ns,
        )
        self._kept.pop(entry.producer_id, None)
        self.put(session)
        return session

    def can_expire(self, session: Session) -> bool:
        """Whether the session may expire: all of it is committed, and there is room to keep its
        numbers if its name must not repeat them."""
        is_kept = _is_kept(session)
        has_room = not is_kept or len(self._kept) < self._limits.kept_names_max
        return has_room and all(row.is_committed(self.commit) for row in session.rows.values())

    def decide_end(self, producer_id: int) -> ExpireEntry | Refused:
        """The EXPIRE entry with which an operator ends a session, or forgets what is kept of it: a
        producer that opens the name then starts over. Changes nothing."""
        session = self.known(producer_id)
        if session is None:
            text = f"there is no session of producer {producer_id}: list the sessions"
            return Refused(ErrorCode.UNKNOWN_PRODUCER, 0, text)
        if not all(row.is_committed(self.commit) for row in session.rows.values()):
            text = "batches of this session are not committed yet: stop its producer, ask again"
            return Refused(ErrorCode.OVERLOADED, 0, text)
        return ExpireEntry(session.producer_id, session.producer_epoch)

    def apply_expire(self, entry: ExpireEntry) -> None:
        """Apply an EXPIRE entry that is proposed.

        Raises:
          InvariantViolated: there is no such session.
        """
        session = self.known(entry.producer_id)
        if session is None or session.producer_epoch != entry.producer_epoch:
            raise InvariantViolated(f"{entry} does not follow {session}")
        if self._sessions.pop(entry.producer_id, None) is not None:
            self._extra_rows -= _extra_rows_of(session)
            self.other_levels.pop(entry.producer_id, None)
        self._kept.pop(entry.producer_id, None)
        if session.name:
            del self._ids_by_name[session.name]
        if entry.is_kept and _is_kept(session):
            self.keep(
                KeptName(
                    session.producer_id, session.producer_epoch, session.next_sequence, session.name
                )
            )
        else:
            del self._ids[bisect_left(self._ids, entry.producer_id)]

    def keep(self, kept: KeptName) -> None:
        """Store what stays of a session; only for expiry and for reading a snapshot back."""
        self._add_id(kept.producer_id)
        self._kept[kept.producer_id] = kept
        self._ids_by_name[kept.name] = kept.producer_id

    def put(self, session: Session) -> None:
        """Store a whole session; only for opening and for reading a snapshot back."""
        if len(session.rows) > session.window_max:
            raise InvariantViolated(f"a window of {session.window_max} holds {len(session.rows)}")
        old = self._sessions.get(session.producer_id)
        if old is not None:
            self._extra_rows -= _extra_rows_of(old)
        self._extra_rows += _extra_rows_of(session)
        self._add_id(session.producer_id)
        self._sessions[session.producer_id] = session
        if session.name:
            self._ids_by_name[session.name] = session.producer_id
        self.other_levels.pop(session.producer_id, None)
        if session.ack_level != AckLevel.QUORUM:
            self.other_levels[session.producer_id] = session.ack_level

    def clear(self) -> None:
        self._sessions.clear()
        self._ids_by_name.clear()
        self._kept.clear()
        self._ids.clear()
        self._extra_rows = 0
        self.other_levels.clear()
        self.cursors.clear()

    def _add_id(self, producer_id: int) -> None:
        place = bisect_left(self._ids, producer_id)
        if self._ids[place : place + 1] != [producer_id]:
            self._ids.insert(place, producer_id)


def _is_kept(session: Session) -> bool:
    """Whether numbers must be kept. Dense sequences start over with each epoch, and a session
    without a name cannot come back."""
    return bool(session.name) and not session.is_dense


def _extra_rows_of(session: Session) -> int:
    return max(0, session.window_max - SESSION_WINDOW_MIN)


def _session_of(kept: KeptName) -> Session:
    return Session(
        producer_id=kept.producer_id,
        producer_epoch=kept.producer_epoch,
        mode=SequenceMode.MONOTONE,
        ack_level=AckLevel.QUORUM,
        window_max=SESSION_WINDOW_MIN,
        window_bytes=0,
        name=kept.name,
        next_sequence=kept.next_sequence,
        rows=OrderedDict(),
    )


def assign_lsns(rows: Iterable[WindowRow], index: Index, first_lsn: Lsn) -> Lsn:
    """Give the batches of an accepted group, in order, their LSNs; returns the next. Hot."""
    lsn = first_lsn
    for row in rows:
        row.index = index
        row.first_lsn = lsn
        lsn = Lsn(lsn + row.count)
    return lsn


def _known(session: Session, sequence: int, count: int, crc: int) -> Duplicate | Refused:
    row = session.rows.get(sequence)
    if row is None:
        text = "committed, but its LSNs have left the session's window"
        return Refused(ErrorCode.COMMITTED_LSN_UNKNOWN, 0, text)
    if session.is_dense and (row.crc != crc or row.count != count):
        text = f"sequence {sequence} was used for other bytes"
        return Refused(ErrorCode.SEQUENCE_REUSED, 0, text)
    return Duplicate(row)


def _open_fault(request: OpenRequest) -> Refused | None:
    if request.mode not in (SequenceMode.DENSE, SequenceMode.MONOTONE):
        return _invalid(f"sequence mode {request.mode}: send 1 (dense) or 2 (monotone)")
    if request.ack_level not in _ACK_LEVELS:
        return _invalid(f"ack level {request.ack_level}: send 1 (quorum), 2 (leader) or 3 (none)")
    if request.ack_level != AckLevel.QUORUM and request.mode != SequenceMode.DENSE:
        return _invalid("a monotone session has ack level 1 (quorum): no other says what is stored")
    if len(request.name) > SESSION_NAME_MAX_BYTES:
        return _invalid(f"a session name has at most {SESSION_NAME_MAX_BYTES} bytes")
    try:
        request.name.decode()
    except UnicodeDecodeError:
        return _invalid("a session name is UTF-8")
    return None


def _invalid(text: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, 0, text)
