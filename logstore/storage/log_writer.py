"""Writes both logs of one replica: append, roll and truncate, in the only safe order (SAFETY F1).

Owns the open segment pair, the prepared spare and what the log's last entry is. Must not know when
to flush, in which thread, or whose entries these are. One group takes four steps:

    1. group = append(entries)      frames are written; nothing is durable
    2. flush_data(group)            frames are durable
    3. write_records(group)         a record says that its frame is durable (F2)
    4. flush_records(group)         durable; the group may be acknowledged

The next group's step 1 may run during this group's steps 2 and 4; its step 3 waits for both. Steps
2 to 4 use only the group and the disk, so they may run in another thread.

Invariants: entries are contiguous by index, term, chain, LSN and bytes; a group lies in one segment
and begins at a sector boundary; rolling and truncating are one act, during which no flush is under
way (F6, S7); nothing is overwritten in place. Every error ends the incarnation (F5), except errors
of `prepare_spare` and the DiskFull of `roll`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from logstore.errors import CorruptData, DiskFull, InvariantViolated, ReplicaLost
from logstore.format.entry import EntryHeader, Row
from logstore.format.group import FRAME_HEADER_SIZE, FrameHeader, frame_size
from logstore.format.meta import LogStart
from logstore.format.raft_record import RaftRecord
from logstore.format.segment_header import SEGMENT_HEADER_SIZE, FileRole, SegmentHeader
from logstore.limits import CACHE_KEPT_BYTES, CACHE_RELEASE_STEP_BYTES, SECTOR_BYTES
from logstore.model import NO_INDEX, Index
from logstore.storage.disk import Buffer, Disk
from logstore.storage.entry_before import entry_before
from logstore.storage.sealed import Summing
from logstore.storage.segment import (
    Pair,
    SegmentOptions,
    aligned,
    header_after,
    log_start_at,
    pair_sizes,
    prepare_pair,
    record_position,
    release_allocation,
    remove_dead_pair,
    row_at_start,
    row_before,
    segment_numbers,
    segment_path,
    write_headers_durable,
)
from logstore.units import SIZE_UNITS

# One entry to append: header, chain, known commit index, pieces of the body.
EntryToWrite = tuple[EntryHeader, int, int, Sequence[Buffer]]


class AppendedGroup:
    """One flush group that is being written. Step 4 sets `is_flushed`, in
    whichever thread it runs."""

    __slots__ = ("first_index", "is_flushed", "last_index", "pair", "position", "records")

    def __init__(
        self, pair: Pair, *, first_index: Index, last_index: Index, position: int, records: bytes
    ) -> None:
        self.pair = pair
        self.first_index = first_index
        self.last_index = last_index
        self.position = position
        self.records = records
        self.is_flushed = False


class LogState(msgspec.Struct, frozen=True):
    """The state of the log that a LogWriter continues. `data_end`: end of the last live frame in
    the newest segment, in bytes; `live`: headers of the live segments, the newest last;
    `has_torn_tail`: bytes that are no entry follow the last one; `summing` is of the newest
    segment, None if damage keeps it from having a summary."""

    cluster_id: bytes
    replica_uuid: bytes
    start: LogStart
    last: Row
    live: tuple[SegmentHeader, ...]
    commit_floor: Index
    data_end: int
    next_number: int
    has_torn_tail: bool = False
    summing: Summing | None = None


class LogWriter:
    """See the module. `map_generation` grows whenever files were opened or
    removed, durably (V7)."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        options: SegmentOptions,
        state: LogState,
        *,
        new_uuid: Callable[[], bytes],
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._options = options
        self._cluster_id = state.cluster_id
        self._replica_uuid = state.replica_uuid
        self._start = state.start
        self._new_uuid = new_uuid
        self.last = state.last
        self._commit_known: int = state.commit_floor
        self._live = list(state.live)
        self._log_epoch = state.live[-1].log_epoch if state.live else 0
        self._data_end = state.data_end
        self._released = 0
        self._next_number = state.next_number
        self._has_torn_tail = state.has_torn_tail
        self._pair = self._open_pair(state.live[-1]) if state.live else None
        self._summing = state.summing
        self._spare: tuple[int, int, int] | None = None
        self._unfinished: deque[AppendedGroup] = deque()
        self.is_disk_full = False
        self.map_generation = 0
        self.data_bytes_written = 0
        self.raft_bytes_written = 0

    # --- append ---

    def needs_roll(self, entries: Sequence[EntryToWrite]) -> bool:
        """Whether this flush group does not fit into the rest of the segment. Nothing is ever
        appended after a torn tail."""
        if self._has_torn_tail:
            return True
        if self._slots_used + len(entries) > self._current().records_capacity:
            return True
        return self._end_after(entries) > self._current().data_capacity

    def make_room(self, entries: Sequence[EntryToWrite]) -> None:
        """Open the next segment if `needs_roll`. Make it larger than usual if the group is: limits
        bound what is admitted here, not what is replicated to here. An empty segment is replaced
        where its Raft file is too short: a tail was lost, or there was no space to make it again.

        Raises:
          DiskFull: there is no space, and the entries still do not fit; try again once there is.
        """
        used = self._slots_used
        if self._has_torn_tail or used or len(entries) > self._current().records_capacity:
            self.roll()
        pair, end = self._current(), self._end_after(entries)
        if end > pair.data_capacity:
            self.is_disk_full = True  # unless the allocation succeeds
            self._disk.allocate(pair.data, end)
            pair.data_capacity, self.is_disk_full = end, False

    @property
    def _slots_used(self) -> int:
        """Entries of the open segment."""
        return self.last.header.index + 1 - self._current().header.first_index

    def _end_after(self, entries: Sequence[EntryToWrite]) -> int:
        start = aligned(self._data_end, self._options.sector_bytes)
        return start + sum(frame_size(entry[0]) for entry in entries)

    def append(self, entries: Sequence[EntryToWrite]) -> AppendedGroup:
        """Write the frames of one flush group, at the next sector boundary. Not durable.

        Raises:
          InvariantViolated: the entries do not continue the log, or the group does not fit here.
          WriteFailed: the incarnation ends (F5).
        """
        if not entries or self.needs_roll(entries):
            raise InvariantViolated(
                f"a flush group of {len(entries)} entries does not fit into what is left of segment"
                f" {self._current().header.number}; roll first"
            )
        pair = self._current()
        header = pair.header
        start = offset = aligned(self._data_end, self._options.sector_bytes)
        last = self.last
        views: list[Buffer] = []
        records: list[bytes] = []
        for entry, chain, commit_known, body in entries:
            _check_continues(last, entry, chain, body)
            frame = FrameHeader(
                entry, header.number, header.segment_uuid, header.log_epoch, Index(commit_known)
            )
            views.append(frame.pack())
            views.extend(body)
            record = RaftRecord(entry, chain, offset, Index(commit_known), header.log_epoch)
            records.append(record.pack(header.segment_uuid))
            if self._summing is not None:
                self._summing.take(entry, commit_known)
            offset += FRAME_HEADER_SIZE + entry.body_size
            last = Row(entry, chain)
        self.data_bytes_written += self._disk.write(pair.data, start, views)
        group = AppendedGroup(
            pair,
            first_index=entries[0][0].index,
            last_index=last.header.index,
            position=record_position(header, entries[0][0].index),
            records=b"".join(records),
        )
        if self._summing is not None:
            self._summing.add_records(group.records)
        self.raft_bytes_written += len(group.records)
        self.last = last
        self._data_end = offset
        self._forget_finished()
        self._unfinished.append(group)
        self._commit_known = max(self._commit_known, entries[-1][2])
        return group

    def flush_data(self, group: AppendedGroup) -> None:
        self._disk.flush(group.pair.data)

    def write_records(self, group: AppendedGroup) -> None:
        """Only after `flush_data` of this group and `flush_records` of the one before (F1, F2)."""
        self._disk.write(group.pair.raft, group.position, [group.records])

    def flush_records(self, group: AppendedGroup) -> None:
        self._disk.flush(group.pair.raft)
        group.is_flushed = True

    @property
    def groups_unfinished(self) -> int:
        """Groups appended that have not finished step 4."""
        self._forget_finished()
        return len(self._unfinished)

    def _forget_finished(self) -> None:
        """Each keeps its records, so none waits for the next roll."""
        while self._unfinished and self._unfinished[0].is_flushed:
            self._unfinished.popleft()

    def release_cache(self) -> None:
        """Now and then, drop cached pages that lie far before the tail;
        everything there is flushed."""
        end = self._data_end - CACHE_KEPT_BYTES
        if end - self._released >= CACHE_RELEASE_STEP_BYTES:
            self._released = end
            self._disk.release_cache(self._current().data, end)

    # --- roll and truncate ---

    def roll(self) -> None:
        """Open the next segment after the last entry. Every flush must have ended (F6). A torn tail
        after that entry is truncated by this.

        Raises:
          DiskFull: no spare and no space for one; nothing has changed, try again later.
        """
        log_epoch = self._log_epoch + self._has_torn_tail
        self._open_segment(self.last, log_epoch=log_epoch, valid_end=self._data_end)

    def truncate(self, first_index: Index, commit: Index = NO_INDEX) -> None:
        """Drop every entry from `first_index` on, durably: open a segment there (S7). `commit` is
        the highest known commit index; the term that caused this is durable already (F6).

        Raises:
          InvariantViolated: at or below the commit index (F8), or outside the log.
          DiskFull: no spare and no space for one; nothing has changed.
        """
        commit = Index(max(commit, self._commit_known))
        if first_index <= max(commit, self._start.index):
            raise InvariantViolated(
                f"truncation at {first_index}, but {commit} is committed and the log starts behind"
                f" {self._start.index}"
            )
        if first_index > self.last.header.index + 1:
            raise InvariantViolated(
                f"truncation at {first_index}, but the log ends at {self.last.header.index}"
            )
        before, valid_end = self._entry_before(first_index)
        log_epoch = self._log_epoch + 1
        self._open_segment(before, log_epoch=log_epoch, valid_end=valid_end)

    def row_at_start(self) -> Row:
        """The entry at log start, with its stamp and bytes; 0 where damage hides them."""
        try:
            return self._entry_before(Index(self._start.index + 1))[0]
        except (CorruptData, ReplicaLost):
            return row_at_start(self._start)

    def move_start(self, start: LogStart) -> list[SegmentHeader]:
        """META says durably that the log starts after the entry of `start`. Returns the pairs that
        lie wholly below it, for `remove_pairs`; the open pair never does (G4). It may run beside an
        append, never beside a roll, truncation or `drop`."""
        self._start = start
        below: list[SegmentHeader] = []
        while len(self._live) > 1 and self._live[1].first_index <= start.index + 1:
            below.append(self._live.pop(0))
        return below

    def remove_pairs(self, pairs: Sequence[SegmentHeader]) -> None:
        """Unlink pairs that are live no more. May run beside everything else."""
        for header in pairs:
            remove_dead_pair(self._disk, self._folder, header.number)

    def drop(self, before: Row) -> None:
        """Remove every pair: the log starts over after the entry `before`, as META says durably
        under the mark INSTALL (G5a). Every flush must have ended (F6). `open_first` comes next."""
        self._check_none_unfinished()
        if self._pair is not None:
            self._pair.close(self._disk)
        old, self._live, self._pair = self._live, [], None
        self.remove_pairs(old)
        self._log_epoch += 1
        self._has_torn_tail = False
        self._start = log_start_at(before)
        self.last, self._commit_known = before, before.header.index

    @property
    def has_torn_tail(self) -> bool:
        """Whether bytes that a crash left after the last entry are still to be discarded. Until a
        roll or truncation does it, nothing is appended, and another start finds the same tail."""
        return self._has_torn_tail

    # --- the spare ---

    @property
    def needs_spare(self) -> bool:
        return self._spare is None

    @property
    def is_half_full(self) -> bool:
        """Whether a spare should have been prepared by now (S9)."""
        pair = self._current()
        return (
            2 * self._data_end > pair.data_capacity or 2 * self._slots_used > pair.records_capacity
        )

    def room(self) -> tuple[int, int]:
        """Bytes and entries that the open segment still takes; none after a torn tail."""
        if self._has_torn_tail:
            return 0, 0
        pair = self._current()
        return (
            max(0, pair.data_capacity - self._data_end),
            pair.records_capacity - self._slots_used,
        )

    def prepare_spare(self) -> bool:
        """Reserve the next pair's files. False: no space; `is_disk_full` is
        set until it succeeds."""
        if self._spare is not None:
            return True
        try:
            data, raft = prepare_pair(self._disk, self._folder, self._next_number, self._options)
        except DiskFull:
            self.is_disk_full = True
            if self._next_number in segment_numbers(self._disk.list_folder(self._folder)):
                self._next_number += 1  # it could not be removed either; a number is used once
            return False
        self._spare = (self._next_number, data, raft)
        self._next_number += 1
        self.is_disk_full = False
        return True

    def close(self) -> None:
        if self._pair is not None:
            self._pair.close(self._disk)
        if self._spare is not None:
            _, data, raft = self._spare
            self._disk.close(data)
            self._disk.close(raft)

    # --- inside ---

    def _current(self) -> Pair:
        if self._pair is None:
            raise InvariantViolated("the log has no open segment")
        return self._pair

    def open_first(self) -> None:
        """Open the first segment of a log that has none.

        Raises:
          DiskFull: no spare and no space for one; try again later.
        """
        if self._pair is not None or self._live:
            raise InvariantViolated("the log has segments already")
        self._open_segment(self.last, log_epoch=self._log_epoch, valid_end=0)

    def _entry_before(self, first_index: Index) -> tuple[Row, int]:
        """The entry that becomes the last, and the end of its frame in its data file; of no use
        where a live segment begins after that entry, whose header knows it."""
        if first_index == self.last.header.index + 1:
            return self.last, self._data_end
        index = Index(first_index - 1)
        if index == self._live[0].first_index - 1:
            return row_before(self._live[0]), 0
        if index == NO_INDEX:  # the first pair is missing
            return row_at_start(self._start), 0
        return entry_before(
            self._disk, self._folder, self._live, index, sector_bytes=self._options.sector_bytes
        )

    def _check_none_unfinished(self) -> None:
        if self.groups_unfinished:
            raise InvariantViolated(
                f"{self.groups_unfinished} groups are being flushed; a roll or truncation waits"
            )

    def _open_segment(self, before: Row, *, log_epoch: int, valid_end: int) -> None:
        self._check_none_unfinished()
        if not self.prepare_spare() or self._spare is None:
            size = -(-sum(pair_sizes(self._options).values()) // SIZE_UNITS["MiB"])
            raise DiskFull(
                f"{self._folder}: no space for the next segment, which takes {size} MiB; free some "
                "space"
            )
        number, data, raft = self._spare
        first_index = Index(before.header.index + 1)
        kept = [header for header in self._live if header.first_index < first_index]
        header = header_after(
            before,
            self._live,
            number=number,
            log_epoch=log_epoch,
            valid_end=valid_end,
            ids=(self._cluster_id, self._replica_uuid, self._new_uuid()),
        )
        summary = b""
        if self._summing is not None:
            found = self._summing.summary_of(header.previous_uuid, first_index)
            summary = b"" if found is None else found.pack(header.segment_uuid)
        self.raft_bytes_written += SECTOR_BYTES + len(summary)
        self.data_bytes_written += SECTOR_BYTES
        write_headers_durable(
            self._disk, self._folder, header, summary=summary, data=data, raft=raft
        )
        # The new headers are durable: remove what they make dead, and release spare allocation.
        self._spare, self._has_torn_tail = None, False
        if self._pair is not None:
            self._pair.close(self._disk)
        self._pair, self._summing = Pair(self._disk, header, data, raft), Summing(header)
        dead = [old for old in self._live if old.first_index >= first_index]
        self._live = [*kept, header]
        self._log_epoch = log_epoch
        self.last = before
        self._data_end = SEGMENT_HEADER_SIZE
        self._released = 0
        self.remove_pairs(dead)
        if kept:
            release_allocation(self._disk, self._folder, kept[-1], header)
        self.map_generation += 1

    def _open_pair(self, header: SegmentHeader) -> Pair:
        data = self._disk.open_write(segment_path(self._folder, header.number, FileRole.DATA))
        raft = self._disk.open_write(segment_path(self._folder, header.number, FileRole.RAFT))
        pair = Pair(self._disk, header, data, raft)
        try:
            # A copy of the folder may have holes where these files had space. Where there is none
            # the segment counts as full, and the next one waits for space (S9).
            for handle in (data, raft):
                self._disk.allocate(handle, self._disk.size(handle))
        except DiskFull:
            pair.data_capacity = self._data_end
            pair.records_capacity = self.last.header.index + 1 - header.first_index
        return pair


def _check_continues(last: Row, entry: EntryHeader, chain: int, body: Sequence[Buffer]) -> None:
    """W5 on disk: entries are contiguous by index, term, chain, LSN and bytes."""
    before = last.header
    continues = (
        entry.index == before.index + 1
        and entry.prev_term == before.term <= entry.term
        and entry.prev_chain == last.chain
        and entry.first_lsn == before.next_lsn
        and entry.timestamp_ns >= before.timestamp_ns
        and entry.cumulative_bytes == before.cumulative_bytes + entry.body_size
        and entry.body_size == sum(len(view) for view in body)
        and chain == entry.chain()
    )
    if not continues:
        raise InvariantViolated(
            f"entry {entry} with chain {chain:#x} does not continue the log, which ends with"
            f" {before} and chain {last.chain:#x}"
        )
