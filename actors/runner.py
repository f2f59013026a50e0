"""The loop around actors: idle strategy, timers, stop, errors.

Only this module reads a real clock and really parks. Order of the idle protocol (SAFETY
M7): clear the bell, then do work. Only if there was none, park on the bell and the sockets,
until the next timer or 100 ms at most. A message published after the clear rings the bell
again, so no wake-up is lost.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from actors.actor import Actor
from actors.loop_usage import LoopUsage
from logstore.limits import PARK_MAX_MS
from transport.doorbell import Doorbell
from transport.link import Poller
from transport.process_memory import raise_descriptor_limit

EXIT_ORPHANED = 71
# A loop that never parks checks its lifeline after so many loops: about every 10 ms, for 1 us.
LIFELINE_EVERY = 256
_MILLISECOND_NS = 1_000_000


class StopFlag:
    """Set by SIGTERM; read by the loop."""

    def __init__(self) -> None:
        self.is_set = False

    def set(self, *_: object) -> None:
        self.is_set = True


def refuse_optimised_python() -> None:
    """`python -O` removes checks that tests rely on (FAULTS O6)."""
    if sys.flags.optimize:
        raise SystemExit("logstore does not run under python -O: start it without -O")


def prepare_process(stop: StopFlag) -> None:
    """Set up signals and the garbage collector of a child process.

    SIGINT goes to a whole terminal group: only the supervisor acts on it. The collector is
    frozen and runs rarely: message structs are untracked (gc=False), so it would only walk
    the objects of the start.
    """
    refuse_optimised_python()
    raise_descriptor_limit()
    # A process that is woken waits for its turn. Otherwise it preempts the one that rang,
    # which then rings the other bells late. One append in flight: p50 2.76 ms before, 2.6
    # after (2 cores, 2026-11-20).
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    signal.signal(signal.SIGTERM, stop.set)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def run(
    actors: Sequence[Actor],
    bell: Doorbell,
    *,
    count_loop: Callable[[], None],
    usage: LoopUsage,
    stop: Callable[[], bool],
    lifeline: int | None,
    spin: bool,
) -> None:
    """Run `actors` in turn until `stop` returns True or the lifeline ends. Hot.

    Args:
      lifeline: a descriptor that becomes readable (end of file) when the parent is gone; None: no
        parent.
      spin: never park; only for a process that has a core to itself.
    """
    poller = Poller()
    monotonic_ns = time.monotonic_ns
    ringing = bell.fileno()
    fixed: list[Any] = [ringing]
    if lifeline is not None:
        fixed.append(lifeline)
    busy_loops = 0
    is_woken = False  # and has not worked since
    idle_since_ns = 0  # begin of the park, or of the spin without work, that has just ended
    with ExitStack() as closing:
        for actor in actors:
            actor.on_start()
            closing.callback(actor.on_close)
        gc.freeze()
        while not stop():
            bell.clear()
            now_ns = monotonic_ns()
            if idle_since_ns:
                usage.idle_ns += now_ns - idle_since_ns
                idle_since_ns = 0
            if now_ns >= usage.due_ns:
                usage.publish(now_ns, time.process_time_ns())
            work = 0
            for actor in actors:
                work += actor.do_work(now_ns)
            count_loop()
            usage.turns += 1
            if work or spin:
                is_woken = False
                if not work:
                    idle_since_ns = now_ns
                busy_loops += 1
                if busy_loops % LIFELINE_EVERY == 0 and lifeline is not None:
                    _end_without_parent(lifeline)
                continue
            if is_woken:
                usage.empty_wakes += 1
            idle_since_ns = monotonic_ns()
            timer_ns = min(actor.next_timer_ns() for actor in actors) - idle_since_ns
            timeout_ms = min(PARK_MAX_MS, max(0, -(-timer_ns // _MILLISECOND_NS)))
            sources = fixed + [source for actor in actors for source in actor.wait_on()]
            ready = poller.wait(sources, timeout_ms)
            is_woken = True
            if not ready:
                usage.timer_wakes += 1
            elif ringing in ready:
                usage.bell_wakes += 1
            else:
                usage.socket_wakes += 1
            if lifeline is not None and lifeline in ready:
                _end_without_parent(lifeline)


def _end_without_parent(lifeline: int) -> None:
    """End this process at once if the parent is gone: no child may outlive it (M3)."""
    if select.select([lifeline], [], [], 0)[0]:
        os._exit(EXIT_ORPHANED)
