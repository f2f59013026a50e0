"""The session table: which batches are new, which are known, which are refused (SAFETY E1, E2, E7).

Owns every session of one gen of one leader, and the `cursors`, which ride along. It is changed at
the moment something enters the stream of proposals, so rows exist before their LSNs are known and a
retry finds its first copy in flight (FAULTS K2); `assign_lsns` fills the LSNs in. Must not know
time, randomness or where bytes come from.

Invariants:
  * the table equals the fold of the log up to the last accepted proposal (FAULTS I17);
  * a row leaves a window only once it is committed, so "below the window" always means committed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

import msgspec

from logstore.errors import ErrorCode, InvariantViolated
from logstore.format.session_entries import ExpireEntry, OpenEntry
from logstore.limits import POSITION_MAX, SESSION_NAME_MAX_BYTES
from logstore.model import NO_INDEX, AckLevel, Index, Lsn, SequenceMode
from logstore.session.cursors import CursorTable
from logstore.session.grants import SessionLimits, grant
from logstore.session.session import Duplicate, Refused, Session, WindowRow

SEQUENCE_MAX = POSITION_MAX - 1
EPOCH_MAX = (1 << 32) - 1


class OpenWish(msgspec.Struct, frozen=True):
    """What a producer asks for (E8): id 0 and no name is a new producer; window 0: as large as
    may be.
    """

    producer_id: int
    mode: int
    ack_level: int
    window: int
    name: bytes


class SessionTable:
    """Sessions by producer id. `commit` is the highest index known to be committed in this term."""

    def __init__(self, limits: SessionLimits) -> None:
        self._limits = limits
        self._sessions: dict[int, Session] = {}
        self._ids_by_name: dict[bytes, int] = {}
        self.cursors = CursorTable()
        self.commit = NO_INDEX

    def __len__(self) -> int:
        return len(self._sessions)

    def sessions(self) -> Iterator[Session]:
        """Every session, by producer id."""
        return (self._sessions[key] for key in sorted(self._sessions))

    def get(self, producer_id: int) -> Session | None:
        return self._sessions.get(producer_id)

    # --- batches ---

    def offer(
        self, producer_id: int, producer_epoch: int, sequence: int, count: int, crc: int
    ) -> WindowRow | Duplicate | Refused:
        """Take the batch in if it is new. Hot: one call a batch.

        Args:
          crc: the header's, which covers every byte of the batch but itself: equal means same
            bytes.

        Returns:
          The new row, which the caller now must propose; or what is known of the batch.
        """
        session = self._sessions.get(producer_id)
        if (
            session is None
            or session.producer_epoch != producer_epoch
            or session.next_sequence != sequence
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
        """The session for a SessionState answer (E9); its rows are not to be changed."""
        return self._fenced(producer_id, producer_epoch)

    def named(self, name: bytes) -> Session | None:
        """The session of this name; it is not to be changed."""
        return self._sessions.get(self._ids_by_name.get(name, 0))

    def _fenced(self, producer_id: int, producer_epoch: int) -> Session | Refused:
        session = self._sessions.get(producer_id)
        if session is None:
            return Refused(ErrorCode.UNKNOWN_PRODUCER, 0, "no such session: open one")
        if producer_epoch < session.producer_epoch:
            text = f"producer epoch {session.producer_epoch} of this producer exists"
            return Refused(ErrorCode.FENCED, session.producer_epoch, text)
        if producer_epoch > session.producer_epoch:
            text = f"producer epoch {producer_epoch} was never opened"
            return Refused(ErrorCode.UNKNOWN_PRODUCER, 0, text)
        return session

    # --- opening and expiry ---

    def decide_open(self, wish: OpenWish, new_producer_id: int) -> OpenEntry | Refused:
        """The OPEN entry for a request (E8), or why there is none. Changes nothing.

        Args:
          new_producer_id: random, not 0, used if the request is a new producer's.
        """
        refused = _bad_wish(wish)
        if refused is not None:
            return refused
        producer_id = self._ids_by_name.get(wish.name, 0) if wish.name else wish.producer_id
        if wish.producer_id and producer_id not in (0, wish.producer_id):
            return _invalid("this name belongs to another producer id: send one of the two")
        session = self._sessions.get(producer_id or wish.producer_id)
        if session is None:
            if wish.producer_id:
                return Refused(ErrorCode.UNKNOWN_PRODUCER, 0, "no such producer id: open without")
            if new_producer_id in self._sessions or not new_producer_id:
                return Refused(ErrorCode.OVERLOADED, 0, "the new producer id is taken: ask again")
        elif wish.mode != session.mode:
            return _invalid(f"this producer's mode is {session.mode.name}, and stays so")
        elif session.producer_epoch == EPOCH_MAX:
            return _invalid("this producer has no epoch left: open a new one")
        return self._open_entry(wish, session, new_producer_id)

    def _open_entry(
        self, wish: OpenWish, session: Session | None, new_producer_id: int
    ) -> OpenEntry | Refused:
        name = session.name if session is not None else wish.name
        granted = grant(
            self._limits,
            (each for each in self._sessions.values() if each is not session),
            wished=wish.window,
            floor=session.window_max if session is not None and not session.is_dense else 0,
            name_size_bytes=len(name),
        )
        if granted is None:
            return Refused(ErrorCode.OVERLOADED, 0, "no memory for one more session: ask later")
        return OpenEntry(
            producer_id=session.producer_id if session is not None else new_producer_id,
            producer_epoch=session.producer_epoch + 1 if session is not None else 1,
            mode=wish.mode,
            ack_level=wish.ack_level,
            window=granted.window,
            window_bytes=granted.window_bytes,
            name=name,
        )

    def apply_open(self, entry: OpenEntry) -> Session:
        """An OPEN entry takes its place in the stream: the session begins, or its next epoch does.

        Raises:
          InvariantViolated: the entry does not follow from the table.
        """
        old = self._sessions.get(entry.producer_id)
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
        )
        self.put(session)
        return session

    def apply_expire(self, entry: ExpireEntry) -> None:
        """An EXPIRE entry takes its place in the stream.

        Raises:
          InvariantViolated: there is no such session.
        """
        session = self._sessions.pop(entry.producer_id, None)
        if session is None or session.producer_epoch != entry.producer_epoch:
            raise InvariantViolated(f"{entry} does not follow {session}")
        if session.name:
            del self._ids_by_name[session.name]

    def put(self, session: Session) -> None:
        """Store a whole session; only for opening and for reading a snapshot back."""
        if len(session.rows) > session.window_max:
            raise InvariantViolated(f"a window of {session.window_max} holds {len(session.rows)}")
        self._sessions[session.producer_id] = session
        if session.name:
            self._ids_by_name[session.name] = session.producer_id

    def clear(self) -> None:
        self._sessions.clear()
        self._ids_by_name.clear()
        self.cursors.clear()


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


def _bad_wish(wish: OpenWish) -> Refused | None:
    if wish.mode not in (SequenceMode.DENSE, SequenceMode.MONOTONE):
        return _invalid(f"sequence mode {wish.mode}: send 1 (dense) or 2 (monotone)")
    if wish.ack_level != AckLevel.QUORUM:
        return _invalid(f"ack level {wish.ack_level}: only 1 (quorum) is built")
    if len(wish.name) > SESSION_NAME_MAX_BYTES:
        return _invalid(f"a session name has at most {SESSION_NAME_MAX_BYTES} bytes")
    try:
        wish.name.decode()
    except UnicodeDecodeError:
        return _invalid("a session name is UTF-8")
    return None


def _invalid(text: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, 0, text)
