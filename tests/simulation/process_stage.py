"""A world with one process, whose actor is scripted by a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from actors.flush_workers import Job
from actors.simulation.world.process import Process
from actors.simulation.world.world import World

MICROSECOND_NS = 1_000
MILLISECOND_NS = 1_000_000


class RecordingSupervisor:
    """A `Supervisor` on the world's own clock. It kills a process that dies, as a replica does."""

    def __init__(self, world: World) -> None:
        self.deaths: list[str] = []
        self.errors: list[BaseException] = []
        self._world = world

    def monotonic_ns(self) -> int:
        return self._world.now_ns

    def on_death(self, process: Process, reason: str) -> None:
        self.deaths.append(reason)
        process.kill()

    def on_unexpected_error(self, process: Process, error: BaseException) -> None:
        self.errors.append(error)
        process.kill()


class ScriptedActor:
    """Records when it ran; `work` is its `do_work`."""

    def __init__(self, process: Process, work: Callable[[Process], int]) -> None:
        self.runs: list[int] = []
        self.sources: tuple[Any, ...] = ()
        self.timer_ns = 1 << 62
        self._process = process
        self._work = work

    def on_start(self) -> None:
        self.runs.append(self._process.world.now_ns)

    def do_work(self, now_ns: int) -> int:
        self.runs.append(now_ns)
        return self._work(self._process)

    def wait_on(self) -> Any:
        return self.sources

    def next_timer_ns(self) -> int:
        return self.timer_ns


class OneProcess:
    """The process is started, and has run until it had nothing more to do."""

    def __init__(self, work: Callable[[Process], int] = lambda _: 0) -> None:
        self.world = World(Random(1))
        self.supervisor = RecordingSupervisor(self.world)
        self.actor: ScriptedActor
        self.work = work
        self.process = Process(self.world, self.supervisor, node=1, name="1.raft", make=self._make)
        self.process.wake()
        self.world.run_until(MILLISECOND_NS)
        self.actor.runs.clear()

    @property
    def runs(self) -> list[int]:
        return self.actor.runs

    def _make(self, process: Process) -> ScriptedActor:
        self.actor = ScriptedActor(process, lambda each: self.work(each))
        return self.actor


class Clocked:
    """A process as rings see it: a clock that a test moves, and when it was woken."""

    def __init__(self) -> None:
        self.local_now_ns = 0
        self.world_now_ns = 0
        self.woken_at: list[int] = []

    def preempt(self, cost_ns: int) -> None:
        """Time passes when the test says so."""

    def check_woken_in_time(self, since_ns: int) -> None:
        """Does nothing here."""

    def wake_at(self, at_ns: int) -> None:
        self.woken_at.append(at_ns)


def as_job(act: Callable[[], object]) -> Job:
    """A worker's job of one piece."""

    def job() -> Iterator[None]:
        act()
        yield

    return job
