"""Operations on one disk that were called and take effect later.

Owns their order. Must not know what an operation does.

A process makes all disk calls of a `do_work` at one moment of the world, while its own clock runs
ahead (`world.process`). A flush takes effect when the world reaches the process' clock at the
flush's return, and every later operation after it. So a power cut in between finds the flush in
flight and none of the later operations. The page cache changes at the call; other processes read it
as of their own time (`read_now`).

Invariant: operations are applied in order of time, of one time in the order of calls. One that does
not make anything durable by itself may be applied early if none is left before it: no reader can
tell the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol


class Clock(Protocol):
    """`now_ns`: the world's time; `local_now_ns`: that of the running process, perhaps ahead."""

    @property
    def now_ns(self) -> int: ...

    @property
    def local_now_ns(self) -> int: ...


class StillClock:
    """For a disk without a world: every operation is applied at its call."""

    now_ns = 0
    local_now_ns = 0


class DeferredOperations:
    """Those of one disk. `owner` of an operation: the file that it will change."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[tuple[int, int, Any, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    def apply_at(self, at_ns: int, owner: Any, act: Callable[..., None], *args: Any) -> None:
        """Hot. Apply `act` at `at_ns` and no earlier."""
        if self._waiting:
            self.apply_due()
        if at_ns <= self._clock.now_ns:
            act(*args)
            return
        self._number += 1
        heappush(self._waiting, (at_ns, self._number, owner, act, args))

    def apply_in_order(self, at_ns: int, owner: Any, act: Callable[..., None], *args: Any) -> None:
        """Hot. Apply `act` at `at_ns`, or now if nothing is left before it."""
        waiting = self._waiting
        if waiting:
            self.apply_due()
            if waiting and waiting[0][0] <= at_ns:
                self._number += 1
                heappush(waiting, (at_ns, self._number, owner, act, args))
                return
        act(*args)

    def apply_due(self) -> None:
        """Apply what is due by the world's time."""
        waiting = self._waiting
        if waiting and waiting[0][0] <= self._clock.now_ns:
            self.apply_until(self._clock.now_ns)

    def apply_due_locally(self) -> None:
        """Apply what is due by the time of the running process."""
        waiting = self._waiting
        if waiting and waiting[0][0] <= self._clock.local_now_ns:
            self.apply_until(self._clock.local_now_ns)

    def of(self, owner: Any) -> list[tuple[Callable[..., None], tuple[Any, ...]]]:
        """What is deferred for `owner` by the time of the running process, in order."""
        self.apply_due_locally()
        waiting = [each for each in self._waiting if each[2] is owner]
        return [(act, args) for _, _, _, act, args in sorted(waiting, key=_moment)]

    @property
    def newest(self) -> int:
        """The number of the operation that was deferred last; numbers rise."""
        return self._number

    def owners_after(self, at_ns: int, kind: Callable[..., None], *, after: int) -> list[Any]:
        """The owners of operations `kind` that are due after `at_ns`, with numbers above `after`;
        applies none."""
        later = [each for each in self._waiting if each[0] > at_ns and each[1] > after]
        return [owner for _, _, owner, act, _ in later if act == kind]

    @property
    def has_any(self) -> bool:
        return bool(self._waiting)

    def apply_until(self, until_ns: int) -> None:
        """Apply everything up to `until_ns`."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= until_ns:
            _, _, _, act, args = heappop(waiting)
            act(*args)

    def apply_all(self) -> None:
        """Apply everything."""
        while self._waiting:
            self.apply_until(self._waiting[0][0])

    def discard(self) -> list[Any]:
        """Discard everything; returns the owners."""
        owners = [owner for _, _, owner, _, _ in self._waiting]
        self._waiting.clear()
        return owners


def _moment(act: tuple[int, int, Any, Callable[..., None], tuple[Any, ...]]) -> tuple[int, int]:
    return act[:2]
