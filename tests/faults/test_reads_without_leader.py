"""Reads need no leader: a follower serves what it knows to be committed, and says what it cannot
(SAFETY V3, V5).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import logstore
from logstore.cli.embedded import poll_until
from tests.faults.ledger import Load, read_all
from tests.faults.quick_cluster import (
    RECOVERY_TIMEOUT_S,
    QuickCluster,
    quick_cluster,
    quick_config,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]
SHORT = logstore.ProducerOptions(append_timeout_s=1, delivery_timeout_s=1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickCluster]:
    folder = tmp_path_factory.mktemp("no-leader")
    with quick_cluster(folder, quick_config()) as started:
        yield started


@pytest.mark.long
def test_a_follower_serves_reads_while_nobody_leads(cluster: QuickCluster) -> None:
    with Load(cluster) as load:
        load.wait_for_progress(20)
    load.assert_kept()
    last = cluster.visible_everywhere()
    leader, (reader, other) = cluster.wait_for_leader(), cluster.followers()
    with (
        logstore.connect(cluster.endpoints, timeout=20) as log,
        logstore.connect(cluster.endpoints, timeout=2) as hasty,
    ):
        log.admin.leader()
        cluster.pause(leader)
        cluster.pause(other)
        assert len(read_all(log, reader, first_lsn=1, last_lsn=last).lsns) == last
        assert len(read_all(log, None, first_lsn=1, last_lsn=last).lsns) == last
        with log.consumer("earliest", end_lsn=last, replica=reader) as consumer:
            assert sum(len(batch) for batch in consumer.batches()) == last
        assert log.admin.watermarks(replica=reader).visible_lsn == last
        with pytest.raises(logstore.LogStoreError):
            hasty.admin.watermarks(replica=reader, linearizable=True)
        with pytest.raises(logstore.LogStoreError):
            hasty.producer(SHORT)
        cluster.resume(leader)
        cluster.resume(other)
    assert poll_until(lambda: bool(cluster.leader()), RECOVERY_TIMEOUT_S)
    with Load(cluster) as load:
        load.wait_for_progress(10)
    load.assert_kept()


def test_a_follower_serves_reads_while_the_leader_is_stopped(cluster: QuickCluster) -> None:
    with Load(cluster) as load:
        leader = cluster.wait_for_leader()
        cluster.pause(leader)
        followers = [node for node in cluster.nodes if node != leader]
        with logstore.connect(cluster.endpoints, timeout=20) as log:
            for node in followers:
                shown = cluster.visible_lsn(node)
                delivered = read_all(log, node, first_lsn=load.base_lsn + 1, last_lsn=shown)
                assert len(delivered.lsns) == shown - load.base_lsn
        load.wait_for_progress(10)
        cluster.resume(leader)
    load.assert_kept()
