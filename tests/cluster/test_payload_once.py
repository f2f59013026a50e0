"""Payload bytes are written to a replica's disk once (P8)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import logstore
from logstore.cli.embedded import poll_until
from tests.cluster.one_cluster import running_cluster

BATCHES = 150
DISK_BYTES = ("disk_bytes_data", "disk_bytes_raft", "disk_bytes_meta")
ACKNOWLEDGED = "payload_bytes_acknowledged"


@pytest.mark.slow
@pytest.mark.promise("P8")
def test_the_leader_writes_at_most_three_per_cent_more_than_the_payloads(tmp_path: Path) -> None:
    payloads = [os.urandom(1024) for _ in range(64)]
    with running_cluster(tmp_path) as cluster:
        leader = cluster.wait_for_leader()
        before = cluster.counters(leader)
        with logstore.connect(cluster.endpoints) as log, log.producer() as producer:
            for future in [producer.append_batch(payloads) for _ in range(BATCHES)]:
                last = future.result(30).last
        # The followers' disks may be ahead of the leader's.
        cluster.wait_until_visible(leader, last)
        expected = BATCHES * 64 * 1024

        def acknowledged() -> int:
            return cluster.counters(leader)[ACKNOWLEDGED] - before[ACKNOWLEDGED]

        assert poll_until(lambda: acknowledged() >= expected, 10)
        after = cluster.counters(leader)
        written = sum(after[name] - before[name] for name in DISK_BYTES)
        assert 1.0 < written / expected <= 1.03
