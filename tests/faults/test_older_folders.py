"""An older copy of a data folder is put back: its replica finds out from the others, takes no
further part, and says why and what to do, while they go on (SAFETY L6, L7; FAULTS D14, D19, O4).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.cli.embedded import poll_until
from logstore.cli.trouble import trouble_of
from logstore.storage.disk import RealDisk
from logstore.storage.meta_store import newest_meta
from logstore.storage.peer_starts_file import PeerStartsFile
from tests.cluster.one_cluster import run_cli
from tests.faults.damage import META_NAMES
from tests.faults.quick_cluster import (
    RECOVERY_TIMEOUT_S,
    QuickCluster,
    quick_cluster,
    quick_config,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QuickCluster]:
    with quick_cluster(tmp_path, quick_config()) as started:
        started.visible_everywhere()
        yield started


def append(cluster: QuickCluster, count: int) -> int:
    """Append so many payloads; the last LSN."""
    with logstore.connect(cluster.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
        with log.producer() as producer:
            for number in range(count):
                producer.append(b"payload %d" % number)
        return log.admin.commit_lsn()


def status_of(cluster: QuickCluster, node: int) -> dict[str, Any]:
    with logstore.connect(cluster.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
        rows = log.admin.status()["nodes"]
    return next(row for row in rows if row["node"] == node)


def wait_until_it_says_why(cluster: QuickCluster, node: int) -> str:
    def has_said() -> bool:
        return "amnesia" in trouble_of(status_of(cluster, node))

    assert poll_until(has_said, RECOVERY_TIMEOUT_S), cluster.said()
    row = status_of(cluster, node)
    assert row["role"] == "none"
    return trouble_of(row)


def wait_until_others_have_seen(cluster: QuickCluster, node: int) -> None:
    """The present start of `node`, durably."""
    meta = newest_meta(RealDisk(), str(cluster.node_folder(node)))
    assert meta is not None
    start = (meta.replica_uuid, meta.boot_counter)

    def have_seen() -> bool:
        files = [
            PeerStartsFile(RealDisk(), str(cluster.node_folder(other))).load()
            for other in cluster.nodes
            if other != node
        ]
        return all(start in [(row.replica_uuid, row.boot) for row in rows] for rows in files)

    assert poll_until(have_seen, RECOVERY_TIMEOUT_S), cluster.said()


def copied(folder: Path, kept: Path) -> Path:
    shutil.copytree(folder, kept, symlinks=True, ignore=shutil.ignore_patterns("counters"))
    return kept


@pytest.mark.long
def test_a_folder_put_back_after_it_was_started_again_is_recognised(
    cluster: QuickCluster, tmp_path: Path
) -> None:
    node = cluster.followers()[0]
    folder = cluster.node_folder(node)
    assert cluster.stop(node)
    kept = copied(folder, tmp_path / "kept")
    cluster.start(node)  # from now on the others have seen this start
    last = append(cluster, 3)
    cluster.wait_until_visible(node, last, RECOVERY_TIMEOUT_S)
    wait_until_others_have_seen(cluster, node)
    assert cluster.stop(node)
    shutil.rmtree(folder)
    copied(kept, folder)

    cluster.start(node)
    said = wait_until_it_says_why(cluster, node)
    assert "has seen another start" in said or "are gone, which this replica had flushed" in said
    assert f"`logstore reset --node {node}` moves its folder aside" in said
    assert append(cluster, 3) > last
    assert cluster.wait_for_leader() != node

    cluster.kill(node)  # META keeps it
    cluster.start(node)
    assert wait_until_it_says_why(cluster, node) == said
    assert cluster.stop(node)
    done = run_cli(None, "reset", "--node", str(node), "--dir", str(folder))
    assert done.returncode == 0, done.stderr
    assert not folder.exists()


@pytest.mark.long
def test_an_older_meta_that_is_put_back_is_recognised_though_the_log_is_whole(
    cluster: QuickCluster, tmp_path: Path
) -> None:
    """FAULTS D19: it may hold an older vote. Two starts later the boot counter alone shows it."""
    node = cluster.followers()[0]
    folder = cluster.node_folder(node)
    assert cluster.stop(node)
    for name in META_NAMES:
        shutil.copy2(folder / name, tmp_path / name)
    for _ in range(2):
        cluster.start(node)
        cluster.wait_until_visible(node, append(cluster, 1), RECOVERY_TIMEOUT_S)
        wait_until_others_have_seen(cluster, node)
        assert cluster.stop(node)
    for name in META_NAMES:
        shutil.copy2(tmp_path / name, folder / name)
    cluster.start(node)
    said = wait_until_it_says_why(cluster, node)
    assert "by its data folder, but node" in said
    assert append(cluster, 1)


@pytest.mark.long
def test_replicas_that_are_stopped_and_killed_again_and_again_have_forgotten_nothing(
    cluster: QuickCluster,
) -> None:
    for round_ in range(2):
        for node in cluster.nodes:
            if round_:
                cluster.kill(node)
            else:
                assert cluster.stop(node)
            cluster.start(node)
            cluster.wait_until_visible(node, append(cluster, 1), RECOVERY_TIMEOUT_S)
    assert [trouble_of(status_of(cluster, node)) for node in cluster.nodes] == ["", "", ""]
