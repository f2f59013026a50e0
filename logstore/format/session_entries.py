"""Bodies of the entries that carry producer sessions: OPEN, EXPIRE and the SESSION snapshot.

Owns their bytes; what they mean is session's matter (SAFETY E1, E5, E6, E8). Each body is a
multiple of 8 long, has magic, version and CRC, and a bound on all it counts. Names are UTF-8.
Cursors came later than the snapshot: their number was reserved bytes, so that a snapshot without
any is the same as before.

OPEN                                          EXPIRE
  0 magic u32 'LOPN' │ version u16              0 magic u32 'LEXP' │ version u16 │ reserved u16 = 0
    │ mode u8 │ ack level u8                    8 producer_id u64
  8 producer_id u64                            16 producer_epoch u32 │ crc u32 (of [0, 20))
 16 producer_epoch u32 │ window u32            24 end
 24 name size u16 │ reserved u16 = 0
    │ crc u32 (of all but itself)
 32 window_bytes u64
 40 name, zeros to a multiple of 8

SESSION
  0 magic u32 'LSES' │ version u16 │ cursors u16
  8 body size u32 │ sessions u32
 16 window rows u32 (of all sessions) │ crc u32 (of all but itself)
 24 for each session:
      0 producer_id u64
      8 producer_epoch u32 │ mode u8 │ ack level u8 │ name size u16
     16 window u32 │ window rows u32 (of this session, at most its window)
     24 next_sequence u64 (the last one + 1; 0: none yet)
     32 window_bytes u64
     40 name, zeros to a multiple of 8
        window rows, rising: sequence u64 │ first_lsn u64 │ count u32 │ crc u32 (of the batch)
    for each cursor: its row, as in cursor_entries
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from logstore.errors import FormatError, InvalidRequest
from logstore.format.cursor_entries import Cursor, decode_cursors, encode_cursors
from logstore.format.entry_body import (
    ENTRY_BODY_MAX_BYTES,
    ENTRY_BODY_VERSION,
    check_body,
    padded_name,
    read_name,
    seal_body,
)
from logstore.format.fields import Buffer, check_room, magic_number, padding_size
from logstore.limits import (
    POSITION_MAX,
    SESSION_NAME_MAX_BYTES,
    SESSION_WINDOW_MAX,
    SESSION_WINDOW_SUM_MAX,
)
from logstore.model import AckLevel, Lsn, SequenceMode

OPEN_MAGIC = magic_number("LOPN")
EXPIRE_MAGIC = magic_number("LEXP")
SESSION_MAGIC = magic_number("LSES")
SESSION_SNAPSHOT_MAX_BYTES = ENTRY_BODY_MAX_BYTES
_OPEN = struct.Struct("<IHBBQIIHHIQ")
_EXPIRE = struct.Struct("<IHHQII")
_SNAPSHOT = struct.Struct("<IHHIIII")
_SESSION = struct.Struct("<QIBBHIIQQ")
_WINDOW_ROW = struct.Struct("<QQII")
_OPEN_CRC = 28
_EXPIRE_CRC = 20
_SNAPSHOT_CRC = 20
_MODES = frozenset(SequenceMode)
_ACK_LEVELS = frozenset(AckLevel)
_NAME = "session name"


class OpenEntry(msgspec.Struct, frozen=True, gc=False):
    """A producer opened a session, or its next producer epoch.

    `window` in batches, `window_bytes` in unacknowledged bytes (SAFETY W6). An empty name: none."""

    producer_id: int
    producer_epoch: int
    mode: int
    ack_level: int
    window: int
    window_bytes: int
    name: bytes


class ExpireEntry(msgspec.Struct, frozen=True, gc=False):
    """The session of this producer, which is in this producer epoch, is forgotten."""

    producer_id: int
    producer_epoch: int


class WindowRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A batch in a session's window; `crc` is the batch header's."""

    sequence: int
    first_lsn: Lsn
    count: int
    crc: int


class SessionRow(msgspec.Struct, frozen=True, gc=False):
    """One session: `next_sequence` is the last one + 1, `rows` the newest batches, oldest first."""

    producer_id: int
    producer_epoch: int
    mode: int
    ack_level: int
    window: int
    window_bytes: int
    next_sequence: int
    name: bytes
    rows: tuple[WindowRow, ...]


