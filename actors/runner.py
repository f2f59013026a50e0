"""The loop around actors: who works when, idle strategy, timers, stop, errors.

Only this module reads a real clock and really parks. An actor works when its bell rang, one of its
sockets may be read, or its timer is due. Order of the idle protocol (SAFETY M7): poll bells and
sockets, clear the bell of an actor, then let it work. What is published after the clear rings
again, so the next poll returns at once and no wake-up is lost. An actor that may have stopped at a
bound of its own (`full_turn`) works again before the loop parks.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NoReturn

from actors.actor import Actor
from actors.loop_usage import LoopUsage
from logstore.limits import PARK_MAX_MS
from transport.doorbell import Doorbell
from transport.poller import Poller
from transport.ports import Pollable
from transport.process_memory import keep_freed_memory, raise_descriptor_limit

EXIT_ORPHANED = 71
_MILLISECOND_NS = 1_000_000
_PARK_MAX_NS = PARK_MAX_MS * _MILLISECOND_NS
# How often actors of one loop answer each other before the others' bells and the sockets are looked
# at: from a replicator to raft, to ingress, and back to raft.
_PASSES_MAX = 4
_NOW, _NEVER_NS = -1, 1 << 62


class StopFlag:
    """Set by SIGTERM; read by the loop."""

    def __init__(self) -> None:
        self.is_set = False
        self._bell_fd = -1

    def set(self, *_: object) -> None:
        self.is_set = True
        if self._bell_fd >= 0:
            # not Doorbell.ring: the handler may have interrupted it, and its lock is not reentrant
            os.eventfd_write(self._bell_fd, 1)

    def wake(self, bell: Doorbell) -> None:
        """End the park of the loop of this bell, which stays open as long as the process."""
        self._bell_fd = bell.fileno()


def refuse_optimised_python() -> None:
    """`python -O` removes checks that tests rely on (FAULTS O6)."""
    if sys.flags.optimize:
        raise SystemExit("logstore does not run under python -O: start it without -O")


def prepare_process(stop: StopFlag) -> None:
    """Set up signals and the garbage collector of a child process.

    SIGINT and SIGHUP go to a whole terminal group: only the supervisor acts on them. The collector
    is frozen and runs rarely: message structs are untracked (gc=False), so it would only walk
    the objects of the start.
    """
    refuse_optimised_python()
    raise_descriptor_limit()
    keep_freed_memory()
    # A process that is woken waits for its turn. Otherwise it preempts the one that rang,
    # which then rings the other bells late. One append in flight: p50 2.76 ms before, 2.6
    # after (2 cores, 2026-11-20).
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    signal.signal(signal.SIGTERM, stop.set)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


class _Task:
    """One actor of the loop. `is_due`: it must work in this turn, whatever its timer says.
    `sources`: what it waits on besides its bell, which only its work changes."""

    __slots__ = ("actor", "bell", "has_new_sources", "is_due", "sources", "timer_ns")

    def __init__(self, actor: Actor, bell: Doorbell) -> None:
        self.actor = actor
        self.bell = bell
        self.is_due = True
        self.timer_ns = 0
        self.sources: tuple[Pollable, ...] = ()
        self.has_new_sources = True

    def work(self, now_ns: int) -> int:
        """Let the actor work; returns what it says. Hot."""
        actor = self.actor
        work = actor.do_work(now_ns)
        self.is_due = work >= actor.full_turn
        self.timer_ns = min(actor.next_timer_ns(), now_ns + _PARK_MAX_NS)
        sources = tuple(actor.wait_on())
        if sources != self.sources:
            self.sources, self.has_new_sources = sources, True
        return work


class _Scheduler:
    """The actors of a loop, and which of them a poll's answer concerns."""

    def __init__(
        self, actors: Sequence[Actor], bells: Sequence[Doorbell], lifeline: int | None
    ) -> None:
        self.tasks = [_Task(actor, bell) for actor, bell in zip(actors, bells, strict=True)]
        self._lifeline = () if lifeline is None else (lifeline,)
        self._of_bell: dict[Pollable, _Task] = {each.bell.fileno(): each for each in self.tasks}
        self._of_source: dict[Pollable, _Task] = {}
        self._items: list[Pollable] = []
        self._poller = Poller()
        self.has_rung = False  # a bell, in the last poll

    def work(self, now_ns: int) -> int:
        """One turn: those work that have to, and then those whose bells they rang. Returns how
        much. Hot."""
        done = 0
        tasks = self.tasks
        for _ in range(_PASSES_MAX):
            for task in tasks:
                bell = task.bell
                if bell.is_rung_locally:
                    bell.is_rung_locally = False  # before it works (M7)
                    task.is_due = True
                if task.is_due or now_ns >= task.timer_ns:
                    done += task.work(now_ns)
            for task in tasks:
                if task.bell.is_rung_locally:
                    break
            else:
                break
        return done

    def next_turn_ns(self) -> int:
        """When an actor must work at the latest; _NOW: before the loop parks. Hot."""
        next_ns = _NEVER_NS
        for task in self.tasks:
            if task.is_due or task.bell.is_rung_locally:
                return _NOW
            if task.timer_ns < next_ns:
                next_ns = task.timer_ns
        return next_ns

    def poll(self, timeout_ms: int) -> list[Pollable]:
        """Wait, and note who has to work; returns what is ready. Hot."""
        is_changed = False
        for task in self.tasks:
            if task.has_new_sources:
                task.has_new_sources, is_changed = False, True
        if is_changed:
            self._of_source = {source: task for task in self.tasks for source in task.sources}
            self._items = [*self._lifeline, *self._of_bell, *self._of_source]
        ready = self._poller.wait(self._items, timeout_ms)
        self.has_rung = False
        for item in ready:
            if (ringing := self._of_bell.get(item)) is not None:
                ringing.bell.clear()  # before it works (M7)
                ringing.is_due = self.has_rung = True
            elif (readable := self._of_source.get(item)) is not None:
                readable.is_due = True
        return ready


