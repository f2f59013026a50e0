"""Flush lanes: one thread each, so that a flush overlaps with the writer's own work (SAFETY F1,
S8).

A lane runs its jobs one at a time, in the order they were given. What a job raises is kept and
raised in the writer's thread: a failed flush ends the process (F5). Until then no later job runs,
so nothing can seem durable on top of it.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

# A flush thread's answer waited 5.4 ms for the interpreter lock at the default of 5 ms, 0.3 ms at
# 50 us (SAFETY F1).
SWITCH_INTERVAL_S = 5e-5


class ThreadLane:
    """One thread for one kind of flush. `wake`: called after each job, so that the writer looks at
    how it ended."""

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._wake = wake
        self._jobs: deque[Future[None]] = deque()
        self._has_failed = False

    @property
    def is_busy(self) -> bool:
        return bool(self._jobs) and not self._jobs[-1].done()

    def start(self, job: Callable[[], None]) -> None:
        """Begin `job` after those given before it; returns at once."""
        future = self._executor.submit(self._run, job)
        self._jobs.append(future)
        # a bell rung inside the job would wake the writer before the job counts as done
        future.add_done_callback(lambda _: self._wake())

    def wait(self) -> None:
        """Return when the lane is idle; raises what a job raised."""
        while self._jobs:
            self._jobs.popleft().result()

    def check(self) -> None:
        """Raise what a finished job raised, without waiting."""
        while self._jobs and self._jobs[0].done():
            self._jobs.popleft().result()

    def close(self) -> None:
        self._executor.shutdown(wait=True)

    def _run(self, job: Callable[[], None]) -> None:
        if self._has_failed:
            return
        try:
            job()
        except BaseException:
            self._has_failed = True
            raise