class SessionSnapshot(msgspec.Struct, frozen=True, gc=False):
    """The whole session table as all entries before this one leave it (SAFETY E6), and every
    cursor, rising by name."""

    sessions: tuple[SessionRow, ...]
    cursors: tuple[Cursor, ...] = ()


def session_size_max(window: int, name_size: int) -> int:
    """Bytes that a session with a full window takes of SESSION_SNAPSHOT_MAX_BYTES."""
    return _SESSION.size + name_size + padding_size(name_size) + window * _WINDOW_ROW.size


def encode_open(entry: OpenEntry) -> bytes:
    """The body of an OPEN entry.

    Raises:
      InvalidRequest: a session that no decoder would take.
    """
    _refuse(_session_fault(entry))
    fields = _OPEN.pack(
        OPEN_MAGIC, ENTRY_BODY_VERSION, entry.mode, entry.ack_level, entry.producer_id,
        entry.producer_epoch, entry.window, len(entry.name), 0, 0, entry.window_bytes,
    )  # fmt: skip
    return seal_body(fields + padded_name(entry.name), _OPEN_CRC)


def decode_open(body: Buffer) -> OpenEntry:
    """The OPEN entry whose body this is.

    Raises:
      UnsupportedVersion: a newer version of the body.
      FormatError: anything else than a whole, undamaged OPEN body.
    """
    check_body(body, OPEN_MAGIC, _OPEN.size, _OPEN_CRC, "OPEN")
    _, _, mode, ack_level, producer_id, epoch, window, name_size, reserved, _, window_bytes = (
        _OPEN.unpack_from(body)
    )
    name, end = read_name(body, _OPEN.size, name_size, _NAME)
    if reserved != 0 or end != len(body):
        raise FormatError(f"OPEN body of {len(body)} bytes, its name ends at {end}")
    entry = OpenEntry(producer_id, epoch, mode, ack_level, window, window_bytes, name)
    _refuse_read(_session_fault(entry))
    return entry


def encode_expire(entry: ExpireEntry) -> bytes:
    """The body of an EXPIRE entry.

    Raises:
      InvalidRequest: producer id 0, which is nobody's.
    """
    if entry.producer_id == 0:
        raise InvalidRequest("producer id 0 is nobody's")
    fields = _EXPIRE.pack(
        EXPIRE_MAGIC, ENTRY_BODY_VERSION, 0, entry.producer_id, entry.producer_epoch, 0
    )
    return seal_body(fields, _EXPIRE_CRC)


def decode_expire(body: Buffer) -> ExpireEntry:
    """The EXPIRE entry whose body this is.

    Raises:
      UnsupportedVersion: a newer version of the body.
      FormatError: anything else than a whole, undamaged EXPIRE body.
    """
    check_body(body, EXPIRE_MAGIC, _EXPIRE.size, _EXPIRE_CRC, "EXPIRE")
    _, _, reserved, producer_id, producer_epoch, _ = _EXPIRE.unpack_from(body)
    if reserved or producer_id == 0 or len(body) != _EXPIRE.size:
        raise FormatError(f"EXPIRE body of {len(body)} bytes for producer {producer_id}")
    return ExpireEntry(producer_id, producer_epoch)


def encode_session_snapshot(snapshot: SessionSnapshot) -> bytes:
    """The body of a SESSION entry.

    Raises:
      InvalidRequest: a table that no decoder would take.
    """
    _refuse(_table_fault(snapshot.sessions))
    pieces = []
    for session in snapshot.sessions:
        pieces.append(
            _SESSION.pack(
                session.producer_id, session.producer_epoch, session.mode, session.ack_level,
                len(session.name), session.window, len(session.rows), session.next_sequence,
                session.window_bytes,
            )
        )  # fmt: skip
        pieces.append(padded_name(session.name))
        pieces.extend(
            _WINDOW_ROW.pack(row.sequence, row.first_lsn, row.count, row.crc)
            for row in session.rows
        )
    pieces.append(encode_cursors(snapshot.cursors))
    table = b"".join(pieces)
    size = _SNAPSHOT.size + len(table)
    if size > SESSION_SNAPSHOT_MAX_BYTES:
        raise InvalidRequest(
            f"a session table of {size} bytes, at most {SESSION_SNAPSHOT_MAX_BYTES}: expire some"
        )
    row_count = sum(len(session.rows) for session in snapshot.sessions)
    head = _SNAPSHOT.pack(
        SESSION_MAGIC, ENTRY_BODY_VERSION, len(snapshot.cursors), size, len(snapshot.sessions),
        row_count, 0,
    )  # fmt: skip
    return seal_body(head + table, _SNAPSHOT_CRC)