def run(
    actors: Sequence[Actor],
    bells: Sequence[Doorbell],
    *,
    count_loop: Callable[[], None],
    usage: LoopUsage,
    stop: Callable[[], bool],
    lifeline: int | None,
    spin: bool,
) -> None:
    """Run `actors` in turn until `stop` returns True or the lifeline ends. Hot.

    Args:
      bells: of each actor, in the order of `actors`.
      lifeline: a descriptor that becomes readable (end of file) when the parent is gone; None: no
        parent.
      spin: never park; only for a process that has a core to itself.
    """
    monotonic_ns = time.monotonic_ns
    scheduler = _Scheduler(actors, bells, lifeline)
    is_woken = False  # from a park, in this turn
    with ExitStack() as closing:
        for actor, bell in zip(actors, bells, strict=True):
            bell.adopt()
            actor.on_start()
            closing.callback(actor.on_close)
        gc.freeze()
        now_ns = monotonic_ns()
        while not stop():
            begun_ns = now_ns
            if begun_ns >= usage.due_ns:
                usage.publish(begun_ns, time.process_time_ns())
            work = scheduler.work(begun_ns)
            count_loop()
            usage.turns += 1
            if is_woken and not work:
                usage.empty_wakes += 1
            parked_ns = monotonic_ns()
            timeout_ms = 0
            next_ns = scheduler.next_turn_ns()
            is_woken = not (spin or next_ns == _NOW)
            if is_woken:
                timeout_ms = max(0, -((parked_ns - next_ns) // _MILLISECOND_NS))
            ready = scheduler.poll(timeout_ms)
            now_ns = monotonic_ns()
            if is_woken:
                usage.idle_ns += now_ns - parked_ns
                if not ready:
                    usage.timer_wakes += 1
                elif scheduler.has_rung:
                    usage.bell_wakes += 1
                else:
                    usage.socket_wakes += 1
            elif not work:
                usage.idle_ns += now_ns - begun_ns  # it spins
            if lifeline in ready:
                _end_without_parent()


def _end_without_parent() -> NoReturn:
    """End this process at once, for the parent is gone: no child may outlive it (M3)."""
    os._exit(EXIT_ORPHANED)
