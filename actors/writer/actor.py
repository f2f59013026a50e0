"""Writer: the process that owns both logs and META on disk, and the only one that flushes.

It executes what raft orders, in that order, and answers with sequence numbers; it decides nothing.
Group commit is what happens while it is busy: it takes everything that waits, up to 4 MiB, in one
flush.

Order of one group (SAFETY F1), named in the tests that trace the system calls:
  1. frames → pwritev(data)    2. fdatasync(data)    3. records → pwrite(raft)
  4. fdatasync(raft)           5. Persisted(seq)
Step 4 runs in a thread when more waits, so that 1 and 2 of the next group overlap with it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from threading import Lock
from typing import Any

from actors import topology
from actors.messages import CreateLog, InitSaved, RecoveryDelayed, RingMessage
from actors.station import Station
from actors.topology import Counter
from actors.writer.folder import Folder
from logstore.errors import DiskFull, FolderInUse
from logstore.format.group import frame_size
from logstore.limits import FLUSH_MAX_BYTES, SAY_AGAIN_NS
from logstore.model import NO_INDEX
from logstore.raft.bootstrap import SaveInit
from logstore.raft.effects import Persist, SaveMeta, Truncate
from logstore.raft.events import DiskFullChanged, MetaPersisted, Persisted
from logstore.storage.log_writer import AppendedGroup, EntryToWrite

SPARE_RETRY_NS = 1_000_000_000
# What found no room in the ring to raft is offered again this soon: a long report of recovery.
RING_RETRY_NS = 1_000_000
# A flush group lies in one segment (S6), which holds at least four of the largest entry and 256
# records: a quarter of it and one entry more always fit.
GROUP_SEGMENT_SHARE = 4
GROUP_ENTRIES_MAX = 256
NEVER_NS = 1 << 62
# Recovery and the bootstrap are tried again this often, and the reason is logged this often.
RETRY_NS = 1_000_000_000

_log = logging.getLogger("logstore.writer")
FULL = (
    "the disk is full, there is no space for the next segment: this replica takes no appends until "
    "there is, as a leader or as a follower; free some space"
)
NO_LONGER_FULL = "the disk has space for the next segment again: this replica takes appends"


class WriterActor:
    """Runs the log writer and the META store for raft."""

    def __init__(self, station: Station) -> None:
        self._slots = station.slots
        self._from_raft = station.inbox(topology.RAFT)
        self._to_raft = station.outbox(topology.RAFT)
        self._answers = Lock()  # the outbox is used by the flush threads too
        self._ring = station.payload_reader()
        self._folder = Folder(station)
        self._group_max_bytes = min(
            FLUSH_MAX_BYTES, station.config.storage.segment_bytes // GROUP_SEGMENT_SHARE
        )
        self._queue: deque[Persist | Truncate] = deque()
        self._records_lane = station.host.lane("records", station.bell.ring)
        self._meta_lane = station.host.lane("meta", station.bell.ring)
        self._spare_lane = station.host.lane("spare", station.bell.ring)
        self._spare_retry_ns = NEVER_NS
        self._spare_due_ns = 0
        self._full_until_ns = 0
        self._is_full = False
        self._now_ns = 0
        self._commit = NO_INDEX  # highest commit index raft has told us of (F8)
        self._is_recovered = False
        self._inits: deque[SaveInit] = deque()  # steps of the bootstrap that are not saved yet
        self.delay = ""  # why recovery, or the bootstrap, is to be tried again
        self._retry_due_ns = 0
        self._said_ns = -SAY_AGAIN_NS

    def on_start(self) -> None:
        self._try_recover()

    def do_work(self, now_ns: int) -> int:
        self._now_ns = now_ns
        if self.delay and now_ns >= self._retry_due_ns and not self._meta_lane.is_busy:
            self._try_again(now_ns)
        if not self._is_recovered:
            return 0
        work = self._take_commands()
        for lane in (self._records_lane, self._meta_lane, self._spare_lane):
            lane.check()
        if self._queue and now_ns >= self._full_until_ns:
            work += 1
            self._execute(now_ns)
        self._care_for_spare(now_ns)
        with self._answers:
            self._to_raft.flush()
        return work

    def wait_on(self) -> Sequence[Any]:
        return ()

    def next_timer_ns(self) -> int:
        timers = [self._spare_retry_ns]
        if self._queue:
            timers.append(self._full_until_ns)
        if self._to_raft.is_congested:
            timers.append(self._now_ns + RING_RETRY_NS)
        if self.delay and not self._meta_lane.is_busy:  # the lane's end brings the writer back
            timers.append(self._retry_due_ns)
        return min(timers)

    def on_close(self) -> None:
        for lane in (self._records_lane, self._meta_lane, self._spare_lane):
            lane.close()
        self._folder.close()

    # --- the start ---

    def _try_recover(self) -> None:
        """Open the folder, unless another process still holds it (a writer of an earlier start that
        hangs in the kernel, FAULTS P17) or there is no space for what recovery must write (S9)."""
        try:
            recovered = self._folder.recover()
        except (DiskFull, FolderInUse) as error:
            self._wait_for(error)
            return
        self._is_recovered = True
        self._answer(recovered)

    def _wait_for(self, error: DiskFull | FolderInUse) -> None:
        self.delay = str(error)
        self._answer(RecoveryDelayed(self.delay))

    def _try_again(self, now_ns: int) -> None:
        """What an operator must mend is said at once, then every minute."""
        if now_ns >= self._said_ns + SAY_AGAIN_NS:
            self._said_ns = now_ns
            _log.warning("this replica waits: %s", self.delay)
        self._retry_due_ns = now_ns + RETRY_NS
        self.delay = ""
        if self._is_recovered:
            self._meta_lane.start(self._save_inits)
        else:
            self._try_recover()

    # --- commands ---

    def _take_commands(self) -> int:
        commands = self._from_raft.receive()
        for command in commands:
            match command:
                case Persist() | Truncate():
                    self._queue.append(command)
                case SaveMeta():
                    self._meta_lane.start(partial(self._save_meta, command))
                case SaveInit():
                    self._inits.append(command)
                    self._meta_lane.start(self._save_inits)
                case CreateLog():
                    self._meta_lane.wait()
                    self._answer(self._folder.newborn())
        return len(commands)

    def _save_meta(self, command: SaveMeta) -> None:
        self._folder.save_vote(term=command.term, vote=command.vote)
        self._answer(MetaPersisted(command.seq))

    def _save_inits(self) -> None:
        """Steps of the bootstrap, in order; without space for the first segment they wait (S9)."""
        while self._inits:
            try:
                self._folder.save_init(self._inits[0])
            except DiskFull as error:
                self._wait_for(error)
                return
            self._answer(InitSaved(self._inits.popleft().seq))

    def _answer(self, message: RingMessage) -> None:
        """Tell raft, from any thread; raft's bell rings at once."""
        with self._answers:
            self._to_raft.send(message)
            self._to_raft.flush()

    # --- the log ---

    def _execute(self, now_ns: int) -> None:
        """The next truncation, or one flush group. Without space it stays queued (S9)."""
        try:
            if isinstance(self._queue[0], Truncate):
                self._truncate(self._queue[0])
                self._queue.popleft()
            else:
                self._persist_group()
        except DiskFull:
            self._full_until_ns = now_ns + SPARE_RETRY_NS

    def _persist_group(self) -> None:
        """One flush group: everything that waits, as far as the bounds of a group allow.

        Raises:
          DiskFull: a roll found no space; nothing was written, the entries wait.
        """
        log, ring = self._folder.log, self._ring
        entries: list[EntryToWrite] = []
        last_seq, size = 0, 0
        for command in self._queue:
            if not isinstance(command, Persist) or size >= self._group_max_bytes:
                break
            if len(entries) >= GROUP_ENTRIES_MAX:
                break
            # A no-op has no bytes, and so no place in the ring either.
            has_body = command.header.body_size > 0
            views = ring.views(command.ring_start, command.ring_end) if has_body else []
            entries.append((command.header, command.chain, command.commit, views))
            size += frame_size(command.header)
            last_seq, self._commit = command.seq, command.commit
        if log.needs_roll(entries):
            self._roll()
        group = log.append(entries)
        for _ in entries:
            self._queue.popleft()
        log.flush_data(group)
        self._records_lane.wait()
        log.write_records(group)
        self._slots[Counter.WRITTEN] = last_seq
        self._slots[Counter.FLUSHES] += 2
        finish = partial(self._finish_group, group, last_seq)
        self._take_commands()
        if self._queue:
            self._records_lane.start(finish)
        else:
            finish()
        log.release_cache()
        self._folder.count_bytes()

    def _finish_group(self, group: AppendedGroup, last_seq: int) -> None:
        self._folder.log.flush_records(group)
        self._answer(Persisted(last_seq))

    def _roll(self) -> None:
        """Behind every earlier flush (F6).

        Raises:
          DiskFull: there is no space for the next segment; nothing was written.
        """
        self._settle_flushes()
        self._folder.log.roll()
        self._slots[Counter.MAP_GENERATION] += 1

    def _truncate(self, command: Truncate) -> None:
        """Every earlier flush has ended, then the new pair's durable headers are the truncation
        (F6).
        """
        self._settle_flushes()
        self._folder.log.truncate(command.first_index, self._commit)
        self._slots[Counter.MAP_GENERATION] += 1
        self._slots[Counter.WRITTEN] = command.seq
        self._answer(Persisted(command.seq))

    def _settle_flushes(self) -> None:
        self._records_lane.wait()
        self._spare_lane.wait()

    # --- space ---

    def _care_for_spare(self, now_ns: int) -> None:
        """Prepare the next pair before it is needed; report a full disk and its end (S9)."""
        if not self._folder.has_log or self._spare_lane.is_busy:
            self._spare_retry_ns = NEVER_NS  # the lane's end brings the writer back
            return
        log = self._folder.log
        if log.is_disk_full != self._is_full:
            self._is_full = log.is_disk_full
            self._slots[Counter.DISK_FULL] = int(self._is_full)
            self._answer(DiskFullChanged(self._is_full))
            _log.warning("%s", FULL if self._is_full else NO_LONGER_FULL)
        self._spare_retry_ns = NEVER_NS
        if log.has_torn_tail and not log.needs_spare:
            self._roll()  # what a start without space left undone
        if not log.needs_spare:
            self._full_until_ns = 0
        elif now_ns < self._spare_due_ns:
            self._spare_retry_ns = self._spare_due_ns
        else:
            self._spare_due_ns = self._spare_retry_ns = now_ns + SPARE_RETRY_NS
            self._spare_lane.start(self._prepare_spare)

    def _prepare_spare(self) -> None:
        """In the spare lane."""
        self._folder.log.prepare_spare()
