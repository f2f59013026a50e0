"""What a replica's folder holds, damage included, without a node and without repairing anything.

Owns the walk over live entries, with what is left of records, frames and batches. Damage is an
ordinary result: `fault` says what and where, and is empty where the bytes are whole. Must not
decide what is true: of two records of one LSN both are returned.

A record and its frame each describe the entry, and each has a CRC; either is enough. A body with a
wrong CRC is returned all the same: `salvaged_batches` finds what is whole in it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from crc32c import crc32c

from logstore.errors import CorruptData, FormatError, InvalidRequest
from logstore.format.entry import EntryHeader
from logstore.format.group import FRAME_HEADER_SIZE, unpack_frame_header
from logstore.format.level import NEWEST_LEVEL, check_level, level_of
from logstore.format.raft_record import RECORD_SIZE, RaftRecord, unpack_raft_record
from logstore.format.segment_header import FileRole, SegmentHeader
from logstore.model import Index
from logstore.storage.disk import Disk
from logstore.storage.folder_scan import read_salvaged
from logstore.storage.inspect import inspect_records
from logstore.storage.meta_store import META_NAMES, newest_meta, read_meta
from logstore.storage.segment import (
    read_either_header,
    read_header,
    record_position,
    segment_name,
    segment_numbers,
    segment_path,
)
from logstore.storage.segment_map import LiveSegment, SegmentMap

_ZERO_RECORD = bytes(RECORD_SIZE)


class SalvagedFolder(msgspec.Struct, frozen=True):
    """A data folder, from its headers.

    Attributes:
      cluster_id: 16 bytes; zeros if neither META nor a header is whole.
      first_lsn: where the log begins.
      segments: the live ones, by index; one without a header is missing.
      faults: what is damaged in META and headers.
    """

    cluster_id: bytes
    first_lsn: int
    segments: tuple[LiveSegment, ...]
    faults: tuple[str, ...]


class SalvagedEntry(msgspec.Struct, frozen=True):
    """A live entry that takes LSNs, or of which nothing is known.

    Attributes:
      first_lsn, count: from its record or frame; count 0: unknown.
      body: its bytes as they are; b"": missing.
      commit_known: the commit index that was known when it was written; 0: unknown.
    """

    index: int
    first_lsn: int
    count: int
    body: bytes
    commit_known: int
    fault: str

    @property
    def next_lsn(self) -> int:
        return self.first_lsn + self.count


def salvage_folder(disk: Disk, folder: str) -> SalvagedFolder:
    """Raises:
    FolderRefused: written by a newer version.
    UnsupportedLevel: the log is above the newest format level that this version reads (S11).
    """
    faults = [fault for name in META_NAMES if (fault := _meta_fault(disk, folder, name))]
    meta = newest_meta(disk, folder)
    if meta is not None:
        check_level(folder, meta.level, newest=NEWEST_LEVEL)
    is_dropped = meta is not None and meta.installing is not None  # what is left is no log (G5a)
    headers = []
    for number in () if is_dropped else segment_numbers(disk.list_folder(folder)):
        header = read_either_header(disk, folder, number)
        if header is not None:
            headers.append(header)
    start_index = meta.log_start.index if meta is not None else Index(0)
    segments = tuple(
        msgspec.structs.replace(each, first_index=Index(max(each.first_index, start_index + 1)))
        for each in SegmentMap.of(headers, start_index=start_index).segments
    )
    for segment in segments:
        faults += _header_faults(disk, folder, segment)
    known = [segment.header for segment in segments if segment.header is not None]
    if meta is not None:
        cluster_id, first_lsn = meta.cluster_id, int(meta.log_start.next_lsn)
    elif known:
        cluster_id, first_lsn = known[0].cluster_id, int(known[0].first_lsn)
    else:
        cluster_id, first_lsn = bytes(16), 1
    return SalvagedFolder(cluster_id, first_lsn, segments, tuple(faults))


def committed_lsn(disk: Disk, folder: str, found: SalvagedFolder) -> int:
    """The last LSN that this folder knows to be committed. Nothing is known of later ones. Below
    `found.first_lsn`: it knows of none."""
    commit = last_lsn = 0
    for segment in reversed(found.segments):
        for entry in reversed(list(_records(disk, folder, segment))):
            if entry is None:
                continue
            commit = max(commit, entry.commit_known)
            if entry.header.index <= commit:
                return entry.header.next_lsn - 1
            last_lsn = entry.header.first_lsn - 1
    return last_lsn if commit else found.first_lsn - 1


def salvage_segment(disk: Disk, folder: str, segment: LiveSegment) -> Iterator[SalvagedEntry]:
    """The entries of one live segment that have LSNs or are unknown, by index. Errors as
    `salvage_folder`."""
    header = segment.header
    if header is None:
        return
    data_path = segment_path(folder, header.number, FileRole.DATA)
    frames: dict[int, int] | None = None
    try:
        data = disk.open_read(data_path)
    except FileNotFoundError:
        data = -1
    try:
        for slot, record in enumerate(_records(disk, folder, segment)):
            index = header.first_index + slot
            if index < segment.first_index:
                continue  # below log start
            if record is not None:
                if record.header.count:
                    yield _from_record(disk, data, record, header)
                continue
            if frames is None:
                frames = _frames(disk, data_path) if data >= 0 else {}
            yield from _without_record(disk, data, frames.get(index), index, header)
    finally:
        if data >= 0:
            disk.close(data)


# --- headers ---


def _meta_fault(disk: Disk, folder: str, name: str) -> str:
    try:
        read_meta(disk, f"{folder}/{name}")
    except (FormatError, CorruptData) as error:
        return f"{name}: {error}"
    except FileNotFoundError:
        return f"{name} is missing"
    return ""


def _header_faults(disk: Disk, folder: str, segment: LiveSegment) -> Iterator[str]:
    if segment.header is None:
        last = segment.end_index - 1
        yield f"segment {segment.number}, entries {segment.first_index} to {last}: both files or "\
            "their headers are gone"  # fmt: skip
        return
    for role in FileRole:
        name = segment_name(segment.number, role)
        try:
            read_header(disk, f"{folder}/{name}")
        except (FormatError, CorruptData) as error:
            yield f"{name}: {error}"
        except FileNotFoundError:
            yield f"{name} is missing"


# --- records and frames ---


def _records(disk: Disk, folder: str, segment: LiveSegment) -> list[RaftRecord | None]:
    """The records of the live indexes; None: damaged. Of the newest segment, up
    to the last whole one."""
    header = segment.header
    if header is None:
        return []
    path = segment_path(folder, header.number, FileRole.RAFT)
    try:
        handle = disk.open_read(path)
    except FileNotFoundError:
        return [None] * (segment.end_index - header.first_index if segment.is_sealed else 0)
    try:
        first = record_position(header, header.first_index)
        end = record_position(header, segment.end_index) if segment.is_sealed else disk.size(handle)
        raw = read_salvaged(disk, handle, first, end - first)
    finally:
        disk.close(handle)
    count = (end - first) // RECORD_SIZE
    raw = raw.ljust(count * RECORD_SIZE, b"\0")
    found = [_record(raw, slot, header) for slot in range(count)]
    if not segment.is_sealed:
        while found and found[-1] is None:
            found.pop()
    return found


def _record(raw: bytes, slot: int, header: SegmentHeader) -> RaftRecord | None:
    place = slot * RECORD_SIZE
    if raw.startswith(_ZERO_RECORD, place):
        return None
    try:
        record = unpack_raft_record(raw, place, segment_uuid=header.segment_uuid)
    except FormatError:
        return None
    is_ours = record.header.index == header.first_index + slot
    if not is_ours or record.log_epoch != header.log_epoch:
        return None
    name = segment_name(header.number, FileRole.RAFT)
    check_level(name, level_of(record.header.kind), newest=NEWEST_LEVEL)
    return record


def _from_record(disk: Disk, data: int, record: RaftRecord, header: SegmentHeader) -> SalvagedEntry:
    entry = record.header
    size = FRAME_HEADER_SIZE + entry.body_size
    raw = read_salvaged(disk, data, record.frame_offset, size) if data >= 0 else b""
    body = raw[FRAME_HEADER_SIZE:]
    fault = _frame_fault(raw, entry, header)
    if fault:
        name = segment_name(header.number, FileRole.DATA)
        fault = f"{name} at byte {record.frame_offset}: {fault}"
    return _entry(entry, body, record.commit_known, fault)


def _frame_fault(raw: bytes, entry: EntryHeader, header: SegmentHeader) -> str:
    body = memoryview(raw)[FRAME_HEADER_SIZE:]
    if len(body) != entry.body_size:
        return f"{len(raw)} bytes for entry {entry.index} of {entry.body_size} bytes"
    if crc32c(body) != entry.body_crc:
        return f"the CRC of the body of entry {entry.index} is wrong"
    try:
        frame = unpack_frame_header(raw, segment_uuid=header.segment_uuid)
    except FormatError as error:
        return str(error)
    if frame.header != entry:
        return f"the frame of entry {entry.index} says something else than its record"
    return ""


def _without_record(
    disk: Disk, data: int, offset: int | None, index: int, header: SegmentHeader
) -> Iterator[SalvagedEntry]:
    """An entry from its frame, where its record is damaged."""
    position = record_position(header, Index(index))
    fault = f"{segment_name(header.number, FileRole.RAFT)} at byte {position}: no record {index}"
    if offset is None:
        yield SalvagedEntry(index, 0, 0, b"", 0, f"{fault}, and no frame")
        return
    head = read_salvaged(disk, data, offset, FRAME_HEADER_SIZE)
    frame = unpack_frame_header(head, segment_uuid=header.segment_uuid)
    entry = frame.header
    body = read_salvaged(disk, data, offset + FRAME_HEADER_SIZE, entry.body_size)
    if crc32c(body) != entry.body_crc:
        fault += ", and the CRC of its frame's body is wrong"
    yield _entry(entry, body if entry.count else b"", frame.commit_known, fault)


def _frames(disk: Disk, path: str) -> dict[int, int]:
    """Index to offset of every frame with a whole header; the last frame of an index counts."""
    try:
        rows = list(inspect_records(disk, path))
    except InvalidRequest:
        return {}  # without the data file's header, its frames cannot be told from older ones
    return {int(row["index"]): int(row["position"]) for row in rows if "index" in row}


def _entry(entry: EntryHeader, body: bytes, commit_known: int, fault: str) -> SalvagedEntry:
    return SalvagedEntry(entry.index, entry.first_lsn, entry.count, body, commit_known, fault)
