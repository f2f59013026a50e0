"""What `logstore cluster status` says below its table."""

from __future__ import annotations

from logstore.cli.trouble import trouble_of

ROW = {"node": 2, "state": "voter", "lost_flushed": None, "clock_skew_ms": {}}


def test_a_replica_without_trouble_is_not_mentioned() -> None:
    assert trouble_of(ROW) == ""
    assert trouble_of({"node": 2, "role": "unreachable"}) == ""


def test_entries_that_were_acknowledged_and_are_gone_are_named() -> None:
    row = ROW | {"lost_flushed": {"first_index": 3, "last_index": 5, "term": 2}}
    assert trouble_of(row).startswith("has LOST entries 3 to 5, which it had flushed")


def test_clocks_that_are_off_by_more_than_a_second_are_named() -> None:
    row = ROW | {"clock_skew_ms": {"1": 0, "2": 10_800_000, "3": -1_000, "4": -1_600}}
    words = trouble_of(row)
    assert words == "clocks are off (set them right): node 2 by +10800.0 s, node 4 by -1.6 s"


def test_limits_that_differ_and_what_comes_of_it_are_named() -> None:
    assert trouble_of(ROW | {"other_limits": [1, 3]}) == (
        "its limits are not those of node 1, 3: compare their configurations"
    )
    words = trouble_of(ROW | {"other_limits": [], "counters": {"ring_too_small": 5_000_000}})
    assert words.startswith("its payload ring takes no entry of 5000000 bytes")


def test_a_log_that_is_too_new_for_a_replica_is_named() -> None:
    row = ROW | {"refused_level": 0, "newest_level": 2}
    assert trouble_of(row) == ""
    assert trouble_of(row | {"refused_level": 3}) == (
        "takes no entries: the leader's log is at format level 3, this version reads levels up to "
        "2: start a newer version"
    )
