"""The group frame: the header before the batches of one Raft entry in the data log.

Owns the 128-byte header; the body follows it unchanged. The writer builds it from the entry's
replicated header and what is local to the segment; a Raft record can be rebuilt from it (S1).

      0 magic u32 'LGRP' │ version u16 │ reserved u16 = 0
      8 entry header, 72 bytes (entry.py)
     80 segment number u32 │ log_epoch u32
     88 segment uuid, 16 bytes
    104 commit index known u64
    112 reserved, 12 bytes = 0
    124 header_crc u32: CRC32C of [0, 124), seeded with CRC32C(segment uuid)
    128 body: body_size bytes, a multiple of 8
"""

from __future__ import annotations

import struct

import msgspec

from logstore.errors import FormatError
from logstore.format.entry import ENTRY_HEADER_SIZE, EntryHeader, unpack_entry_header
from logstore.format.fields import (
    Buffer,
    check_ids,
    check_positions,
    check_room,
    check_sealed,
    magic_number,
    seal,
)
from logstore.model import Index

FRAME_MAGIC = magic_number("LGRP")
FRAME_VERSION = 1
FRAME_HEADER_SIZE = 128
_HEAD = struct.Struct("<IHH")
_LOCAL = struct.Struct("<II16sQ12s")
_LOCAL_OFFSET = _HEAD.size + ENTRY_HEADER_SIZE
_FRAME_PREFIX = _HEAD.pack(FRAME_MAGIC, FRAME_VERSION, 0)
_ZEROS = bytes(12)


class FrameHeader(msgspec.Struct, frozen=True, gc=False):
    """A frame's header: the entry's replicated fields and those of its segment."""

    header: EntryHeader
    segment: int
    segment_uuid: bytes
    log_epoch: int
    commit_known: Index

    def pack(self) -> bytes:
        """The 128 bytes."""
        check_ids("frame header", self.segment_uuid)
        local = _LOCAL.pack(
            self.segment, self.log_epoch, self.segment_uuid, self.commit_known, _ZEROS
        )
        return seal(b"".join((_FRAME_PREFIX, self.header.pack(), local)), self.segment_uuid)


def unpack_frame_header(buffer: Buffer, offset: int = 0, *, segment_uuid: bytes) -> FrameHeader:
    """The frame header at `offset`, of the segment with this uuid.

    Raises:
      UnsupportedVersion: a newer version of the frame.
      FormatError: anything but a whole, undamaged frame header of this segment.
    """
    check_room(buffer, offset, FRAME_HEADER_SIZE, "frame header")
    block = memoryview(buffer)[offset : offset + FRAME_HEADER_SIZE]
    check_sealed(block, segment_uuid, magic=FRAME_MAGIC, version=FRAME_VERSION, what="frame header")
    _, _, reserved = _HEAD.unpack_from(block)
    segment, log_epoch, uuid, commit_known, zeros = _LOCAL.unpack_from(block, _LOCAL_OFFSET)
    if reserved != 0 or zeros != _ZEROS:
        raise FormatError("frame header: reserved bytes are not zero")
    if uuid != segment_uuid:
        raise FormatError(f"frame header: segment {uuid.hex()}, expected {segment_uuid.hex()}")
    check_positions("frame header", commit_known=commit_known)
    header = unpack_entry_header(block, _HEAD.size)
    return FrameHeader(header, segment, uuid, log_epoch, Index(commit_known))


def frame_size(header: EntryHeader) -> int:
    """Bytes of the frame of this entry, header and body: a multiple of 8."""
    return FRAME_HEADER_SIZE + header.body_size
