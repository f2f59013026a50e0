"""Watching a replica's bounds: asked, waited for by the replica, moved on from a dead one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import logstore
from logstore.errors import ErrorCode
from logstore.format.client_messages import ErrorReply, WatermarksReply, WatermarksRequest
from tests.unit.client_stage import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=2) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[logstore.LogClient]:
    with logstore.connect(cluster.endpoint, timeout=20) as client:
        yield client


def test_the_replica_is_asked_to_wait_for_the_lsn_after(
    client: logstore.LogClient, cluster: Cluster
) -> None:
    asked: list[WatermarksRequest] = []
    cluster.replicas[2].on[WatermarksRequest] = lambda request: (
        asked.append(request) or WatermarksReply(3, 9)
    )
    with client.watch(replica=2) as watch:
        assert (watch.now().log_start_lsn, watch.now().visible_lsn) == (3, 9)
        assert watch.wait_beyond(8, 0.2).visible_lsn == 9
    assert asked[-1] == WatermarksRequest(9, 200, False)


def test_no_news_is_what_there_was(client: logstore.LogClient, cluster: Cluster) -> None:
    cluster.replicas[1].on[WatermarksRequest] = lambda request: (
        ErrorReply(ErrorCode.TIMED_OUT, 0, 1, 4, b"") if request.min_lsn else WatermarksReply(1, 4)
    )
    with client.watch(replica=1) as watch:
        assert watch.wait_beyond(4, 0.01).visible_lsn == 4


def test_a_closed_client_closes_its_watches(client: logstore.LogClient) -> None:
    watch = client.watch()
    assert watch.now().visible_lsn == 0
    client.close()
    assert watch.is_closed


@pytest.mark.slow
def test_another_replica_tells_when_one_is_gone(
    client: logstore.LogClient, cluster: Cluster
) -> None:
    with client.watch() as watch:
        gone = watch.now().node
        cluster.replicas[gone].stop()
        assert watch.wait_beyond(0, 0.01).node != gone
