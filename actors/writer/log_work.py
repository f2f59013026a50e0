"""Raft's orders on the log, carried out by flush workers: groups, rolls, truncations, the spare.

Owns the queue of orders, when a flush group begins and which worker runs what. Must not know META
or recovery. The writer's own thread calls no disk here, so no other message, such as a vote, waits
for a flush (SAFETY S8).

Order of one group (SAFETY F1), named in the tests that trace the system calls:
  1. frames → pwritev(data)    2. fdatasync(data)    3. records → pwrite(raft)
  4. fdatasync(raft)           5. Persisted(seq)

All five are one job of the data worker. If more orders wait, the records worker does 3 to 5
instead, in order, and the data worker begins 1 and 2 of the next group.

Invariants: the data worker has one job at a time, the records worker one group besides it;
a job that opens a segment begins when both other workers are idle, and until it ends
nothing else uses the log (F6).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from actors.host import FlushWorker
from actors.messages import RingMessage
from actors.observer import SpareUsed
from actors.station import Station
from actors.topology import Counter
from actors.trace import TracePoint
from actors.writer.flush_timer import FlushTimer
from actors.writer.folder import Folder
from actors.writer.installs import Installs
from logstore.errors import DiskFull
from logstore.format.group import frame_size
from logstore.limits import FLUSH_MAX_BYTES, SECTOR_BYTES
from logstore.model import NO_INDEX, Index
from logstore.raft.effects import InstallLog, Persist, Truncate
from logstore.raft.events import DiskFullChanged, Persisted
from logstore.raft.log_view import WholeLogStart
from logstore.storage.log_writer import AppendedGroup, EntryToWrite

SPARE_RETRY_NS = 1_000_000_000
# A flush group lies in one segment (S6), which holds at least four of the largest entry and 256
# records: a quarter of it and one more entry always fit.
GROUP_SEGMENT_SHARE = 4
NEVER_NS = 1 << 62

_log = logging.getLogger("logstore.writer")
FULL = (
    "the disk is full, there is no space for the next segment: this replica takes no appends until "
    "there is, as a leader or as a follower; free some space"
)
NO_LONGER_FULL = "the disk has space for the next segment again: this replica takes appends"


class LogWork:
    """`answer` sends to raft, from any thread. `on_bell` takes raft's orders while a job has the
    writer's thread."""

    def __init__(
        self,
        station: Station,
        folder: Folder,
        installs: Installs,
        *,
        answer: Callable[[RingMessage], None],
        on_bell: Callable[[], int],
    ) -> None:
        self._slots = station.slots
        self._folder = folder
        self._installs = installs
        self._answer = answer
        self._ring = station.payload_reader()
        self._group_max_bytes = min(
            FLUSH_MAX_BYTES, station.config.storage.segment_bytes // GROUP_SEGMENT_SHARE
        )
        self._group_entries_max = station.limits.flush_entries_max
        self._queue: deque[Persist | Truncate | InstallLog] = deque()
        self._installs_queued = 0
        self._taken_seq = 0  # the newest order
        self._commit = NO_INDEX  # highest commit index that raft has sent (F8)
        host, wake = station.host, station.bell.ring
        self._observer = host.observer
        self._data_timer = FlushTimer(
            station,
            begun=TracePoint.WRITE_BEGUN,
            flushed=TracePoint.DATA_FLUSHED,
            counter=Counter.DATA_FLUSH_NS,
        )
        self._records_timer = FlushTimer(
            station,
            begun=TracePoint.RECORDS_BEGUN,
            flushed=TracePoint.RECORDS_FLUSHED,
            counter=Counter.RECORD_FLUSH_NS,
        )
        self._data_worker = host.own_thread_worker("data", station.bell, on_bell)
        self._records_worker = host.flush_worker("records", wake)
        self._spare_worker = host.flush_worker("spare", wake)
        self._groups_passed_on = 0  # by the data worker, to the records worker
        self._groups_recorded = 0  # by the records worker
        self._room_left = (0, 0)  # bytes and entries, by the group of the data worker's job
        self._is_opening = False  # the data worker's job opens a segment
        self._found_no_space = False  # and found no space for it
        self._full_until_ns = 0
        self._spare_retry_ns = NEVER_NS
        self._spare_due_ns = 0
        self._is_preparing = False  # the spare worker's job, until its end was looked at
        self._is_full = False
        self._is_room_new = False  # a truncation or an install left another segment
        self._now_ns = 0

    @property
    def is_opening(self) -> bool:
        """A job that opens a segment is under way, or has just ended."""
        return self._is_opening

    @property
    def has_more(self) -> bool:
        """After a job that had the writer's thread there is something to do for which no bell rings
        any more: orders that were taken during it, what follows a segment that it opened, and what
        another worker has ended meanwhile."""
        return bool(
            self._queue
            or self._is_opening
            or self._is_room_new
            or (self._is_preparing and not self._spare_worker.is_busy)
        )

    @property
    def workers(self) -> tuple[FlushWorker, ...]:
        return self._data_worker, self._records_worker, self._spare_worker

    def add(self, command: Persist | Truncate | InstallLog) -> None:
        self._queue.append(command)
        self._taken_seq = command.seq
        self._installs_queued += isinstance(command, InstallLog)

    def finish_install(self, start: WholeLogStart) -> None:
        """Open the first segment of a log that recovery found dropped, before any order of raft,
        which has not ordered this one: the answer to 0 tells it nothing."""
        self._installs.go_on()
        self.add(InstallLog(0, start))

    def do_work(self, now_ns: int) -> int:
        """Begin what can begin; returns how much.

        Raises:
          WriteFailed: a worker's job failed; the incarnation ends (F5).
        """
        self._now_ns = now_ns
        for worker in self.workers:
            worker.check()
        if not self._data_worker.is_busy:
            self._is_opening = False
            if self._found_no_space:
                self._found_no_space = False
                self._full_until_ns = now_ns + SPARE_RETRY_NS
        work = self._maintain_spare(now_ns)
        if self._queue and not self._data_worker.is_busy and now_ns >= self._full_until_ns:
            work += self._begin()
        return work

    def next_timer_ns(self) -> int:
        """When to work without a bell; the end of a job rings one."""
        if self._queue and self._full_until_ns > self._now_ns:
            return min(self._spare_retry_ns, self._full_until_ns)
        return self._spare_retry_ns

    def close(self) -> None:
        for worker in self.workers:
            worker.close()

    # --- groups ---

    def _begin(self) -> int:
        """Begin the next install, truncation, roll or group, if the workers are free for it."""
        command = self._queue[0]
        while self._installs_queued and not isinstance(command, InstallLog):
            self._queue.popleft()  # its entries go with the log; one answer covers all
            command = self._queue[0]
        if isinstance(command, InstallLog):
            return self._install(command)
        if isinstance(command, Truncate):
            return self._open_segment(partial(self._truncate, command, self._commit))
        if self._groups_passed_on - self._groups_recorded > 1:
            return 0
        entries, last_seq = self._next_group()
        if self._folder.log.needs_roll(entries):
            return self._open_segment(partial(self._roll, entries))
        for _ in entries:
            self._queue.popleft()
        room_bytes, room_entries = self._folder.log.room()
        room_bytes -= SECTOR_BYTES + sum(frame_size(entry[0]) for entry in entries)
        self._room_left = room_bytes, room_entries - len(entries)
        self._data_worker.start(partial(self._write_group, entries, last_seq))
        return 1

    def _next_group(self) -> tuple[list[EntryToWrite], int]:
        """All entries that wait, within the bounds of a group."""
        ring = self._ring
        entries: list[EntryToWrite] = []
        last_seq, size = 0, 0
        for command in self._queue:
            if not isinstance(command, Persist) or size >= self._group_max_bytes:
                break
            if len(entries) >= self._group_entries_max:
                break
            # A no-op has no bytes, and so no range in the ring.
            has_body = command.header.body_size > 0
            views = ring.views(command.ring_start, command.ring_end) if has_body else []
            entries.append((command.header, command.chain, command.commit, views))
            size += frame_size(command.header)
            last_seq, self._commit = command.seq, command.commit
        return entries, last_seq

    def _write_group(self, entries: list[EntryToWrite], last_seq: int) -> Iterator[None]:
        """In the data worker."""
        log = self._folder.log
        begun_ns = self._data_timer.now_ns()
        group = log.append(entries)
        log.flush_data(group)
        yield
        self._data_timer.ended(group, begun_ns)
        if self._queue or self._groups_passed_on != self._groups_recorded:
            self._groups_passed_on += 1
            self._records_worker.start(partial(self._record_group, group, last_seq))
        else:
            yield from self._finish_group(group, last_seq)
        log.release_cache()
        self._folder.count_bytes()

    def _record_group(self, group: AppendedGroup, last_seq: int) -> Iterator[None]:
        """In the records worker."""
        yield from self._finish_group(group, last_seq)
        self._groups_recorded += 1

    def _finish_group(self, group: AppendedGroup, last_seq: int) -> Iterator[None]:
        """Runs after the group's data are flushed and the group before it is recorded."""
        log = self._folder.log
        begun_ns = self._records_timer.now_ns()
        log.write_records(group)
        self._slots[Counter.WRITTEN] = last_seq
        self._slots[Counter.FLUSHES] += 2
        log.flush_records(group)
        yield
        self._records_timer.ended(group, begun_ns)
        self._answer(Persisted(last_seq))

    # --- segments ---

    def _open_segment(self, job: Callable[[], Iterator[None]]) -> int:
        """Start `job`, which opens a segment, once every earlier flush has ended (F6)."""
        if self._records_worker.is_busy or self._spare_worker.is_busy:
            return 0
        self._is_opening = True
        self._data_worker.start(job)
        return 1

    def _roll(self, entries: Sequence[EntryToWrite]) -> Iterator[None]:
        """In the data worker. What does not fit stays queued, without space too (S9)."""
        self._try_open(partial(self._folder.log.make_room, entries))
        yield
        self._slots[Counter.MAP_GENERATION] += 1

    def _truncate(self, command: Truncate, commit: Index) -> Iterator[None]:
        """In the data worker."""
        if not self._try_open(partial(self._folder.log.truncate, command.first_index, commit)):
            return
        yield
        self._queue.popleft()
        self._is_room_new = True
        self._slots[Counter.MAP_GENERATION] += 1
        self._slots[Counter.WRITTEN] = command.seq
        self._answer(Persisted(command.seq))

    def _install(self, command: InstallLog) -> int:
        """Take the next step towards an empty log; answer after the last one."""
        if not self._installs.take_end():
            start_over = partial(self._open_segment, partial(self._start_over, command.start))
            return self._installs.advance(command.start, start_over)
        self._queue.popleft()
        self._installs_queued -= 1
        self._is_room_new = True
        self._slots[Counter.MAP_GENERATION] += 1
        self._slots[Counter.WRITTEN] = command.seq
        self._answer(Persisted(command.seq))
        return 1

    def _start_over(self, whole: WholeLogStart) -> Iterator[None]:
        """In the data worker. Without space it is begun again. Readers close what was removed, for
        an open file keeps its space, and this disk may have no other."""
        self._folder.drop_log(whole)
        yield
        self._slots[Counter.MAP_GENERATION] += 1
        if self._try_open(self._folder.log.open_first):
            yield
            self._installs.on_begun_anew()

    def _try_open(self, open_segment: Callable[[], None]) -> bool:
        """Open a segment; False if there is no space."""
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

    def _maintain_spare(self, now_ns: int) -> int:
        """Prepare the next pair before it is needed; report a full disk and its end (S9)."""
        self._spare_retry_ns = NEVER_NS
        if not self._folder.has_log or self._spare_worker.is_busy or self._is_opening:
            return 0
        self._is_preparing = False
        log = self._folder.log
        if log.is_disk_full != self._is_full:
            self._is_full = log.is_disk_full
            self._slots[Counter.DISK_FULL] = int(self._is_full)
            self._answer(self._disk_report())
            _log.warning("%s", FULL if self._is_full else NO_LONGER_FULL)
        elif self._is_full and self._is_room_new:
            self._answer(self._disk_report())
        self._is_room_new = False
        if not log.needs_spare and not log.is_disk_full:
            self._full_until_ns = 0
            if log.has_torn_tail and not self._data_worker.is_busy:
                # recovery had no space to discard the torn tail
                return self._open_segment(partial(self._roll, ()))
        elif log.is_disk_full and now_ns < self._spare_due_ns:
            self._spare_retry_ns = self._spare_due_ns
        else:
            self._spare_due_ns = self._spare_retry_ns = now_ns + SPARE_RETRY_NS
            self._is_preparing = True
            self._spare_worker.start(self._prepare_spare)
        return 0

    def _disk_report(self) -> DiskFullChanged:
        """Whether the disk is full, and then what the open segment takes besides what is queued or
        being written. A truncation would need another segment; amid an install there is none."""
        if not self._is_full:
            return DiskFullChanged(False)
        queued = [command for command in self._queue if isinstance(command, Persist)]
        if len(queued) < len(self._queue):
            return DiskFullChanged(True)
        # how far the data worker is with its group, this thread cannot tell
        is_busy = self._data_worker.is_busy
        room_bytes, room_entries = self._room_left if is_busy else self._folder.log.room()
        queued_bytes = sum(frame_size(command.header) for command in queued)
        return DiskFullChanged(
            True,
            max(0, room_bytes - queued_bytes),
            max(0, room_entries - len(queued)),
            self._taken_seq,
        )

    def _prepare_spare(self) -> Iterator[None]:
        """In the spare worker."""
        self._folder.log.prepare_spare()
        yield
