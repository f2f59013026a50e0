"""`single` mode: the same actors in one process a replica keep the same promises."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import logstore
from tests.faults.ledger import Load
from tests.faults.quick_cluster import QuickCluster, members, quick_cluster, quick_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickCluster]:
    folder = tmp_path_factory.mktemp("single")
    with quick_cluster(folder, quick_config(mode="single")) as started:
        yield started


def test_what_is_appended_is_read_from_every_replica_of_one_process(cluster: QuickCluster) -> None:
    with Load(cluster) as load:
        load.wait_for_progress(20)
    load.assert_kept()
    for node in cluster.nodes:
        assert members(cluster.session(node)) == [cluster.session(node)]
        assert set(cluster.processes(node).values()) == {cluster.session(node)}
    with logstore.connect(cluster.endpoints) as log:
        rows = log.admin.status()["nodes"]
    assert [row["pid"] for row in rows] == [cluster.session(node) for node in cluster.nodes]
    for row in rows:  # one process: what it takes is told once
        taken = {name: each["rss_mb"] > 0 for name, each in row["processes"].items()}
        assert [name for name, is_told in taken.items() if is_told] == ["supervisor"]
    assert sum(row["processes"]["supervisor"]["cpu_percent"] for row in rows) > 0


def test_killing_the_leaders_process_loses_nothing(cluster: QuickCluster) -> None:
    with Load(cluster) as load:
        leader = cluster.wait_for_leader()
        cluster.kill(leader)
        load.wait_for_progress(20)
        cluster.start(leader)
    load.assert_kept()


def test_an_orderly_stop_hands_leadership_over(cluster: QuickCluster) -> None:
    with Load(cluster) as load:
        leader = cluster.wait_for_leader()
        assert cluster.stop(leader), "the stop needed SIGKILL"
        assert cluster.leader() not in (0, leader)
        load.wait_for_progress(20)
        cluster.start(leader)
    load.assert_kept()
