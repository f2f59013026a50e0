"""One simulated process: runs an actor when something wakes it, and may die at any moment.

Owns when `do_work` is called, how long the process is busy, and which of its errors are a death and
which are a violation. Must not know which actor it runs.

A simulated process parks as early as the product's runner lets one, and as long, so that a missing
bell shows (SAFETY M7): it does not call do_work a second time before it parks if the first call did
less than `rerun_work_min`.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol

from actors.simulation.world.world import World
from logstore.errors import DiskFull, WriteFailed

# How long a process without timers parks, as in the runner, so that a lost wake-up shows. In a
# replica it is at least an election timeout: half of the time after which a leader takes its
# ingress for dead (V6).
PARK_MAX_NS = 400_000_000
# A process may work this long between publishing something and ringing the bell.
BELL_DELAY_MAX_NS = 3_000_000
WORK_NS = 15_000  # what a do_work takes besides disk calls
SPIN_NS = 200_000  # after which a process that did no work looks at its readable sockets again


class ProcessKilled(BaseException):
    """Raised inside a disk call: the process dies there. No actor may catch it."""


class Runnable(Protocol):
    """What a process runs: an actor, or a client that looks like one."""

    def on_start(self) -> None: ...

    def do_work(self, now_ns: int) -> int: ...

    def wait_on(self) -> Any: ...

    def next_timer_ns(self) -> int: ...


class Supervisor(Protocol):
    """Decides what follows when a process ends; has the machine's clock."""

    def monotonic_ns(self) -> int: ...

    def on_death(self, process: Process, reason: str) -> None: ...

    def on_unexpected_error(self, process: Process, error: BaseException) -> None:
        """`error` is no operating error; a full disk must not end a process either (SAFETY S9)."""


class Process:
    """Owns sockets (`network.wire.Owner`). It starts at the first `wake_at`."""

    def __init__(
        self,
        world: World,
        supervisor: Supervisor,
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
        # Of a group: when the bells of its actors ring. Whatever wakes another process lets the one
        # actor that it has work.
        self.rung_ns: dict[str, list[int]] = {}
        self.on_overslept: Callable[[int], None] = lambda _late_ns: None
        self.rerun_work_min = 1
        self.wake_delay_ns = 0
        self.bell_delay_max_ns = BELL_DELAY_MAX_NS
        self.park_max_ns = PARK_MAX_NS
        self._supervisor = supervisor
        self._monotonic_ns = supervisor.monotonic_ns
        self._make = make
        self.free_at_ns = 0
        self.paused_until_ns = 0
        self.unread = 0  # messages that have arrived at its sockets
        self._next_run_ns = -1
        self._run_ns = self._parked_ns = 0  # begin of this run, and of the park before it
        self._expected_ns = -1
        self._was_preempted = False
        self._scheduled_ns: list[int] = []  # its events in the world's queue; extra ones do no harm
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
        """Another process gets the processor for `cost_ns`, at most once in a run."""
        if not self._was_preempted:
            self._was_preempted = True
            self.charge(cost_ns)

    def wake(self) -> None:
        self.wake_at(self.world.now_ns)

    def wake_at(self, at_ns: int) -> None:
        """Run soon after `at_ns`, so that the run sees everything published by then."""
        if not self.is_alive:
            return
        next_run_ns = self._next_run_ns
        # The next run is soon enough, and not too early to see it.
        is_covered = at_ns <= next_run_ns <= at_ns + self.wake_delay_ns
        if is_covered and at_ns <= self.world.now_ns:
            return
        # An earlier run may come first; it schedules the next one by `_wakes`.
        heappush(self._wakes, at_ns)
        if is_covered:
            return
        if (next_run_ns < 0 and not self._is_running) or next_run_ns > at_ns:
            self._schedule(at_ns + self.wake_delay_ns)

    def ring(self, actor: str, at_ns: int) -> None:
        """The bell of one of its actors rings then."""
        if actor in self.rung_ns:
            heappush(self.rung_ns[actor], at_ns)
        self.wake_at(at_ns)

    def expect_bell(self) -> None:
        """From now on there is something for it to do that no ring carries: a bell must ring."""
        if self._expected_ns < 0:
            self._expected_ns = self.world.now_ns

    def check_woken_in_time(self, published_ns: int) -> None:
        """This run reads what was published at `published_ns`. Publishers ring afterwards, so no
        process may sleep on it until a timer (SAFETY M7). Hot."""
        parked_ns = self._parked_ns
        late_ns = self._run_ns - (published_ns if published_ns > parked_ns else parked_ns)
        if late_ns > self.wake_delay_ns + self.bell_delay_max_ns:
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
        self.world.at(
            at_ns, lambda: self._supervisor.on_death(self, reason) if self.is_alive else None
        )

    def kill(self) -> None:
        """SIGKILL."""
        self.is_alive = False
        self.actor = None

    def _schedule(self, at_ns: int) -> None:
        """Hot. An event that is in the queue for an earlier moment is used: it reschedules."""
        world = self.world
        if at_ns < world.now_ns:
            at_ns = world.now_ns
        if at_ns < self.free_at_ns:
            at_ns = self.free_at_ns
        if at_ns < self.paused_until_ns:
            at_ns = self.paused_until_ns
        self._next_run_ns = at_ns
        scheduled_ns = self._scheduled_ns
        if not scheduled_ns or at_ns < scheduled_ns[0]:
            heappush(scheduled_ns, at_ns)
            world.at(at_ns, self._on_scheduled)

    def _on_scheduled(self) -> None:
        at_ns = heappop(self._scheduled_ns)
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
            self.check_woken_in_time(self._expected_ns)
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
            self._supervisor.on_unexpected_error(self, error)
            return
        self._is_running = False
        self.count_loop()
        self.on_worked()
        self.world.record_run(self, work)
        self.free_at_ns = free_at_ns = at_ns + self.busy_ns
        self.busy_ns = 0
        self._schedule(free_at_ns if work >= self.rerun_work_min else self._park_until(now_ns))

    def _start(self) -> int:
        actor = self._make(self)
        actor.on_start()
        self.actor = actor  # before, there is nothing to be observed
        return self.rerun_work_min

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
        if wakes and wakes[0] + self.wake_delay_ns < until_ns:
            return wakes[0] + self.wake_delay_ns
        return until_ns


def _do_nothing() -> None:
    """For clients: their loops are not counted and their bells not checked."""
