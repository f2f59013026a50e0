"""The writer process: it owns both logs and META on disk, and is the only one that flushes.

It executes raft's orders in sequence and answers with sequence numbers; it decides nothing. Orders
that arrive during a flush form the next group commit: `log_work` takes all that wait, up to 4 MiB,
for one flush. After recovery, META and the log each have their own flush workers, so neither waits
for the other (SAFETY S8).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from threading import Lock
from typing import Any

from actors import topology
from actors.messages import (
    CreateLog,
    ForgottenSaved,
    InitSaved,
    RecoveryDelayed,
    RingMessage,
    SaveForgotten,
    SaveStart,
    StartSaved,
)
from actors.station import DRAIN_MAX, Station
from actors.writer.folder import Folder
from actors.writer.installs import Installs
from actors.writer.log_work import LogWork
from actors.writer.trims import Trims
from logstore.errors import DiskFull, FolderInUse
from logstore.limits import LOG_AGAIN_NS
from logstore.raft.bootstrap import SaveInit
from logstore.raft.effects import (
    ApplyTrim,
    InstallLog,
    MoveLogStart,
    Persist,
    SaveLevel,
    SaveMeta,
    Truncate,
)
from logstore.raft.events import MetaPersisted

# How often recovery and the bootstrap are tried again.
RETRY_NS = 1_000_000_000

_log = logging.getLogger("logstore.writer")


class WriterActor:
    """Runs the log writer and the META store for raft."""

    full_turn = DRAIN_MAX

    def __init__(self, station: Station) -> None:
        self._from_raft = station.inbox(topology.RAFT)
        self._to_raft = station.outbox(topology.RAFT)
        self._answers = Lock()  # flush threads use the outbox, too
        self._folder = Folder(station)
        self._meta_worker = station.host.flush_worker("meta", station.bell.ring)
        # A vote does not wait for this one.
        self._starts_worker = station.host.flush_worker("starts", station.bell.ring)
        self._trims = Trims(
            station, self._folder, meta_worker=self._meta_worker, answer=self._answer
        )
        self._work = LogWork(
            station,
            self._folder,
            Installs(self._folder, self._trims, meta_worker=self._meta_worker),
            answer=self._answer,
            on_bell=self._take_commands,
        )
        self._now_ns = 0
        self._is_recovered = False
        self._inits: deque[SaveInit] = deque()  # steps of the bootstrap that are not saved yet
        self.delay = ""  # why recovery or the bootstrap waits to be tried again
        self._retry_due_ns = 0
        self._logged_ns = -LOG_AGAIN_NS

    def on_start(self) -> None:
        self._try_recover()

    def do_work(self, now_ns: int) -> int:
        self._now_ns = now_ns
        if self.delay and now_ns >= self._retry_due_ns and not self._meta_worker.is_busy:
            self._retry(now_ns)
        if not self._is_recovered:
            return 0
        work = self._take_commands()
        self._meta_worker.check()
        self._starts_worker.check()
        begun = self._work.do_work(now_ns)
        begun += self._trims.do_work(is_opening=self._work.is_opening)
        with self._answers:
            self._to_raft.flush()
        return max(work, self.full_turn) if begun and self._work.has_more else work + begun

    def wait_on(self) -> Sequence[Any]:
        return ()

    def next_timer_ns(self) -> int:
        # what finds no room may be a long report of recovery
        timer_ns = min(self._work.next_timer_ns(), self._to_raft.retry_ns(self._now_ns))
        if self.delay and not self._meta_worker.is_busy:  # the job's end wakes the writer
            timer_ns = min(timer_ns, self._retry_due_ns)
        return timer_ns

    def on_close(self) -> None:
        self._trims.close()
        self._meta_worker.close()
        self._starts_worker.close()
        self._work.close()
        self._folder.close()

    # --- the start ---

    def _try_recover(self) -> None:
        """Open the folder. Try again later if another process still holds it (a writer of an
        earlier start that hangs in the kernel, FAULTS P17), or if there is no space for what
        recovery must write (S9)."""
        try:
            recovered = self._folder.recover()
        except (DiskFull, FolderInUse) as error:
            self._retry_later(error)
            return
        self._is_recovered = True
        unfinished = self._folder.unfinished_install
        if unfinished is not None:
            self._work.finish_install(unfinished)
        self._answer(recovered)

    def _retry_later(self, error: DiskFull | FolderInUse) -> None:
        self._retry_due_ns = self._now_ns + RETRY_NS
        self.delay = str(error)
        self._answer(RecoveryDelayed(self.delay))

    def _retry(self, now_ns: int) -> None:
        """Try recovery or the bootstrap again. Log what an operator must mend at
        once, then every minute."""
        if now_ns >= self._logged_ns + LOG_AGAIN_NS:
            self._logged_ns = now_ns
            _log.warning("this replica waits: %s", self.delay)
        self.delay = ""
        if self._is_recovered:
            self._meta_worker.start(self._save_inits)
        else:
            self._try_recover()

    # --- commands ---

    def _take_commands(self) -> int:
        """Take raft's orders. Runs in the writer's thread, or in the one that answers its bell,
        never in both at once."""
        commands = self._from_raft.receive()
        for command in commands:
            match command:
                case Persist() | Truncate():
                    self._work.add(command)
                case InstallLog():
                    self._trims.forget()
                    self._work.add(command)
                case ApplyTrim():
                    self._trims.add(command.index)
                case MoveLogStart():
                    self._trims.add(command.start)
                case SaveMeta():
                    self._meta_worker.start(partial(self._save_meta, command))
                case SaveLevel():
                    self._meta_worker.start(partial(self._save_level, command))
                case SaveStart():
                    self._starts_worker.start(partial(self._save_start, command))
                case SaveForgotten():
                    self._meta_worker.start(partial(self._save_forgotten, command))
                case SaveInit():
                    self._inits.append(command)
                    self._meta_worker.start(self._save_inits)
                case CreateLog():
                    self._meta_worker.wait()
                    self._answer(self._folder.new_log_report())
        return len(commands)

    def _save_meta(self, command: SaveMeta) -> Iterator[None]:
        self._folder.save_vote(term=command.term, vote=command.vote)
        yield
        self._answer(MetaPersisted(command.seq))

    def _save_level(self, command: SaveLevel) -> Iterator[None]:
        self._folder.save_level(command.level, has_config=command.has_config)
        yield

    def _save_start(self, command: SaveStart) -> Iterator[None]:
        if self._folder.save_starts(command.starts):
            yield
            self._answer(StartSaved(command.start))

    def _save_forgotten(self, command: SaveForgotten) -> Iterator[None]:
        self._folder.save_forgotten(command.forgotten)
        yield
        self._answer(ForgottenSaved(command.forgotten))

    def _save_inits(self) -> Iterator[None]:
        """Save steps of the bootstrap, in order; without space for the first
        segment they wait (S9)."""
        while self._inits:
            try:
                self._folder.save_init(self._inits[0])
            except DiskFull as error:
                self._retry_later(error)
                return
            yield
            self._answer(InitSaved(self._inits.popleft().seq))

    def _answer(self, message: RingMessage) -> None:
        """Answer raft, from any thread; its bell rings at once."""
        with self._answers:
            self._to_raft.send(message)
            self._to_raft.flush()
