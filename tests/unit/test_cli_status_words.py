"""What `logstore cluster status` says below its table."""

from __future__ import annotations

import pytest

from logstore.cli.trouble import (
    install_words,
    leaderless_words,
    places_words,
    trouble_of,
    unheard_words,
)

ROW = {"node": 2, "state": "voter", "clock_skew_ms": {}}


def test_a_replica_without_trouble_is_not_mentioned() -> None:
    assert trouble_of(ROW) == ""
    assert trouble_of({"node": 2, "role": "unreachable"}) == ""


def test_a_replica_that_does_not_answer_has_the_leaders_word_for_how_long() -> None:
    lag = {"followers": [{"node": 2, "silent_seconds": 4.25}]}
    silent = {"node": 2, "role": "unreachable"}
    words = "does not answer; the leader has not heard it for 4.2 s"
    assert unheard_words(silent, lag) == words
    assert unheard_words(silent, {}) == ""
    assert unheard_words(silent | {"role": "follower"}, lag) == ""


def test_without_a_leader_the_nodes_that_do_not_answer_are_named() -> None:
    rows = [{"node": node, "role": "unreachable"} for node in (1, 2)]
    others = [{"node": node, "role": "follower"} for node in (3, 4, 5)]
    status = {"leader": 0, "nodes": [*rows, *others]}
    assert leaderless_words(status) == "nodes without an answer: 1, 2"
    few = {"leader": 0, "nodes": [*rows, *others[:1]]}
    assert leaderless_words(few) == "nodes without an answer: 1, 2 (a leader needs 2 of 3)"
    assert leaderless_words(status | {"leader": 3}) == ""
    assert leaderless_words({"leader": 0, "nodes": others}) == ""


@pytest.mark.parametrize("member", ["learner", None])
def test_a_learner_or_a_node_that_was_removed_is_none_that_a_leader_needs(
    member: str | None,
) -> None:
    rows = [{"node": node, "role": "unreachable", "member": "voter"} for node in (1, 2)]
    rows += [{"node": node, "role": "unreachable", "member": member} for node in (4, 5)]
    few = {"leader": 0, "nodes": [*rows, {"node": 3, "role": "follower", "member": "voter"}]}
    assert leaderless_words(few) == "nodes without an answer: 1, 2 (a leader needs 2 of 3)"


def test_places_and_replicas_that_are_no_members_are_named() -> None:
    assert places_words({"nodes": []}) == []
    left = {"node": 2, "host": "h", "port": 7110, "state": "voter", "refusal": "it has left"}
    status = {
        "reserved": [{"node": 4, "host": "h", "port": 7130}],
        "others": [left, left | {"node": 5, "refusal": ""}],
    }
    assert places_words(status) == [
        "node 4 has a place at h:7130, and has not joined",
        "node 2 at h:7110 is no member: it has left",
        "node 5 at h:7110 is no member",
    ]


def test_a_replica_without_its_meta_is_not_said_to_wait_for_a_cluster() -> None:
    row = ROW | {"state": "empty", "refusal": None}
    assert trouble_of(row).startswith("runs, and is part of no cluster yet")
    assert trouble_of(row | {"damage": "meta.a and meta.b are gone"}) == (
        "meta.a and meta.b are gone"
    )


def test_why_a_replica_must_not_go_on_is_said() -> None:
    """SAFETY L6."""
    row = ROW | {"damage": "amnesia: node 3 has seen start 7"}
    assert trouble_of(row) == "amnesia: node 3 has seen start 7"


def test_clocks_that_are_off_by_more_than_a_second_are_named() -> None:
    row = ROW | {"clock_skew_ms": {"1": 0, "2": 10_800_000, "3": -1_000, "4": -1_600}}
    words = trouble_of(row)
    assert words == "clocks are off (set them right): node 2 by +10800.0 s, node 4 by -1.6 s"


def test_limits_that_differ_and_what_comes_of_it_are_named() -> None:
    assert trouble_of(ROW | {"other_limits": [1, 3]}) == (
        "its limits are not those of node 1, 3: compare batch_max, group_max, ring and bulk_window "
        "of [limits], segment and segment_records of [storage] in their configurations"
    )
    words = trouble_of(ROW | {"other_limits": [], "counters": {"ring_too_small": 5_000_000}})
    assert words.startswith("its payload ring takes no entry of 5000000 bytes")


def test_a_leader_that_gives_up_nothing_says_why() -> None:
    words = trouble_of(ROW | {"counters": {"age_trims_off": 1, "retention_off": 0}})
    assert words.startswith("nothing is given up for its age: its wall clock was set")
    words = trouble_of(ROW | {"counters": {"age_trims_off": 0, "retention_off": 1}})
    assert words.endswith("its log's format level is too low: run `logstore upgrade`")


def test_a_log_that_is_too_new_for_a_replica_is_named() -> None:
    row = ROW | {"refused_level": 0, "newest_level": 2}
    assert trouble_of(row) == ""
    assert trouble_of(row | {"refused_level": 3}) == (
        "takes no entries: the leader's log is at format level 3, this version reads levels up to "
        "2: start a newer version"
    )


def test_a_replica_that_begins_anew_at_the_log_start_says_how_far_it_is() -> None:
    assert install_words(ROW) == ""
    assert install_words(ROW | {"install": None}) == ""
    row = ROW | {"install": {"next_lsn": 501, "bytes_left": 3 << 19}}
    words = install_words(row)
    assert words.startswith("started over at the leader's log start")
    assert words.endswith("LSN 501 comes next, 1.5 MiB to go")
    assert install_words(row | {"is_installing": True}).startswith("drops its log to start over")
    silent = ROW | {"install": {"next_lsn": None, "bytes_left": None}}
    assert "LSN ? comes next, an unknown number of bytes to go" in install_words(silent)
