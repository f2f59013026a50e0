"""Reading the log's files from any process while the writer works (SAFETY V7, Q5).

Owns its own open descriptors and its own map of the live segments. Must not know what is committed
or visible: the caller passes an upper bound and never asks above it. Nothing is written or locked.

Every read goes into a private buffer and is checked before it is returned: the record's CRC and
index; the frame's CRC, and that it is the frame of its record, by (index, term, first LSN, chain);
the body's CRC. Log files are never mapped.

Invariant: after a roll or truncation, files may vanish or be cut while they are read. So a read
that fails is tried again after the headers were read again; only a second failure is damage. Log
start may move meanwhile, too: what is at or below it is `BelowLogStart`, never damage, and no
search returns a later entry in its place (G6).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from crc32c import crc32c

from logstore.errors import CorruptData, FormatError
from logstore.format.entry import EntryHeader, Row
from logstore.format.group import FRAME_HEADER_SIZE, frame_size, unpack_frame_header
from logstore.format.meta import NO_START
from logstore.format.raft_record import (
    RECORD_SIZE,
    RaftRecord,
    places_of_kind,
    unpack_raft_record,
)
from logstore.format.segment_header import FileRole, SegmentHeader
from logstore.limits import POSITION_MAX
from logstore.model import NO_TERM, Index, Lsn
from logstore.storage.disk import Disk
from logstore.storage.folder_scan import read_salvaged
from logstore.storage.meta_store import newest_meta
from logstore.storage.segment import (
    base_row,
    read_either_header,
    record_position,
    segment_name,
    segment_numbers,
    segment_path,
)
from logstore.storage.segment_map import LiveSegment, SegmentMap

# Two descriptors a pair. Readers stay near the tail or read in order; a process has up to twelve.
_PAIRS_OPEN_MAX = 16
# Records of sealed segments are read 256 at a time, and 64 such chunks are cached: 2 MiB.
_CHUNK_RECORDS = 256
_CHUNKS_MAX = 64
_SCAN_RECORDS = 8_192
# How far a search looks after a damaged record for a whole one: 32 sectors of records, 1 ms.
_DAMAGED_RUN_MAX = 128
_ABOVE_ALL = base_row(
    Index(POSITION_MAX), NO_TERM, 0,
    next_lsn=Lsn(POSITION_MAX), timestamp_ns=POSITION_MAX, cumulative_bytes=POSITION_MAX,
).header  # fmt: skip

_T = TypeVar("_T")


class BelowLogStart(LookupError):
    """What is asked for is no longer in the log."""


class LogReader:
    """A reader of one data folder. Not for two threads at once."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._names: list[str] = []
        self._headless: list[int] = []  # segments whose header cannot be read, or is not written
        self._headers: dict[int, SegmentHeader] = {}
        self._is_header_new = False  # under a number that was known
        self._map = SegmentMap(())
        self._pairs: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._chunks: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self.start = NO_START
        self.refresh()

    def refresh(self) -> bool:
        """Read META and the headers again (map_generation changed, or a file is gone). True: the
        map of segments has changed."""
        meta = newest_meta(self._disk, self._folder)
        start = self.start if meta is None else meta.log_start
        names = self._disk.list_folder(self._folder)
        is_same = names == self._names and start == self.start and not self._is_header_new
        if not is_same:
            numbers = segment_numbers(names)
            self._headers = {n: self._headers[n] for n in numbers if n in self._headers}
            self._headless = [n for n in numbers if n not in self._headers]
        found = {n: read_either_header(self._disk, self._folder, n) for n in self._headless}
        new = {number: header for number, header in found.items() if header is not None}
        if is_same and not new:
            return False  # each read of what is damaged comes here
        self._headers |= new
        self._headless = [number for number in self._headless if number not in new]
        self.start, self._names, self._is_header_new = start, names, False
        new_map = SegmentMap.of(self._headers.values(), start_index=self.start.index)
        if new_map == self._map:
            return False
        self._map = new_map
        live = {segment.number for segment in new_map.segments}
        for number in [n for n in self._pairs if n not in live]:
            self._close_pair(self._pairs.pop(number))
        self._chunks.clear()
        return True

    @property
    def pairs_open(self) -> int:
        """The number of pairs kept open, removed ones included."""
        return len(self._pairs)

    def close(self) -> None:
        """Close the files. What is known of the segments stays, and reading opens them again."""
        while self._pairs:
            self._close_pair(self._pairs.popitem()[1])

    def pairs(self) -> list[SegmentHeader]:
        """The headers of the live segments, by rising first index; without those that are missing
        or damaged."""
        return [each.header for each in self._map.segments if each.header is not None]

    # --- by index ---

    def row(self, index: Index) -> Row:
        """The entry at `index`.

        Raises:
          CorruptData: its record is damaged, missing or not written.
          BelowLogStart: the index is not above the log start.
        """
        return self.record(index).row

    def record(self, index: Index) -> RaftRecord:
        """As `row`, with what is local to this replica, such as where its frame lies."""
        return self._with_retry(self._record, index)

    def rows(self, first: Index, last: Index, limit: int) -> list[Row]:
        """The entries from `first` to `last`, at most `limit` of them. Errors as `row`."""
        last = Index(min(last, first + limit - 1))
        return [self.row(Index(index)) for index in range(first, last + 1)]

    def read_body(self, index: Index) -> bytes:
        """The body of the entry at `index`, checked.

        Raises:
          CorruptData: the record, the frame or the body is damaged.
          BelowLogStart: the index is not above the log start.
        """
        return self._with_retry(self._body, index)

    def body_of(self, record: RaftRecord) -> bytes:
        """As `read_body`, for an entry whose record this reader has just returned: the record is
        not read and checked again unless something fails."""
        try:
            return self._body_of_record(record)
        except (CorruptData, FileNotFoundError):
            return self.read_body(record.header.index)

    def located(self, index: Index) -> tuple[RaftRecord, int]:
        """As `record`, and the number of the segment that its frame lies in."""
        record = self.record(index)
        return record, self._segment(index)[0].number

    # --- searches: they begin at log start, read nothing above `last_index`, and skip damage ---

    def index_of_lsn(self, lsn: Lsn, last_index: Index) -> Index:
        """The first entry with next_lsn > lsn, which holds `lsn`; `last_index`
        + 1 if there is none.

        Raises:
          BelowLogStart: the log no longer holds `lsn`.
        """
        if lsn < self.start.next_lsn:
            raise BelowLogStart(f"LSN {lsn}, the log begins at {self.start.next_lsn}")

        def base(header: SegmentHeader) -> int:
            return header.first_lsn

        def key(index: int) -> Lsn:
            place, header = self._whole_from(index, stop)
            return header.next_lsn if place == index else header.first_lsn

        first, stop = self._search_range(lsn, last_index, base, takes_equal=True)
        return Index(first + bisect_right(range(first, stop), lsn, key=key))

    def index_of_time(self, timestamp_ns: int, last_index: Index) -> Index:
        """The first entry stamped at or after `timestamp_ns`; `last_index` + 1 if there is none."""

        def base(header: SegmentHeader) -> int:
            return header.base_timestamp_ns

        def key(index: int) -> int:
            return self._whole_from(index, stop)[1].timestamp_ns

        first, stop = self._search_range(timestamp_ns, last_index, base, takes_equal=False)
        return Index(first + bisect_left(range(first, stop), timestamp_ns, key=key))

    def index_of_bytes(self, position: int, last_index: Index) -> Index:
        """The first entry with cumulative_bytes >= position; `last_index` + 1 if there is none."""

        def base(header: SegmentHeader) -> int:
            return header.base_cumulative_bytes

        def key(index: int) -> int:
            place, header = self._whole_from(index, stop)
            total = header.cumulative_bytes
            return total if place == index else total - header.body_size

        first, stop = self._search_range(position, last_index, base, takes_equal=False)
        return Index(first + bisect_left(range(first, stop), position, key=key))

    def newest_of_kind(self, kind: int, last_index: Index) -> Index | None:
        """The highest index at or below `last_index` of this kind. Damaged records are skipped, and
        so is a segment that lacks a file: the caller reads what is found, and learns of damage
        there.

        Raises:
          CorruptData: a segment vanished during the search; a second search tells this from damage.
        """
        try:
            return self._newest_of_kind(kind, last_index, skips_missing=False)
        except FileNotFoundError as error:
            if self.refresh():
                raise CorruptData(
                    str(error), 0, expected="a segment file", got="no file"
                ) from error
        return self._newest_of_kind(kind, last_index, skips_missing=True)

    # --- inside ---

    def _whole_from(self, index: int, stop: int) -> tuple[int, EntryHeader]:
        """The first entry of [index, stop) with a whole record. Without one, `stop` and a header
        that is above every searched value.

        Raises:
          CorruptData: none of the next `_DAMAGED_RUN_MAX` records is whole.
        """
        try:
            return index, self.row(Index(index)).header
        except CorruptData:
            for place in range(index + 1, min(stop, index + _DAMAGED_RUN_MAX)):
                with suppress(CorruptData, FileNotFoundError):
                    return place, self._record(Index(place)).header
            if stop > index + _DAMAGED_RUN_MAX:
                raise
        return stop, _ABOVE_ALL

    def _newest_of_kind(self, kind: int, last_index: Index, *, skips_missing: bool) -> Index | None:
        stop = last_index
        while stop > self.start.index:
            segment = self._map.find(stop)
            if segment is None:
                return None
            first = max(segment.first_index, stop - _SCAN_RECORDS + 1, self.start.index + 1)
            if segment.header is not None:
                try:
                    raw = self._read_salvaged(segment.header, Index(first), stop - first + 1)
                except FileNotFoundError:
                    if not skips_missing:
                        raise
                    raw = b""
                for place in places_of_kind(raw, kind):
                    if self._is_whole(Index(first + place)):
                        return Index(first + place)
            stop = Index(first - 1)
        return None

    def _with_retry(self, read: Callable[[Index], _T], index: Index) -> _T:
        try:
            return read(index)
        except (CorruptData, FileNotFoundError):
            self._chunks.clear()  # else no record would be read again
            self._read_header_again(index)
            self.refresh()
        try:
            return read(index)
        except FileNotFoundError as error:
            raise CorruptData(str(error), 0, expected="a segment file", got="no file") from error

    def _read_header_again(self, index: Index) -> None:
        """Of the segment that holds `index`: a number is used twice where a bootstrap was broken
        off, and a reader may know the first use."""
        segment = self._map.find(index)
        if segment is None or segment.header is None:
            return
        number = segment.number
        header = read_either_header(self._disk, self._folder, number)
        if header is not None and header.segment_uuid != segment.header.segment_uuid:
            self._headers[number] = header
            self._is_header_new = True
            if number in self._pairs:
                self._close_pair(self._pairs.pop(number))

    def _segment(self, index: Index) -> tuple[LiveSegment, SegmentHeader]:
        if index <= self.start.index:
            raise BelowLogStart(f"index {index} is not above the log start {self.start.index}")
        segment = self._map.find(index)
        if segment is None or segment.header is None:
            number = segment.number if segment else 0
            name = segment_name(number, FileRole.RAFT)
            raise CorruptData(name, 0, expected=f"the segment of index {index}", got="no file")
        return segment, segment.header

    def _record(self, index: Index) -> RaftRecord:
        segment, header = self._segment(index)
        slot = index - header.first_index
        if segment.is_sealed:
            raw, place = self._chunk(header, slot), slot % _CHUNK_RECORDS * RECORD_SIZE
        else:
            raw, place = self._read_records(header, index, 1), 0
        try:
            record = unpack_raft_record(raw, place, segment_uuid=header.segment_uuid)
            if record.header.index != index or record.log_epoch != header.log_epoch:
                raise FormatError(f"record {record.header.index}, log_epoch {record.log_epoch}")
        except FormatError as error:
            raise CorruptData(
                segment_name(header.number, FileRole.RAFT),
                record_position(header, index),
                expected=f"record {index} of log_epoch {header.log_epoch}",
                got=str(error),
            ) from error
        return record

    def _body(self, index: Index) -> bytes:
        return self._body_of_record(self._record(index))

    def _body_of_record(self, record: RaftRecord) -> bytes:
        entry = record.header
        _, header = self._segment(entry.index)
        data, _ = self._open(header.number)
        raw = self._disk.read(data, record.frame_offset, frame_size(entry))
        fault = _frame_fault(raw, record, header)
        if fault:
            raise CorruptData(
                segment_name(header.number, FileRole.DATA),
                record.frame_offset,
                expected=f"the frame of entry {entry.index} of term {entry.term}",
                got=fault,
            )
        return raw[FRAME_HEADER_SIZE:]

    def _is_whole(self, index: Index) -> bool:
        try:
            self._record(index)
        except CorruptData:
            return False
        return True

    def _search_range(
        self,
        value: int,
        last_index: Index,
        base: Callable[[SegmentHeader], int],
        *,
        takes_equal: bool,
    ) -> tuple[Index, int]:
        """[first, stop): the live indexes of the one segment that can hold the answer, or the start
        of the next one. That segment is the last whose base value is below (or at) `value`."""
        first, stop = Index(self.start.index + 1), last_index + 1
        for segment in reversed(self._map.segments):
            if segment.header is None or segment.first_index > last_index:
                continue
            low = base(segment.header)
            if low < value or (takes_equal and low == value):
                first = max(first, segment.first_index)
                return first, max(first, min(stop, segment.end_index))
            stop = min(stop, segment.first_index)
        return first, max(first, stop)

    def _chunk(self, header: SegmentHeader, slot: int) -> bytes:
        """The records around `slot` of a sealed segment; these bytes no longer change."""
        number = slot // _CHUNK_RECORDS
        key = (header.number, number)
        found = self._chunks.get(key)
        if found is None:
            first = Index(header.first_index + number * _CHUNK_RECORDS)
            try:
                found = self._read_records(header, first, _CHUNK_RECORDS)
            except CorruptData:
                # A sector that the device refuses damages only its own records (Q5).
                return self._read_salvaged(header, first, _CHUNK_RECORDS)
            self._chunks[key] = found
            if len(self._chunks) > _CHUNKS_MAX:
                self._chunks.popitem(last=False)
        else:
            self._chunks.move_to_end(key)
        return found

    def _read_records(self, header: SegmentHeader, first: Index, count: int) -> bytes:
        _, raft = self._open(header.number)
        raw = self._disk.read(raft, record_position(header, first), count * RECORD_SIZE)
        return raw[: len(raw) // RECORD_SIZE * RECORD_SIZE]

    def _read_salvaged(self, header: SegmentHeader, first: Index, count: int) -> bytes:
        """As `_read_records`; zeros where the device returns nothing."""
        _, raft = self._open(header.number)
        position = record_position(header, first)
        raw = read_salvaged(self._disk, raft, position, count * RECORD_SIZE)
        return raw[: len(raw) // RECORD_SIZE * RECORD_SIZE]

    def _open(self, number: int) -> tuple[int, int]:
        pair = self._pairs.get(number)
        if pair is not None:
            self._pairs.move_to_end(number)
            return pair
        data = self._disk.open_read(segment_path(self._folder, number, FileRole.DATA))
        try:
            raft = self._disk.open_read(segment_path(self._folder, number, FileRole.RAFT))
        except OSError:
            self._disk.close(data)
            raise
        self._pairs[number] = (data, raft)
        if len(self._pairs) > _PAIRS_OPEN_MAX:
            self._close_pair(self._pairs.popitem(last=False)[1])
        return data, raft

    def _close_pair(self, pair: tuple[int, int]) -> None:
        for handle in pair:
            self._disk.close(handle)


def _frame_fault(raw: bytes, record: RaftRecord, header: SegmentHeader) -> str | None:
    """Why these bytes are not the frame that the record describes, or None."""
    entry: EntryHeader = record.header
    try:
        frame = unpack_frame_header(raw, segment_uuid=header.segment_uuid)
    except FormatError as error:
        return str(error)
    if frame.header != entry or frame.segment != header.number:
        return f"the frame of entry {frame.header.index} of term {frame.header.term}"
    body = memoryview(raw)[FRAME_HEADER_SIZE:]
    if len(body) != entry.body_size:
        return f"a body of {len(body)} bytes, {entry.body_size} belong to it"
    computed = crc32c(body) if entry.body_size else 0
    if computed != entry.body_crc:
        return f"body CRC {computed:#010x}, its header says {entry.body_crc:#010x}"
    return None
