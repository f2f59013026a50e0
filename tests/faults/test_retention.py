"""Retention on real replicas: what exceeds it is given back on each, but what a cursor holds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

import logstore
from actors.ingress.retention import LOOK_EVERY_NS
from logstore.cli.embedded import poll_until
from logstore.errors import OutOfRange
from logstore.limits import KIB, MIB
from logstore.settings import RetentionSettings
from tests.faults.quick_cluster import (
    RECOVERY_TIMEOUT_S,
    QuickCluster,
    quick_cluster,
    quick_config,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
KEPT_BYTES = 4 * MIB
PAYLOADS = 16_000
PAYLOAD = b"x" * 1_000
PAIRS_MAX = 8  # what is kept, the open one, the prepared one, and what has just been sealed


def most_data_files(cluster: QuickCluster) -> int:
    """Of any replica."""
    folders = map(cluster.node_folder, cluster.nodes)
    return max(len(list(folder.rglob("*.data"))) for folder in folders)


def append(log: logstore.LogClient) -> None:
    with log.producer() as producer:
        for _ in range(PAYLOADS):
            producer.append(PAYLOAD)


def start_lsns(cluster: QuickCluster, log: logstore.LogClient) -> list[int]:
    return [log.admin.watermarks(replica=node).log_start_lsn for node in cluster.nodes]


def held_by_leader(log: logstore.LogClient) -> dict[str, Any]:
    """As the leader measured it; {} while no leader does."""
    rows = [row["lag"] for row in log.admin.status()["nodes"] if row.get("lag")]
    held: dict[str, Any] = rows[0]["log"] if len(rows) == 1 else {}
    return held


@pytest.mark.long
def test_the_log_keeps_what_its_retention_says_and_what_a_cursor_holds(tmp_path: Path) -> None:
    config = msgspec.structs.replace(quick_config(), retention=RetentionSettings(bytes="4MiB"))
    with (
        quick_cluster(tmp_path, config) as cluster,
        logstore.connect(cluster.endpoints, timeout=30) as log,
    ):
        log.admin.set_cursor("archive", 1, hold=True)
        append(log)
        time.sleep(3 * LOOK_EVERY_NS / 1e9)
        assert start_lsns(cluster, log) == [1, 1, 1]
        archive = {"name": "archive", "lsn": 1}  # a new leader knows it once it has its table

        def is_all_held() -> bool:
            held = held_by_leader(log)
            return (
                held.get("held_by") == archive
                and held["payloads"] == PAYLOADS
                and held["bytes"] > PAYLOADS * len(PAYLOAD)
            )

        assert poll_until(is_all_held, RECOVERY_TIMEOUT_S)

        log.admin.delete_cursor("archive")
        assert poll_until(lambda: min(start_lsns(cluster, log)) > PAYLOADS // 2, RECOVERY_TIMEOUT_S)
        assert poll_until(lambda: most_data_files(cluster) <= PAIRS_MAX, RECOVERY_TIMEOUT_S)
        # What the lag shows leaves out snapshots of the sessions, which retention counts.
        least_bytes = KEPT_BYTES - 64 * KIB
        assert poll_until(
            lambda: held_by_leader(log).get("bytes", 0) >= least_bytes, RECOVERY_TIMEOUT_S
        )
        with pytest.raises(OutOfRange) as gone:
            next(iter(log.read(1, 10)))
        assert gone.value.first > PAYLOADS // 2
        append(log)  # it goes on by itself
        assert poll_until(lambda: min(start_lsns(cluster, log)) > PAYLOADS, RECOVERY_TIMEOUT_S)
        assert log.admin.verify().is_good
