"""Which segment holds which indexes: liveness, computed from headers alone (SAFETY S7, S10).

Pure. A record or frame is live if its index is below the first index of every later segment, from
that segment's header or its successor's. An index is found in the last segment whose first index is
not above it. A segment that a header names and that is missing is in the map without a header: its
range is damaged, not empty.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from logstore.format.segment_header import SegmentHeader
from logstore.limits import POSITION_MAX
from logstore.model import Index

OPEN_END = Index(POSITION_MAX + 1)


class LiveSegment(msgspec.Struct, frozen=True, gc=False):
    """A segment's live indexes [first_index, end_index); the newest segment's end is OPEN_END.
    `header` None: the pair is missing. `valid_end`: end of its last live frame in the data file,
    from its successor's header, 0 where unknown."""

    number: int
    first_index: Index
    end_index: Index
    header: SegmentHeader | None
    valid_end: int = 0

    @property
    def is_sealed(self) -> bool:
        """Everything in it was flushed before its successor's header was written (F6)."""
        return self.end_index != OPEN_END


class SegmentMap:
    """The live segments, by rising first index."""

    def __init__(self, segments: tuple[LiveSegment, ...]) -> None:
        self.segments = segments
        self._firsts = [segment.first_index for segment in segments]

    @classmethod
    def of(cls, headers: Iterable[SegmentHeader], *, start_index: Index) -> SegmentMap:
        """The map of these headers, for a log that begins after `start_index`."""
        first, known, valid_ends = _named_segments(headers)
        live: list[LiveSegment] = []
        end = OPEN_END
        for number in sorted(first, reverse=True):
            if first[number] < end:
                ends_here = valid_ends.get(number, {})
                live.append(
                    LiveSegment(
                        number, first[number], end, known.get(number), ends_here.get(end, 0)
                    )
                )
                end = first[number]
        if live and end > start_index + 1:
            live.append(LiveSegment(0, Index(start_index + 1), end, None))
        kept = [segment for segment in live if segment.end_index > start_index + 1]
        return cls(tuple(reversed(kept)))

    def find(self, index: Index) -> LiveSegment | None:
        """The segment that holds `index`, if it is above the log start."""
        place = bisect_right(self._firsts, index)
        return self.segments[place - 1] if place else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SegmentMap) and self.segments == other.segments

    def __hash__(self) -> int:
        return hash(tuple(segment.number for segment in self.segments))


def _named_segments(
    headers: Iterable[SegmentHeader],
) -> tuple[dict[int, Index], dict[int, SegmentHeader], dict[int, dict[int, int]]]:
    """First indexes by number, headers by number, and valid ends by (number, successor's first)."""
    known = {header.number: header for header in headers}
    first: dict[int, Index] = {}
    valid_ends: dict[int, dict[int, int]] = {}
    for header in known.values():
        first[header.number] = header.first_index
        before = header.previous_number
        if before:
            first.setdefault(before, header.previous_first_index)
            valid_ends.setdefault(before, {})[header.first_index] = header.previous_valid_end
    for header in known.values():
        first[header.number] = header.first_index
    return first, known, valid_ends
