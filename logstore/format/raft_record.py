"""The Raft record: 128 bytes in the Raft log that refer to one group frame in the data log.

Record j of a segment has index first_index + j, so the Raft log is its own index. A durable record
proves that its frame was durable (SAFETY F2). For searches over many records see record_array.py.

      0 magic u32 'LREC' │ version u16 │ reserved u16 = 0
      8 entry header, 72 bytes (entry.py)
     80 frame offset u64 (bytes from the start of the data file, a multiple of 8)
     88 next_lsn u64 = first_lsn + count
     96 chain u64 (SAFETY S3)
    104 commit index known u64
    112 log_epoch u32
    116 reserved, 8 bytes = 0
    124 crc u32: CRC32C of [0, 124), seeded with CRC32C(segment uuid)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from logstore.errors import FormatError
from logstore.format.entry import ENTRY_HEADER_SIZE, EntryHeader, Row, unpack_entry_header
from logstore.format.fields import (
    ALIGNMENT,
    Buffer,
    check_ids,
    check_room,
    check_sealed,
    magic_number,
    seal,
)
from logstore.format.group import FrameHeader
from logstore.limits import POSITION_MAX
from logstore.model import Index

RECORD_MAGIC = magic_number("LREC")
RECORD_VERSION = 1
RECORD_SIZE = 128
_HEAD = struct.Struct("<IHH")
_LOCAL = struct.Struct("<QQQQI8s")
_LOCAL_OFFSET = _HEAD.size + ENTRY_HEADER_SIZE
_PREFIX = _HEAD.pack(RECORD_MAGIC, RECORD_VERSION, 0)
_ZEROS = bytes(8)
_KIND_OFFSET = _HEAD.size  # u16, the first field of the entry header


class RaftRecord(msgspec.Struct, frozen=True, gc=False):
    """One entry of the Raft log. `frame_offset` in bytes from the start of the data file."""

    header: EntryHeader
    chain: int
    frame_offset: int
    commit_known: Index
    log_epoch: int

    @property
    def row(self) -> Row:
        return Row(self.header, self.chain)

    def pack(self, segment_uuid: bytes) -> bytes:
        """The 128 bytes, for the segment with this uuid."""
        check_ids("Raft record", segment_uuid)
        local = _LOCAL.pack(
            self.frame_offset, self.header.next_lsn, self.chain, self.commit_known,
            self.log_epoch, _ZEROS,
        )  # fmt: skip
        return seal(b"".join((_PREFIX, self.header.pack(), local)), segment_uuid)


def places_of_kind(records: bytes, kind: int) -> Iterator[int]:
    """The numbers of those records that say they are of `kind`, the newest first; none is verified.

    A new leader searches so for a snapshot before it admits anybody: to import numpy for it took
    60 to 150 ms (2026-11-24).
    """
    low, high = kind.to_bytes(2, "little")
    lows, highs = (records[at::RECORD_SIZE] for at in (_KIND_OFFSET, _KIND_OFFSET + 1))
    place = len(lows)
    while (place := lows.rfind(low, 0, place)) >= 0:
        if highs[place] == high:
            yield place


def unpack_raft_record(buffer: Buffer, offset: int = 0, *, segment_uuid: bytes) -> RaftRecord:
    """The record at `offset`, of the segment with this uuid. Hot.

    Raises:
      UnsupportedVersion: a newer version of the record.
      FormatError: anything but a whole, undamaged record whose fields agree.
    """
    check_room(buffer, offset, RECORD_SIZE, "Raft record")
    block = memoryview(buffer)[offset : offset + RECORD_SIZE]
    check_sealed(
        block, segment_uuid, magic=RECORD_MAGIC, version=RECORD_VERSION, what="Raft record"
    )
    _, _, reserved = _HEAD.unpack_from(block)
    frame_offset, next_lsn, chain, commit_known, log_epoch, zeros = _LOCAL.unpack_from(
        block, _LOCAL_OFFSET
    )
    if reserved != 0 or zeros != _ZEROS:
        raise FormatError("Raft record: reserved bytes are not zero")
    if commit_known > POSITION_MAX or frame_offset > POSITION_MAX:
        raise FormatError(
            f"Raft record: commit_known {commit_known} or frame_offset {frame_offset} "
            f"is above {POSITION_MAX}"
        )
    if frame_offset % ALIGNMENT:
        raise FormatError(f"Raft record: frame offset {frame_offset} is no multiple of 8")
    header = unpack_entry_header(block, _HEAD.size)
    if next_lsn != header.next_lsn:
        raise FormatError(f"Raft record: next LSN {next_lsn}, its header gives {header.next_lsn}")
    computed = header.chain()
    if chain != computed:
        raise FormatError(f"Raft record: chain {chain:#x}, its header gives {computed:#x}")
    return RaftRecord(header, chain, frame_offset, Index(commit_known), log_epoch)


def record_from_frame(frame: FrameHeader, frame_offset: int) -> RaftRecord:
    """The record of the frame at `frame_offset`, byte for byte the one that was written (S1)."""
    return RaftRecord(
        frame.header, frame.header.chain(), frame_offset, frame.commit_known, frame.log_epoch
    )
