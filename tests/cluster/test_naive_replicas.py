"""Naive replicas, against which figure 7a is measured, write payloads twice and are sound."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import psutil
import pytest

import logstore
from benchmarks.naive import copied_bytes, naive_replicas
from logstore.cli.embedded import EmbeddedCluster, make_small_config
from logstore.format.segment_header import SEGMENT_HEADER_SIZE

pytestmark = pytest.mark.slow
PAYLOADS = [os.urandom(1_024) for _ in range(64)]
BATCHES = 100
APPENDED = BATCHES * sum(map(len, PAYLOADS))


def written_by_writers(cluster: EmbeddedCluster) -> dict[int, int]:
    """By node: bytes that its writer gave to write calls."""
    writers = {node: psutil.Process(cluster.pid_of(node, "writer")) for node in cluster.nodes}
    return {node: writer.io_counters().write_chars for node, writer in writers.items()}


def read(cluster: EmbeddedCluster, node: int, first: int, last: int) -> list[bytes]:
    with logstore.connect(cluster.endpoints) as log:
        return [each for batch in log.read(first, last, replica=node) for each in batch.payloads()]


def second_copy(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.twice")))


@pytest.mark.long
def test_naive_replicas_write_every_payload_twice_and_any_replica_reads_their_log(
    tmp_path: Path,
) -> None:
    with EmbeddedCluster(tmp_path, make_small_config(3, Random())) as cluster:
        with naive_replicas(tmp_path):
            cluster.start_all()
        cluster.wait_for_leader()
        before = written_by_writers(cluster)
        with logstore.connect(cluster.endpoints) as log, log.producer() as producer:
            futures = [producer.append_batch(PAYLOADS) for _ in range(BATCHES)]
            ranges = [future.result(60) for future in futures]
        first, last = ranges[0].first, ranges[-1].last
        for node in cluster.nodes:
            cluster.wait_until_visible(node, last)
        after = written_by_writers(cluster)
        for node in cluster.nodes:
            assert 1.9 * APPENDED <= after[node] - before[node] <= 2.1 * APPENDED
            assert read(cluster, node, first, last) == PAYLOADS * BATCHES
        assert cluster.stop_all()

        for node in cluster.nodes:
            copy = second_copy(cluster.node_folder(node))
            assert [copy.count(payload) for payload in PAYLOADS] == [BATCHES] * len(PAYLOADS)
            # as much space as the data files have
            data = cluster.node_folder(node).glob("*.data")
            assert copied_bytes(cluster.node_folder(node)) == sum(
                path.stat().st_size for path in data
            )
            assert copy[:SEGMENT_HEADER_SIZE] == bytes(SEGMENT_HEADER_SIZE)

        cluster.start_all()  # with the disk that ships
        cluster.wait_for_leader()
        for node in cluster.nodes:
            cluster.wait_until_visible(node, last)
            assert read(cluster, node, first, last) == PAYLOADS * BATCHES


def test_replicas_that_are_not_naive_have_no_second_copy(tmp_path: Path) -> None:
    with EmbeddedCluster(tmp_path, make_small_config(1, Random())) as cluster:
        with naive_replicas(tmp_path):
            pass
        cluster.start_all()
        cluster.wait_for_leader()
        assert copied_bytes(cluster.node_folder(1)) == 0
