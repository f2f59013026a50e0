"""One simulated process: an actor that runs when something wakes it, and dies at any moment.

Owns when `do_work` is called, how long the process is busy, and what of its errors is a death and
what a violation. Must not know which actor it runs.

The idle protocol is harder than the runner's (SAFETY M7): there is no safety net of 100 ms, and no
second, mostly empty do_work before a park where the first one cannot have left anything behind
(`again_from`). Whatever comes later must ring; a wake-up that is lost here is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol

from actors.simulation.world.world import World
from logstore.errors import DiskFull, WriteFailed

# The least park of a process without timers: far above the runner's 100 ms, so that a lost wake-up
# shows. A replica's is an election timeout: half of what makes a leader's ingress seem dead (V6).
PARK_MAX_NS = 400_000_000
# A giver may be at work for so long before it rings.
LATE_MAX_NS = 3_000_000
WORK_NS = 15_000  # what a do_work takes besides disk calls
SPIN_NS = 200_000  # a process that finds no work but readable sockets looks again


class ProcessKilled(BaseException):
    """Raised inside a disk call: the process dies there. No actor may catch it."""


class Runnable(Protocol):
    """What a process runs: an actor, or a client that looks like one."""

    def on_start(self) -> None: ...

    def do_work(self, now_ns: int) -> int: ...

    def wait_on(self) -> Any: ...

    def next_timer_ns(self) -> int: ...


class Life(Protocol):
    """Who is told how a process ends."""

    def monotonic_ns(self) -> int:
        """The machine's monotonic clock now."""
        ...

    def on_death(self, process: Process, reason: str) -> None: ...

    def on_broken(self, process: Process, error: BaseException) -> None:
        """An error that no operating condition explains; a full disk is none that may end a
        process (SAFETY S9)."""
        ...


