"""What raft orders of the log, carried out in flush lanes: groups, rolls, truncations, the spare.

Owns the queue of orders, when a flush group begins and which lane does what. Must not know META
nor recovery. The writer's own thread calls no disk here, so that whatever else comes, a vote first
of all, waits for no flush (SAFETY S8).

Order of one group (SAFETY F1), named in the tests that trace the system calls:
  1. frames → pwritev(data)    2. fdatasync(data)    3. records → pwrite(raft)
  4. fdatasync(raft)           5. Persisted(seq)
All of it is one job of the data lane. Where more waits, 3 to 5 go to the records lane instead,
which runs its jobs in order, and the data lane goes on with 1 and 2 of the next group.

Invariants: the data lane has one job at a time, the records lane one group beside it; a job that
opens a segment begins when both other lanes are idle, and until its end nobody else looks at the
log (F6).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from actors.host import FlushLane
from actors.messages import RingMessage
from actors.observer import SpareUsed
from actors.station import Station
from actors.topology import Counter
from actors.writer.folder import Folder
from logstore.errors import DiskFull
from logstore.format.group import frame_size
from logstore.limits import FLUSH_MAX_BYTES
from logstore.model import NO_INDEX, Index
from logstore.raft.effects import Persist, Truncate
from logstore.raft.events import DiskFullChanged, Persisted
from logstore.storage.log_writer import AppendedGroup, EntryToWrite

SPARE_RETRY_NS = 1_000_000_000
# A flush group lies in one segment (S6), which holds at least four of the largest entry and 256
# records: a quarter of it and one entry more always fit.
GROUP_SEGMENT_SHARE = 4
NEVER_NS = 1 << 62

_log = logging.getLogger("logstore.writer")
FULL = (
    "the disk is full, there is no space for the next segment: this replica takes no appends until "
    "there is, as a leader or as a follower; free some space"
)
NO_LONGER_FULL = "the disk has space for the next segment again: this replica takes appends"


class LogWork:
    """`answer` tells raft, from any thread; `attend` takes raft's orders while a lane has the
    writer's thread."""

    def __init__(
        self,
        station: Station,
        folder: Folder,
        *,
        answer: Callable[[RingMessage], None],
        attend: Callable[[], int],
    ) -> None:
        self._slots = station.slots
        self._folder = folder
        self._answer = answer
        self._ring = station.payload_reader()
        self._group_max_bytes = min(
            FLUSH_MAX_BYTES, station.config.storage.segment_bytes // GROUP_SEGMENT_SHARE
        )
        self._group_entries_max = station.limits.flush_entries_max
        self._queue: deque[Persist | Truncate] = deque()
        self._commit = NO_INDEX  # highest commit index raft has told us of (F8)
        host, wake = station.host, station.bell.ring
        self._observer = host.observer
        self._data_lane = host.own_lane("data", station.bell, attend)
        self._records_lane = host.lane("records", wake)
        self._spare_lane = host.lane("spare", wake)
        self._groups_handed_on = 0  # to the records lane, by the data lane
        self._groups_recorded = 0  # by the records lane
        self._is_opening = False  # the data lane's job opens a segment
        self._found_no_space = False  # and could not
        self._full_until_ns = 0
        self._spare_retry_ns = NEVER_NS
        self._spare_due_ns = 0
        self._is_full = False
        self._now_ns = 0

    @property
    def lanes(self) -> tuple[FlushLane, ...]:
        return self._data_lane, self._records_lane, self._spare_lane

    def add(self, command: Persist | Truncate) -> None:
        self._queue.append(command)

    def do_work(self, now_ns: int) -> int:
        """Begin what can be begun. After a job it is never 0: what came during it was taken, and
        its bell cleared.

        Raises:
          WriteFailed: a lane's job failed; the incarnation ends (F5).
        """
        self._now_ns = now_ns
        for lane in self.lanes:
            lane.check()
        if not self._data_lane.is_busy:
            self._is_opening = False
            if self._found_no_space:
                self._found_no_space = False
                self._full_until_ns = now_ns + SPARE_RETRY_NS
        work = self._care_for_spare(now_ns)
        if self._queue and not self._data_lane.is_busy and now_ns >= self._full_until_ns:
            work += self._begin()
        return work

    def next_timer_ns(self) -> int:
        """The end of a lane's job brings the writer back by itself."""
        if self._queue and self._full_until_ns > self._now_ns:
            return min(self._spare_retry_ns, self._full_until_ns)
        return self._spare_retry_ns

    def close(self) -> None:
        for lane in self.lanes:
            lane.close()

    # --- groups ---

    def _begin(self) -> int:
        """The next truncation, roll or group, where the lanes allow it."""
        command = self._queue[0]
        if isinstance(command, Truncate):
            return self._open_segment(partial(self._truncate, command, self._commit))
        if self._groups_handed_on - self._groups_recorded > 1:
            return 0
        entries, last_seq = self._next_group()
        if self._folder.log.needs_roll(entries):
            return self._open_segment(partial(self._roll, entries))
        for _ in entries:
            self._queue.popleft()
        self._data_lane.start(partial(self._write_group, entries, last_seq))
        return 1

    def _next_group(self) -> tuple[list[EntryToWrite], int]:
        """Everything that waits, as far as the bounds of a group allow."""
        ring = self._ring
        entries: list[EntryToWrite] = []
        last_seq, size = 0, 0
        for command in self._queue:
            if not isinstance(command, Persist) or size >= self._group_max_bytes:
                break
            if len(entries) >= self._group_entries_max:
                break
            # A no-op has no bytes, and so no place in the ring either.
            has_body = command.header.body_size > 0
            views = ring.views(command.ring_start, command.ring_end) if has_body else []
            entries.append((command.header, command.chain, command.commit, views))
            size += frame_size(command.header)
            last_seq, self._commit = command.seq, command.commit
        return entries, last_seq

    def _write_group(self, entries: list[EntryToWrite], last_seq: int) -> Iterator[None]:
        """In the data lane."""
        log = self._folder.log
        group = log.append(entries)
        log.flush_data(group)
        yield
        if self._queue or self._groups_handed_on != self._groups_recorded:
            self._groups_handed_on += 1
            self._records_lane.start(partial(self._record_group, group, last_seq))
        else:
            yield from self._finish_group(group, last_seq)
        log.release_cache()
        self._folder.count_bytes()

    def _record_group(self, group: AppendedGroup, last_seq: int) -> Iterator[None]:
        """In the records lane."""
        yield from self._finish_group(group, last_seq)
        self._groups_recorded += 1

    def _finish_group(self, group: AppendedGroup, last_seq: int) -> Iterator[None]:
        """Only after the group's data are flushed, and the group before it is recorded."""
        log = self._folder.log
        log.write_records(group)
        self._slots[Counter.WRITTEN] = last_seq
        self._slots[Counter.FLUSHES] += 2
        log.flush_records(group)
        yield
        self._answer(Persisted(last_seq))

    # --- segments ---

    def _open_segment(self, job: Callable[[], Iterator[None]]) -> int:
        """Every earlier flush has ended, then the new pair's durable headers (F6)."""
        if self._records_lane.is_busy or self._spare_lane.is_busy:
            return 0
        self._is_opening = True
        self._data_lane.start(job)
        return 1

    def _roll(self, entries: Sequence[EntryToWrite]) -> Iterator[None]:
        """In the data lane. What does not fit stays queued, without space too (S9)."""
        self._try_open(partial(self._folder.log.make_room, entries))
        yield
        self._slots[Counter.MAP_GENERATION] += 1

    def _truncate(self, command: Truncate, commit: Index) -> Iterator[None]:
        """In the data lane."""
        if not self._try_open(partial(self._folder.log.truncate, command.first_index, commit)):
            return
        yield
        self._queue.popleft()
        self._slots[Counter.MAP_GENERATION] += 1
        self._slots[Counter.WRITTEN] = command.seq
        self._answer(Persisted(command.seq))

    def _try_open(self, open_segment: Callable[[], None]) -> bool:
        """False: there is no space for it."""
        log = self._folder.log
        has_spare = not log.needs_spare
        try:
            open_segment()
        except DiskFull:
            self._found_no_space = True
            return False
        if has_spare and log.needs_spare:
            self._observer.saw(SpareUsed())
        return True

    # --- space ---

    def _care_for_spare(self, now_ns: int) -> int:
        """Prepare the next pair before it is needed; report a full disk and its end (S9)."""
        self._spare_retry_ns = NEVER_NS
        if not self._folder.has_log or self._spare_lane.is_busy or self._is_opening:
            return 0
        log = self._folder.log
        if log.is_disk_full != self._is_full:
            self._is_full = log.is_disk_full
            self._slots[Counter.DISK_FULL] = int(self._is_full)
            self._answer(DiskFullChanged(self._is_full))
            _log.warning("%s", FULL if self._is_full else NO_LONGER_FULL)
        if not log.needs_spare and not log.is_disk_full:
            self._full_until_ns = 0
            if log.has_torn_tail and not self._data_lane.is_busy:
                # what a start without space left undone
                return self._open_segment(partial(self._roll, ()))
        elif now_ns < self._spare_due_ns:
            self._spare_retry_ns = self._spare_due_ns
        else:
            self._spare_due_ns = self._spare_retry_ns = now_ns + SPARE_RETRY_NS
            self._spare_lane.start(self._prepare_spare)
        return 0

    def _prepare_spare(self) -> Iterator[None]:
        """In the spare lane."""
        self._folder.log.prepare_spare()
        yield
