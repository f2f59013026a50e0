"""What a virtual network stands on in tests: a queue of events, and processes that only count."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000 * MILLISECOND_NS


class EventQueue:
    """A `Scheduler`: events of one moment come in a seeded order."""

    def __init__(self, seed: int = 1) -> None:
        self.now_ns = 0
        self._ties = Random(seed)
        self._numbers = count()
        self._events: list[tuple[int, float, int, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, at_ns: int, action: Callable[..., None], *args: Any) -> None:
        assert at_ns >= self.now_ns
        event = (at_ns, self._ties.random(), next(self._numbers), action, args)
        heappush(self._events, event)

    def run_one(self) -> None:
        """The next event; time goes on by 1 ms where there is none."""
        if not self._events:
            self.now_ns += MILLISECOND_NS
            return
        self.now_ns, _, _, action, args = heappop(self._events)
        action(*args)

    def run_for(self, for_ns: int) -> None:
        """Every event of the next `for_ns`."""
        until_ns = self.now_ns + for_ns
        while self._events and self._events[0][0] <= until_ns:
            self.run_one()
        self.now_ns = until_ns


class Process:
    """An `Owner` that is busy for as long as a test sets."""

    def __init__(self, queue: EventQueue, node: int, name: str = "") -> None:
        self.node = node
        self.name = name or f"process of node {node}"
        self.busy_ns = 0
        self.wakes = 0
        self.unread = 0
        self._queue = queue

    @property
    def local_now_ns(self) -> int:
        return self._queue.now_ns + self.busy_ns

    def wake(self) -> None:
        self.wakes += 1
