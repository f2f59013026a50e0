"""Trims on real replicas: space is given back on each, and what is gone is told."""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from logstore.cli.embedded import poll_until
from logstore.errors import OutOfRange
from tests.faults.quick_cluster import (
    RECOVERY_TIMEOUT_S,
    QuickCluster,
    quick_cluster,
    quick_config,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PAYLOADS = 8_000
PAYLOAD = b"x" * 1_000


def segments(cluster: QuickCluster, node: int) -> int:
    """Files of segments in a replica's folder, a prepared pair included."""
    paths = cluster.node_folder(node).rglob("*")
    return len([path for path in paths if path.suffix in (".data", ".raft")])


def append(log: logstore.LogClient) -> None:
    with log.producer() as producer:
        for _ in range(PAYLOADS):
            producer.append(PAYLOAD)


@pytest.mark.long
def test_space_is_given_back_and_a_start_keeps_to_the_log_start(tmp_path: Path) -> None:
    with (
        quick_cluster(tmp_path, quick_config()) as cluster,
        logstore.connect(cluster.endpoints, timeout=RECOVERY_TIMEOUT_S) as log,
    ):
        append(log)
        last = cluster.visible_everywhere()
        before = {node: segments(cluster, node) for node in cluster.nodes}
        with pytest.raises(OutOfRange, match="no more is committed") as refused:
            log.admin.trim(last + 2)
        assert refused.value.last == last + 1
        highest = last - 100
        log.admin.set_cursor("archive", 3_000, hold=True)
        with pytest.raises(OutOfRange, match="'archive' holds what follows") as held:
            log.admin.trim(highest)
        assert held.value.last == 3_000
        log.admin.delete_cursor("archive")
        first = log.admin.trim(highest)
        assert log.admin.trim(first) == first, "again changes nothing"
        for node in cluster.nodes:
            check_space(cluster, node, before[node])

        cluster.kill_all()
        cluster.visible_everywhere()
        for node in cluster.nodes:
            with pytest.raises(OutOfRange) as gone:
                list(log.read(first - 1, last, replica=node))
            assert gone.value.first == first
            read = sum(len(each.payloads()) for each in log.read(first, last, replica=node))
            assert read == last - first + 1
        with pytest.raises(OutOfRange):
            log.admin.set_cursor("archive", first - 1, hold=True)


def check_space(cluster: QuickCluster, node: int, before: int) -> None:
    """Two pairs at least are gone within moments."""
    is_given_back = poll_until(lambda: segments(cluster, node) <= before - 4, RECOVERY_TIMEOUT_S)
    assert is_given_back, f"node {node} keeps {segments(cluster, node)} of {before} files"
