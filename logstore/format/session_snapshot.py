"""The body of a SESSION entry: the session table, or a part of it, as the log keeps it (SAFETY E6).

Owns its bytes; `session` knows what they mean. A snapshot is several entries, its parts, so that
none of them is larger than a group; it is valid once its last part is there. Parts of one snapshot
have the same term and number, and count up from 0. If a session's window does not fit into the rest
of a part, the session continues in the next one, where its fields are repeated.

Version 1 is a whole table in one body of up to 4 MiB. It is still read, but no longer written.

version 2                                     version 1
  0 magic u32 'LSES' │ version u16              as version 2 up to 24, then sessions, then cursors
    │ cursors u16                               of a session, `last_used_ns` is missing:
  8 body size u32 │ sessions u32                  its name begins at 40
 16 window rows u32 (of all sessions)
    │ crc u32 (of all but itself)
 24 term u64 (of the leader that took it)
 32 number u32 (of the snapshot, in that term)
    │ part u32 (from 0)
 40 kept names u32 │ is last u8
    │ reserved, 3 bytes = 0
 48 for each session:
      0 producer_id u64
      8 producer_epoch u32 │ mode u8 │ ack level u8 │ name size u16
     16 window u32 │ window rows u32 (that follow here, at most its window)
     24 next_sequence u64 (the last one + 1; 0: none yet)
     32 window_bytes u64
     40 last_used_ns u64 (timestamp of the newest entry with a batch or an OPEN of it; 0: not known)
     48 name, zeros to a multiple of 8
        window rows, rising: sequence u64 │ first_lsn u64 │ count u32 │ crc u32 (of the batch)
    for each cursor: its row, as in cursor_entries; they rise by name over all parts
    for each name kept: producer_id u64 │ producer_epoch u32 │ name size u16 │ reserved u16 = 0
        │ next_sequence u64 │ name, zeros to a multiple of 8
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from logstore.errors import FormatError, InvariantViolated
from logstore.format.cursor_entries import (
    Cursor,
    cursor_size,
    decode_cursors_from,
    encode_cursors,
)
from logstore.format.entry_body import check_body, padded_name, read_name, refuse, refuse_read
from logstore.format.entry_body import seal_body as seal
from logstore.format.fields import Buffer, check_room, magic_number, padding_size
from logstore.format.session_entries import name_fault, session_fault
from logstore.limits import POSITION_MAX
from logstore.model import Lsn

SESSION_MAGIC = magic_number("LSES")
SESSION_VERSION = 2
_WHOLE = struct.Struct("<IHHIIII")  # the head of version 1, with which version 2 begins, too
_PART = struct.Struct("<QIIIB3s")
_PART_HEAD_SIZE = _WHOLE.size + _PART.size
_SESSION = struct.Struct("<QIBBHIIQQQ")
_SESSION_OF_VERSION_1 = struct.Struct("<QIBBHIIQQ")
_WINDOW_ROW = struct.Struct("<QQII")
_KEPT = struct.Struct("<QIHHQ")
_CRC = 20
_NAME = "session name"
_NO_BYTES = bytes(3)


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
    last_used_ns: int
    name: bytes
    rows: tuple[WindowRow, ...]


class KeptName(msgspec.Struct, frozen=True, gc=False):
    """What stays of a monotone session that was idle for too long."""

    producer_id: int
    producer_epoch: int
    next_sequence: int
    name: bytes


class PartHead(msgspec.Struct, frozen=True, gc=False):
    """Which part of which snapshot this is. Version 1 is part 0, and the last, of term 0."""

    term: int
    number: int
    part: int
    is_last: bool


class SessionPart(msgspec.Struct, frozen=True, gc=False):
    """One part, decoded."""

    head: PartHead
    sessions: tuple[SessionRow, ...]
    cursors: tuple[Cursor, ...]
    kept: tuple[KeptName, ...]


def encode_session_parts(
    sessions: Iterable[SessionRow],
    cursors: Iterable[Cursor],
    kept: Iterable[KeptName],
    *,
    term: int,
    number: int,
    part_max_bytes: int,
) -> Iterator[bytes]:
    """The bodies of a snapshot's SESSION entries, each made when the caller asks for it.

    Raises:
      InvalidRequest: a row that no decoder would accept.
      InvariantViolated: a part cannot hold a row.
    """
    part = _Part(term, number, part_max_bytes)
    for session in sessions:
        yield from part.put_session(session)
    for cursor in cursors:
        if not part.has_room(cursor_size(cursor)):
            yield part.take(is_last=False)
        part.cursors.append(cursor)
        part.size += cursor_size(cursor)
    for name in kept:
        refuse(_kept_fault(name))
        row = _KEPT.pack(
            name.producer_id, name.producer_epoch, len(name.name), 0, name.next_sequence
        ) + padded_name(name.name)
        if not part.has_room(len(row)):
            yield part.take(is_last=False)
        part.kept.append(row)
        part.size += len(row)
    yield part.take(is_last=True)


def parts_bound(row_sizes: Iterable[int], *, largest: int, part_max_bytes: int) -> tuple[int, int]:
    """How many parts rows of these sizes are encoded in at most, and of how many bytes in all.

    Args:
      largest: the largest row, where a session is one with a single window row. A part that is
        closed lacks less than that, and the next one begins with less than that again.
    """
    total = sum(row_sizes)
    parts = 1 + total // max(1, part_max_bytes - _PART_HEAD_SIZE - 2 * largest)
    return parts, total + parts * (_PART_HEAD_SIZE + largest)


def session_size(name: bytes, *, rows: int) -> int:
    """What a session takes in a part, with so many window rows."""
    return _SESSION.size + len(name) + padding_size(len(name)) + rows * _WINDOW_ROW.size


def kept_size(name: bytes) -> int:
    """What a kept name takes."""
    return _KEPT.size + len(name) + padding_size(len(name))


class _Part:
    """The part that is being filled."""

    def __init__(self, term: int, number: int, max_bytes: int) -> None:
        self._term = term
        self._number = number
        self._max_bytes = max_bytes
        self._part = 0
        self._begin()

    def _begin(self) -> None:
        self.size = _PART_HEAD_SIZE
        self._pieces: list[bytes] = []
        self._sessions = self._rows = 0
        self.cursors: list[Cursor] = []
        self.kept: list[bytes] = []

    def has_room(self, size: int) -> bool:
        return self.size + size <= self._max_bytes

    def put_session(self, session: SessionRow) -> Iterator[bytes]:
        """The parts that become full."""
        refuse(session_fault(session) or _window_fault(session))
        name = padded_name(session.name)
        start = 0
        while True:
            room = self._max_bytes - self.size - _SESSION.size - len(name)
            rows = session.rows[start : start + max(0, room // _WINDOW_ROW.size)]
            if room >= 0 and (rows or start == len(session.rows)):
                self._add_session(session, name, rows)
                start += len(rows)
                if start == len(session.rows):
                    return
            yield self.take(is_last=False)

    def _add_session(self, session: SessionRow, name: bytes, rows: Sequence[WindowRow]) -> None:
        pieces = self._pieces
        pieces.append(
            _SESSION.pack(
                session.producer_id, session.producer_epoch, session.mode, session.ack_level,
                len(session.name), session.window, len(rows), session.next_sequence,
                session.window_bytes, session.last_used_ns,
            )
        )  # fmt: skip
        pieces.append(name)
        pack = _WINDOW_ROW.pack
        pieces.extend(pack(row.sequence, row.first_lsn, row.count, row.crc) for row in rows)
        self.size += _SESSION.size + len(name) + len(rows) * _WINDOW_ROW.size
        self._sessions += 1
        self._rows += len(rows)

    def take(self, *, is_last: bool) -> bytes:
        """Close this part and begin the next one; returns the body."""
        if self.size == _PART_HEAD_SIZE and not is_last:
            raise InvariantViolated(f"a part of {self._max_bytes} bytes cannot hold a row")
        size = self.size
        body = b"".join(
            (
                _WHOLE.pack(
                    SESSION_MAGIC, SESSION_VERSION, len(self.cursors), size, self._sessions,
                    self._rows, 0,
                ),
                _PART.pack(
                    self._term, self._number, self._part, len(self.kept), is_last, _NO_BYTES
                ),
                *self._pieces,
                encode_cursors(self.cursors),
                *self.kept,
            )
        )  # fmt: skip
        self._part += 1
        self._begin()
        return seal(body, _CRC)


def read_part_head(body: Buffer) -> PartHead:
    """Which part this SESSION body is; reads no row.

    Raises:
      UnsupportedVersion: a newer version of the body.
      FormatError: anything but a whole, undamaged SESSION body.
    """
    return _read_heads(body)[1]


def _read_heads(body: Buffer) -> tuple[int, PartHead, int]:
    """Version, head, and the number of kept names."""
    version = check_body(body, SESSION_MAGIC, _WHOLE.size, _CRC, "SESSION", newest=SESSION_VERSION)
    if version != SESSION_VERSION:
        return version, PartHead(0, 0, 0, True), 0
    check_room(body, _WHOLE.size, _PART.size, "SESSION body")
    term, number, part, kept, is_last, reserved = _PART.unpack_from(body, _WHOLE.size)
    if not 1 <= term <= POSITION_MAX or is_last > 1 or reserved != _NO_BYTES:
        text = f"term {term}, is last {is_last}, reserved bytes {reserved.hex()}"
        raise FormatError(f"SESSION body: {text}")
    return version, PartHead(term, number, part, bool(is_last)), kept


def decode_session_part(body: Buffer) -> SessionPart:
    """The part of this SESSION body.

    Raises:
      UnsupportedVersion: a newer version of the body.
      FormatError: anything but a whole, undamaged SESSION body.
    """
    version, head, kept_count = _read_heads(body)
    _, _, cursor_count, size, session_count, row_count, _ = _WHOLE.unpack_from(body)
    if size != len(body):
        raise FormatError(f"SESSION body says {size} bytes, has {len(body)}")
    layout = _SESSION if version == SESSION_VERSION else _SESSION_OF_VERSION_1
    if session_count * layout.size + row_count * _WINDOW_ROW.size > size:
        raise FormatError(f"SESSION body of {size} bytes: {session_count} sessions do not fit")
    offset = _PART_HEAD_SIZE if version == SESSION_VERSION else _WHOLE.size
    sessions = []
    for _ in range(session_count):
        session, offset = _read_session(body, offset, layout)
        sessions.append(session)
    if row_count != sum(len(each.rows) for each in sessions):
        raise FormatError(f"SESSION body of {size} bytes: its sessions end at {offset}")
    cursors, offset = decode_cursors_from(body, offset, cursor_count)
    kept = []
    for _ in range(kept_count):
        name, offset = _read_kept(body, offset)
        kept.append(name)
    if offset != size:
        raise FormatError(f"SESSION body of {size} bytes: its rows end at {offset}")
    if len({each.producer_id for each in sessions}) != len(sessions):
        raise FormatError("two sessions of one producer id")
    return SessionPart(head, tuple(sessions), cursors, tuple(kept))


def _read_session(body: Buffer, offset: int, layout: struct.Struct) -> tuple[SessionRow, int]:
    check_room(body, offset, layout.size, "session")
    fields = layout.unpack_from(body, offset)
    producer_id, epoch, mode, ack_level, name_size, window, row_count, *rest = fields
    next_sequence, window_bytes, *times = rest
    name, start = read_name(body, offset + layout.size, name_size, _NAME)
    check_room(body, start, row_count * _WINDOW_ROW.size, "session window")
    end = start + row_count * _WINDOW_ROW.size
    rows = tuple(WindowRow(*row) for row in _WINDOW_ROW.iter_unpack(memoryview(body)[start:end]))
    last_used_ns = times[0] if times else 0
    session = SessionRow(
        producer_id, epoch, mode, ack_level, window, window_bytes, next_sequence, last_used_ns,
        name, rows,
    )  # fmt: skip
    refuse_read(session_fault(session) or _window_fault(session))
    return session, end


def _read_kept(body: Buffer, offset: int) -> tuple[KeptName, int]:
    check_room(body, offset, _KEPT.size, "kept name")
    producer_id, epoch, name_size, reserved, next_sequence = _KEPT.unpack_from(body, offset)
    name, end = read_name(body, offset + _KEPT.size, name_size, _NAME)
    kept = KeptName(producer_id, epoch, next_sequence, name)
    refuse_read(_kept_fault(kept))
    if reserved:
        raise FormatError(f"reserved bytes of a kept name are {reserved}")
    return kept, end


def _kept_fault(kept: KeptName) -> str | None:
    if kept.producer_id == 0 or not kept.name:
        return f"a name is kept of producer {kept.producer_id}: {kept.name!r}"
    if kept.next_sequence > POSITION_MAX:
        return f"next sequence {kept.next_sequence}, at most {POSITION_MAX}"
    return name_fault(kept.name)


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
    if max(session.next_sequence, lsn, session.last_used_ns) > POSITION_MAX:
        return f"next sequence {session.next_sequence}, next LSN {lsn}, at most {POSITION_MAX}"
    return None
