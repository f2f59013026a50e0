"""What the operating system gives one simulated process: clocks, randomness, a disk, flush workers.

Plays `actors.host.Host`. Owns a node's clocks. Must not know which actor uses it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from actors.flush_workers import Job
from actors.observer import Observer
from actors.simulation.world.process import Process, ProcessKilled
from actors.simulation.world.world import World
from logstore.storage.disk import Disk

# A node's clocks start far from zero and from each other: a mixed-up clock or duration shows.
MONOTONIC_BASE_NS = 1_000_000_000
WALL_BASE_NS = 1_700_000_000_000_000_000
WORKER_START_NS = 5_000


class NodeClock:
    """The clocks of one node: offset, drift and jumps over the world's time."""

    def __init__(self, world: World, *, drift_ppm: int, offset_ns: int) -> None:
        self._world = world
        self._drift_ppm = drift_ppm
        self._wall_ns = WALL_BASE_NS + offset_ns
        self._monotonic_ns = MONOTONIC_BASE_NS

    def monotonic_ns(self) -> int:
        now_ns = self._world.now_ns
        return self._monotonic_ns + now_ns + now_ns * self._drift_ppm // 1_000_000

    def wall_ns(self) -> int:
        now_ns = self._world.now_ns
        return self._wall_ns + now_ns + now_ns * self._drift_ppm // 1_000_000

    def jump_monotonic(self, by_ns: int) -> None:
        self._monotonic_ns += max(0, by_ns)

    def jump_wall(self, by_ns: int) -> None:
        self._wall_ns += by_ns


class SimulatedWorker:
    """Plays `ThreadWorker`: runs jobs in order, in parallel to the actor. A job runs at one moment
    up to its next `yield`, and goes on when the disk calls it made have taken their time."""

    def __init__(self, name: str, process: Process, wake: Callable[[], None]) -> None:
        self.name = name
        self._process = process
        self._wake = wake
        self._jobs: deque[tuple[int, Job]] = deque()  # with its earliest start
        self._running: Iterator[None] | None = None
        self._busy_until_ns = 0
        self._scheduled_ns = -1
        self._error: BaseException | None = None

    @property
    def is_busy(self) -> bool:
        return self._has_work or self._busy_until_ns > self._process.local_now_ns

    def start(self, job: Job) -> None:
        had_work = self._has_work
        self._jobs.append((self._process.local_now_ns + WORKER_START_NS, job))
        if not had_work:
            self._schedule(self._next_start_ns)

    def wait(self) -> None:
        """Run all jobs at the times they would have had; the actor continues after the last."""
        process = self._process
        now_ns, own_ns = process.world.now_ns, process.local_now_ns
        while self._has_work:
            process.busy_ns = max(0, self._next_start_ns - now_ns)
            self._run()
        process.busy_ns = max(own_ns, self._busy_until_ns) - now_ns
        self.check()

    def check(self) -> None:
        if self._error is not None and self._busy_until_ns <= self._process.local_now_ns:
            error, self._error = self._error, None
            raise error

    def close(self) -> None:
        """Nothing to do: jobs die with their process."""

    @property
    def _has_work(self) -> bool:
        return self._running is not None or bool(self._jobs)

    @property
    def _next_start_ns(self) -> int:
        if self._running is not None:
            return self._busy_until_ns
        return max(self._jobs[0][0], self._busy_until_ns)

    def _schedule(self, at_ns: int) -> None:
        self._scheduled_ns = at_ns
        self._process.world.at(at_ns, self._run_next, at_ns)

    def _run_next(self, at_ns: int) -> None:
        process = self._process
        if not self._has_work or at_ns != self._scheduled_ns or not process.is_alive:
            return
        if process.is_paused:
            self._schedule(process.paused_until_ns)
            return
        process.busy_ns = 0
        self._run()
        if isinstance(self._error, ProcessKilled):
            process.die_at(self._busy_until_ns, "killed in a flush thread")
            return
        process.busy_ns = 0
        if self._running is None:
            process.world.at(self._busy_until_ns, self._wake)
        if self._has_work:
            self._schedule(self._next_start_ns)

    def _run(self) -> None:
        """Run one job to its next yield or its end."""
        job, self._running = self._running, None
        if job is None:
            job = self._jobs.popleft()[1]()
        if self._error is not None:
            return
        try:
            next(job)
            self._running = job
        except StopIteration:
            pass
        except (Exception, ProcessKilled) as error:
            self._error = error
        self._busy_until_ns = self._process.local_now_ns


class SimulatedHost:
    def __init__(
        self,
        process: Process,
        *,
        disk: Disk,
        links: Any,
        clock: NodeClock,
        random: Random,
        observer: Observer,
    ) -> None:
        self.observer = observer
        self.disk = disk
        self.links = links
        self.clock = clock
        self._process = process
        self._random = random

    def random_bytes(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def flush_worker(self, name: str, wake: Callable[[], None]) -> SimulatedWorker:
        return SimulatedWorker(name, self._process, wake)

    def own_thread_worker(
        self, name: str, bell: Any, _on_bell: Callable[[], int]
    ) -> SimulatedWorker:
        """`_on_bell` is not needed: a simulated process is woken by its bell anyway."""
        return SimulatedWorker(name, self._process, bell.ring)
