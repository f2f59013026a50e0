"""Flush workers run flushes beside the writer's other work (SAFETY F1, S8).

A worker runs its jobs one at a time, in the order they were given. A job is an iterator that yields
where time has passed, after a flush. Here a yield means nothing; the simulator lets other things
happen there. An error of a job is kept and raised in the writer's thread: a failed flush ends the
process (F5). Until then no later job of the worker runs, so nothing seems durable that is not.

Only the writer's own thread may call `wait` and `check`; a job of another worker may call `start`.
"""

from __future__ import annotations

import os
import select
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock, Thread
from typing import Protocol

Job = Callable[[], Iterator[None]]
# A flush thread's answer waited 5.4 ms for the interpreter lock at the default switch interval of 5
# ms, and 0.3 ms at 50 us (SAFETY F1).
SWITCH_INTERVAL_S = 5e-5
_ONCE = select.EPOLLIN | select.EPOLLONESHOT


class Bell(Protocol):
    """The bell that wakes the writer."""

    def fileno(self) -> int: ...

    def clear(self) -> None: ...

    def ring(self) -> None: ...


class ThreadWorker:
    """A thread of its own. `wake` is called after each job, so that the
    writer checks how it ended."""

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._wake = wake
        self._jobs: deque[Future[None]] = deque()
        self._has_failed = False

    @property
    def is_busy(self) -> bool:
        return bool(self._jobs) and not self._jobs[-1].done()

    def start(self, job: Job) -> None:
        """Run `job` after those given before it; returns at once."""
        future = self._executor.submit(self._run, job)
        self._jobs.append(future)
        # a bell rung inside the job would wake the writer before the job counts as done
        future.add_done_callback(lambda _: self._wake())

    def wait(self) -> None:
        """Wait until the worker is idle; raises what a job raised."""
        while self._jobs:
            self._jobs.popleft().result()

    def check(self) -> None:
        """Raise what a finished job raised, without waiting."""
        while self._jobs and self._jobs[0].done():
            self._jobs.popleft().result()

    def close(self) -> None:
        self._executor.shutdown(wait=True)

    def _run(self, job: Job) -> None:
        if self._has_failed:
            return
        try:
            for _ in job():
                pass
        except BaseException:
            self._has_failed = True
            raise


class CallerThreadWorker:
    """Runs a job in the caller's thread, while a second thread answers the caller's bell.

    A flush in another thread costs two hand-overs of the interpreter: one append in flight took
    2.81 ms instead of 2.59 (p50, 2026-11-22). Here a job costs none, and what comes during it, such
    as a vote, does not wait for it (S8). `on_bell` takes what waits and returns how much it took.
    It runs in the second thread, and only while the caller is inside `start`.

    The bell wakes the second thread only while a job runs (EPOLLONESHOT). That thread may clear the
    bell: what it takes meanwhile is looked at by the caller after the job, before it parks (M7).
    """

    def __init__(self, name: str, bell: Bell, on_bell: Callable[[], int]) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._bell = bell
        self._on_bell = on_bell
        self._turn = Lock()
        self._has_job = False
        self._is_closed = False
        self._error: BaseException | None = None
        self._end = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._end, select.EPOLLIN)
        self._epoll.register(bell.fileno(), 0)
        self._thread = Thread(target=self._answer_bell, name=name, daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        return False  # only the caller of `start` asks

    def start(self, job: Job) -> None:
        """Run `job` to its end.

        Raises:
          What the job raises, or `on_bell` did.
        """
        bell = self._bell.fileno()
        self._has_job = True
        self._epoll.modify(bell, _ONCE)
        try:
            for _ in job():
                pass
        finally:
            with self._turn:
                self._has_job = False
            self._epoll.modify(bell, 0)
        self.check()

    def wait(self) -> None:
        """No job is ever under way when this is called."""

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._is_closed = True
        os.eventfd_write(self._end, 1)
        self._thread.join()
        self._epoll.close()
        os.close(self._end)

    def _answer_bell(self) -> None:
        bell = self._bell.fileno()
        while not self._is_closed:
            self._epoll.poll()
            with self._turn:
                if not self._has_job or self._error is not None:
                    continue
                self._bell.clear()
                try:
                    while self._on_bell():
                        pass
                except BaseException as error:
                    self._error = error  # raised by the caller, after its job
                    continue
                self._epoll.modify(bell, _ONCE)
