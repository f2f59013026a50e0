"""SIGTERM hands leadership over first: no election timeout passes, no append fails (SAFETY C2)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logstore.cli.embedded import poll_until
from tests.faults.ledger import Load, log_of
from tests.faults.quick_cluster import (
    RECOVERY_TIMEOUT_S,
    QuickCluster,
    members,
    quick_cluster,
    quick_config,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickCluster]:
    with quick_cluster(tmp_path_factory.mktemp("stops"), quick_config()) as started:
        started.wait_for_first_configuration()
        yield started


@pytest.mark.long
def test_sigterm_hands_leadership_over_before_the_leader_goes(cluster: QuickCluster) -> None:
    with Load(cluster) as load:
        leader = cluster.wait_for_leader()
        session = cluster.session(leader)
        load.wait_until_in_flight()
        assert cluster.stop(leader), "the stop needed SIGKILL"
        # it leads before the old one is gone: nobody waited for an election timeout
        assert cluster.leader() not in (0, leader)
        assert "orderly stop: handed over: True" in log_of(cluster, leader)
        assert not members(session)
        load.wait_for_progress(20)
        cluster.start(leader)
    load.assert_kept()


@pytest.mark.long
def test_a_rolling_restart_of_all_replicas_fails_no_append(cluster: QuickCluster) -> None:
    """FAULTS O1."""
    with Load(cluster) as load:
        for node in cluster.nodes:
            assert cluster.stop(node), "the stop needed SIGKILL"
            load.wait_for_progress(5)
            cluster.start(node)
            cluster.wait_until_caught_up(node)
        load.wait_for_progress(5)
    load.assert_kept()


def test_a_follower_that_stops_is_not_missed(cluster: QuickCluster) -> None:
    leader, stopped = cluster.wait_for_leader(), cluster.followers()[0]
    with Load(cluster) as load:
        term = cluster.counters(leader)["term"]
        assert cluster.stop(stopped)
        load.wait_for_progress(20)
        assert poll_until(lambda: cluster.leader() == leader, RECOVERY_TIMEOUT_S)
        assert cluster.counters(leader)["term"] == term
        cluster.start(stopped)
    load.assert_kept()
