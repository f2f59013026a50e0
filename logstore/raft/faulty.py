"""Which entries of this replica's log are damaged on disk (SAFETY section 5).

Owns the faulty ranges and the cap they put on what the replica claims (Q1). Must not know how
damage is found or repaired. Invariant: the ranges are ascending, disjoint and not empty.
"""

from __future__ import annotations

from collections.abc import Iterable

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
        return any(first <= index <= last for first, last in self.ranges)

    def range_of(self, index: Index) -> Range:
        """The range that holds `index`, which is faulty."""
        return next(each for each in self.ranges if each[0] <= index <= each[1])

    @property
    def first_range(self) -> Range:
        """The lowest faulty range, (0, 0) when the log is whole."""
        return self.ranges[0] if self.ranges else (NO_INDEX, NO_INDEX)

    def add(self, index: Index) -> None:
        """One more entry is damaged."""
        ranges = sorted([*self.ranges, (index, index)])
        self.ranges = []
        for first, last in ranges:
            self._add_above(first, last)

    def truncate(self, first_index: Index) -> None:
        """Entries from `first_index` on are gone, and their damage with them."""
        kept = [(first, min(last, Index(first_index - 1))) for first, last in self.ranges]
        self.ranges = [(first, last) for first, last in kept if first <= last]

    def first_above(self, commit: Index) -> Index | None:
        """The first faulty entry that is not known to be committed: the only kind that caps
        (Q1)."""
        for first, last in self.ranges:
            if last > commit:
                return max(first, Index(commit + 1))
        return None

    def cap(self, persisted: Index, commit: Index) -> Index:
        """What may be claimed of `persisted`: nothing from the first uncommitted faulty entry
        on."""
        first = self.first_above(commit)
        return persisted if first is None else min(persisted, Index(first - 1))

    def _add_above(self, first: Index, last: Index) -> None:
        if self.ranges and first <= self.ranges[-1][1] + 1:
            lowest, highest = self.ranges[-1]
            self.ranges[-1] = (lowest, max(highest, last))
        else:
            self.ranges.append((first, last))
