"""The raft actor's account of the payload ring (SAFETY M4)."""

from __future__ import annotations

import pytest

from actors.raft.ring_ledger import RingLedger
from logstore.errors import InvariantViolated


def test_floor_stays_at_the_oldest_unsettled_range() -> None:
    ledger = RingLedger()
    ledger.received(0, 10)
    ledger.received(10, 30)
    ledger.received(30, 31)
    ledger.settled(10, 30)
    assert ledger.floor == 0
    ledger.settled(0, 10)
    assert ledger.floor == 30
    ledger.settled(30, 31)
    assert ledger.floor == 31


def test_empty_ranges_are_none() -> None:
    ledger = RingLedger()
    ledger.received(0, 0)
    ledger.settled(0, 0)
    ledger.received(0, 8)
    assert ledger.floor == 0


def test_a_range_that_comes_twice_is_a_broken_invariant() -> None:
    ledger = RingLedger()
    ledger.received(0, 8)
    with pytest.raises(InvariantViolated, match="came to raft twice"):
        ledger.received(0, 8)
    ledger.settled(0, 8)
    with pytest.raises(InvariantViolated, match="came to raft twice"):
        ledger.received(0, 8)


def test_a_range_that_settles_twice_or_was_never_seen_is_a_broken_invariant() -> None:
    ledger = RingLedger()
    ledger.received(0, 8)
    ledger.received(8, 16)
    ledger.settled(8, 16)
    with pytest.raises(InvariantViolated, match="settled twice"):
        ledger.settled(8, 16)
    with pytest.raises(InvariantViolated, match="never seen"):
        ledger.settled(16, 24)
