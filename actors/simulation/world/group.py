"""Several actors that one simulated process runs in turn, as `actors.runner.run` does.

Owns which of them work in a turn: those whose bell rang, with a readable socket, or whose timer is
due. They die together, are paused together, and share the time that each of them takes. Must not
know which actors they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop
from typing import Any

from actors.actor import Actor
from actors.simulation.world.process import Process

# As in the runner: how often they answer each other in a turn.
_PASSES_MAX = 4


class _Task:
    """One actor. `is_due`: it works in the next turn, whatever its timer says. `on_worked` is
    called when it has worked."""

    __slots__ = ("_process", "_rung_ns", "actor", "is_due", "on_worked", "timer_ns")

    def __init__(self, actor: Actor, process: Process, rung_ns: list[int]) -> None:
        self._process = process
        self._rung_ns = rung_ns  # when its bell rings: what was published by then is visible
        self.actor = actor
        self.is_due = True
        self.timer_ns = 0
        self.on_worked: Callable[[], None] | None = None

    def clear_bell(self) -> bool:
        """Whether it rang."""
        rung_ns, now_ns = self._rung_ns, self._process.local_now_ns
        has_rung = bool(rung_ns) and rung_ns[0] <= now_ns
        while rung_ns and rung_ns[0] <= now_ns:
            heappop(rung_ns)
        return has_rung

    def work(self, now_ns: int) -> int:
        work = self.actor.do_work(now_ns)
        self.is_due = work >= self.actor.full_turn
        self.timer_ns = min(self.actor.next_timer_ns(), now_ns + self._process.park_max_ns)
        if self.on_worked is not None:
            self.on_worked()
        return work


class Group:
    """Looks like one actor. `actors`: by name, in the order of their turns. `on_worked`: what is
    called when one of them has worked."""

    full_turn = 1

    def __init__(
        self,
        process: Process,
        actors: Mapping[str, Actor],
        on_worked: Mapping[str, Callable[[], None]] | None = None,
    ) -> None:
        self._process = process
        self._tasks = [
            _Task(actor, process, process.rung_ns[name]) for name, actor in actors.items()
        ]
        for task, name in zip(self._tasks, actors, strict=True):
            task.on_worked = (on_worked or {}).get(name)

    def on_start(self) -> None:
        for task in self._tasks:
            task.actor.on_start()

    def do_work(self, now_ns: int) -> int:
        """0 unless an actor has to work again at once. Hot."""
        tasks = self._tasks
        if self._process.unread:
            for task in tasks:
                task.is_due |= any(source.is_readable for source in task.actor.wait_on())
        for _ in range(_PASSES_MAX):
            worked = [self._turn_of(task, now_ns) for task in tasks]
            if not any(worked):
                break
        return int(any(task.is_due for task in tasks))

    def _turn_of(self, task: _Task, now_ns: int) -> bool:
        """Whether it worked."""
        has_to = task.clear_bell() or task.is_due or now_ns >= task.timer_ns
        if has_to:
            task.work(now_ns)
        return has_to

    def wait_on(self) -> list[Any]:
        return [source for task in self._tasks for source in task.actor.wait_on()]

    def next_timer_ns(self) -> int:
        return min(task.timer_ns for task in self._tasks)
