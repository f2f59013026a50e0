"""Common to the bodies of session, cursor and TRIM entries: sealing, checking and padded names.

Knows no entry. A body begins with magic and version, and its size is a multiple of 8. Its CRC is
over everything but itself; each kind has its own place for it. Names are UTF-8, padded with zeros.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from logstore.errors import FormatError, InvalidRequest, UnsupportedVersion
from logstore.format.fields import U32, Buffer, check_room, padding_size
from logstore.limits import BATCH_MAX_BYTES

ENTRY_BODY_VERSION = 1
ENTRY_BODY_MAX_BYTES = BATCH_MAX_BYTES  # a body is sent and stored like a batch
_MAGIC_VERSION = struct.Struct("<IH")


def seal_body(body: bytes, position: int) -> bytes:
    """`body` with its CRC, of everything but bytes [position, position + 4), written there."""
    crc = crc32c(body[position + 4 :], crc32c(body[:position]))
    return b"".join((body[:position], U32.pack(crc), body[position + 4 :]))


def check_body(
    body: Buffer,
    magic: int,
    size: int,
    position: int,
    what: str,
    *,
    newest: int = ENTRY_BODY_VERSION,
) -> int:
    """The version of a whole, undamaged body of at least `size` bytes whose CRC is at `position`.
    `newest` is the newest version that can be read here.

    Raises:
      UnsupportedVersion: an undamaged body of a newer version.
      FormatError: anything else.
    """
    check_room(body, 0, size, f"{what} body")
    if len(body) > ENTRY_BODY_MAX_BYTES:
        raise FormatError(f"{what} body of {len(body)} bytes, at most {ENTRY_BODY_MAX_BYTES}")
    version: int
    got_magic, version = _MAGIC_VERSION.unpack_from(body)
    if got_magic != magic:
        raise FormatError(f"{what} body: magic {got_magic:#010x}, expected {magic:#010x}")
    view = memoryview(body)
    (stored,) = U32.unpack_from(body, position)
    if crc32c(view[position + 4 :], crc32c(view[:position])) != stored:
        raise FormatError(f"{what} body: CRC mismatch")
    if not ENTRY_BODY_VERSION <= version <= newest:
        raise UnsupportedVersion(f"{what} body: version {version}, this side reads 1 to {newest}")
    return version


def padded_name(name: bytes) -> bytes:
    """`name` and zeros to the next multiple of 8."""
    return name + bytes(padding_size(len(name)))


def read_name(body: Buffer, offset: int, size: int, what: str) -> tuple[bytes, int]:
    """The name of `size` bytes at `offset`, and where its zero padding ends.

    Raises:
      FormatError: the buffer ends before it, or its padding is not zero.
    """
    padded_size = size + padding_size(size)
    check_room(body, offset, padded_size, what)
    padded = bytes(body[offset : offset + padded_size])
    if any(padded[size:]):
        raise FormatError(f"the padding of a {what} is not zero")
    return padded[:size], offset + padded_size


def refuse(fault: str | None) -> None:
    """Refuse to encode what no decoder would accept.

    Raises:
      InvalidRequest: there is a fault.
    """
    if fault:
        raise InvalidRequest(fault)


def refuse_read(fault: str | None) -> None:
    """Refuse what was read, if it has a fault.

    Raises:
      FormatError: there is a fault.
    """
    if fault:
        raise FormatError(fault)
