"""A segment on disk: the names, positions and headers of one pair of files (SAFETY S6).

Owns where things lie in `N.data` and `N.raft` and how a pair is opened. Must not know when to roll
or truncate, nor what recovery decides.

    N.data   4,096 bytes with the header │ frames; each flush group starts at a sector boundary
    N.raft   4,096 bytes with the header and a summary of the pair before │ record j, 128 bytes
             each, of index first_index + j

Invariants: a number is used once; a pair exists once its headers are written, which happens last,
the Raft file's flushed before the data file's (S7).
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache

import msgspec

from logstore.errors import CorruptData, DiskFull, FolderRefused, FormatError, UnsupportedVersion
from logstore.format.entry import EntryHeader, Row
from logstore.format.meta import LogStart
from logstore.format.pair_summary import SUMMARY_SIZE, PairSummary, unpack_pair_summary
from logstore.format.raft_record import RECORD_SIZE, RaftRecord, unpack_raft_record
from logstore.format.segment_header import (
    SEGMENT_HEADER_SIZE,
    SEGMENT_IMAGE_SIZE,
    FileRole,
    SegmentHeader,
    unpack_segment_header,
)
from logstore.limits import MIB, SECTOR_BYTES
from logstore.model import EntryKind, Index, Lsn, Term
from logstore.storage.disk import Disk

_NAME = re.compile(r"([0-9]{16})\.(data|raft)")
_SUFFIX = {FileRole.DATA: "data", FileRole.RAFT: "raft"}


class SegmentOptions(msgspec.Struct, frozen=True):
    """Sizes of a segment.

    256 MiB of data are about a second of a fast disk: a roll costs four flushes, so under 1 % of
    the time. 131,072 records are 16 MiB, one for each 2 KiB of data: smaller groups fill the Raft
    file first. A flush group must fit into one segment. `sector_bytes` is the device's physical
    block or 512.
    """

    segment_bytes: int = 256 * MIB
    segment_records: int = 131_072
    sector_bytes: int = SECTOR_BYTES


def segment_name(number: int, role: FileRole) -> str:
    return f"{number:016d}.{_SUFFIX[role]}"


@lru_cache(maxsize=1_024)
def segment_path(folder: str, number: int, role: FileRole) -> str:
    """Cached, since readers ask for it with every piece of a file that they open or read."""
    return os.path.join(folder, segment_name(number, role))


def is_segment_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def segment_numbers(names: list[str]) -> list[int]:
    """The numbers with at least one file of the pair, ascending."""
    found = {int(match[1]) for name in names if (match := _NAME.fullmatch(name))}
    return sorted(found)


def record_position(header: SegmentHeader, index: Index) -> int:
    """The byte position of the record of `index` in the Raft file."""
    return SEGMENT_HEADER_SIZE + (index - header.first_index) * RECORD_SIZE


def aligned(position: int, sector_bytes: int) -> int:
    """The first sector boundary at or after `position`."""
    return -(-position // sector_bytes) * sector_bytes


def row_before(header: SegmentHeader) -> Row:
    """The position before the segment's first entry, as a row: a NOOP with
    only the base's fields."""
    return base_row(
        Index(header.first_index - 1),
        header.base_term,
        header.base_chain,
        next_lsn=header.first_lsn,
        timestamp_ns=header.base_timestamp_ns,
        cumulative_bytes=header.base_cumulative_bytes,
    )


