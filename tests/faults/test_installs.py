"""A follower that was away while the log start passed it, on real processes (SAFETY G5, G5a)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import logstore
from logstore.cli.embedded import poll_until
from logstore.errors import OutOfRange
from tests.faults.ledger import Load
from tests.faults.quick_cluster import (
    RECOVERY_TIMEOUT_S,
    QuickCluster,
    quick_cluster,
    quick_config,
)
from tests.faults.test_trims import append

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SEGMENTS_AWAY = 10


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QuickCluster]:
    with quick_cluster(tmp_path, quick_config()) as running:
        yield running


def trim_past(cluster: QuickCluster, log: logstore.LogClient, node: int) -> int:
    """Append, with this follower down, and move the log start past what it has; the first LSN."""
    append(log)
    has = cluster.visible_everywhere()
    cluster.kill(node)
    append(log)
    first = log.admin.trim(log.admin.commit_lsn())
    assert first > has
    return first


def row_of(log: logstore.LogClient, node: int) -> dict[str, Any]:
    return next(row for row in log.admin.status()["nodes"] if row["node"] == node)


def check_it_has_all(cluster: QuickCluster, log: logstore.LogClient, node: int, first: int) -> None:
    last = cluster.visible_everywhere()
    assert poll_until(lambda: row_of(log, node)["install"] is None, RECOVERY_TIMEOUT_S)
    assert row_of(log, node)["log_start_lsn"] == first
    read = sum(len(each.payloads()) for each in log.read(first, last, replica=node))
    assert read == last - first + 1
    with pytest.raises(OutOfRange) as gone:
        list(log.read(first - 1, last, replica=node))
    assert gone.value.first == first
    assert log.admin.verify().chains_equal


@pytest.mark.long
def test_a_follower_that_was_away_begins_at_the_log_start_and_has_what_follows(
    cluster: QuickCluster,
) -> None:
    with logstore.connect(cluster.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
        node = cluster.followers()[0]
        first = trim_past(cluster, log, node)
        cluster.start(node)
        check_it_has_all(cluster, log, node, first)
        append(log)
        cluster.kill_all()
        check_it_has_all(cluster, log, node, first)


def newest_segment(cluster: QuickCluster, node: int) -> int:
    return max(int(path.stem) for path in cluster.node_folder(node).glob("*.data"))


@pytest.mark.long
def test_a_follower_that_was_away_for_ten_segments_returns_under_load(
    cluster: QuickCluster,
) -> None:
    with logstore.connect(cluster.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
        append(log)
        leader = cluster.wait_for_leader()
        node, other = cluster.followers()
        has = cluster.visible_everywhere()
        cluster.kill(node)
        newest = newest_segment(cluster, other)
        while newest_segment(cluster, other) < newest + SEGMENTS_AWAY:
            append(log)
        first = log.admin.trim(log.admin.commit_lsn())
        assert first > has
        with Load(cluster, [leader, other]) as load:  # which starts it
            cluster.wait_until_caught_up(node)
            load.wait_for_progress(20)
        load.assert_kept()
        check_it_has_all(cluster, log, node, first)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_a_follower_that_is_killed_again_and_again_gets_there(
    cluster: QuickCluster, seed: int
) -> None:
    """At any step: while it drops its log, and while it catches up."""
    random = Random(seed)
    with logstore.connect(cluster.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
        node = cluster.followers()[0]
        first = trim_past(cluster, log, node)
        last = log.admin.commit_lsn()
        for _ in range(8):
            cluster.start(node)
            # a start takes about 0.5 s
            poll_until(lambda: cluster.visible_lsn(node) >= last, random.uniform(0.3, 1.2))
            cluster.kill(node)
        cluster.start(node)
        check_it_has_all(cluster, log, node, first)
