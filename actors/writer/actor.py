"""Writer: the process that owns both logs and META on disk, and the only one that flushes.

It executes what raft orders, in that order, and answers with sequence numbers; it decides nothing.
Group commit is what happens while it is busy: `log_work` takes everything that waits, up to 4 MiB,
in one flush. Once it has recovered its own thread calls no disk: META has a lane of its own, and
so has the log, so that neither waits for the other (SAFETY S8).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from threading import Lock
from typing import Any

from actors import topology
from actors.messages import CreateLog, InitSaved, RecoveryDelayed, RingMessage
from actors.station import Station
from actors.writer.folder import Folder
from actors.writer.log_work import LogWork
from logstore.errors import DiskFull, FolderInUse
from logstore.limits import SAY_AGAIN_NS
from logstore.raft.bootstrap import SaveInit
from logstore.raft.effects import Persist, SaveMeta, Truncate
from logstore.raft.events import MetaPersisted

# What found no room in the ring to raft is offered again this soon: a long report of recovery.
RING_RETRY_NS = 1_000_000
# Recovery and the bootstrap are tried again this often, and the reason is logged this often.
RETRY_NS = 1_000_000_000

_log = logging.getLogger("logstore.writer")


class WriterActor:
    """Runs the log writer and the META store for raft."""

    def __init__(self, station: Station) -> None:
        self._from_raft = station.inbox(topology.RAFT)
        self._to_raft = station.outbox(topology.RAFT)
        self._answers = Lock()  # the outbox is used by the flush threads too
        self._folder = Folder(station)
        self._work = LogWork(station, self._folder, answer=self._answer, attend=self._take_commands)
        self._meta_lane = station.host.lane("meta", station.bell.ring)
        self._now_ns = 0
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
        self._meta_lane.check()
        work += self._work.do_work(now_ns)
        with self._answers:
            self._to_raft.flush()
        return work

    def wait_on(self) -> Sequence[Any]:
        return ()

    def next_timer_ns(self) -> int:
        timer_ns = self._work.next_timer_ns()
        if self._to_raft.is_congested:
            timer_ns = min(timer_ns, self._now_ns + RING_RETRY_NS)
        if self.delay and not self._meta_lane.is_busy:  # the lane's end brings the writer back
            timer_ns = min(timer_ns, self._retry_due_ns)
        return timer_ns

    def on_close(self) -> None:
        self._meta_lane.close()
        self._work.close()
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
        self._retry_due_ns = self._now_ns + RETRY_NS
        self.delay = str(error)
        self._answer(RecoveryDelayed(self.delay))

    def _try_again(self, now_ns: int) -> None:
        """What an operator must mend is said at once, then every minute."""
        if now_ns >= self._said_ns + SAY_AGAIN_NS:
            self._said_ns = now_ns
            _log.warning("this replica waits: %s", self.delay)
        self.delay = ""
        if self._is_recovered:
            self._meta_lane.start(self._save_inits)
        else:
            self._try_recover()

    # --- commands ---

    def _take_commands(self) -> int:
        """In the writer's thread, or in the one that stands in for it: never in both."""
        commands = self._from_raft.receive()
        for command in commands:
            match command:
                case Persist() | Truncate():
                    self._work.add(command)
                case SaveMeta():
                    self._meta_lane.start(partial(self._save_meta, command))
                case SaveInit():
                    self._inits.append(command)
                    self._meta_lane.start(self._save_inits)
                case CreateLog():
                    self._meta_lane.wait()
                    self._answer(self._folder.newborn())
        return len(commands)

    def _save_meta(self, command: SaveMeta) -> Iterator[None]:
        self._folder.save_vote(term=command.term, vote=command.vote)
        yield
        self._answer(MetaPersisted(command.seq))

    def _save_inits(self) -> Iterator[None]:
        """Steps of the bootstrap, in order; without space for the first segment they wait (S9)."""
        while self._inits:
            try:
                self._folder.save_init(self._inits[0])
            except DiskFull as error:
                self._wait_for(error)
                return
            yield
            self._answer(InitSaved(self._inits.popleft().seq))

    def _answer(self, message: RingMessage) -> None:
        """Tell raft, from any thread; raft's bell rings at once."""
        with self._answers:
            self._to_raft.send(message)
            self._to_raft.flush()
