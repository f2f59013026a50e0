"""Common to the byte formats: magics, bounds checks and sealing a block with its CRC.

Knows no format. Disk blocks keep magic, version and CRC at the same place in every version. So a
damaged version field is damage, and only a block that is really newer is an `UnsupportedVersion`.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from logstore.errors import FormatError, InvariantViolated, UnsupportedVersion
from logstore.limits import POSITION_MAX

Buffer = bytes | bytearray | memoryview

U32 = struct.Struct("<I")
_SEALED_HEAD = struct.Struct("<IH")
UUID_SIZE = 16
ALIGNMENT = 8


def magic_number(letters: str) -> int:
    """Four letters as the u32 that has them in this order in the file."""
    return int.from_bytes(letters.encode("ascii"), "little")


def padding_size(size: int) -> int:
    """Zero bytes from `size` to the next multiple of 8."""
    return -size % ALIGNMENT


def check_room(buffer: Buffer, offset: int, size: int, what: str) -> None:
    """Refuse to read [offset, offset + size) if the buffer is shorter."""
    if offset < 0 or len(buffer) - offset < size:
        raise FormatError(f"{what} needs {size} bytes at {offset}, the buffer has {len(buffer)}")


def seal(block: bytes, seed: bytes) -> bytes:
    """`block`, followed by the CRC32C of `seed` and `block`."""
    return block + U32.pack(crc32c(block, crc32c(seed)))


def check_sealed(
    block: memoryview, seed: bytes, *, magic: int, version: int, what: str, oldest: int = 0
) -> int:
    """Check a sealed block: u32 magic and u16 version first, the CRC of `seal` in its last 4 bytes.
    Returns its version: `version`, or an older one from `oldest` on, where that is given.

    Raises:
      UnsupportedVersion: an undamaged block of another version.
      FormatError: another magic or a bad CRC.
    """
    got_magic, got_version = _SEALED_HEAD.unpack_from(block)
    if got_magic != magic:
        raise FormatError(f"{what}: magic {got_magic:#010x}, expected {magic:#010x}")
    (stored,) = U32.unpack_from(block, len(block) - 4)
    computed = crc32c(block[:-4], crc32c(seed))
    if stored != computed:
        raise FormatError(f"{what}: CRC {stored:#010x}, its bytes give {computed:#010x}")
    if not (oldest or version) <= got_version <= version:
        raise UnsupportedVersion(f"{what}: version {got_version}, this side reads {version}")
    return int(got_version)


def check_positions(what: str, **positions: int) -> None:
    """Check that indexes, terms, LSNs, times and byte counts are at most POSITION_MAX."""
    for name, value in positions.items():
        if value > POSITION_MAX:
            raise FormatError(f"{what}: {name} {value} is above {POSITION_MAX}")


def check_ids(what: str, *ids: bytes) -> None:
    """Check ids that are to be written: 16 bytes each, since struct would pad
    or cut them silently."""
    for value in ids:
        if len(value) != UUID_SIZE:
            raise InvariantViolated(f"{what}: an id of {len(value)} bytes, {UUID_SIZE} are needed")
