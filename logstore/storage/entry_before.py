"""Which entry a truncation leaves as the last one, and where its frame ends.

The entry's record says both. If that record is damaged, the replica must still be able to truncate
(SAFETY Q1). Then the header of a segment that begins after the entry is read, and then the entry's
frame. The next entry knows all of it but its timestamp, and no other timestamp will do: searches by
time would skip whole entries, and a leader's stamps could go back (G2). Must not know who
truncates, nor write anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore.errors import CorruptData, FormatError, ReplicaLost
from logstore.format.entry import EntryHeader, Row
from logstore.format.group import FRAME_HEADER_SIZE, frame_size, unpack_frame_header
from logstore.format.raft_record import RaftRecord
from logstore.format.segment_header import SEGMENT_HEADER_SIZE, FileRole, SegmentHeader
from logstore.model import Index
from logstore.storage.disk import Disk
from logstore.storage.folder_scan import read_salvaged
from logstore.storage.segment import aligned, read_record, row_before, segment_path


def entry_before(
    disk: Disk, folder: str, live: Sequence[SegmentHeader], index: Index, *, sector_bytes: int
) -> tuple[Row, int]:
    """The entry at `index`, and the end of its frame in its data file.

    Args:
      live: the headers of the live segments, in order; `index` lies in one of them.
      sector_bytes: what flush groups are aligned to.

    Raises:
      ReplicaLost: the entry's record is damaged, and so is its frame or one before it.
    """
    holding = [header for header in live if header.first_index <= index]
    if not holding:
        raise CorruptData(folder, 0, expected=f"a segment with {index}", got="none")
    header = holding[-1]
    raft = disk.open_read(segment_path(folder, header.number, FileRole.RAFT))
    try:
        data = disk.open_read(segment_path(folder, header.number, FileRole.DATA))
        try:
            search = _Search(disk, header, raft, data, sector_bytes)
            return search.entry(index, live[len(holding) :])
        finally:
            disk.close(data)
    finally:
        disk.close(raft)


class _Search:
    """One segment's open files."""

    def __init__(
        self, disk: Disk, header: SegmentHeader, raft: int, data: int, sector_bytes: int
    ) -> None:
        self._disk = disk
        self._header = header
        self._raft = raft
        self._data = data
        self._sector_bytes = sector_bytes

    def entry(self, index: Index, later: Sequence[SegmentHeader]) -> tuple[Row, int]:
        record = self._record(index)
        if record is not None:
            return record.row, _frame_end(record)
        if later and later[0].first_index == index + 1:
            return row_before(later[0]), later[0].previous_valid_end
        found = self._by_its_frame(index)
        if found is None:
            raise ReplicaLost(
                f"segment {self._header.number} is to be truncated behind entry {index}, whose "
                "record is damaged, and its frame is not to be found; replace this replica"
            )
        return found

    def _record(self, index: int) -> RaftRecord | None:
        try:
            return read_record(self._disk, self._raft, self._header, Index(index))
        except CorruptData:
            return None

    def _known_end(self, index: Index) -> tuple[int, int]:
        """The last entry before `index` that has a whole record, and the end of its frame; without
        one, what the segment's header says about the entry before it."""
        for at in range(index - 1, self._header.first_index - 1, -1):
            record = self._record(Index(at))
            if record is not None:
                return at, _frame_end(record)
        return self._header.first_index - 1, SEGMENT_HEADER_SIZE

    def _by_its_frame(self, index: Index) -> tuple[Row, int] | None:
        """Walk frame by frame from the last whole record, or from the segment's start."""
        at, end = self._known_end(index)
        entry = None
        for number in range(at + 1, index + 1):
            begin = end
            entry = self._entry(number, begin)
            if entry is None:
                begin = aligned(end, self._sector_bytes)
                entry = self._entry(number, begin)
            if entry is None:
                return None
            end = begin + frame_size(entry)
        return None if entry is None else (Row.of(entry), end)

    def _entry(self, index: int, offset: int) -> EntryHeader | None:
        """The entry of `index`, if its frame begins at `offset`. No other entry of this index was
        ever in the segment (S7), and the segment's uuid is in the CRC."""
        raw = read_salvaged(self._disk, self._data, offset, FRAME_HEADER_SIZE)
        try:
            frame = unpack_frame_header(raw, segment_uuid=self._header.segment_uuid)
        except FormatError:
            return None
        return frame.header if frame.header.index == index else None


def _frame_end(record: RaftRecord) -> int:
    return record.frame_offset + frame_size(record.header)
