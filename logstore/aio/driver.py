"""The driver for asyncio: runs the core's steps in an event loop, without a thread or a task.

Owns what resumes steps: a descriptor in the loop, timers, and wakes. Knows neither what the steps
do nor who awaits them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, cast

from logstore.client.clock import RealClock, monotonic_ns
from logstore.client.core.routing import NoReplicaAnswers
from logstore.client.core.steps import Host, Steps
from logstore.client.core.task import Task
from logstore.client.names import unknown_hosts
from logstore.client.threads import closed, explained, new_context
from logstore.errors import Closed, InvalidRequest, InvariantViolated, LogStoreError
from transport.client_links import forks
from transport.loop_poller import LoopPoller

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

# A timer that fires so late says that something in the loop does not await.
_LATE_NS = 1_000_000_000


class Driver:
    """Of one client, in the loop that runs when it is made."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.poller: LoopPoller = LoopPoller()
        self._context = new_context()
        self._forks = forks()
        self._runs: set[Run[Any]] = set()
        self._is_closed = False
        self.loop.add_reader(self.poller.fileno(), self.poller.dispatch)

    def host(self) -> Host:
        """The core's environment in this loop."""
        return Host(self._context, RealClock(), random.SystemRandom(), threading.Lock)

    @property
    def is_closed(self) -> bool:
        """Whether the client is, or this process was forked since."""
        return self._is_closed or self._forks != forks()

    def check(self) -> None:
        """For every call of a user. Hot.

        Raises:
          Closed: the client is, or this process was forked since.
          InvalidRequest: the caller is not in the client's event loop.
        """
        if self._is_closed or self._forks != forks():
            raise closed()
        self._check_loop()

    def check_end(self) -> None:
        """For a call that closes something: once the client or its loop is closed, anyone may.

        Raises:
          InvalidRequest: the caller is not in the client's event loop.
        """
        if not self.is_closed and not self.loop.is_closed():
            self._check_loop()

    def _check_loop(self) -> None:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not self.loop:
            raise InvalidRequest(
                "an asyncio client is used in the event loop that connected it: connect in this "
                "one, or pass work to that one with loop.call_soon_threadsafe"
            )

    def start(self, steps: Steps[_T]) -> Run[_T]:
        """Begin steps; close the run in the end."""
        run = Run(self, steps)
        self._runs.add(run)
        run.turn()
        return run

    async def run(self, steps: Steps[_T]) -> _T:
        """Run the steps; what they return.

        Raises: what they raise, and
          Closed: the client is.
        """
        return await self.outcome(self.start(steps))

    async def outcome(self, run: Run[_T], *, lost: Callable[[_T], object] | None = None) -> _T:
        """What the steps of a run return; it is closed then, also where the caller is cancelled.
        `lost` gets what they have returned when that comes first."""
        try:
            if run.future.done():
                await asyncio.sleep(0)  # others have their turn, too, where nothing has to wait
            # A cancellation is not to reach the future: the result may come before we know of it.
            return await asyncio.shield(run.future)
        except asyncio.CancelledError:
            if lost is not None and run.has_result:
                lost(run.future.result())
            raise
        except NoReplicaAnswers as error:
            # A look-up may take seconds: in the loop's own pool for such calls.
            unknown = await self.loop.run_in_executor(None, unknown_hosts, error.hosts)
            raise explained(error, unknown) from None
        finally:
            run.close()

    def forget(self, run: Run[Any]) -> None:
        self._runs.discard(run)

    def close(self) -> None:
        """End every run with `Closed`, then close the sockets."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._forks != forks():
            return  # all of it is the parent's
        try:
            for run in list(self._runs):
                run.fail(closed())
                run.close()
            if not self.loop.is_closed():
                self.loop.remove_reader(self.poller.fileno())
        finally:
            self.poller.close()
            self._context.close_with_sockets()


class Run(Generic[_T]):
    """Steps on their way. `future` gets what they return or raise."""

    def __init__(self, driver: Driver, steps: Steps[_T]) -> None:
        self.future: asyncio.Future[_T] = driver.loop.create_future()
        self._driver = driver
        self._task = Task(steps)
        self._waited: Iterable[int] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._is_due = False
        # A callback of the user runs within a turn, and may end this.
        self._is_in_turn = False
        self._is_closed = False

    @property
    def has_result(self) -> bool:
        future = self.future
        return future.done() and not future.cancelled() and future.exception() is None

    def wake(self) -> None:
        """Go on soon. Hot."""
        if not self._is_due and not self._task.is_done:
            self._is_due = True
            self._driver.loop.call_soon(self.turn)

    def fail(self, error: Exception) -> None:
        """Raise an error where the steps wait."""
        if self._is_in_turn:
            self.close()
        elif not self._task.is_done:
            self._go_on(error)

    def close(self) -> None:
        """Cancel the steps: they close what they have opened, at the end of a turn of theirs."""
        self._is_closed = True
        self._end_wait()
        self._driver.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        if not self._is_in_turn:
            self._task.close()
        if not self.future.done() and not self._driver.loop.is_closed():
            self.future.cancel()

    def turn(self) -> None:
        """Run to the next wait, or to the end."""
        self._is_due = False
        if not self._task.is_done:
            self._go_on(closed() if self._driver.is_closed else None)

    def _go_on(self, error: Exception | None) -> None:
        self._end_wait()
        self._is_in_turn = True
        try:
            if error is None:
                self._task.do_work(monotonic_ns())
            else:
                self._task.fail(error)
        except (KeyboardInterrupt, SystemExit) as raised:
            self._settle(InvariantViolated(f"interrupted by {raised!r}"))
            raise
        except BaseException as raised:
            self._settle(raised)
            return
        finally:
            self._is_in_turn = False
        if self._is_closed:
            self._task.close()
        elif self._task.is_done:
            self._settle(None)
        else:
            self._wait()

    def _wait(self) -> None:
        wait = self._task.wait
        # The links come from this driver's own context, which the types do not say.
        reads, writes = cast(Any, wait.reads), cast(Any, wait.writes)
        try:
            waited = self._driver.poller.wait(reads, writes, self.wake)
        except Exception as error:  # no descriptor, for example: nothing would wake the steps
            self._task.close()
            self._settle(error)
            return
        if waited is None:
            self.wake()
            return
        self._waited = waited
        self._set_timer(wait.until_ns)

    def _set_timer(self, until_ns: int) -> None:
        """A timer that is set and fires earlier stays: the steps then look at the time again."""
        now_ns = monotonic_ns()
        if self._timer is not None:
            if now_ns < self._timer_ns <= until_ns:
                return
            self._timer.cancel()
        self._timer_ns = max(now_ns, until_ns)  # a time that is over already is not late
        wait_s = (self._timer_ns - now_ns) / 1e9
        self._timer = self._driver.loop.call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        late_ns = monotonic_ns() - self._timer_ns
        if late_ns > _LATE_NS:
            _LOG.warning("the event loop did not run for %.1f s", late_ns / 1e9)
        self.wake()

    def _end_wait(self) -> None:
        self._driver.poller.leave(self._waited)
        self._waited = ()

    def _settle(self, error: BaseException | None) -> None:
        if self.future.done() or self._driver.loop.is_closed():
            return
        if error is None:
            self.future.set_result(self._task.result)
        else:
            self.future.set_exception(error)


class CallGuard:
    """Keeps a consumer, reader or watch to one call at a time. A close during a call ends that with
    `Closed`."""

    def __init__(self, driver: Driver, what: str, machine: Any) -> None:
        self.is_closed = False
        self._driver = driver
        self._what = what
        self._machine = machine
        self._run: Run[Any] | None = None

    async def run(self, steps: Steps[_T], *, lost: Callable[[_T], object] | None = None) -> _T:
        """Run the steps of one call. `lost` gets its result if the caller was cancelled when that
        had come already.

        Raises: what they raise, and
          Closed: it is closed, maybe during the call.
          InvalidRequest: another task's call runs, or this is not the client's event loop.
        """
        try:
            self.check()
            if self._run is not None:
                raise InvalidRequest(f"two tasks use one {self._what}: give each its own")
        except LogStoreError:
            steps.close()
            raise
        self._run = self._driver.start(steps)
        try:
            return await self._driver.outcome(self._run, lost=lost)
        finally:
            self._run = None
            if self.is_closed:
                self._machine.close()

    def check(self) -> None:
        """Whether it may be used, here."""
        self._driver.check()
        if self.is_closed:
            raise self._closed()

    def close(self) -> None:
        """May be called twice.

        Raises:
          InvalidRequest: this is not the client's event loop.
        """
        self._driver.check_end()
        if self.is_closed:
            return
        self.is_closed = True
        if self._run is not None:
            self._run.fail(self._closed())
        elif not self._driver.is_closed:
            self._machine.close()

    def _closed(self) -> Closed:
        return Closed(f"the {self._what} is closed: make another one")
