"""Which entries of this replica's log are damaged on disk (SAFETY section 5).

Owns the faulty ranges and the cap they put on what the replica claims (Q1). Must not know how
damage is found or repaired. Invariant: the ranges are ascending, disjoint and not empty, and two
ranges never touch. A disk may have 100,000 ranges, and every step asks for the first uncommitted
one, so only the constructor walks all of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from logstore.limits import POSITION_MAX
from logstore.model import NO_INDEX, Index

Range = tuple[Index, Index]  # [first, last]


class FaultyEntries:
    """The damaged entries, as ranges [first, last] of indexes."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: Iterable[Range]) -> None:
        self.ranges: list[Range] = []
        for first, last in sorted(ranges):
            self._add_above(first, last)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, index: Index) -> bool:
        place = self._place(index)
        return place >= 0 and index <= self.ranges[place][1]

    def range_of(self, index: Index) -> Range:
        """The range that holds `index`, which is faulty."""
        return self.ranges[self._place(index)]

    @property
    def first_range(self) -> Range:
        """The lowest faulty range, (0, 0) when the log is whole."""
        return self.ranges[0] if self.ranges else (NO_INDEX, NO_INDEX)

    def add(self, index: Index) -> None:
        """Mark one more entry as damaged."""
        if index in self:
            return
        first = last = index
        start = stop = self._place(index) + 1
        if start and self.ranges[start - 1][1] == index - 1:
            start -= 1
            first = self.ranges[start][0]
        if stop < len(self.ranges) and self.ranges[stop][0] == index + 1:
            last = self.ranges[stop][1]
            stop += 1
        self.ranges[start:stop] = [(first, last)]

    def truncate(self, first_index: Index) -> None:
        """Entries from `first_index` on were truncated, and their damage with them."""
        kept = Index(first_index - 1)
        place = self._place(kept)
        del self.ranges[place + 1 :]
        if place >= 0:
            first, last = self.ranges[place]
            self.ranges[place] = (first, min(last, kept))

    def move_start(self, start: Index) -> None:
        """Entries at or below `start` are no longer in the log."""
        place = self._place(start)
        if place >= 0:
            _, last = self.ranges[place]
            self.ranges[: place + 1] = [(Index(start + 1), last)] if last > start else []

    def first_above(self, commit: Index) -> Index | None:
        """The first faulty entry that is not known to be committed: only
        such an entry caps (Q1)."""
        place = self._place(commit)
        if place >= 0 and self.ranges[place][1] > commit:
            return Index(commit + 1)
        return self.ranges[place + 1][0] if place + 1 < len(self.ranges) else None

    def cap(self, persisted: Index, commit: Index) -> Index:
        """The part of `persisted` that may be claimed: it ends before the first
        uncommitted faulty entry."""
        first = self.first_above(commit)
        return persisted if first is None else min(persisted, Index(first - 1))

    def _place(self, index: Index) -> int:
        """The place of the last range that begins at or below `index`; -1: there is none."""
        if not self.ranges:
            return -1
        return bisect_right(self.ranges, (index, Index(POSITION_MAX))) - 1

    def _add_above(self, first: Index, last: Index) -> None:
        if self.ranges and first <= self.ranges[-1][1] + 1:
            lowest, highest = self.ranges[-1]
            self.ranges[-1] = (lowest, max(highest, last))
        else:
            self.ranges.append((first, last))
