"""What a stopped replica's folder says of its log as a whole (SAFETY L8): where it begins, how far
it is known to be committed, and the newest entry of which a record is left.

Reads META, headers, and the records of the newest segments. Repairs nothing and writes nothing.
The entries themselves are read by `whole_entries`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from logstore.errors import CorruptData, FolderRefused, FormatError, UnsupportedVersion
from logstore.format.entry import EntryHeader, Row
from logstore.format.group import frame_size
from logstore.format.level import NEWEST_LEVEL, check_level, level_of
from logstore.format.meta import Meta
from logstore.format.raft_record import RECORD_SIZE, RaftRecord, unpack_raft_record
from logstore.format.segment_header import SEGMENT_HEADER_SIZE, FileRole, SegmentHeader
from logstore.limits import KIB, MIB
from logstore.model import Index, ReplicaState
from logstore.storage.disk import Disk
from logstore.storage.folder_scan import check_holds_no_entry, check_is_ours, read_salvaged
from logstore.storage.meta_store import newest_meta
from logstore.storage.salvage import salvage_folder
from logstore.storage.segment import (
    read_header,
    record_position,
    row_at_start,
    row_before,
    segment_name,
    segment_numbers,
    segment_path,
)
from logstore.storage.segment_map import LiveSegment

# Records are read so many at a time: 1 MiB.
_CHUNK_RECORDS = MIB // RECORD_SIZE
_ZERO_RECORD = bytes(RECORD_SIZE)
# A sector that the device refuses to read is no unwritten space.
_UNREADABLE = b"?"
# How far after the last entry bytes of another one are looked for: it begins at the next sector.
TORN_SEARCH_BYTES = 64 * KIB


class RecordSlot(msgspec.Struct, frozen=True, gc=False):
    """What lies where the record of `index` belongs. `record` None: unwritten space if `is_unused`,
    else bytes that are no whole record."""

    index: Index
    record: RaftRecord | None
    is_unused: bool


class FolderLog(msgspec.Struct, frozen=True):
    """One replica's log, before its entries are read.

    Attributes:
      folder: the data folder.
      cluster_id, node: whose it is; node 0: META is gone.
      base: the position before the first entry, as a row.
      base_bytes: cumulative bytes there; None: not known.
      segments: the live ones, by index; one without a header is missing.
      commit: the highest index that META or a newest record says is committed.
      newest: the newest entry with a whole record, or the position that the newest header
        begins after; None: no header is left.
      is_end_known: False: entries may follow `newest`, for the records of the newest Raft file
        are lost from there on, or it has another pair after it without a header.
      faults: what is damaged in META and headers, and what follows from it.
      is_start_known: False: without META, entries before `base` may have been trimmed or lost.
      headless_end: the number of a pair after all others that holds entries and of which both
        headers are damaged; 0: there is none.
    """

    folder: str
    cluster_id: bytes
    node: int
    base: Row
    base_bytes: int | None
    segments: tuple[LiveSegment, ...]
    commit: Index
    newest: EntryHeader | None
    is_end_known: bool
    faults: tuple[str, ...]
    is_start_known: bool
    headless_end: int

    @property
    def first_lsn(self) -> int:
        """Of the first payload of the log; the next one to come if it holds none."""
        return self.base.header.next_lsn


def read_folder_log(disk: Disk, folder: str) -> FolderLog:
    """Look at a folder that nothing writes to.

    Raises:
      FolderRefused: it holds no log, or a mixture of two; or it was written by a newer version.
      UnsupportedLevel: the log is above the newest format level that this version reads (S11).
    """
    meta = newest_meta(disk, folder)
    numbers = segment_numbers(disk.list_folder(folder))
    _refuse_without_log(folder, meta, numbers)
    found = salvage_folder(disk, folder)
    faults = list(found.faults)
    segments = found.segments if meta is not None else _from_first_file(found.segments, numbers)
    headers = [each.header for each in segments if each.header is not None]
    _refuse_mixture(folder, headers, meta)
    if meta is not None:
        base = row_at_start(meta.log_start)
    elif headers:
        base = row_before(headers[0])
        faults.append(_without_meta(base))
    else:
        raise FolderRefused(
            f"{folder}: META and every segment header are damaged or gone, so nothing says what "
            "the rest is; salvage another replica's folder"
        )
    commit, newest, is_end_known = _newest(disk, folder, segments, base)
    headless_end = _headless_end(disk, folder, numbers, headers)
    return FolderLog(
        folder=folder,
        cluster_id=found.cluster_id,
        node=meta.node if meta is not None else 0,
        base=base,
        base_bytes=_base_bytes(disk, folder, headers, base),
        segments=segments,
        commit=commit,
        newest=newest,
        is_end_known=is_end_known and not headless_end,
        faults=tuple(faults),
        is_start_known=meta is not None or base.header.index == 0,
        headless_end=headless_end,
    )


def record_slots(
    disk: Disk, folder: str, segment: LiveSegment, header: SegmentHeader, first: Index
) -> Iterator[RecordSlot]:
    """The records of a segment from `first` on, 1 MiB at a time: of a sealed one each live index,
    of the newest one as far as its file goes.

    Raises:
      FolderRefused, UnsupportedLevel: written by a newer version.
    """
    path = segment_path(folder, header.number, FileRole.RAFT)
    try:
        handle = disk.open_read(path)
    except FileNotFoundError:
        handle = -1
    try:
        size = disk.size(handle) if handle >= 0 else 0
        slots = max(0, size - SEGMENT_HEADER_SIZE) // RECORD_SIZE
        in_file = Index(header.first_index + slots)
        end = segment.end_index if segment.is_sealed else in_file
        while first < end:
            count = min(_CHUNK_RECORDS, end - first)
            position = record_position(header, first)
            raw = b""
            if first < in_file:
                raw = read_salvaged(
                    disk, handle, position, count * RECORD_SIZE, unreadable=_UNREADABLE
                )
            raw = raw.ljust(count * RECORD_SIZE, b"\0")
            for place in range(0, len(raw), RECORD_SIZE):
                yield _slot(raw, place, Index(first + place // RECORD_SIZE), header)
            first = Index(first + count)
    finally:
        if handle >= 0:
            disk.close(handle)


def _slot(raw: bytes, place: int, index: Index, header: SegmentHeader) -> RecordSlot:
    if raw.startswith(_ZERO_RECORD, place):
        return RecordSlot(index, None, True)
    name = segment_name(header.number, FileRole.RAFT)
    try:
        record = unpack_raft_record(raw, place, segment_uuid=header.segment_uuid)
    except UnsupportedVersion as error:
        raise FolderRefused(f"{name}: {error}; upgrade this side") from error
    except FormatError:
        return RecordSlot(index, None, False)
    if (record.header.index, record.log_epoch) != (index, header.log_epoch):
        return RecordSlot(index, None, False)
    check_level(name, level_of(record.header.kind), newest=NEWEST_LEVEL)
    return RecordSlot(index, record, False)


# --- whose log it is, and where it begins ---


def _refuse_without_log(folder: str, meta: Meta | None, numbers: Sequence[int]) -> None:
    if meta is None and not numbers:
        raise FolderRefused(
            f"{folder} holds no log: name the data folder of one replica, which `logstore serve` "
            "was given, or node-N in the folder of a cluster"
        )
    if meta is not None and meta.state in (ReplicaState.EMPTY, ReplicaState.STARTING):
        raise FolderRefused(
            f"{folder} holds no log: its replica was part of no cluster yet; salvage another one"
        )
    if meta is not None and meta.installing is not None:
        raise FolderRefused(
            f"{folder}: this replica was dropping its log, to start over at its leader's log "
            "start, and what is left is no log; salvage another replica's folder"
        )


def _refuse_mixture(folder: str, headers: Sequence[SegmentHeader], meta: Meta | None) -> None:
    for header in headers:
        if meta is not None:
            check_is_ours(folder, header, meta)
        elif (header.cluster_id, header.replica_uuid) != (
            headers[0].cluster_id,
            headers[0].replica_uuid,
        ):
            raise FolderRefused(
                f"{folder}: segments {headers[0].number} and {header.number} are of two replicas; "
                "two data folders were mixed"
            )


def _from_first_file(
    segments: tuple[LiveSegment, ...], numbers: Sequence[int]
) -> tuple[LiveSegment, ...]:
    """Without META: the segments from the first on of which there is a file. Those before it
    were trimmed, or lost."""
    for at, segment in enumerate(segments):
        if segment.number in numbers:
            return segments[at:]
    return ()


def _without_meta(base: Row) -> str:
    at = f"the log begins at LSN {base.header.next_lsn}"
    if base.header.index == 0:
        return f"without META {at}, also if a trim gave up some of its oldest files' payloads"
    return f"without META {at} as far as its files say: what was before was trimmed, or is lost"


def _base_bytes(disk: Disk, folder: str, headers: Sequence[SegmentHeader], base: Row) -> int | None:
    """META does not know how many bytes were before the log start: the entry there does."""
    if not headers or headers[0].first_index > base.header.index + 1:
        return 0 if base.header.index == 0 else None
    if headers[0].first_index == base.header.index + 1:
        return headers[0].base_cumulative_bytes
    only = LiveSegment(headers[0].number, base.header.index, Index(base.header.index + 1), None)
    for slot in record_slots(disk, folder, only, headers[0], base.header.index):
        return slot.record.header.cumulative_bytes if slot.record is not None else None
    return None


# --- where it ends ---


def _newest(
    disk: Disk, folder: str, segments: Sequence[LiveSegment], base: Row
) -> tuple[Index, EntryHeader | None, bool]:
    """The highest commit index known, the newest whole record's entry, and whether it is the last.
    Each record has the commit index of its time, so the newest segment with a record knows it. If
    one did not, less would be certain, never more."""
    commit = base.header.index
    newest = base.header if not segments else None
    is_end_known = True
    for segment in reversed(segments):
        header = segment.header
        if header is None:
            continue
        last = None
        for slot in record_slots(disk, folder, segment, header, segment.first_index):
            if slot.record is not None:
                last = slot.record
                commit = max(commit, last.commit_known)
        if newest is None:
            newest = row_before(header).header if last is None else last.header
            is_end_known = _is_end_known(disk, folder, header, last)
        if last is not None or segment.first_index == base.header.index + 1:
            break
    return commit, newest, is_end_known


def _is_end_known(disk: Disk, folder: str, header: SegmentHeader, last: RaftRecord | None) -> bool:
    """Whether there is space for a record after the newest segment's last one, which is unused. It
    was allocated before the first entry, so without it a part of the Raft file is lost, or all of
    it where neither header nor record is whole; unless no frame can follow either."""
    next_index = header.first_index if last is None else Index(last.header.index + 1)
    raft = segment_path(folder, header.number, FileRole.RAFT)
    try:
        if last is None:
            read_header(disk, raft)
        handle = disk.open_read(raft)
    except (FormatError, CorruptData, FileNotFoundError):
        size = 0
    else:
        size = disk.size(handle)
        disk.close(handle)
    if size >= record_position(header, next_index) + RECORD_SIZE:
        return True
    try:
        handle = disk.open_read(segment_path(folder, header.number, FileRole.DATA))
    except FileNotFoundError:
        return True
    end = SEGMENT_HEADER_SIZE if last is None else last.frame_offset + frame_size(last.header)
    try:
        return not any(read_salvaged(disk, handle, end, TORN_SEARCH_BYTES, unreadable=_UNREADABLE))
    finally:
        disk.close(handle)


def _headless_end(
    disk: Disk, folder: str, numbers: Sequence[int], headers: Sequence[SegmentHeader]
) -> int:
    """The first pair after the newest known one that has entries and no header: nothing but
    its own headers would name it. A spare has neither."""
    newest = max((header.number for header in headers), default=0)
    for number in numbers:
        if number > newest:
            try:
                check_holds_no_entry(disk, folder, number)
            except CorruptData:
                return number
    return 0
