"""The world's clock and queue: events in order of time, ties in a seeded order.

Owns time and the fingerprint of what happened. Must not know what an event does. Two runs of one
seed have the same fingerprint, under every PYTHONHASHSEED.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, Protocol

_FLUSH_FINGERPRINT_BYTES = 1 << 16
_RECENT_MAX = 4_096
_MASK = (1 << 64) - 1


class Named(Protocol):
    """A process, to the fingerprint."""

    name: str
    number: int


class Busy(Protocol):
    """How far a process is ahead of the world, while it runs."""

    busy_ns: int


class _Nobody:
    busy_ns = 0


class World:
    """A `Scheduler`. `note` adds to the fingerprint, and to the flight recorder."""

    def __init__(self, random: Random, *, trace: Callable[[str], None] | None = None) -> None:
        self.now_ns = 0
        self.events = 0
        self.running: Busy = _Nobody()  # whoever ran last; not ahead when it is done
        self.is_over = False
        self.recent: deque[tuple[int, str]] = deque(maxlen=_RECENT_MAX)
        self._draw_tie = random.random
        self._queue: list[tuple[int, float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._next = 0
        self._numbers = 0
        self._runs = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self._unhashed = bytearray()
        self._trace = trace

    @property
    def local_now_ns(self) -> int:
        """A `Clock` of disks: the time of whoever runs."""
        return self.now_ns + self.running.busy_ns

    def at(self, at_ns: int, action: Callable[..., None], *args: Any) -> None:
        """Hot."""
        self._next = number = self._next + 1
        if at_ns < self.now_ns:
            at_ns = self.now_ns
        heappush(self._queue, (at_ns, self._draw_tie(), number, action, args))

    def run_until(self, end_ns: int) -> None:
        """Run every event before `end_ns`; afterwards it is `end_ns`, unless the world is over."""
        queue = self._queue
        while queue and not self.is_over and queue[0][0] < end_ns:
            self.now_ns, _, _, action, args = heappop(queue)
            self.events += 1
            action(*args)
        if not self.is_over:
            self.now_ns = end_ns

    def next_number(self) -> int:
        """For a process, so that the fingerprint can name it."""
        self._numbers += 1
        return self._numbers

    def ran(self, process: Named, work: int) -> None:
        """A process did `work`: a cheap note, text only if somebody traces. Hot."""
        self._runs = (self._runs * 1_000_003 ^ self.now_ns ^ process.number << 48 ^ work) & _MASK
        if self._trace is not None:
            self._tell(f"{process.name} {work}")

    def note(self, text: str) -> None:
        """Something happened: part of the fingerprint, the flight recorder and the trace."""
        self.recent.append((self.now_ns, text))
        unhashed = self._unhashed
        unhashed += self.now_ns.to_bytes(8, "little")
        unhashed += text.encode()
        if len(unhashed) >= _FLUSH_FINGERPRINT_BYTES:
            self._hash.update(unhashed)
            unhashed.clear()
        if self._trace is not None:
            self._tell(text)

    def _tell(self, text: str) -> None:
        if self._trace is not None:
            self._trace(f"{self.now_ns / 1e9:12.6f} {text}")

    def fingerprint(self) -> str:
        """Of everything noted so far, and of how many events there were."""
        whole = self._hash.copy()
        whole.update(self._unhashed)
        whole.update(self.events.to_bytes(8, "little"))
        whole.update(self._runs.to_bytes(8, "little"))
        return whole.hexdigest()
