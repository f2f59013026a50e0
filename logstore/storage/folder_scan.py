"""Recovery, steps 2 and 3: which segments there are, with both headers whole (SAFETY section 4).

Owns what is done to files before any entry is read: flush, drop caches, read headers, repair one
header from its twin, refuse files of others (L3). Must not know entries.

Invariant: after `scan_folder` every live pair has both files with durable headers, and every later
read returns what the device holds.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from logstore.errors import CorruptData, DiskFull, FolderRefused, FormatError
from logstore.format.meta import Meta
from logstore.format.segment_header import SEGMENT_HEADER_SIZE, FileRole, SegmentHeader
from logstore.limits import KIB, SECTOR_BYTES
from logstore.storage.disk import Disk
from logstore.storage.repair_mark import begin_repair, is_repairing
from logstore.storage.segment import (
    SegmentOptions,
    pair_sizes,
    read_either_header,
    read_header,
    segment_name,
    segment_numbers,
    segment_path,
)
from logstore.storage.segment_map import SegmentMap

# A pair without a header is searched this far for entries. The first frame and record follow the
# header block, so a pair that ever held an entry shows it here.
_ENTRY_SEARCH_BYTES = 64 * KIB


class FolderScan(msgspec.Struct, frozen=True):
    """`headers`: every pair with a header, ascending; `dead`: numbers whose
    files may be removed."""

    headers: tuple[SegmentHeader, ...]
    map: SegmentMap
    dead: tuple[int, ...]
    next_number: int


def scan_folder(
    disk: Disk, folder: str, options: SegmentOptions, meta: Meta, *, tick: Callable[[], None]
) -> FolderScan:
    """Make the folder's contents durable, read every header from the device
    and repair the live ones.

    Raises:
      FolderRefused: another cluster's, another node's or a newer version's segments (L3).
      CorruptData: a pair that held entries and has no header left, or two headers that disagree.
      DiskFull: no space for a file of a pair that is missing.
    """
    numbers = segment_numbers(disk.list_folder(folder))
    _flush_and_drop_caches(disk, folder, numbers, tick=tick)
    headers: list[SegmentHeader] = []
    dead: list[int] = []
    for number in numbers:
        header = _pair_header(disk, folder, number)
        if header is None:
            dead.append(number)
        else:
            check_is_ours(folder, header, meta)
            headers.append(header)
        tick()
    segments = SegmentMap.of(headers, start_index=meta.log_start.index)
    for number in dead:
        if not (_was_dead_before(segments, number) or _is_below(segments, number)):
            check_holds_no_entry(disk, folder, number)
    live = {segment.number for segment in segments.segments}
    named = [number for header in headers for number in (header.number, header.previous_number)]
    next_number = max([*numbers, *named, 0]) + 1
    unheaded = tuple(dead)
    for header in headers:
        if header.number not in live:
            dead.append(header.number)
            continue
        lacking = _roles_without_header(disk, folder, header)
        if lacking and header.number != next_number - 1:
            begin_repair(disk, folder, unused=unheaded)
        for role in lacking:
            _write_header(disk, folder, header, role, options, is_newest=header is headers[-1])
    return FolderScan(tuple(headers), segments, tuple(dead), next_number)


def _flush_and_drop_caches(
    disk: Disk, folder: str, numbers: list[int], *, tick: Callable[[], None]
) -> None:
    """Flush all data files, then all Raft files (F2), then the names, and drop the caches. After a
    kill the page cache holds bytes that the disk may not hold; after a failed flush it holds bytes
    that the disk never will. Pairs older than the newest header are flushed: each header is written
    when every flush before it has ended (F6), and a start that was killed while it repaired one has
    left its mark. 400 flushes of clean files took 0.8 s (2026-11-23).
    """
    newest = 0 if is_repairing(disk, folder) else _newest_header(disk, folder, numbers)
    for role in (FileRole.DATA, FileRole.RAFT):
        for number in numbers:
            try:
                handle = disk.open_write(segment_path(folder, number, role))
            except FileNotFoundError:
                continue
            if number >= newest:
                disk.flush(handle)
            disk.drop_cache(handle)
            disk.close(handle)
            tick()
    disk.sync_folder(folder)


def _newest_header(disk: Disk, folder: str, numbers: list[int]) -> int:
    """The newest number that has a header, in the page cache or on the disk; 0: none has."""
    for number in reversed(numbers):
        if read_either_header(disk, folder, number) is not None:
            return number
    return 0


def _pair_header(disk: Disk, folder: str, number: int) -> SegmentHeader | None:
    found = []
    for role in FileRole:
        try:
            found.append(read_header(disk, segment_path(folder, number, role)))
        except (FormatError, CorruptData, FileNotFoundError):
            continue
    if len(found) == 2 and found[0].twin() != found[1]:
        raise CorruptData(
            segment_name(number, FileRole.RAFT), 0, expected="the header of its data file",
            got="another whole header; restore one of the two files",
        )  # fmt: skip
    return found[0] if found else None


def _was_dead_before(segments: SegmentMap, number: int) -> bool:
    """Whether a later live segment names an older one as the live one before it: then this one was
    dead already, or a spare."""
    return any(
        segment.header is not None
        and segment.header.previous_number < number < segment.header.number
        for segment in segments.segments
    )


def _is_below(segments: SegmentMap, number: int) -> bool:
    """Whether the oldest live pair begins at or below log start, and later than this one: then this
    one lies wholly below, and its removal was interrupted."""
    oldest = segments.segments[0] if segments.segments else None
    return oldest is not None and oldest.header is not None and number < oldest.number


def check_holds_no_entry(disk: Disk, folder: str, number: int) -> None:
    """A pair that held entries and has no valid header is damage: stop, never skip it. Nor one that
    cannot be read, which proves nothing: it may be read again later (S10)."""
    for role in FileRole:
        path = segment_path(folder, number, role)
        try:
            handle = disk.open_read(path)
        except FileNotFoundError:
            continue
        try:
            start = read_salvaged(
                disk, handle, SEGMENT_HEADER_SIZE, _ENTRY_SEARCH_BYTES, unreadable=b"?"
            )
        finally:
            disk.close(handle)
        if any(start):
            raise CorruptData(
                path, 0, expected="a segment header in one of the two files",
                got="none, but entries behind it, or sectors that the device refuses to read: if it"
                " reads them again, start it again; else replace this replica",
            )  # fmt: skip


def check_is_ours(folder: str, header: SegmentHeader, meta: Meta) -> None:
    """Refuse the segments of others.

    Raises:
      FolderRefused: of another cluster or another node (L3).
    """
    if header.cluster_id != meta.cluster_id:
        raise FolderRefused(
            f"{folder}: segment {header.number} is of cluster {header.cluster_id.hex()}, META of"
            f" {meta.cluster_id.hex()}; two data folders were mixed"
        )
    if header.replica_uuid != meta.replica_uuid:
        raise FolderRefused(
            f"{folder}: segment {header.number} is of replica {header.replica_uuid.hex()}, META of"
            f" {meta.replica_uuid.hex()}; a folder must not be copied between nodes"
        )


def _roles_without_header(disk: Disk, folder: str, header: SegmentHeader) -> list[FileRole]:
    """The files of the pair whose header is missing or damaged: a half-opened pair is completed,
    and its truncation stands."""
    lacking = []
    for role in FileRole:
        try:
            found = read_header(disk, segment_path(folder, header.number, role))
        except (FileNotFoundError, FormatError, CorruptData):
            lacking.append(role)
            continue
        if found != msgspec.structs.replace(header, role=role):
            lacking.append(role)
    return lacking


def _write_header(
    disk: Disk,
    folder: str,
    header: SegmentHeader,
    role: FileRole,
    options: SegmentOptions,
    *,
    is_newest: bool,
) -> None:
    """Write a header from its twin, durably. Both files of a half-opened pair have their space;
    where a Raft file has not, its records are lost, which this start and the next ones tell from
    its size."""
    path = segment_path(folder, header.number, role)
    try:
        handle = disk.open_write(path)
    except FileNotFoundError:
        handle = disk.create(path)
    try:
        is_filled = is_newest and role == FileRole.DATA
        _allocate(disk, handle, pair_sizes(options)[role] if is_filled else SEGMENT_HEADER_SIZE)
        disk.write(handle, 0, [msgspec.structs.replace(header, role=role).pack()])
        disk.flush(handle)
    finally:
        disk.close(handle)
    disk.sync_folder(folder)


def _allocate(disk: Disk, handle: int, size: int) -> None:
    """Allocate `size` bytes. Without space the segment counts as full, and the next one waits for
    space (S9); without space for the header, recovery waits, too."""
    try:
        disk.allocate(handle, size)
    except DiskFull:
        if disk.size(handle) < SEGMENT_HEADER_SIZE:
            disk.allocate(handle, SEGMENT_HEADER_SIZE)


def read_salvaged(
    disk: Disk,
    handle: int,
    offset: int,
    size: int,
    *,
    unreadable: bytes = b"\0",
    on_refused: Callable[[int], None] = lambda _end: None,
) -> bytes:
    """Bytes at `offset`; a sector that the device refuses to read is zeros: damage, not the end
    (Q5). `unreadable`: one byte, which a sector that is asked for as a whole is filled with, also
    the last one of the file. `on_refused` is told where each sector ends that was refused."""
    try:
        return disk.read(handle, offset, size)
    except CorruptData:
        file_end = disk.size(handle)
        end = min(offset + size, file_end)
    pieces = []
    while offset < end:
        step = min(SECTOR_BYTES - offset % SECTOR_BYTES, end - offset)
        try:
            pieces.append(disk.read(handle, offset, step))
        except CorruptData:
            is_whole = offset % SECTOR_BYTES == 0 and step in (SECTOR_BYTES, file_end - offset)
            pieces.append((unreadable if is_whole else b"\0") * step)
            on_refused(offset + step)
        offset += step
    return b"".join(pieces)
