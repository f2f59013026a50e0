"""A cluster is brought to a newer version node by node, under load, and then to its format level
(SAFETY S11). The newer version is this one with a made-up level.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.cli.embedded import CONFIG_NAME, poll_until
from logstore.errors import LevelRefused
from logstore.format.level import COMPRESSION_LEVEL, NEW_LOG_LEVEL, NEWEST_LEVEL
from logstore.storage.disk import RealDisk
from logstore.storage.meta_store import newest_meta
from tests.cluster.one_cluster import run_cli
from tests.faults.ledger import Load, log_of
from tests.faults.made_up_level import NEW, OLD, reading_levels
from tests.faults.quick_cluster import (
    RECOVERY_TIMEOUT_S,
    QuickCluster,
    quick_cluster,
    quick_config,
)
from tests.unit.compressed_batches import TEXT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
REFUSED = 4
NO_USE_IN_TRYING_AGAIN = 78
TOO_NEW = f"at format level {NEW}, this version reads levels up to {OLD}: start a newer version"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QuickCluster]:
    with quick_cluster(tmp_path, quick_config()) as started:
        yield started


def start(cluster: QuickCluster, node: int, *, newest: int) -> None:
    with reading_levels(newest, cluster.folder):
        cluster.start(node)


def upgrade(cluster: QuickCluster, *options: str) -> tuple[int, dict[str, Any]]:
    """`logstore upgrade`: its exit status, and what it found."""
    done = run_cli(cluster, "upgrade", "--json", "-", *options)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"said": done.stderr}


def status_of(cluster: QuickCluster, node: int) -> dict[str, Any]:
    with logstore.connect(cluster.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
        rows = log.admin.status()["nodes"]
    return next(row for row in rows if row["node"] == node)


def test_a_new_cluster_begins_at_the_level_of_new_logs_and_can_be_trimmed(
    cluster: QuickCluster,
) -> None:
    cluster.wait_for_level(NEW_LOG_LEVEL)
    for node in cluster.nodes:
        meta = newest_meta(RealDisk(), str(cluster.node_folder(node)))
        assert meta is not None
        assert meta.level == NEW_LOG_LEVEL
    status, found = upgrade(cluster, "--check")
    assert (status, found["level"], found["common_level"]) == (0, NEW_LOG_LEVEL, NEWEST_LEVEL)
    with logstore.connect(cluster.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
        assert log.admin.trim(1) == 1


@pytest.mark.long
def test_a_new_cluster_forms_with_an_older_version_in_it_at_the_level_that_this_one_reads(
    tmp_path: Path,
) -> None:
    """It is raised once that one is newer, by an operator; meanwhile it works, but for trims."""
    with QuickCluster(tmp_path, quick_config()) as cluster:
        cluster.start(1)
        cluster.start(2)
        start(cluster, 3, newest=1)
        cluster.wait_for_leader()
        with logstore.connect(cluster.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
            with log.producer() as producer:
                assert producer.append(b"works").result(RECOVERY_TIMEOUT_S).first == 1
            status, found = upgrade(cluster, "--check")
            assert (status, found["level"], found["in_the_way"]) == (REFUSED, 1, [3])
            with pytest.raises(LevelRefused, match="level 1: run `logstore upgrade` first"):
                log.admin.trim(1)
            assert cluster.stop(3)
            cluster.start(3)
            cluster.wait_until_caught_up(3)
            assert poll_until(lambda: upgrade(cluster)[0] == 0, RECOVERY_TIMEOUT_S), cluster.said()
            assert log.admin.trim(1) == 1


@pytest.mark.long
def test_no_compressed_batch_is_taken_before_every_replica_reads_them(tmp_path: Path) -> None:
    """The producer is told what to do, and appends without compression meanwhile."""
    compressing = logstore.ProducerOptions(compression="zstd")
    with QuickCluster(tmp_path, quick_config()) as cluster:
        cluster.start(1)
        cluster.start(2)
        start(cluster, 3, newest=COMPRESSION_LEVEL - 1)
        cluster.wait_for_leader()
        with logstore.connect(cluster.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
            refused = pytest.raises(LevelRefused, match="run `logstore upgrade`")
            with log.producer(compressing) as producer, refused:
                producer.append_batch(TEXT).result(RECOVERY_TIMEOUT_S)
            with log.producer() as producer:
                assert producer.append_batch(TEXT).result(RECOVERY_TIMEOUT_S).first == 1
            assert cluster.stop(3)
            cluster.start(3)
            cluster.wait_until_caught_up(3)
            assert poll_until(lambda: upgrade(cluster)[0] == 0, RECOVERY_TIMEOUT_S), cluster.said()
            with log.producer(compressing) as producer:
                first = producer.append_batch(TEXT).result(RECOVERY_TIMEOUT_S).first
            found = [record.payload for record in log.consumer(1, end_lsn=first + len(TEXT) - 1)]
            assert found == [*TEXT, *TEXT]


@pytest.mark.long
def test_a_cluster_is_upgraded_node_by_node_under_load_and_then_raised(
    cluster: QuickCluster,
) -> None:
    """No append fails. Nothing is raised until all are newer; afterwards no older one starts."""
    cluster.wait_for_level(OLD)
    with Load(cluster) as load:
        assert upgrade(cluster) == (0, {
            "level": OLD, "newest_levels": dict.fromkeys("123", OLD), "common_level": OLD,
            "in_the_way": [],
        })  # fmt: skip
        for node in cluster.nodes:
            status, found = upgrade(cluster, "--check")
            assert (status, found["level"]) == (REFUSED if node > 1 else 0, OLD)
            assert found["in_the_way"] == (list(range(node, 4)) if node > 1 else [])
            assert cluster.stop(node), "the stop needed SIGKILL"
            load.wait_for_progress(5)
            start(cluster, node, newest=NEW)
            cluster.wait_until_caught_up(node)
        assert all(cluster.has_level(node, OLD) for node in cluster.nodes)
        # The leader may not have heard the last one yet: then each asks until it has.
        with ThreadPoolExecutor(2) as operators:
            found = [each.result() for each in [operators.submit(upgrade, cluster) for _ in "12"]]
        assert [status for status, _ in found] == [0, 0], (found, cluster.said())
        load.wait_for_progress(5)
        cluster.wait_for_level(NEW)
        status, found = upgrade(cluster)
        assert (status, found["level"], found["in_the_way"]) == (0, NEW, [])

        stopped = cluster.followers()[0]
        assert cluster.stop(stopped)
        folder = cluster.node_folder(stopped)
        meta = newest_meta(RealDisk(), str(folder))
        assert meta is not None
        assert meta.level == NEW
        files = {path.name: path.read_bytes() for path in folder.glob("*.raft")}
        done = run_cli(
            None, "serve", "--config", str(cluster.folder / CONFIG_NAME), "--node", str(stopped),
            "--dir", str(folder),
        )  # fmt: skip
        said = (done.stdout + done.stderr).decode()
        assert done.returncode == NO_USE_IN_TRYING_AGAIN, said
        assert TOO_NEW in said
        assert "Traceback" not in said
        assert {path.name: path.read_bytes() for path in folder.glob("*.raft")} == files
        assert newest_meta(RealDisk(), str(folder)) == meta
        inspected = run_cli(None, "inspect", "meta", str(folder / "meta.a"))
        assert (inspected.returncode, inspected.stdout) == (REFUSED, b"")
        assert TOO_NEW in inspected.stderr.decode()

        load.wait_for_progress(5)
        start(cluster, stopped, newest=NEW)
        cluster.wait_until_caught_up(stopped)
    load.assert_kept()


@pytest.mark.long
def test_an_older_version_takes_no_entries_of_a_raised_log_and_says_so(
    cluster: QuickCluster,
) -> None:
    """Its own log ends before the entry that raised the level: it read the level when it was asked,
    and is killed before it has written the entry."""
    if "writer" not in cluster.layout(1):
        pytest.skip("its raft must go on while its writer stands still")
    cluster.wait_for_level(OLD)
    with Load(cluster) as load:
        load.wait_for_progress(5)  # an empty log is raised by itself
        for node in cluster.nodes:
            assert cluster.stop(node)
            start(cluster, node, newest=NEW)
            cluster.wait_until_caught_up(node)
        node = cluster.followers()[0]
        writer = cluster.pid_of(node, "writer")
        os.kill(writer, signal.SIGSTOP)
        try:
            assert poll_until(lambda: upgrade(cluster)[0] == 0, RECOVERY_TIMEOUT_S), cluster.said()
        finally:
            cluster.kill(node)
        start(cluster, node, newest=OLD)
        assert poll_until(
            lambda: status_of(cluster, node).get("refused_level") == NEW, RECOVERY_TIMEOUT_S
        ), cluster.said()
        load.wait_for_progress(5)
        status = status_of(cluster, node)
        assert (status["newest_level"], status["level"]) == (OLD, OLD)
        assert (status["faulty"], status["damage"]) == ([], "")
        assert TOO_NEW in log_of(cluster, node)
        shown = run_cli(cluster, "status").stderr.decode()
        assert f"node {node}: takes no entries: the leader's log is {TOO_NEW}" in shown
        assert cluster.stop(node)
        start(cluster, node, newest=NEW)
        cluster.wait_until_caught_up(node)
        assert cluster.has_level(node, NEW)
    load.assert_kept()
