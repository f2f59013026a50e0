"""The entries of a stopped replica's log that are whole, in order, up to the first one that is not
(SAFETY L8).

Owns that walk. An entry is whole if recovery would take it for an entry (the table in `verdict`),
its body has its CRC, it continues the chain, and its batches are whole and as many as it says.
Reads a chunk of records and one entry at a time, and writes nothing. Must not know where batches
go.

    record k        frame k                      bytes in the slot, or a record after k   verdict
    valid           valid, the same entry        any                                      whole
    absent or bad   valid, chained, in lineage   any                                      whole
    anything else                                yes                                      not whole
    absent          otherwise                    no                                       the end
    lost            otherwise                    no                                       not whole

A record is lost where the newest Raft file ends before it or is gone, and bytes of a frame follow.
A slot with bytes that are no record proves what a record does: one is never half written
(SAFETY Q12).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec
from crc32c import crc32c

from logstore.errors import FolderRefused, FormatError, InvalidRequest, UnsupportedVersion
from logstore.format.batch import read_batch_header, verify_batch
from logstore.format.entry import EntryHeader, Row
from logstore.format.group import FRAME_HEADER_SIZE, FrameHeader, frame_size, unpack_frame_header
from logstore.format.level import NEWEST_LEVEL, check_level, level_of
from logstore.format.raft_record import RaftRecord, record_from_frame
from logstore.format.segment_header import SEGMENT_HEADER_SIZE, FileRole, SegmentHeader
from logstore.limits import MESSAGE_MAX_BYTES, SECTOR_BYTES
from logstore.model import Index
from logstore.storage.disk import Disk
from logstore.storage.folder_log import TORN_SEARCH_BYTES, FolderLog, RecordSlot, record_slots
from logstore.storage.folder_scan import read_salvaged
from logstore.storage.segment import aligned, row_before, segment_name, segment_path
from logstore.storage.segment_map import LiveSegment

# Entries above the commit index whose LSNs are remembered, until a later one knows more. A replica
# has far fewer; of one that had more, fewer LSNs were certain.
_UNCERTAIN_MAX = 65_536


class WholeBatch(msgspec.Struct, frozen=True, gc=False):
    """A client's batch as it lies in the log. `data` is of the walk's private buffer."""

    first_lsn: int
    count: int
    data: memoryview


class NotTaken(msgspec.Struct, frozen=True):
    """Why the walk ended before the log did.

    Attributes:
      index, lsn: of the first entry that is not taken.
      reason: what is wrong with it, or that it was asked for.
      is_damage: False: what is certain was asked for, and this is not.
      last_lsn: the last LSN of the log, as its newest record says; None: not known.
      size_bytes: of the bodies that are not taken; None: not known.
    """

    index: int
    lsn: int
    reason: str
    is_damage: bool
    last_lsn: int | None
    size_bytes: int | None

    @property
    def payloads(self) -> int | None:
        return None if self.last_lsn is None else max(0, self.last_lsn - self.lsn + 1)


class _NotWhole(Exception):
    """The entry after the last one is not taken."""

    def __init__(self, reason: str, *, is_damage: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_damage = is_damage


class WholeEntries:
    """One walk over a folder's log.

    Attributes:
      last: the last entry taken, or the position before the first one.
      certain_lsn: the last LSN taken that is known to be committed; below the log's
        first LSN: none is.
      not_taken: why the walk ended before the log did; None: it did not.
      has_torn_tail: bytes follow the last entry that no replica can have acknowledged for this
        one: a crash tore them.
    """

    def __init__(self, disk: Disk, log: FolderLog, *, certain_only: bool = False) -> None:
        self._disk = disk
        self._log = log
        self._certain_only = certain_only
        self._commit = log.commit
        self._last_bytes = log.base_bytes
        self._uncertain: deque[tuple[Index, int]] = deque(maxlen=_UNCERTAIN_MAX)
        self.last = log.base
        self.certain_lsn = log.first_lsn - 1
        self.not_taken: NotTaken | None = None
        self.has_torn_tail = False

    @property
    def last_lsn(self) -> int:
        """The last LSN taken."""
        return self.last.header.next_lsn - 1

    def batches(self) -> Iterator[WholeBatch]:
        """The batches of whole entries, by LSN; once. When it has ended, `not_taken` says why. What
        is certain takes two walks: a later frame may say that an entry is committed.

        Raises:
          FolderRefused, UnsupportedLevel: what follows was written by a newer version.
        """
        if self._certain_only:
            every = WholeEntries(self._disk, self._log)
            deque(every.batches(), maxlen=0)
            self._commit = every._commit
        try:
            for segment in self._log.segments:
                yield from self._segment(segment)
            if self._log.headless_end:
                raise _NotWhole(
                    f"both headers of segment {self._log.headless_end} are damaged, and it holds "
                    "entries, or sectors that the device refuses to read"
                )
            if not self._log.segments:
                raise _NotWhole("no segment of the log is left")
        except _NotWhole as end:
            self.not_taken = self._end(end)

    def _end(self, end: _NotWhole) -> NotTaken:
        newest, last = self._log.newest, self.last.header
        last_lsn = size_bytes = None
        if newest is not None and self._log.is_end_known and newest.index > last.index:
            last_lsn = newest.next_lsn - 1
            if self._last_bytes is not None:
                size_bytes = newest.cumulative_bytes - self._last_bytes
        index = last.index + 1
        return NotTaken(index, last.next_lsn, end.reason, end.is_damage, last_lsn, size_bytes)

    # --- entries ---

    def _segment(self, segment: LiveSegment) -> Iterator[WholeBatch]:
        header = segment.header
        if header is None:
            name = f"segment {segment.number}" if segment.number else "the oldest segment"
            raise _NotWhole(f"both files of {name}, or their headers, are gone")
        self._check_base(header)
        with _PairData(self._disk, self._log.folder, header) as data:
            for slot in self._slots(segment, header):
                if slot.index <= self.last.header.index:
                    data.pass_by(slot)  # at or below log start: only where it ends counts
                    continue
                found = self._entry(data, slot)
                if found is None:
                    if segment.is_sealed or self._is_proven(slot):
                        raise _NotWhole(data.why(slot))
                    break
                yield from self._take(*found)
            if not segment.is_sealed and data.has_bytes_after():
                if not self._log.is_end_known:
                    name = segment_name(header.number, FileRole.RAFT)
                    raise _NotWhole(
                        f"its frame is damaged or torn, and its record was lost with {name}"
                    )
                self.has_torn_tail = True

    def _slots(self, segment: LiveSegment, header: SegmentHeader) -> Iterator[RecordSlot]:
        """Those of the records, and after the end of the newest Raft file, which may be gone or
        cut, without end: frames say how far the log goes."""
        index = header.first_index
        for slot in record_slots(self._disk, self._log.folder, segment, header, index):
            yield slot
            index = Index(slot.index + 1)
        while not segment.is_sealed:
            yield RecordSlot(index, None, True)
            index = Index(index + 1)

    def _is_proven(self, slot: RecordSlot) -> bool:
        newest = self._log.newest
        return not slot.is_unused or (newest is not None and newest.index > slot.index)

    def _check_base(self, header: SegmentHeader) -> None:
        base, last = row_before(header), self.last
        if base.header.index < last.header.index:
            return  # log start lies inside it
        is_next = base.header.index == last.header.index
        is_same = base.header.index == 0 or base.chain == last.chain
        if not is_next or not is_same or base.header.next_lsn != last.header.next_lsn:
            name = segment_name(header.number, FileRole.RAFT)
            raise _NotWhole(f"{name} begins after another entry than the one before it")

    def _entry(self, data: _PairData, slot: RecordSlot) -> tuple[RaftRecord, memoryview] | None:
        """The entry at a slot, with its body; None: neither its record nor its frame is whole."""
        if slot.record is not None:
            fault = _lineage_fault(self.last, slot.record.header)
            if fault:
                raise _NotWhole(f"{data.record_place(slot.index)}: {fault}")
            return slot.record, data.body_of(slot.record)
        return data.next_frame(slot.index, after=self.last)

    def _take(self, record: RaftRecord, body: memoryview) -> Iterator[WholeBatch]:
        header = record.header
        self._learn_commit(record.commit_known)
        if self._certain_only and header.index > self._commit:
            raise _NotWhole("it is not known to be committed", is_damage=False)
        batches = _batches(header, body) if header.count else []
        self.last, self._last_bytes = record.row, header.cumulative_bytes
        if header.index <= self._commit:
            self.certain_lsn = header.next_lsn - 1
        else:
            self._uncertain.append((header.index, header.next_lsn - 1))
        yield from batches

    def _learn_commit(self, commit: Index) -> None:
        self._commit = max(self._commit, commit)
        while self._uncertain and self._uncertain[0][0] <= self._commit:
            self.certain_lsn = self._uncertain.popleft()[1]


class _PairData:
    """The data file of one segment. `end`: of the last entry's frame, where the next one may
    begin; None: not known."""

    def __init__(self, disk: Disk, folder: str, header: SegmentHeader) -> None:
        self._disk = disk
        self._header = header
        self._end: int | None = SEGMENT_HEADER_SIZE
        try:
            self._handle = disk.open_read(segment_path(folder, header.number, FileRole.DATA))
        except FileNotFoundError:
            self._handle = -1

    def __enter__(self) -> _PairData:
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle >= 0:
            self._disk.close(self._handle)

    def pass_by(self, slot: RecordSlot) -> None:
        if slot.record is not None:
            self._end = slot.record.frame_offset + frame_size(slot.record.header)
        elif self.next_frame(slot.index, after=None) is None:
            self._end = None

    def body_of(self, record: RaftRecord) -> memoryview:
        """The body under a whole record; its frame must be that record's entry (F2)."""
        entry, offset = record.header, record.frame_offset
        raw = self._read(offset, frame_size(entry))
        body = memoryview(raw)[FRAME_HEADER_SIZE:]
        where = f"{segment_name(self._header.number, FileRole.DATA)} at byte {offset}"
        if len(body) != entry.body_size:
            raise _NotWhole(f"{where}: entry {entry.index} is not there, or only a part of it")
        if (crc32c(body) if body else 0) != entry.body_crc:
            raise _NotWhole(f"{where}: the body of entry {entry.index} is damaged")
        frame = self._frame_header(raw)
        if frame is None or frame.header != entry:
            raise _NotWhole(f"{where}: the frame of entry {entry.index} is damaged")
        self._end = offset + frame_size(entry)
        return body

    def next_frame(
        self, index: Index, *, after: Row | None
    ) -> tuple[RaftRecord, memoryview] | None:
        """The whole frame of `index`, if it comes next in the file and continues the log after an
        entry, and the record it gives."""
        if self._end is None:
            return None
        for offset in sorted({self._end, aligned(self._end, SECTOR_BYTES)}):
            frame = self._frame_header(self._read(offset, FRAME_HEADER_SIZE))
            if frame is None or frame.header.index != index:
                continue
            header = frame.header
            if after is not None and _lineage_fault(after, header):
                continue
            body = memoryview(self._read(offset + FRAME_HEADER_SIZE, header.body_size))
            if len(body) == header.body_size and (crc32c(body) if body else 0) == header.body_crc:
                name = segment_name(self._header.number, FileRole.DATA)
                check_level(name, level_of(header.kind), newest=NEWEST_LEVEL)
                self._end = offset + frame_size(header)
                return record_from_frame(frame, offset), body
        return None

    def has_bytes_after(self) -> bool:
        return self._end is not None and any(self._read(self._end, TORN_SEARCH_BYTES))

    def why(self, slot: RecordSlot) -> str:
        state = "missing" if slot.is_unused else "damaged"
        return f"{self.record_place(slot.index)} is {state}, and no whole frame stands for it"

    def record_place(self, index: Index) -> str:
        return f"the record of entry {index} in {segment_name(self._header.number, FileRole.RAFT)}"

    def _read(self, offset: int, size: int) -> bytes:
        return read_salvaged(self._disk, self._handle, offset, size) if self._handle >= 0 else b""

    def _frame_header(self, raw: bytes) -> FrameHeader | None:
        header = self._header
        try:
            frame = unpack_frame_header(raw, segment_uuid=header.segment_uuid)
        except UnsupportedVersion as error:
            name = segment_name(header.number, FileRole.DATA)
            raise FolderRefused(f"{name}: {error}; upgrade this side") from error
        except FormatError:
            return None
        is_here = (frame.segment, frame.log_epoch) == (header.number, header.log_epoch)
        return frame if is_here else None


def _lineage_fault(last: Row, header: EntryHeader) -> str:
    before = last.header
    if header.prev_chain != last.chain or header.prev_term != before.term:
        return f"the chain does not lead from entry {before.index} to entry {header.index}"
    if header.term < before.term or header.first_lsn != before.next_lsn:
        return f"entry {header.index} has LSN {header.first_lsn}, {before.next_lsn} comes next"
    return ""


def _batches(header: EntryHeader, body: memoryview) -> list[WholeBatch]:
    found = []
    offset, lsn = 0, int(header.first_lsn)
    while offset < len(body):
        try:
            batch = read_batch_header(body, offset)
            verify_batch(body, offset, batch, batch_max_bytes=MESSAGE_MAX_BYTES)
        except (FormatError, InvalidRequest) as error:
            raise _NotWhole(f"a batch in entry {header.index} is damaged: {error}") from error
        found.append(WholeBatch(lsn, batch.count, body[offset : offset + batch.size]))
        offset, lsn = offset + batch.size, lsn + batch.count
    if lsn != header.next_lsn:
        raise _NotWhole(
            f"entry {header.index} says that it holds {header.count} payloads, its batches hold "
            f"{lsn - header.first_lsn}"
        )
    return found
