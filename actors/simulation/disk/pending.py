"""What is done to one disk and has not happened yet: acts, each with its moment.

Owns their order. Must not know what an act does.

A process' calls run at one moment of the world and take longer: its clock goes ahead of the world's
(`process`). A flush takes effect where its process' clock stands when it returns, and whatever the
process does after it, after it: a power cut in between finds the flush under way and nothing of
what came later. The page cache changes at the call; other processes read it as of their own time
(`disk_now`).

Invariant: acts happen in order of their moments, of one moment in the order of their calls. One may
happen before its moment if nothing is left that comes before it: nobody can tell, for it is not
durable by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol


class Clock(Protocol):
    """`now_ns` is the world's; `local_now_ns` that of whatever runs, which may be ahead."""

    @property
    def now_ns(self) -> int: ...

    @property
    def local_now_ns(self) -> int: ...


class StillClock:
    """Of a disk used alone: every act happens at its call."""

    now_ns = 0
    local_now_ns = 0


class DiskActs:
    """The acts of one disk. `owner` of an act: what is ahead of the moment until it happens."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[tuple[int, int, Any, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    def at(self, at_ns: int, owner: Any, act: Callable[..., None], *args: Any) -> None:
        """Hot. It happens at `at_ns` and no earlier."""
        if self._waiting:
            self.settle()
        if at_ns <= self._clock.now_ns:
            act(*args)
            return
        self._number += 1
        heappush(self._waiting, (at_ns, self._number, owner, act, args))

    def behind(self, at_ns: int, owner: Any, act: Callable[..., None], *args: Any) -> None:
        """Hot. It happens at `at_ns`, or now if nothing comes before it."""
        waiting = self._waiting
        if waiting:
            self.settle()
            if waiting and waiting[0][0] <= at_ns:
                self._number += 1
                heappush(waiting, (at_ns, self._number, owner, act, args))
                return
        act(*args)

    def settle(self) -> None:
        """What was to happen by now has happened."""
        waiting = self._waiting
        if waiting and waiting[0][0] <= self._clock.now_ns:
            self.catch_up(self._clock.now_ns)

    def settle_for_asker(self) -> None:
        """What was to happen by the time of whoever runs, and asks, has happened."""
        waiting = self._waiting
        if waiting and waiting[0][0] <= self._clock.local_now_ns:
            self.catch_up(self._clock.local_now_ns)

    def later(self, owner: Any) -> list[tuple[Callable[..., None], tuple[Any, ...]]]:
        """The acts of `owner` that have not happened by the time of whoever runs, in order."""
        self.settle_for_asker()
        waiting = [each for each in self._waiting if each[2] is owner]
        return [(act, args) for _, _, _, act, args in sorted(waiting, key=_moment)]

    def owners_after(self, at_ns: int, kind: Callable[..., None]) -> list[Any]:
        """Whose acts of this kind come after `at_ns`; none happens by this call."""
        later = [each for each in self._waiting if each[0] > at_ns]
        return [owner for _, _, owner, act, _ in later if act == kind]

    @property
    def has_later(self) -> bool:
        return bool(self._waiting)

    def catch_up(self, until_ns: int) -> None:
        """Everything up to `until_ns` happens now, which is as if it had been quicker."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= until_ns:
            _, _, _, act, args = heappop(waiting)
            act(*args)

    def finish(self) -> None:
        """Everything happens now."""
        while self._waiting:
            self.catch_up(self._waiting[0][0])

    def drop(self) -> list[Any]:
        """What has not happened never will. Returns the owners."""
        owners = [owner for _, _, owner, _, _ in self._waiting]
        self._waiting.clear()
        return owners


def _moment(act: tuple[int, int, Any, Callable[..., None], tuple[Any, ...]]) -> tuple[int, int]:
    return act[:2]
