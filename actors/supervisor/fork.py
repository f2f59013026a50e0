"""Forks a child from the supervisor, which has imported already what every child runs.

Owns what a child is rid of before anything of its own runs: the supervisor's signal handlers and
every descriptor that it was not given. Must not know what a child does. Invariants (SAFETY M3):
  - the process that forks has one thread and no ZeroMQ context, or locks and sockets would be
    copied in a state that nobody can mend;
  - the child dies with its parent, and never returns into its parent's code;
  - a stop signal never reaches the child while it has the handlers of its parent: those write into
    the pipe of the parent, which would take it for a signal to itself.
The child keeps the mappings of its parent, which it does not touch. They are of the same
incarnation as its own and end with it.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress

from actors.child import LIFELINE, die_with_parent
from actors.supervisor.signals import STOP_SIGNALS
from logstore.errors import InvariantViolated

_STANDARD_DESCRIPTORS = (0, 1, 2)
# The kernel takes it as "to the last one".
_DESCRIPTOR_MAX = (1 << 31) - 1


def fork_child(body: Callable[[], None], *, lifeline: int, descriptors: Iterable[int]) -> int:
    """Run `body` in a child of this process, which must have no other thread; the pid of the child.

    Args:
      body: what the child does; its end, or its SystemExit, is the end of the child.
      lifeline: becomes the child's `LIFELINE`, in place of its standard input.
      descriptors: what the child keeps besides, under the same numbers.

    Raises:
      InvariantViolated: there are other threads.
      OSError: the kernel has no room for another process.
    """
    threads = os.listdir("/proc/self/task")
    if len(threads) != 1:
        raise InvariantViolated(f"a fork with {len(threads)} threads: the supervisor has one (M3)")
    parent_pid = os.getpid()
    _flush_output()
    # A collection in the child does not look at frozen objects. So their pages stay shared, and
    # none of them is freed and closes a descriptor number that the child uses for something else.
    gc.collect()
    gc.freeze()
    allowed = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        pid = os.fork()
        if pid == 0:
            _be_child(body, parent_pid, lifeline, descriptors, allowed)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, allowed)


def _be_child(
    body: Callable[[], None],
    parent_pid: int,
    lifeline: int,
    descriptors: Iterable[int],
    allowed: Iterable[int],
) -> None:
    """Never returns: not even an error may run the code of the parent on."""
    status = 1
    try:
        die_with_parent(parent_pid)
        os.dup2(lifeline, LIFELINE, inheritable=False)
        _close_all_but({*_STANDARD_DESCRIPTORS, *descriptors})
        signal.set_wakeup_fd(-1)
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, allowed)
        body()
        status = 0
    except SystemExit as ending:
        status = _status_of(ending)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            _flush_output()
        finally:
            os._exit(status)  # whatever that raised: ValueError where the child closed its output


def _status_of(ending: SystemExit) -> int:
    """As the interpreter has it: a text is said, and means 1."""
    if ending.code is None:
        return 0
    if isinstance(ending.code, int):
        return ending.code
    print(ending.code, file=sys.stderr)
    return 1


def _close_all_but(kept: set[int]) -> None:
    """`os.closerange` takes an empty range from 0 on for all descriptors (CPython 3.11)."""
    first = 0
    for descriptor in sorted(kept):
        if first < descriptor:
            os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, _DESCRIPTOR_MAX)


def _flush_output() -> None:
    """What a buffer holds at the fork would be written twice. A log on a full disk, or one that
    nobody reads any more, costs no replica: without this, the restart of an egress would end the
    supervisor, and a child would run its parent's code on instead of ending."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.flush()
