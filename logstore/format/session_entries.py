"""Bodies of the OPEN and EXPIRE entries: a producer's session, or its next epoch, begins or ends.

Owns their bytes; `session` knows what they mean (SAFETY E8). The size of each body is a multiple of
8, and it has magic, version and CRC. Names are UTF-8. `session_snapshot` has the whole table.

OPEN                                          EXPIRE
  0 magic u32 'LOPN' │ version u16              0 magic u32 'LEXP' │ version u16 │ reserved u16 = 0
    │ mode u8 │ ack level u8                    8 producer_id u64
  8 producer_id u64                            16 producer_epoch u32 │ crc u32 (of [0, 20))
 16 producer_epoch u32 │ window u32            24 end
 24 name size u16 │ reserved u16 = 0
    │ crc u32 (of all but itself)
 32 window_bytes u64
 40 name, zeros to a multiple of 8

An EXPIRE of version 1 forgets the session. Version 2 ends a named session that was idle for too
long: its last sequence stays known, so that no session of this name begins at 0 unnoticed.
"""

from __future__ import annotations

import struct
from typing import Protocol

import msgspec

from logstore.errors import FormatError, InvalidRequest
from logstore.format.entry_body import (
    ENTRY_BODY_VERSION,
    check_body,
    padded_name,
    read_name,
    refuse,
    refuse_read,
    seal_body,
)
from logstore.format.fields import Buffer, magic_number
from logstore.limits import SESSION_NAME_MAX_BYTES, SESSION_WINDOW_MAX
from logstore.model import AckLevel, SequenceMode

OPEN_MAGIC = magic_number("LOPN")
EXPIRE_MAGIC = magic_number("LEXP")
EXPIRE_KEEPING_VERSION = 2
_OPEN = struct.Struct("<IHBBQIIHHIQ")
_EXPIRE = struct.Struct("<IHHQII")
_OPEN_CRC = 28
_EXPIRE_CRC = 20
_MODES = frozenset(SequenceMode)
_ACK_LEVELS = frozenset(AckLevel)
_NAME = "session name"


class OpenEntry(msgspec.Struct, frozen=True, gc=False):
    """A producer opened a session, or its next producer epoch.

    `window` in batches, `window_bytes` in unacknowledged bytes (SAFETY W6). An empty name: none.
    """

    producer_id: int
    producer_epoch: int
    mode: int
    ack_level: int
    window: int
    window_bytes: int
    name: bytes


class ExpireEntry(msgspec.Struct, frozen=True, gc=False):
    """The session of this producer, in this producer epoch, ends.

    `is_kept`: the last sequence of a monotone session stays known under its name;
    else all of it is forgotten.
    """

    producer_id: int
    producer_epoch: int
    is_kept: bool = False


def encode_open(entry: OpenEntry) -> bytes:
    """The body of an OPEN entry.

    Raises:
      InvalidRequest: a session that no decoder would accept.
    """
    refuse(session_fault(entry))
    fields = _OPEN.pack(
        OPEN_MAGIC, ENTRY_BODY_VERSION, entry.mode, entry.ack_level, entry.producer_id,
        entry.producer_epoch, entry.window, len(entry.name), 0, 0, entry.window_bytes,
    )  # fmt: skip
    return seal_body(fields + padded_name(entry.name), _OPEN_CRC)


def decode_open(body: Buffer) -> OpenEntry:
    """The OPEN entry of this body.

    Raises:
      UnsupportedVersion: a newer version of the body.
      FormatError: anything but a whole, undamaged OPEN body.
    """
    check_body(body, OPEN_MAGIC, _OPEN.size, _OPEN_CRC, "OPEN")
    _, _, mode, ack_level, producer_id, epoch, window, name_size, reserved, _, window_bytes = (
        _OPEN.unpack_from(body)
    )
    name, end = read_name(body, _OPEN.size, name_size, _NAME)
    if reserved != 0 or end != len(body):
        raise FormatError(f"OPEN body of {len(body)} bytes, its name ends at {end}")
    entry = OpenEntry(producer_id, epoch, mode, ack_level, window, window_bytes, name)
    refuse_read(session_fault(entry))
    return entry


def encode_expire(entry: ExpireEntry) -> bytes:
    """The body of an EXPIRE entry.

    Raises:
      InvalidRequest: producer id 0, which no producer has.
    """
    if entry.producer_id == 0:
        raise InvalidRequest("producer id 0 is nobody's")
    version = EXPIRE_KEEPING_VERSION if entry.is_kept else ENTRY_BODY_VERSION
    fields = _EXPIRE.pack(EXPIRE_MAGIC, version, 0, entry.producer_id, entry.producer_epoch, 0)
    return seal_body(fields, _EXPIRE_CRC)


def decode_expire(body: Buffer) -> ExpireEntry:
    """The EXPIRE entry of this body.

    Raises:
      UnsupportedVersion: a newer version of the body.
      FormatError: anything but a whole, undamaged EXPIRE body.
    """
    version = check_body(
        body, EXPIRE_MAGIC, _EXPIRE.size, _EXPIRE_CRC, "EXPIRE", newest=EXPIRE_KEEPING_VERSION
    )
    _, _, reserved, producer_id, producer_epoch, _ = _EXPIRE.unpack_from(body)
    if reserved or producer_id == 0 or len(body) != _EXPIRE.size:
        raise FormatError(f"EXPIRE body of {len(body)} bytes for producer {producer_id}")
    return ExpireEntry(producer_id, producer_epoch, version == EXPIRE_KEEPING_VERSION)


class SessionFields(Protocol):
    """Common to OPEN entries and rows of a snapshot."""

    @property
    def producer_id(self) -> int: ...

    @property
    def mode(self) -> int: ...

    @property
    def ack_level(self) -> int: ...

    @property
    def window(self) -> int: ...

    @property
    def name(self) -> bytes: ...


def session_fault(session: SessionFields) -> str | None:
    """Why a session like this is impossible; None: it is possible."""
    if session.producer_id == 0:
        return "producer id 0 is nobody's"
    if session.mode not in _MODES or session.ack_level not in _ACK_LEVELS:
        return f"sequence mode {session.mode}, ack level {session.ack_level}"
    if not 1 <= session.window <= SESSION_WINDOW_MAX:
        return f"a window of {session.window} batches, at most {SESSION_WINDOW_MAX}"
    return name_fault(session.name)


def name_fault(name: bytes) -> str | None:
    """Why a session cannot have this name; None: it can."""
    if len(name) > SESSION_NAME_MAX_BYTES:
        return f"a name of {len(name)} bytes, at most {SESSION_NAME_MAX_BYTES}"
    try:
        name.decode()
    except UnicodeDecodeError as error:
        return f"a name that is no UTF-8: {error}"
    return None
