"""Which entries of this replica's log are damaged on disk (SAFETY section 5).

Owns the faulty ranges and the cap they put on what the replica claims (Q1). Must not know how
damage is found or repaired. Invariant: the ranges are ascending, disjoint, not empty, and two of
them never touch. A disk may have 100,000 ranges, and every step asks for the first uncommitted one,
so nothing here walks all of them but the constructor.
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
        """One more entry is damaged."""
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
        """Entries from `first_index` on are gone, and their damage with them."""
        kept = Index(first_index - 1)
        place = self._place(kept)
        del self.ranges[place + 1 :]
        if place >= 0:
            first, last = self.ranges[place]
            self.ranges[place] = (first, min(last, kept))

    def first_above(self, commit: Index) -> Index | None:
        """The first faulty entry that is not known to be committed: the only kind that caps
        (Q1)."""
        place = self._place(commit)
        if place >= 0 and self.ranges[place][1] > commit:
            return Index(commit + 1)
        return self.ranges[place + 1][0] if place + 1 < len(self.ranges) else None

    def cap(self, persisted: Index, commit: Index) -> Index:
        """What may be claimed of `persisted`: nothing from the first uncommitted faulty entry
        on."""
        first = self.first_above(commit)
        return persisted if first is None else min(persisted, Index(first - 1))

    def _place(self, index: Index) -> int:
        """The last range that begins at or below `index`; -1: there is none."""
        if not self.ranges:
            return -1
        return bisect_right(self.ranges, (index, Index(POSITION_MAX))) - 1

    def _add_above(self, first: Index, last: Index) -> None:
        if self.ranges and first <= self.ranges[-1][1] + 1:
            lowest, highest = self.ranges[-1]
            self.ranges[-1] = (lowest, max(highest, last))
        else:
            self.ranges.append((first, last))
