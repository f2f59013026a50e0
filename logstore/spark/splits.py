"""How a range of LSNs is cut into what single tasks read: balanced by bytes.

Pure: spans in, splits out. Invariant: the splits cover the range in order, without gap or overlap.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import msgspec

from logstore.client.core.spans import Span
from logstore.limits import MIB

# One task reads about this much unless told otherwise: a second of one core, so that a retry costs
# little and two cores end together.
SPLIT_BYTES = 64 * MIB


class Split(msgspec.Struct, frozen=True):
    """[first_lsn, last_lsn] and about how many bytes they are."""

    first_lsn: int
    last_lsn: int
    size_bytes: int

    def __len__(self) -> int:
        return self.last_lsn - self.first_lsn + 1


def step_bytes(total_bytes: int, min_partitions: int) -> int:
    """How long spans should be so that there are enough of them, each about a split."""
    count = max(min_partitions, -(-total_bytes // SPLIT_BYTES), 1)
    return max(1, -(-total_bytes // count))


def make_splits(
    spans: Sequence[Span],
    *,
    last_lsn: int,
    min_partitions: int,
    max_records_per_partition: int | None,
) -> list[Split]:
    """The splits of the range that begins with `spans` and ends at `last_lsn`.

    What the spans leave out at the end (the replica that told them lags) is taken to be like them.
    """
    splits = [Split(span.first_lsn, span.last_lsn, span.size_bytes) for span in spans]
    if splits and splits[-1].last_lsn < last_lsn:
        splits.append(_rest(splits, last_lsn))
    splits = _halve_largest(splits, min_partitions)
    if max_records_per_partition is not None:
        splits = [part for each in splits for part in _cut(each, max_records_per_partition)]
    return splits


def _rest(splits: Sequence[Split], last_lsn: int) -> Split:
    known = splits[-1].last_lsn - splits[0].first_lsn + 1
    first = splits[-1].last_lsn + 1
    size = sum(each.size_bytes for each in splits) * (last_lsn - first + 1) // known
    return Split(first, last_lsn, size)


def _halve_largest(splits: list[Split], count: int) -> list[Split]:
    """At least `count` splits, as far as there are records."""
    heap = [(-each.size_bytes, each.first_lsn, each) for each in splits if len(each) > 1]
    done = [each for each in splits if len(each) <= 1]
    heapq.heapify(heap)
    while heap and len(heap) + len(done) < count:
        _, _, largest = heapq.heappop(heap)
        for half in _cut(largest, -(-len(largest) // 2)):
            if len(half) > 1:
                heapq.heappush(heap, (-half.size_bytes, half.first_lsn, half))
            else:
                done.append(half)
    found = [*done, *(each for _, _, each in heap)]
    return sorted(found, key=lambda each: each.first_lsn)


def _cut(split: Split, records_max: int) -> Iterator[Split]:
    """Parts of equal size, none above `records_max` records."""
    count = -(-len(split) // records_max)
    for part in range(count):
        first = split.first_lsn + len(split) * part // count
        end = split.first_lsn + len(split) * (part + 1) // count
        yield Split(first, end - 1, split.size_bytes * (end - first) // len(split))
