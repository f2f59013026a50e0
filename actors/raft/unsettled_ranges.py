"""The ranges of the payload ring that raft still needs (SAFETY M4).

Each range comes to raft once, in ring order, and is settled once, persisted or dropped, in any
order. Raft needs nothing below the start of the oldest unsettled range.
"""

from __future__ import annotations

from collections import deque

from logstore.errors import InvariantViolated


class UnsettledRanges:
    """The unsettled ranges, oldest first."""

    def __init__(self) -> None:
        self._order: deque[int] = deque()
        self._ends: dict[int, int] = {}
        self._settled: set[int] = set()
        self._floor = 0

    def received(self, start: int, end: int) -> None:
        if start == end:
            return
        if start < self._floor or start in self._ends:
            raise InvariantViolated(f"ring range [{start}, {end}) came to raft twice (M4)")
        self._order.append(start)
        self._ends[start] = end

    def settled(self, start: int, end: int) -> None:
        if start == end:
            return
        if self._ends.get(start) != end or start in self._settled:
            raise InvariantViolated(
                f"ring range [{start}, {end}) settled twice, or never seen (M4)"
            )
        self._settled.add(start)
        while self._order and self._order[0] in self._settled:
            oldest = self._order.popleft()
            self._settled.discard(oldest)
            self._floor = self._ends.pop(oldest)

    @property
    def floor(self) -> int:
        """Everything below this ring position is settled."""
        return self._order[0] if self._order else self._floor
