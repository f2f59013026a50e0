"""The world's clock and event queue: events in order of time, equal times in a seeded order.

Owns time and the fingerprint of a run. Must not know what an event does. Two runs of one seed have
the same fingerprint, under any PYTHONHASHSEED.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, Protocol

_FLUSH_FINGERPRINT_BYTES = 1 << 16
_MASK = (1 << 64) - 1


class NamedProcess(Protocol):
    """What the fingerprint needs of a process."""

    name: str
    number: int


class Busy(Protocol):
    """`busy_ns`: how far a process is ahead of the world while it runs."""

    busy_ns: int


class _Idle:
    busy_ns = 0


class World:
    """Has the time and runs every event (`network.wire.Scheduler`)."""

    def __init__(self, random: Random, *, trace: Callable[[str], None] | None = None) -> None:
        self.now_ns = 0
        self.events = 0
        self.running: Busy = _Idle()  # the process that ran last
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
        """The own time of the process that runs."""
        return self.now_ns + self.running.busy_ns

    def at(self, at_ns: int, action: Callable[..., None], *args: Any) -> None:
        """Hot."""
        self._next = number = self._next + 1
        if at_ns < self.now_ns:
            at_ns = self.now_ns
        heappush(self._queue, (at_ns, self._draw_tie(), number, action, args))

    def run_until(self, end_ns: int) -> None:
        """Run every event before `end_ns`."""
        queue = self._queue
        while queue and queue[0][0] < end_ns:
            self.now_ns, _, _, action, args = heappop(queue)
            self.events += 1
            action(*args)
        self.now_ns = end_ns

    def next_number(self) -> int:
        """Of a process, for the fingerprint."""
        self._numbers += 1
        return self._numbers

    def record_run(self, process: NamedProcess, work: int) -> None:
        """Add a `do_work` to the fingerprint, as numbers: text would cost too much. Hot."""
        self._runs = (self._runs * 1_000_003 ^ self.now_ns ^ process.number << 48 ^ work) & _MASK
        if self._trace is not None:
            self._write_trace(f"{process.name} {work}")

    def note(self, text: str) -> None:
        """Add an event to the fingerprint and the trace."""
        unhashed = self._unhashed
        unhashed += self.now_ns.to_bytes(8, "little")
        unhashed += text.encode()
        if len(unhashed) >= _FLUSH_FINGERPRINT_BYTES:
            self._hash.update(unhashed)
            unhashed.clear()
        if self._trace is not None:
            self._write_trace(text)

    def _write_trace(self, text: str) -> None:
        if self._trace is not None:
            self._trace(f"{self.now_ns / 1e9:12.6f} {text}")

    def fingerprint(self) -> str:
        """Of everything recorded so far, and of the number of events."""
        whole = self._hash.copy()
        whole.update(self._unhashed)
        whole.update(self.events.to_bytes(8, "little"))
        whole.update(self._runs.to_bytes(8, "little"))
        return whole.hexdigest()