class Process:
    """An `Owner`. It starts at the first `wake_at`."""

    def __init__(
        self,
        world: World,
        life: Life,
        *,
        node: int,
        name: str,
        make: Callable[[Process], Runnable],
    ) -> None:
        self.node = node
        self.name = name
        self.world = world
        self.actor: Runnable | None = None
        self.is_alive = True
        self.busy_ns = 0
        self.count_loop: Callable[[], None] = _do_nothing
        self.on_worked: Callable[[], None] = _do_nothing
        self.on_overslept: Callable[[int], None] = _say_nothing
        self.again_from = 1
        self.wake_ns = 0
        self.late_max_ns = LATE_MAX_NS
        self.park_max_ns = PARK_MAX_NS
        self._life = life
        self._monotonic_ns = life.monotonic_ns
        self._make = make
        self.free_at_ns = 0
        self.paused_until_ns = 0
        self.unread = 0  # messages that have arrived at its sockets
        self._next_run_ns = -1
        self._run_ns = self._parked_ns = 0  # this run, and since when it did nothing before it
        self._expected_ns = -1
        self._was_preempted = False
        self._planned: list[int] = []  # when the world will look at it; one is never too late
        self._is_running = False
        self.number = world.next_number()
        self._wakes: list[int] = []

    @property
    def local_now_ns(self) -> int:
        return self.world.now_ns + self.busy_ns

    @property
    def world_now_ns(self) -> int:
        return self.world.now_ns

    def charge(self, cost_ns: int) -> None:
        """A call of the running do_work took this long."""
        self.busy_ns += cost_ns

    def preempt(self, cost_ns: int) -> None:
        """Another process has the processor for so long; once in a run."""
        if not self._was_preempted:
            self._was_preempted = True
            self.charge(cost_ns)

    def wake(self) -> None:
        self.wake_at(self.world.now_ns)

    def wake_at(self, at_ns: int) -> None:
        """Run some time after `at_ns`, and see what was there by then."""
        if not self.is_alive:
            return
        next_run_ns = self._next_run_ns
        # The run that is planned comes soon enough, and not too early to see it.
        is_covered = at_ns <= next_run_ns <= at_ns + self.wake_ns
        if is_covered and at_ns <= self.world.now_ns:
            return
        # Another run may come before `at_ns`, and plan anew.
        heappush(self._wakes, at_ns)
        if is_covered:
            return
        if (next_run_ns < 0 and not self._is_running) or next_run_ns > at_ns:
            self._schedule(at_ns + self.wake_ns)

    def expect(self) -> None:
        """From now on there is news for it that is in no ring: somebody must ring."""
        if self._expected_ns < 0:
            self._expected_ns = self.world.now_ns

    def found(self, since_ns: int) -> None:
        """This run finds news that was published at `since_ns`. A giver rings behind it, so nobody
        sleeps while there is some, until a timer or the safety net (SAFETY M7). Hot."""
        parked_ns = self._parked_ns
        late_ns = self._run_ns - (since_ns if since_ns > parked_ns else parked_ns)
        if late_ns > self.wake_ns + self.late_max_ns:
            self.on_overslept(late_ns)

    def pause(self, for_ns: int) -> None:
        """SIGSTOP now, SIGCONT after `for_ns`."""
        self.paused_until_ns = max(self.paused_until_ns, self.world.now_ns + for_ns)

    def resume(self) -> None:
        self.paused_until_ns = self.world.now_ns
        if self._next_run_ns > self.world.now_ns:
            self.wake()

    @property
    def is_paused(self) -> bool:
        return self.paused_until_ns > self.world.now_ns

    def die_at(self, at_ns: int, reason: str) -> None:
        """It ends by itself then, at the end of a call that lies ahead of the world: whoever takes
        its place comes after all that it did."""
        self.busy_ns = 0
        self.world.at(at_ns, lambda: self._life.on_death(self, reason) if self.is_alive else None)

    def kill(self) -> None:
        """SIGKILL; nothing of it runs any more."""
        self.is_alive = False
        self.actor = None

    def _schedule(self, at_ns: int) -> None:
        """Hot: what is planned already is used, and goes on from there if it comes too early."""
        world = self.world
        if at_ns < world.now_ns:
            at_ns = world.now_ns
        if at_ns < self.free_at_ns:
            at_ns = self.free_at_ns
        if at_ns < self.paused_until_ns:
            at_ns = self.paused_until_ns
        self._next_run_ns = at_ns
        planned = self._planned
        if not planned or at_ns < planned[0]:
            heappush(planned, at_ns)
            world.at(at_ns, self._look)

    def _look(self) -> None:
        at_ns = heappop(self._planned)
        if not self.is_alive:
            return
        next_run_ns = self._next_run_ns
        if at_ns == next_run_ns:
            self._run(at_ns)
        elif at_ns < next_run_ns:
            self._schedule(next_run_ns)

    def _run(self, at_ns: int) -> None:
        free_at_ns, paused_until_ns = self.free_at_ns, self.paused_until_ns
        if paused_until_ns > at_ns:
            self._schedule(paused_until_ns)
            return
        self._next_run_ns = -1
        self._was_preempted = False
        self._run_ns = at_ns
        self._parked_ns = free_at_ns if free_at_ns > paused_until_ns else paused_until_ns
        if self._expected_ns >= 0:
            self.found(self._expected_ns)
            self._expected_ns = -1
        wakes = self._wakes
        while wakes and wakes[0] <= at_ns:
            heappop(wakes)
        self.busy_ns = WORK_NS
        self.world.running = self
        self._is_running = True
        now_ns = self._monotonic_ns()
        try:
            work = self.actor.do_work(now_ns) if self.actor is not None else self._start()
        except ProcessKilled:
            self.die_at(self.local_now_ns, "killed in a disk call")
            return
        except Exception as error:
            if isinstance(error, WriteFailed) and not isinstance(error.__cause__, DiskFull):
                self.die_at(self.local_now_ns, f"{type(error).__name__}: {error}")
                return
            self.busy_ns = 0
            self._life.on_broken(self, error)
            return
        self._is_running = False
        self.count_loop()
        self.on_worked()
        self.world.ran(self, work)
        self.free_at_ns = free_at_ns = at_ns + self.busy_ns
        self.busy_ns = 0
        self._schedule(free_at_ns if work >= self.again_from else self._park_until(now_ns))

    def _start(self) -> int:
        self.actor = self._make(self)
        self.actor.on_start()
        return self.again_from

    def _park_until(self, monotonic_ns: int) -> int:
        actor, at_ns = self.actor, self.world.now_ns
        if actor is None:
            return at_ns
        if self.unread:
            for source in actor.wait_on():
                if source.is_readable:
                    return self.free_at_ns + SPIN_NS
        timer_ns = actor.next_timer_ns() - monotonic_ns
        if timer_ns > self.park_max_ns:
            timer_ns = self.park_max_ns
        elif timer_ns < WORK_NS:
            timer_ns = WORK_NS
        until_ns = at_ns + timer_ns
        wakes = self._wakes
        if wakes and wakes[0] + self.wake_ns < until_ns:
            return wakes[0] + self.wake_ns
        return until_ns


def _do_nothing() -> None:
    """A client's loops, and what it owes when they end, are nobody's business."""


def _say_nothing(_late_ns: int) -> None:
    """Nobody looks when it wakes up."""
