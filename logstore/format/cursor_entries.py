"""Named cursors: the body of a CURSOR entry, and the rows in which many are listed.

Owns their bytes; `session` knows what they mean. LSN 0 means that there is no such cursor: an entry
with it deletes one, and rows never have it. Rows are in SESSION bodies and in the answer to a list,
ascending by name, each name once.

CURSOR                                        row
  0 magic u32 'LCUR' │ version u16              0 lsn u64
    │ is held u8 │ name size u8                 8 is held u8 │ name size u8 │ reserved, 6 bytes = 0
  8 lsn u64 (0: deleted)                       16 name, zeros to a multiple of 8
 16 crc u32 (of all but itself)
    │ reserved u32 = 0
 24 name, zeros to a multiple of 8
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

import msgspec

from logstore.errors import FormatError
from logstore.format.entry_body import (
    ENTRY_BODY_VERSION,
    check_body,
    padded_name,
    read_name,
    refuse,
    refuse_read,
    seal_body,
)
from logstore.format.fields import Buffer, check_room, magic_number, padding_size
from logstore.limits import CURSOR_NAME_MAX_BYTES, CURSORS_MAX, POSITION_MAX
from logstore.model import Lsn

CURSOR_MAGIC = magic_number("LCUR")
NO_LSN = Lsn(0)
ANY_LSN = Lsn((1 << 64) - 1)  # expected_lsn of a change that sets the cursor in any case
_ENTRY = struct.Struct("<IHBBQII")
_ENTRY_CRC = 16
_ROW = struct.Struct("<QBBHI")
_NAME = "cursor name"
CURSOR_ROWS_MAX_BYTES = CURSORS_MAX * (
    _ROW.size + CURSOR_NAME_MAX_BYTES + padding_size(CURSOR_NAME_MAX_BYTES)
)


class Hold(IntEnum):
    """Whether a cursor is to be held after a change."""

    NOT_HELD = 0
    HELD = 1
    AS_IT_IS = 2  # one that does not exist yet is not held


class Cursor(msgspec.Struct, frozen=True, gc=False):
    """A named position before the payload `lsn`; 0: the cursor does not exist.

    `is_held`: payloads from `lsn` on are kept while the cursor is there (SAFETY G1).
    """

    name: bytes
    lsn: Lsn
    is_held: bool


def cursor_fault(cursor: Cursor) -> str | None:
    """Why a cursor like this is impossible, with what to send instead; None: it is possible."""
    size = len(cursor.name)
    if not 1 <= size <= CURSOR_NAME_MAX_BYTES:
        return f"a cursor's name has 1 to {CURSOR_NAME_MAX_BYTES} bytes of UTF-8, not {size}"
    try:
        cursor.name.decode()
    except UnicodeDecodeError:
        return "a cursor's name is UTF-8"
    if cursor.lsn > POSITION_MAX:
        return f"cursor LSN {cursor.lsn}, at most {POSITION_MAX}"
    if cursor.lsn == NO_LSN and cursor.is_held:
        return "a cursor that is deleted holds nothing: send hold 0"
    return None


def encode_cursor(cursor: Cursor) -> bytes:
    """The body of a CURSOR entry.

    Raises:
      InvalidRequest: a cursor that no decoder would accept.
    """
    refuse(cursor_fault(cursor))
    name, is_held = cursor.name, cursor.is_held
    head = _ENTRY.pack(CURSOR_MAGIC, ENTRY_BODY_VERSION, is_held, len(name), cursor.lsn, 0, 0)
    return seal_body(head + padded_name(name), _ENTRY_CRC)


def decode_cursor(body: Buffer) -> Cursor:
    """The cursor that a CURSOR entry sets or deletes.

    Raises:
      UnsupportedVersion: a newer version of the body.
      FormatError: anything else than a whole, undamaged CURSOR body.
    """
    check_body(body, CURSOR_MAGIC, _ENTRY.size, _ENTRY_CRC, "CURSOR")
    _, _, is_held, name_size, lsn, _, reserved = _ENTRY.unpack_from(body)
    name, end = read_name(body, _ENTRY.size, name_size, _NAME)
    if reserved or end != len(body):
        raise FormatError(f"CURSOR body of {len(body)} bytes, its name ends at {end}")
    return _cursor_read(name, lsn, is_held)


def encode_cursors(cursors: Sequence[Cursor]) -> bytes:
    """The rows of these cursors.

    Raises:
      InvalidRequest: cursors that no decoder would accept.
    """
    refuse(_list_fault(cursors))
    rows = []
    for cursor in cursors:
        rows.append(_ROW.pack(cursor.lsn, cursor.is_held, len(cursor.name), 0, 0))
        rows.append(padded_name(cursor.name))
    return b"".join(rows)


def cursor_size(cursor: Cursor) -> int:
    """The size of its row in bytes."""
    return _ROW.size + len(cursor.name) + padding_size(len(cursor.name))


def decode_cursors(rows: Buffer) -> tuple[Cursor, ...]:
    """The cursors of `rows`, which the rows must fill.

    Raises:
      FormatError: they do not fill it, or are no rows.
    """
    cursors: list[Cursor] = []
    offset = 0
    while offset < len(rows):
        if len(cursors) == CURSORS_MAX:
            raise FormatError(f"more than {CURSORS_MAX} cursors")
        cursor, offset = _read_row(rows, offset)
        cursors.append(cursor)
    refuse_read(_list_fault(cursors))
    return tuple(cursors)


def decode_cursors_from(body: Buffer, offset: int, count: int) -> tuple[tuple[Cursor, ...], int]:
    """`count` cursors whose rows begin at `offset`, and where the rows end.

    Raises:
      FormatError: there are no such rows.
    """
    refuse_read(f"{count} cursors, at most {CURSORS_MAX}" if count > CURSORS_MAX else None)
    cursors: list[Cursor] = []
    for _ in range(count):
        cursor, offset = _read_row(body, offset)
        cursors.append(cursor)
    refuse_read(_list_fault(cursors))
    return tuple(cursors), offset


def _read_row(rows: Buffer, offset: int) -> tuple[Cursor, int]:
    check_room(rows, offset, _ROW.size, "cursor")
    lsn, is_held, name_size, *reserved = _ROW.unpack_from(rows, offset)
    if any(reserved):
        raise FormatError(f"reserved bytes of a cursor are {reserved}")
    name, end = read_name(rows, offset + _ROW.size, name_size, _NAME)
    return _cursor_read(name, lsn, is_held), end


def _cursor_read(name: bytes, lsn: int, is_held: int) -> Cursor:
    if is_held > 1:
        raise FormatError(f"a cursor's hold is {is_held}, 0 or 1 is known")
    cursor = Cursor(name, Lsn(lsn), bool(is_held))
    fault = cursor_fault(cursor)
    if fault:
        raise FormatError(fault)
    return cursor


def _list_fault(cursors: Sequence[Cursor]) -> str | None:
    if len(cursors) > CURSORS_MAX:
        return f"{len(cursors)} cursors, at most {CURSORS_MAX}"
    before = b""
    for cursor in cursors:
        fault = cursor_fault(cursor)
        if fault:
            return fault
        if cursor.lsn == NO_LSN:
            return f"cursor {cursor.name!r} stands nowhere"
        if cursor.name <= before:
            return f"cursor {cursor.name!r} follows {before!r}"
        before = cursor.name
    return None