def header_after(
    before: Row,
    live: Sequence[SegmentHeader],
    *,
    number: int,
    log_epoch: int,
    valid_end: int,
    ids: tuple[bytes, bytes, bytes],
) -> SegmentHeader:
    """The header of a segment that begins after the entry `before`, for its Raft file.

    Args:
      live: the live segments, the newest last. Where one begins at the same entry, the new one
        follows the same segment, of which the files may be missing now.
      valid_end: the end of the last live frame in the newest one that begins before.
      ids: of the cluster, the replica and the new segment.
    """
    cluster_id, replica_uuid, segment_uuid = ids
    header = SegmentHeader(
        role=FileRole.RAFT,
        number=number,
        log_epoch=log_epoch,
        cluster_id=cluster_id,
        replica_uuid=replica_uuid,
        segment_uuid=segment_uuid,
        first_index=Index(before.header.index + 1),
        first_lsn=before.header.next_lsn,
        base_term=before.header.term,
        base_chain=before.chain,
        base_timestamp_ns=before.header.timestamp_ns,
        base_cumulative_bytes=before.header.cumulative_bytes,
    )
    for old in reversed(live):
        if old.first_index == header.first_index:
            return msgspec.structs.replace(
                header,
                previous_number=old.previous_number,
                previous_uuid=old.previous_uuid,
                previous_first_index=old.previous_first_index,
                previous_valid_end=old.previous_valid_end,
            )
        if old.first_index < header.first_index:
            return msgspec.structs.replace(
                header,
                previous_number=old.number,
                previous_uuid=old.segment_uuid,
                previous_first_index=old.first_index,
                previous_valid_end=valid_end,
            )
    return header


def row_at_start(start: LogStart, *, timestamp_ns: int = 0, cumulative_bytes: int = 0) -> Row:
    """The log start, the position before the first entry kept, as a row. META does not know its
    time and bytes, which are 0 before the first entry of all."""
    return base_row(
        start.index, start.term, start.chain,
        next_lsn=start.next_lsn, timestamp_ns=timestamp_ns, cumulative_bytes=cumulative_bytes,
    )  # fmt: skip


def log_start_at(row: Row) -> LogStart:
    """The log start after the entry `row`, as META holds it."""
    return LogStart(row.header.index, row.header.term, row.chain, row.header.next_lsn)


def base_row(
    index: Index, term: Term, chain: int, *, next_lsn: Lsn, timestamp_ns: int, cumulative_bytes: int
) -> Row:
    header = EntryHeader(
        kind=EntryKind.NOOP, count=0, term=term, index=index, prev_term=Term(0),
        first_lsn=next_lsn, timestamp_ns=timestamp_ns, cumulative_bytes=cumulative_bytes,
        prev_chain=0, body_size=0, body_crc=0,
    )  # fmt: skip
    return Row(header, chain)


class Pair:
    """The open handles of one segment for writing, and the capacity of its files."""

    def __init__(self, disk: Disk, header: SegmentHeader, data: int, raft: int) -> None:
        self.header = header
        self.data = data
        self.raft = raft
        self.data_capacity = disk.size(data)
        self.records_capacity = (disk.size(raft) - SEGMENT_HEADER_SIZE) // RECORD_SIZE

    def close(self, disk: Disk) -> None:
        disk.close(self.data)
        disk.close(self.raft)


def pair_sizes(options: SegmentOptions) -> dict[FileRole, int]:
    """Bytes to reserve for each file of a pair."""
    records = options.segment_records * RECORD_SIZE
    return {
        FileRole.DATA: options.segment_bytes,
        FileRole.RAFT: SEGMENT_HEADER_SIZE + records,
    }


def prepare_pair(disk: Disk, folder: str, number: int, options: SegmentOptions) -> tuple[int, int]:
    """Create both files of a pair without headers, with their space allocated (S9) and
    their names durable, so that to complete a half-opened pair needs no space. Returns the
    handles of data and raft.

    Raises:
      DiskFull: there is no space; nothing is left where that can be removed.
    """
    handles: list[int] = []
    try:
        for role, size in pair_sizes(options).items():
            handle = disk.create(segment_path(folder, number, role))
            handles.append(handle)
            disk.allocate(handle, size)
            disk.flush(handle)
    except DiskFull:
        for handle in handles:
            disk.close(handle)
        remove_dead_pair(disk, folder, number)
        raise
    disk.sync_folder(folder)
    return handles[0], handles[1]


def remove_dead_pair(disk: Disk, folder: str, number: int) -> None:
    """Unlink both files of a pair that is not live. Where that takes space and there is none,
    the next start does it."""
    for role in FileRole:
        with suppress(DiskFull):
            disk.unlink(segment_path(folder, number, role))


