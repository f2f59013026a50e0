"""The starts of other replicas that this one has seen (SAFETY L7).

Owns one 1,024-byte image; the file `peers` holds two of them, written in turn, and the valid one of
the higher generation counts. A lost file costs knowledge of amnesia, and no more.

   0 magic u32 'LPST' │ version u16 (1) │ starts u16 (at most 18)
   8 generation u64
  16 starts, 32 bytes each, that of the replica heard of last at the end; the rest is zero:
     replica uuid, 16 bytes │ boot counter u64 │ nonce u64
1020 crc u32: CRC32C of [0, 1020), seeded with CRC32C(nothing) = 0
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec

from logstore.errors import FormatError
from logstore.format.fields import (
    Buffer,
    check_ids,
    check_positions,
    check_room,
    check_sealed,
    magic_number,
    seal,
)
from logstore.limits import PEER_STARTS_MAX, SECTOR_BYTES

PEER_STARTS_MAGIC = magic_number("LPST")
PEER_STARTS_VERSION = 1
PEER_STARTS_SIZE = 2 * SECTOR_BYTES
_HEAD = struct.Struct("<IHHQ")
_START = struct.Struct("<16sQQ")
_CRC_SIZE = 4


class PeerStart(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A start of the replica `replica_uuid`: META's boot counter, and what the start drew, which no
    other start has (0: not known)."""

    replica_uuid: bytes
    boot: int
    nonce: int


def pack_peer_starts(starts: Iterable[PeerStart], generation: int) -> bytes:
    """The image of at most PEER_STARTS_MAX starts."""
    rows = list(starts)
    check_ids("peer starts", *(row.replica_uuid for row in rows))
    head = _HEAD.pack(PEER_STARTS_MAGIC, PEER_STARTS_VERSION, len(rows), generation)
    body = b"".join(_START.pack(row.replica_uuid, row.boot, row.nonce) for row in rows)
    return seal((head + body).ljust(PEER_STARTS_SIZE - _CRC_SIZE, b"\0"), b"")


def unpack_peer_starts(buffer: Buffer, offset: int = 0) -> tuple[int, tuple[PeerStart, ...]]:
    """Generation and starts of the image at `offset`.

    Raises:
      UnsupportedVersion: of a newer version.
      FormatError: anything but a whole, undamaged image.
    """
    check_room(buffer, offset, PEER_STARTS_SIZE, "peer starts")
    block = memoryview(buffer)[offset : offset + PEER_STARTS_SIZE]
    check_sealed(
        block, b"", magic=PEER_STARTS_MAGIC, version=PEER_STARTS_VERSION, what="peer starts"
    )
    _, _, count, generation = _HEAD.unpack_from(block)
    end = _HEAD.size + count * _START.size
    if count > PEER_STARTS_MAX or any(block[end:-_CRC_SIZE]):
        raise FormatError(f"peer starts: {count} of them, and bytes after them that are not zero")
    rows = tuple(PeerStart(*row) for row in _START.iter_unpack(block[_HEAD.size : end]))
    check_positions("peer starts", generation=generation)
    for row in rows:
        check_positions("peer starts", boot=row.boot)
    return generation, rows
