"""Recovery, step 3: what each index of the log is, by the table of SAFETY section 4.

Owns the walk over live records and frames. It only reads, and returns what is to be written. Must
not know META, terms' meaning or how segments are opened.

    record k        frame k                      evidence after k   verdict
    valid           valid, the same entry        any                entry
    valid           anything else                any                faulty entry
    absent or bad   valid, chained, in lineage   any                entry, record to be written
    absent or bad   otherwise                    yes                faulty entry
    absent or bad   otherwise                    no                 torn: it and all after it

Evidence after k is a valid live record of a higher index, or the header of a later live segment,
since a header is written only when every flush before it has ended (F6). A valid frame is no
evidence: frames of one flush reach the disk in any order.

A pair that contains log start is walked from its own first entry, because only the entries before
say where an entry's frame begins (G4). What is at or below log start is then left out, damaged or
not, and META is evidence of all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from crc32c import crc32c

from logstore.errors import FolderRefused, FormatError, UnsupportedVersion
from logstore.format.entry import Row
from logstore.format.group import (
    FRAME_HEADER_SIZE,
    FrameHeader,
    frame_size,
    unpack_frame_header,
)
from logstore.format.level import LEVEL_KINDS, level_of
from logstore.format.meta import LogStart
from logstore.format.pair_summary import PairSummary
from logstore.format.raft_record import (
    RECORD_SIZE,
    RaftRecord,
    record_from_frame,
    unpack_raft_record,
)
from logstore.format.segment_header import SEGMENT_HEADER_SIZE, FileRole, SegmentHeader
from logstore.limits import MIB
from logstore.model import EntryKind, Index, Term
from logstore.storage.disk import Disk
from logstore.storage.folder_scan import read_salvaged
from logstore.storage.sealed import Summing, WholeRecords, proved_records, whole_records
from logstore.storage.segment import (
    aligned,
    read_summary,
    row_at_start,
    row_before,
    segment_name,
    segment_path,
)
from logstore.storage.segment_map import LiveSegment, SegmentMap
from logstore.storage.torn_tail import Refused, has_torn_tail

_CHUNK_BYTES = 1 * MIB
_ZERO_RECORD = bytes(RECORD_SIZE)
# Raft files that the device reads while an earlier one is checked: start-up with 200 segments and
# 5 million entries was a second of waiting for it (2026-11-23).
_FILES_AHEAD = 4


class FaultyRange(msgspec.Struct, frozen=True):
    """Entries [first, last] whose bytes are damaged on this replica. They stay
    and are never served."""

    first: Index
    last: Index
    reason: str


class Rebuilt(msgspec.Struct, frozen=True):
    """A record to be written, because its frame was found without it."""

    segment: SegmentHeader
    index: Index
    record: bytes


class Verdicts:
    """What the walk has found so far. `start`: the log start, by META."""

    def __init__(self, start: LogStart, before: Row) -> None:
        self.start = start
        self.last = before  # the last entry, or the position before the first one
        self.is_last_known = True  # False: the last index is faulty and its record is bad too
        self.term_runs: list[tuple[Index, Term]] = []
        self.trims: list[Index] = []
        self.configs: list[Index] = []
        self.commit_known = Index(0)
        self.levels: list[tuple[Index, int]] = []  # entries that raise the format level (S11)
        self.faulty: list[FaultyRange] = []
        self.rebuilt: list[Rebuilt] = []
        self.data_end = SEGMENT_HEADER_SIZE  # of the newest segment walked
        self.has_torn_tail = False
        self.is_start_damaged = False  # the entry at log start: META lacks its time and bytes
        self.summing: Summing | None = None  # of the newest segment, while all of it is whole

    @property
    def is_lost_above_start(self) -> bool:
        """Nothing is left of the entry at log start, nor of the log that META says was after it."""
        return self.is_start_damaged and self.last.header.index == self.start.index

    @property
    def next_index(self) -> Index:
        return Index(self.last.header.index + 1)

    def take(self, record: RaftRecord) -> None:
        """The next index is this entry, whole or damaged."""
        header = record.header
        if not self.is_last_known:
            # this record proves what the entry before it is
            self._run(self.last.header.index, header.prev_term)
        self._run(header.index, header.term)
        if header.kind in LEVEL_KINDS:
            self.levels.append((header.index, level_of(header.kind)))
        if header.kind == EntryKind.TRIM:
            self.trims.append(header.index)
        if header.kind == EntryKind.CONFIG:
            self.configs.append(header.index)
        if self.summing is not None:
            self.summing.take(header, record.commit_known)
        self.last = record.row
        self.is_last_known = True
        self.commit_known = max(self.commit_known, record.commit_known)
        self.data_end = record.frame_offset + frame_size(header)
        self._pass_start()

    def take_all(self, records: WholeRecords) -> None:
        """Many whole entries at once."""
        for index, term in records.term_starts:
            self._run(index, term)
        self.levels.extend(records.levels)
        self.trims += records.trims
        self.configs += records.configs
        self.last = records.last.row
        self.commit_known = max(self.commit_known, records.commit_known)

    def skip_to(self, index: Index) -> None:
        """Entries up to `index` are faulty and have no record: only their indexes are known."""
        header = self.last.header
        header = msgspec.structs.replace(header, index=index, count=0, body_size=0, body_crc=0)
        self.last = Row(header, 0)
        self.is_last_known = False
        self._pass_start()

    def mark_faulty(self, first: Index, last: Index, reason: str) -> None:
        self.summing = None
        before = self.faulty[-1] if self.faulty else None
        if before and before.last >= first - 1 and before.reason == reason:
            first = self.faulty.pop().first
        self.faulty.append(FaultyRange(first, last, reason))

    def leave_out_below_start(self) -> None:
        """Nothing is reported at or below log start."""
        first = Index(self.start.index + 1)
        self.faulty = [
            FaultyRange(max(each.first, first), each.last, each.reason)
            for each in self.faulty
            if each.last >= first
        ]
        self.rebuilt = [each for each in self.rebuilt if each.index >= first]
        self.levels = [each for each in self.levels if each[0] >= first]  # META has the others
        self.trims = [each for each in self.trims if each >= first]
        self.configs = [each for each in self.configs if each >= first]
        ends = [run_first for run_first, _ in self.term_runs[1:]] + [self.next_index]
        self.term_runs = [
            (max(run_first, first), term)
            for (run_first, term), end in zip(self.term_runs, ends, strict=False)
            if end > first
        ]

    def _pass_start(self) -> None:
        """META knows the entry at log start, whatever is left of it here."""
        start, last = self.start, self.last.header
        if last.index != start.index:
            return
        if (last.term, self.last.chain, last.next_lsn) != (start.term, start.chain, start.next_lsn):
            self.is_start_damaged = True
            self.last = row_at_start(
                start, timestamp_ns=last.timestamp_ns, cumulative_bytes=last.cumulative_bytes
            )
        self.is_last_known = True

    def _run(self, index: Index, term: Term) -> None:
        if not self.term_runs or self.term_runs[-1][1] != term:
            self.term_runs.append((index, term))


def judge(
    disk: Disk,
    folder: str,
    segments: SegmentMap,
    start: LogStart,
    *,
    sector_bytes: int,
    tick: Callable[[], None],
) -> Verdicts:
    """Walk every live index from the log start on, and those before it in the same pair."""
    found = Verdicts(start, _begin(segments, start))
    successors = (*(segment.header for segment in segments.segments[1:]), None)
    for at, (segment, successor) in enumerate(zip(segments.segments, successors, strict=True)):
        for ahead in segments.segments[at + _FILES_AHEAD if at else 0 : at + _FILES_AHEAD + 1]:
            _read_ahead(disk, folder, ahead)
        if segment.header is None:
            last = Index(segment.end_index - 1)
            found.mark_faulty(
                found.next_index, last, f"segment {segment.number or 'before'} is missing"
            )
            found.skip_to(last)
            continue
        _check_base(found, segment.header)
        walk = _Walk(disk, folder, segment, segment.header, sector_bytes)
        if successor is not None:
            walk.summary = read_summary(disk, folder, successor)
        try:
            walk.run(found, tick)
        finally:
            walk.close()
    found.leave_out_below_start()
    return found


def _read_ahead(disk: Disk, folder: str, segment: LiveSegment) -> None:
    if segment.header is not None:
        raft = disk.open_read(segment_path(folder, segment.number, FileRole.RAFT))
        disk.read_ahead(raft)
        disk.close(raft)


def _begin(segments: SegmentMap, start: LogStart) -> Row:
    """The position before the first entry of the oldest pair, or log start if that pair is gone."""
    oldest = segments.segments[0].header
    return row_at_start(start) if oldest is None else row_before(oldest)


def _check_base(found: Verdicts, header: SegmentHeader) -> None:
    """The header describes the position before its segment: it must be where the walk ended."""
    base = row_before(header)
    if found.is_last_known and found.last.header.index == base.header.index:
        if found.last.chain != base.chain and base.header.index > 0:
            found.mark_faulty(
                base.header.index, base.header.index, "the next segment's base chain differs"
            )
            found.last = base
    elif not found.is_last_known:
        found.last = base
        found.is_last_known = True
        found._run(base.header.index, base.header.term)


class _Walk:
    """One live segment with a header."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        segment: LiveSegment,
        header: SegmentHeader,
        sector_bytes: int,
    ) -> None:
        self.disk = disk
        self.segment = segment
        self.header = header
        self.sector_bytes = sector_bytes
        self.data_name = segment_name(header.number, FileRole.DATA)
        self.data = disk.open_read(segment_path(folder, header.number, FileRole.DATA))
        self.raft = disk.open_read(segment_path(folder, header.number, FileRole.RAFT))
        self.data_size = disk.size(self.data)
        records_size = max(0, disk.size(self.raft) - SEGMENT_HEADER_SIZE)
        self.slots = -(-records_size // RECORD_SIZE)
        self.summary: PairSummary | None = None
        # up to where the device has refused to read something; it may read it again a moment later
        self.refused = Refused()

    def close(self) -> None:
        self.disk.close(self.data)
        self.disk.close(self.raft)

    def run(self, found: Verdicts, tick: Callable[[], None]) -> None:
        found.data_end = SEGMENT_HEADER_SIZE
        if self.segment.is_sealed and self._is_whole(found, tick):
            return
        found.summing = None if self.segment.is_sealed else Summing(self.header)
        evidence = Index(self.segment.end_index - 1)
        if not self.segment.is_sealed:
            evidence = max(self._last_valid_index(tick), found.start.index)
        index = found.next_index
        records = self._records(index, tick)
        while index < self.segment.end_index:
            record = next(records, None)
            if record is not None:
                self._judge_record(found, record)
            elif not self._adopt(found, index):
                if index > evidence:
                    break
                found.mark_faulty(index, index, "its record and its frame are damaged")
                found.skip_to(index)
            index = found.next_index
        if not self.segment.is_sealed:
            found.has_torn_tail = has_torn_tail(
                self.disk,
                self.header,
                data=self.data,
                raft=self.raft,
                data_end=found.data_end,
                next_index=found.next_index,
                refused=self.refused,
                tick=tick,
            )
            if found.summing is not None:
                found.summing.add_records(self._records_taken(found))

    def _is_whole(self, found: Verdicts, tick: Callable[[], None]) -> bool:
        """The short cuts for a sealed segment: taken if all its records are whole."""
        first = found.next_index
        count = self.segment.end_index - first
        slot = first - self.header.first_index
        if not found.is_last_known or slot + count > self.slots:
            return False
        raw = self._chunk(slot, count)
        tick()
        chain, data_size = found.last.chain, self.data_size
        records = None
        if self.summary is not None:
            records = proved_records(
                raw, self.header, self.summary, chain=chain, data_size=data_size
            )
        if records is None:
            records = whole_records(
                raw, self.header, first=first, count=count, chain=chain, data_size=data_size
            )
        if records is not None:
            found.take_all(records)
        return records is not None

    def _records_taken(self, found: Verdicts) -> bytes:
        """All records of this segment, with those that are to be written."""
        count = found.next_index - self.header.first_index
        raw = bytearray(self._chunk(0, count)).ljust(count * RECORD_SIZE, b"\0")
        for each in found.rebuilt:
            if each.segment is self.header:
                place = (each.index - self.header.first_index) * RECORD_SIZE
                raw[place : place + RECORD_SIZE] = each.record
        return bytes(raw)

    def _judge_record(self, found: Verdicts, record: RaftRecord) -> None:
        index = record.header.index
        if found.is_last_known and record.header.prev_chain != found.last.chain:
            # The chain breaks between the entry before and this one. This one is faulty, unless the
            # next one continues from it.
            faulty_index = Index(index - 1) if self._next_agrees(record) else index
            found.mark_faulty(faulty_index, faulty_index, "the chain does not explain it")
        fault = self._frame_fault(record)
        if fault:
            found.mark_faulty(index, index, fault)
        found.take(record)

    def _next_agrees(self, record: RaftRecord) -> bool:
        following = self._record(Index(record.header.index + 1))
        return following is not None and following.header.prev_chain == record.chain

    def _frame_fault(self, record: RaftRecord) -> str | None:
        """F2: a bad frame under a good record is always media damage. Bodies and headers of sealed
        segments are checked when they are read (Q5)."""
        end = record.frame_offset + frame_size(record.header)
        if end > self.data_size:
            return f"{self.data_name} ends at byte {self.data_size}, before the frame does"
        if self.segment.is_sealed:
            return None
        frame = self._frame(record.frame_offset)
        if frame is None or frame.header != record.header:
            return f"damaged frame in {self.data_name}"
        return None

    def _adopt(self, found: Verdicts, index: Index) -> bool:
        """Take the frame of `index` without its record, if it continues the log."""
        if not found.is_last_known:
            return False
        last = found.last
        for offset in sorted({found.data_end, aligned(found.data_end, self.sector_bytes)}):
            frame = self._frame(offset)
            if frame is None:
                continue
            header = frame.header
            if header.index != index or header.term < last.header.term:
                continue
            if header.prev_chain != last.chain or header.prev_term != last.header.term:
                continue
            record = record_from_frame(frame, offset)
            found.rebuilt.append(Rebuilt(self.header, index, record.pack(self.header.segment_uuid)))
            found.take(record)
            return True
        return False

    def _frame(self, offset: int) -> FrameHeader | None:
        """The whole, undamaged frame at `offset`, body included, or None."""
        raw = self._salvaged_data(offset, FRAME_HEADER_SIZE)
        try:
            frame = unpack_frame_header(raw, segment_uuid=self.header.segment_uuid)
        except UnsupportedVersion as error:
            raise FolderRefused(f"{self.data_name}: {error}; upgrade this side") from error
        except FormatError:
            return None
        size = frame.header.body_size
        body = self._salvaged_data(offset + FRAME_HEADER_SIZE, size)
        if len(body) != size or (crc32c(body) if size else 0) != frame.header.body_crc:
            return None
        is_here = (frame.segment, frame.log_epoch) == (self.header.number, self.header.log_epoch)
        return frame if is_here else None

    def _records(self, first: Index, tick: Callable[[], None]) -> Iterator[RaftRecord | None]:
        """The record of each index from `first` on, None where there is no valid one."""
        slot = first - self.header.first_index
        while slot < self.slots:
            raw = self._chunk(slot, min(self.slots - slot, _CHUNK_BYTES // RECORD_SIZE))
            for place in range(0, len(raw), RECORD_SIZE):
                yield self._unpack(raw, place, Index(self.header.first_index + slot))
                slot += 1
            tick()

    def _record(self, index: Index) -> RaftRecord | None:
        raw = self._chunk(index - self.header.first_index, 1)
        return self._unpack(raw, 0, index)

    def _chunk(self, slot: int, count: int) -> bytes:
        position = SEGMENT_HEADER_SIZE + slot * RECORD_SIZE
        refused = self.refused.in_raft
        return read_salvaged(
            self.disk, self.raft, position, count * RECORD_SIZE, on_refused=refused
        )

    def _salvaged_data(self, offset: int, size: int) -> bytes:
        return read_salvaged(self.disk, self.data, offset, size, on_refused=self.refused.in_data)

    def _unpack(self, raw: bytes, place: int, index: Index) -> RaftRecord | None:
        if raw[place : place + RECORD_SIZE] == _ZERO_RECORD or index >= self.segment.end_index:
            return None
        try:
            record = unpack_raft_record(raw, place, segment_uuid=self.header.segment_uuid)
        except UnsupportedVersion as error:
            raise FolderRefused(
                f"segment {self.header.number}: {error}; upgrade this side"
            ) from error
        except FormatError:
            return None
        is_here = (record.header.index, record.log_epoch) == (index, self.header.log_epoch)
        return record if is_here else None

    def _last_valid_index(self, tick: Callable[[], None]) -> Index:
        step = _CHUNK_BYTES // RECORD_SIZE
        for first in reversed(range(0, self.slots, step)):
            raw = self._chunk(first, min(step, self.slots - first))
            tick()
            if raw.count(0) == len(raw):
                continue
            for slot in reversed(range(-(-len(raw) // RECORD_SIZE))):
                index = Index(self.header.first_index + first + slot)
                if self._unpack(raw, slot * RECORD_SIZE, index) is not None:
                    return index
        return Index(self.header.first_index - 1)