def write_headers_durable(
    disk: Disk, folder: str, header: SegmentHeader, *, summary: bytes, data: int, raft: int
) -> int:
    """Open a segment (S7): Raft header, flush, data header, flush, folder. `summary` of the pair
    before, or nothing, goes with the Raft header. Returns the bytes written."""
    written = 0
    for handle, role, more in ((raft, FileRole.RAFT, summary), (data, FileRole.DATA, b"")):
        image = msgspec.structs.replace(header, role=role).pack()
        written += disk.write(handle, 0, [image + more])
        disk.flush(handle)
    disk.sync_folder(folder)
    return written


def release_allocation(
    disk: Disk, folder: str, header: SegmentHeader, successor: SegmentHeader
) -> None:
    """Cut the files of a closed segment after their last live frame and record (S7). Where a
    segment between the two is missing, the successor says nothing of this one's end."""
    if successor.previous_number != header.number or not successor.previous_valid_end:
        return
    sizes = {
        FileRole.DATA: successor.previous_valid_end,
        FileRole.RAFT: record_position(header, successor.first_index),
    }
    for role, size in sizes.items():
        try:
            handle = disk.open_write(segment_path(folder, header.number, role))
        except FileNotFoundError:
            continue
        if disk.size(handle) > size:
            with suppress(DiskFull):  # each start tries again
                disk.truncate(handle, size)
        disk.close(handle)


def read_header(disk: Disk, path: str) -> SegmentHeader:
    """The header of one file of a pair. The file's number and role must be those of its name.

    Raises:
      FormatError, CorruptData: damaged or never written. FileNotFoundError: no such file.
      FolderRefused: written by a newer version (L3).
    """
    match = _NAME.fullmatch(os.path.basename(path))
    handle = disk.open_read(path)
    try:
        header = unpack_segment_header(disk.read(handle, 0, SEGMENT_IMAGE_SIZE))
    except UnsupportedVersion as error:
        raise FolderRefused(f"{path}: {error}; upgrade this side") from error
    finally:
        disk.close(handle)
    if match and (header.number != int(match[1]) or _SUFFIX[header.role] != match[2]):
        raise FormatError(f"{path}: its header is of segment {header.number}, {header.role.name}")
    return header


def read_either_header(disk: Disk, folder: str, number: int) -> SegmentHeader | None:
    """The header, from the pair's first whole copy, or None."""
    for role in (FileRole.RAFT, FileRole.DATA):
        try:
            return read_header(disk, segment_path(folder, number, role))
        except (FormatError, CorruptData, FileNotFoundError):
            continue
    return None


def read_summary(disk: Disk, folder: str, holder: SegmentHeader) -> PairSummary | None:
    """The summary of the pair before `holder`, or None: nothing needs it, whatever became of it."""
    path = segment_path(folder, holder.number, FileRole.RAFT)
    handle = disk.open_read(path)
    try:
        raw = disk.read(handle, SEGMENT_IMAGE_SIZE, SUMMARY_SIZE)
        return unpack_pair_summary(raw, holder_uuid=holder.segment_uuid)
    except (FormatError, CorruptData):
        return None
    finally:
        disk.close(handle)


def read_record(disk: Disk, handle: int, header: SegmentHeader, index: Index) -> RaftRecord:
    """The record of `index` in the segment's open Raft file.

    Raises:
      CorruptData: there is no whole record of this index.
    """
    position = record_position(header, index)
    raw = disk.read(handle, position, RECORD_SIZE)
    name = segment_name(header.number, FileRole.RAFT)
    try:
        record = unpack_raft_record(raw, segment_uuid=header.segment_uuid)
    except FormatError as error:
        raise CorruptData(name, position, expected=f"record {index}", got=str(error)) from error
    if record.header.index != index or record.log_epoch != header.log_epoch:
        raise CorruptData(
            name, position, expected=f"record {index} of log_epoch {header.log_epoch}",
            got=f"record {record.header.index} of log_epoch {record.log_epoch}",
        )  # fmt: skip
    return record