def decode_session_snapshot(body: Buffer) -> SessionSnapshot:
    """The session table whose SESSION body this is.

    Raises:
      UnsupportedVersion: a newer version of the body.
      FormatError: anything else than a whole, undamaged SESSION body.
    """
    check_body(body, SESSION_MAGIC, _SNAPSHOT.size, _SNAPSHOT_CRC, "SESSION")
    _, _, cursor_count, size, session_count, row_count, _ = _SNAPSHOT.unpack_from(body)
    if size != len(body):
        raise FormatError(f"SESSION body says {size} bytes, has {len(body)}")
    if session_count * _SESSION.size + row_count * _WINDOW_ROW.size > size:
        raise FormatError(f"SESSION body of {size} bytes: {session_count} sessions do not fit")
    sessions = []
    offset = _SNAPSHOT.size
    for _ in range(session_count):
        session, offset = _read_session(body, offset)
        sessions.append(session)
    cursors = decode_cursors(memoryview(body)[offset:])
    if len(cursors) != cursor_count or row_count != sum(len(each.rows) for each in sessions):
        raise FormatError(f"SESSION body of {size} bytes: its sessions end at {offset}")
    _refuse_read(_table_fault(sessions))
    return SessionSnapshot(tuple(sessions), cursors)


def _read_session(body: Buffer, offset: int) -> tuple[SessionRow, int]:
    check_room(body, offset, _SESSION.size, "session")
    fields = _SESSION.unpack_from(body, offset)
    producer_id, epoch, mode, ack_level, name_size, window, row_count, *rest = fields
    next_sequence, window_bytes = rest
    name, start = read_name(body, offset + _SESSION.size, name_size, _NAME)
    check_room(body, start, row_count * _WINDOW_ROW.size, "session window")
    end = start + row_count * _WINDOW_ROW.size
    rows = tuple(WindowRow(*row) for row in _WINDOW_ROW.iter_unpack(memoryview(body)[start:end]))
    session = SessionRow(
        producer_id, epoch, mode, ack_level, window, window_bytes, next_sequence, name, rows
    )
    return session, end


def _session_fault(session: OpenEntry | SessionRow) -> str | None:
    if session.producer_id == 0:
        return "producer id 0 is nobody's"
    if session.mode not in _MODES or session.ack_level not in _ACK_LEVELS:
        return f"sequence mode {session.mode}, ack level {session.ack_level}"
    if not 1 <= session.window <= SESSION_WINDOW_MAX:
        return f"a window of {session.window} batches, at most {SESSION_WINDOW_MAX}"
    if len(session.name) > SESSION_NAME_MAX_BYTES:
        return f"a name of {len(session.name)} bytes, at most {SESSION_NAME_MAX_BYTES}"
    try:
        session.name.decode()
    except UnicodeDecodeError as error:
        return f"a name that is no UTF-8: {error}"
    return None


def _table_fault(sessions: Sequence[SessionRow]) -> str | None:
    windows = sum(session.window for session in sessions)
    if windows > SESSION_WINDOW_SUM_MAX:
        return f"windows of {windows} batches in all, at most {SESSION_WINDOW_SUM_MAX}"
    ids = {session.producer_id for session in sessions}
    if len(ids) != len(sessions):
        return "two sessions of one producer id"
    for session in sessions:
        fault = _session_fault(session) or _window_fault(session)
        if fault:
            return fault
    return None


def _window_fault(session: SessionRow) -> str | None:
    if len(session.rows) > session.window:
        return f"{len(session.rows)} rows in a window of {session.window}"
    expected, lsn = 0, 1
    for row in session.rows:
        if row.sequence < expected or row.first_lsn < lsn or row.count < 1:
            return f"window row {row} of producer {session.producer_id} is out of order"
        expected, lsn = row.sequence + 1, row.first_lsn + row.count
    if session.next_sequence < expected:
        return f"next sequence {session.next_sequence} below the window's {expected}"
    if max(session.next_sequence, lsn) > POSITION_MAX:
        return f"next sequence {session.next_sequence}, next LSN {lsn}, at most {POSITION_MAX}"
    return None


def _refuse(fault: str | None) -> None:
    if fault:
        raise InvalidRequest(fault)


def _refuse_read(fault: str | None) -> None:
    if fault:
        raise FormatError(fault)
