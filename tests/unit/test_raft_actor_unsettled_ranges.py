"""The raft actor's account of the payload ring (SAFETY M4)."""

from __future__ import annotations

import pytest

from actors.raft.unsettled_ranges import UnsettledRanges
from logstore.errors import InvariantViolated


def test_floor_stays_at_the_oldest_unsettled_range() -> None:
    ranges = UnsettledRanges()
    ranges.received(0, 10)
    ranges.received(10, 30)
    ranges.received(30, 31)
    ranges.settled(10, 30)
    assert ranges.floor == 0
    ranges.settled(0, 10)
    assert ranges.floor == 30
    ranges.settled(30, 31)
    assert ranges.floor == 31


def test_empty_ranges_are_none() -> None:
    ranges = UnsettledRanges()
    ranges.received(0, 0)
    ranges.settled(0, 0)
    ranges.received(0, 8)
    assert ranges.floor == 0


def test_a_range_that_comes_twice_is_a_broken_invariant() -> None:
    ranges = UnsettledRanges()
    ranges.received(0, 8)
    with pytest.raises(InvariantViolated, match="came to raft twice"):
        ranges.received(0, 8)
    ranges.settled(0, 8)
    with pytest.raises(InvariantViolated, match="came to raft twice"):
        ranges.received(0, 8)


def test_a_range_that_settles_twice_or_was_never_seen_is_a_broken_invariant() -> None:
    ranges = UnsettledRanges()
    ranges.received(0, 8)
    ranges.received(8, 16)
    ranges.settled(8, 16)
    with pytest.raises(InvariantViolated, match="settled twice"):
        ranges.settled(8, 16)
    with pytest.raises(InvariantViolated, match="never seen"):
        ranges.settled(16, 24)
