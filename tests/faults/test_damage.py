"""Damaged files: torn tails are discarded, flipped bytes are found, named and never served
(SAFETY sections 4 and 5; FAULTS D2, D7, D18, D21).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import logstore
from logstore.cli.embedded import poll_until
from logstore.errors import CorruptData, NotReady, Unreachable
from tests.cluster.one_cluster import run_cli
from tests.faults import damage
from tests.faults.ledger import Load, read_all
from tests.faults.quick_cluster import (
    RECOVERY_TIMEOUT_S,
    QuickCluster,
    quick_cluster,
    quick_config,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]
DAMAGED = 5
TAIL, SEALED = -1, 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickCluster]:
    """A cluster whose log has sealed segments on every replica."""
    folder = tmp_path_factory.mktemp("damage")
    config = quick_config(segment="1MiB")
    manual = msgspec.structs.replace(config.cluster, replace_lost="manual")
    with quick_cluster(folder, msgspec.structs.replace(config, cluster=manual)) as started:
        started.wait_for_first_configuration()
        with Load(started, payload_bytes_max=900) as load:
            assert poll_until(
                lambda: all(len(_entries(started, node)) >= 3 for node in started.nodes),
                RECOVERY_TIMEOUT_S,
            )
            load.wait_for_progress(20)
        load.assert_kept()
        yield started


def _entries(cluster: QuickCluster, node: int) -> list[list[damage.Entry]]:
    """Of each segment that holds payloads: the first may be full before the first batch."""
    segments = damage.segments(cluster.node_folder(node))
    return [entries for entries in segments if any(entry.kind == "DATA" for entry in entries)]


def _status_row(log: logstore.LogClient, node: int) -> dict[str, Any]:
    rows = {row["node"]: row for row in log.admin.status()["nodes"]}
    return dict(rows[node])


def _is_not_ready(cluster: QuickCluster, node: int) -> bool:
    """Whether the replica refuses a read; on a slow machine it may not answer within the second."""
    with logstore.connect(cluster.endpoints, timeout=1) as hasty:
        try:
            hasty.admin.watermarks(replica=node)
        except (NotReady, Unreachable) as error:
            return isinstance(error, NotReady)
    raise AssertionError(f"node {node} answers a read without its META")


@pytest.mark.long
@pytest.mark.promise("P9")
def test_torn_tails_on_all_replicas_are_discarded_and_nothing_acknowledged_is_lost(
    cluster: QuickCluster,
) -> None:
    with Load(cluster) as load:
        load.wait_for_progress(20)
    assert cluster.stop_all()
    first, second, third = (cluster.node_folder(node) for node in cluster.nodes)
    damage.tear_behind_last_frame(first, bytes(512) + b"\xa5" * 3_000)
    damage.tear_half_a_frame(second)
    damage.tear_half_a_record(third)
    cluster.start_all()
    load.assert_kept()
    with Load(cluster) as after:
        after.wait_for_progress(5)
    after.assert_kept()


def _assert_found_and_not_served(
    cluster: QuickCluster, node: int, entry: damage.Entry, others: list[int]
) -> None:
    """The replica names the LSNs, refuses them, serves all others; the other replicas go on."""
    with logstore.connect(cluster.endpoints, timeout=20) as log:
        last = log.admin.commit_lsn()
        cluster.wait_until_visible(node, last, RECOVERY_TIMEOUT_S)
        with pytest.raises(CorruptData):
            list(log.read(entry.first_lsn, entry.last_lsn, replica=node))
        before = read_all(log, node, first_lsn=1, last_lsn=entry.first_lsn - 1)
        behind = read_all(log, node, first_lsn=entry.last_lsn + 1, last_lsn=last)
        assert len(before.lsns) + entry.count + len(behind.lsns) == last, "something is truncated"
        for whole in (None, *others):
            assert len(read_all(log, whole, first_lsn=1, last_lsn=last).lsns) == last
        _assert_named(log, node, entry)
    assert run_cli(cluster, "verify").returncode == DAMAGED
    inspected = run_cli(None, "inspect", "record", str(entry.path), "--json", "-")
    assert inspected.returncode == DAMAGED
    rows = [json.loads(line) for line in inspected.stdout.splitlines()]
    assert [row["first_lsn"] for row in rows if row["fault"]] == [entry.first_lsn]


def _assert_named(log: logstore.LogClient, node: int, entry: damage.Entry) -> None:
    """By `status` and by `verify`."""
    lsns = (entry.first_lsn, entry.last_lsn)

    def named() -> bool:
        faulty = _status_row(log, node)["faulty"]
        return [(row["first_lsn"], row["last_lsn"]) for row in faulty] == [lsns]

    assert poll_until(named, RECOVERY_TIMEOUT_S), log.admin.status()
    verification = log.admin.verify()
    assert verification.chains_equal
    for replica in verification.replicas:
        found = [(row["first_lsn"], row["last_lsn"]) for row in replica.faulty]
        assert found == ([lsns] if replica.node == node else []), verification


@pytest.mark.long
@pytest.mark.parametrize("segment", [TAIL, SEALED], ids=["tail", "sealed"])
@pytest.mark.promise("P9")
def test_a_flipped_byte_on_a_stopped_follower_is_named_and_never_served(
    cluster: QuickCluster, segment: int
) -> None:
    with Load(cluster) as load:
        load.wait_for_progress(20)
    load.assert_kept()
    node = cluster.followers()[0]
    others = [other for other in cluster.nodes if other != node]
    assert cluster.stop(node)
    entry = damage.middle_data_entry(_entries(cluster, node)[segment])
    with damage.flipped(entry.path, entry.body_middle):
        cluster.start(node)
        _assert_found_and_not_served(cluster, node, entry, others)
        with Load(cluster, others) as load:
            load.wait_for_progress(5)
        assert cluster.stop(node)
    cluster.start(node)
    load.assert_kept()


@pytest.mark.long
@pytest.mark.parametrize("segment", [TAIL, SEALED], ids=["tail", "sealed"])
@pytest.mark.promise("P9")
def test_a_flipped_byte_on_the_running_leader_is_named_and_never_served(
    cluster: QuickCluster, segment: int
) -> None:
    with Load(cluster) as load:
        load.wait_for_progress(20)
    load.assert_kept()
    node = cluster.wait_for_leader()
    others = [other for other in cluster.nodes if other != node]
    entry = damage.middle_data_entry(_entries(cluster, node)[segment])
    with damage.flipped(entry.path, entry.body_middle):
        _assert_found_and_not_served(cluster, node, entry, others)
        with Load(cluster, others) as load:
            load.wait_for_progress(5)
        # leadership includes the disk (Q3): it goes to a replica without damage
        assert poll_until(lambda: cluster.leader() in others, RECOVERY_TIMEOUT_S)
        assert cluster.stop(node)
    cluster.start(node)
    load.assert_kept()


@pytest.mark.long
@pytest.mark.promise("P9")
def test_a_replica_without_meta_stays_out_and_says_so(cluster: QuickCluster) -> None:
    node = cluster.followers()[0]
    others = [other for other in cluster.nodes if other != node]
    assert cluster.stop(node)
    folder = cluster.node_folder(node)
    with damage.flipped(folder / "meta.a", 100), damage.flipped(folder / "meta.b", 100):
        cluster.start(node)
        with (
            Load(cluster, others) as load,
            logstore.connect(cluster.endpoints, timeout=20) as log,
        ):
            assert poll_until(
                lambda: "meta.a and meta.b" in _status_row(log, node).get("damage", ""),
                RECOVERY_TIMEOUT_S,
            ), log.admin.status()
            row = _status_row(log, node)
            assert row["role"] == "none"
            assert not row["is_ready"]
            load.wait_for_progress(5)
            assert poll_until(lambda: _is_not_ready(cluster, node), RECOVERY_TIMEOUT_S)
        assert cluster.stop(node)
    cluster.start(node)
    load.assert_kept()


@pytest.mark.long
def test_a_replica_that_lost_its_disk_has_no_place_without_an_operator_and_says_so(
    cluster: QuickCluster,
) -> None:
    """It may have voted in a term that the others do not remember (SAFETY L1), and the
    configuration leaves its place to operators (L5)."""
    node = cluster.followers()[0]
    others = [other for other in cluster.nodes if other != node]
    assert cluster.stop(node)
    folder = cluster.node_folder(node)
    kept = folder.rename(folder.with_name("kept"))
    cluster.start(node)
    with Load(cluster, others) as load, logstore.connect(cluster.endpoints, timeout=20) as log:
        assert poll_until(
            lambda: "replace_lost is manual" in _status_row(log, node).get("refusal", ""),
            RECOVERY_TIMEOUT_S,
        ), log.admin.status()
        row = _status_row(log, node)
        assert (row["state"], row["role"]) == ("learner", "none")
        load.wait_for_progress(5)
    assert cluster.stop(node)
    shutil.rmtree(folder)
    kept.rename(folder)
    cluster.start(node)
    load.assert_kept()
