"""The segment header: the same fields at the start of `N.data` and of `N.raft` (SAFETY S6, S7).

Owns one 512-byte sector. The rest of the first 4,096 bytes of either file is reserved and zero, but
for the summary of the pair before (pair_summary.py) in the second sector of the Raft file. A roll
or a truncation is a new pair of durable headers and nothing else. A header says where the segment
begins, where the log was just before (base), and which live segment came before it.

      0 magic u32 'LSEG' │ version u16 │ role u16 (1 data, 2 raft)
      8 number u32 (>= 1) │ log_epoch u32
     16 cluster id, 16 bytes
     32 replica uuid, 16 bytes
     48 segment uuid, 16 bytes
     64 first index u64           72 first LSN u64
     80 base term u64             88 base chain u64             (of the entry before first index)
     96 base timestamp_ns u64    104 base cumulative_bytes u64
    112 previous number u32 (0: none) │ reserved u32 = 0
    120 previous segment uuid, 16 bytes
    136 previous first index u64 144 previous valid end u64 (bytes of its data file)
    152 reserved = 0
    508 crc u32: CRC32C of [0, 508), seeded with CRC32C(nothing) = 0
"""

from __future__ import annotations

import struct
from enum import IntEnum

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
from logstore.limits import SECTOR_BYTES
from logstore.model import Index, Lsn, Term

SEGMENT_MAGIC = magic_number("LSEG")
SEGMENT_VERSION = 1
SEGMENT_HEADER_SIZE = 4096
SEGMENT_IMAGE_SIZE = SECTOR_BYTES
_FIELDS = struct.Struct("<IHHII16s16s16sQQQQQQII16sQQ")
_ZEROS = bytes(SEGMENT_IMAGE_SIZE - 4 - _FIELDS.size)
NO_UUID = bytes(16)


class FileRole(IntEnum):
    """Which file of the pair a header is in."""

    DATA = 1
    RAFT = 2


class SegmentHeader(msgspec.Struct, frozen=True, gc=False):
    """Where a segment begins. `base_*` are of the entry before `first_index`; `previous_*` are zero
    in the first segment; `previous_valid_end` in bytes of the previous data file."""

    role: FileRole
    number: int
    log_epoch: int
    cluster_id: bytes
    replica_uuid: bytes
    segment_uuid: bytes
    first_index: Index
    first_lsn: Lsn
    base_term: Term
    base_chain: int
    base_timestamp_ns: int
    base_cumulative_bytes: int
    previous_number: int = 0
    previous_uuid: bytes = NO_UUID
    previous_first_index: Index = Index(0)
    previous_valid_end: int = 0

    def pack(self) -> bytes:
        """The 512-byte image."""
        check_ids(
            "segment header",
            self.cluster_id, self.replica_uuid, self.segment_uuid, self.previous_uuid,
        )  # fmt: skip
        fields = _FIELDS.pack(
            SEGMENT_MAGIC, SEGMENT_VERSION, self.role, self.number, self.log_epoch,
            self.cluster_id, self.replica_uuid, self.segment_uuid, self.first_index,
            self.first_lsn, self.base_term, self.base_chain, self.base_timestamp_ns,
            self.base_cumulative_bytes, self.previous_number, 0, self.previous_uuid,
            self.previous_first_index, self.previous_valid_end,
        )  # fmt: skip
        return seal(fields + _ZEROS, b"")

    def twin(self) -> SegmentHeader:
        """The header of the other file of the pair."""
        other = FileRole.RAFT if self.role == FileRole.DATA else FileRole.DATA
        return msgspec.structs.replace(self, role=other)


def unpack_segment_header(buffer: Buffer, offset: int = 0) -> SegmentHeader:
    """The header at `offset`.

    Raises:
      UnsupportedVersion: a newer version of the header.
      FormatError: anything but a whole, undamaged header.
    """
    check_room(buffer, offset, SEGMENT_IMAGE_SIZE, "segment header")
    block = memoryview(buffer)[offset : offset + SEGMENT_IMAGE_SIZE]
    check_sealed(block, b"", magic=SEGMENT_MAGIC, version=SEGMENT_VERSION, what="segment header")
    _, _, role, *before, reserved, previous_uuid, previous_first_index, previous_valid_end = (
        _FIELDS.unpack_from(block)
    )
    if reserved != 0 or block[_FIELDS.size : -4] != _ZEROS:
        raise FormatError("segment header: reserved bytes are not zero")
    if role not in (FileRole.DATA, FileRole.RAFT):
        raise FormatError(f"segment header: file role {role}")
    fields = (*before, previous_uuid, previous_first_index, previous_valid_end)
    header = SegmentHeader(FileRole(role), *fields)
    _check_fields(header)
    return header


def _check_fields(header: SegmentHeader) -> None:
    check_positions(
        "segment header",
        first_index=header.first_index,
        first_lsn=header.first_lsn,
        base_term=header.base_term,
        base_timestamp_ns=header.base_timestamp_ns,
        base_cumulative_bytes=header.base_cumulative_bytes,
        previous_first_index=header.previous_first_index,
        previous_valid_end=header.previous_valid_end,
    )
    if header.number < 1 or header.first_index < 1 or header.first_lsn < 1:
        raise FormatError(
            f"segment header: number {header.number}, first index {header.first_index},"
            f" first LSN {header.first_lsn}; each is at least 1"
        )
    if header.previous_number >= header.number:
        raise FormatError(f"segment {header.number} names {header.previous_number} before it")
