"""On which CPUs, and how urgently, the threads of a process of this machine run.

Linux places threads, not processes: what is set for a pid is its main thread's, and threads that
are there already, such as ZeroMQ's or those that flush, keep what they had. Decides nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from logstore.config_placement import Placement

NICE_MIN = -20
_NOT_FOUND = 255  # the exit status of a child that could not look
# Looks for threads that were started during the last look, by one that was not placed yet.
_LOOKS_MAX = 16


def place_threads(pid: int, placement: Placement) -> None:
    """Give every thread of `pid` the CPUs and the niceness of `placement`. What that leaves open
    stays as it is.

    Raises:
      OSError: the kernel refuses for some thread: no such CPU for that process, no right to the
        niceness, or the process is gone. The other threads are placed anyway, and CPUs come
        first, so that they are set if only the niceness is refused.
    """
    if placement.cpus:
        cpus = placement.cpus
        _for_each_thread(pid, lambda thread: os.sched_setaffinity(thread, cpus))
    if placement.nice is not None:
        nice = placement.nice
        _for_each_thread(pid, lambda thread: os.setpriority(os.PRIO_PROCESS, thread, nice))


def _for_each_thread(pid: int, act: Callable[[int], None]) -> None:
    """A thread has what the thread that started it had: so look again until none is new."""
    done: set[int] = set()
    refusal: OSError | None = None
    for _ in range(_LOOKS_MAX):
        fresh = _threads_of(pid) - done
        if not fresh:
            break
        for thread in fresh:
            try:
                act(thread)
            except ProcessLookupError:
                pass  # the thread has ended
            except OSError as error:
                refusal = error
        done |= fresh
    if refusal is not None:
        raise refusal


def cpus_and_nice(pid: int) -> tuple[tuple[int, ...], int]:
    """The CPUs that the main thread of `pid` may use, and its niceness.

    Raises:
      OSError: it is gone.
    """
    return tuple(sorted(os.sched_getaffinity(pid))), os.getpriority(os.PRIO_PROCESS, pid)


def lowest_nice() -> int:
    """The lowest niceness that this process may set, for itself and what it starts. A child that
    ends with it tries, so nothing changes here. A thread would do, but the kernel may still have it
    after the join, and a supervisor that forks must have one thread (SAFETY M3)."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(_lower_this_process() - NICE_MIN)
        finally:
            os._exit(_NOT_FOUND)
    found = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if 0 <= found < _NOT_FOUND:
        return found + NICE_MIN
    return os.getpriority(os.PRIO_PROCESS, 0)


def _lower_this_process() -> int:
    now = os.getpriority(os.PRIO_PROCESS, 0)
    for nice in range(NICE_MIN, now):
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, nice)
            return nice
    return now


def _threads_of(pid: int) -> set[int]:
    return {int(name) for name in os.listdir(f"/proc/{pid}/task")}
