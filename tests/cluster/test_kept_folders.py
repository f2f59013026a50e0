"""Folders that an older commit wrote, opened and gone on with by this one."""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from logstore.cli.embedded import EmbeddedCluster, poll_until
from logstore.client.producer_options import ProducerOptions
from logstore.errors import LevelRefused, Unreachable
from logstore.format.level import NEWEST_LEVEL, TRIM_LEVEL
from logstore.model import SequenceMode
from tests.faults.made_up_level import NEW, reading_levels
from tests.kept.kept import BOUND, CLUSTER, kept_cluster, what_was_kept

QUERY_7 = ProducerOptions(name="query-7", mode=SequenceMode.MONOTONE)
TIMEOUT_S = 60.0


def started(name: str, folder: Path) -> EmbeddedCluster:
    cluster = kept_cluster(name, folder)
    cluster.start_all()
    cluster.wait_for_leader()
    return cluster


def test_a_kept_cluster_opens_with_all_it_held_and_goes_on(tmp_path: Path) -> None:
    kept = what_was_kept()
    with (
        started(CLUSTER, tmp_path / "kept") as cluster,
        logstore.connect(cluster.endpoints, timeout=TIMEOUT_S) as log,
    ):
        assert log.admin.commit_lsn() == kept.last_lsn
        assert {each.name: each.lsn for each in log.admin.cursors()} == kept.cursors
        with log.producer(QUERY_7) as producer:
            again = producer.append_batch([b"a", b"retry"], sequence=kept.query_7.sequence)
            assert again.result(TIMEOUT_S) == (kept.query_7.first_lsn, kept.query_7.last_lsn)
            new = producer.append_batch([b"new"], sequence=kept.query_7.sequence + 1)
            assert new.result(TIMEOUT_S).first == kept.last_lsn + 1
        for node in cluster.nodes:
            cluster.wait_until_visible(node, kept.last_lsn + 1)
            found = log.digest(1, kept.last_lsn, replica=node)
            assert (found.hexdigest(), found.batches) == (kept.digest, kept.batches)
        assert log.admin.verify().is_good


@pytest.mark.long
def test_a_kept_cluster_is_trimmed_once_it_is_raised(tmp_path: Path) -> None:
    """It has payloads, so nobody raises it but an operator."""
    kept = what_was_kept()
    with (
        started(CLUSTER, tmp_path / "kept") as cluster,
        logstore.connect(cluster.endpoints, timeout=TIMEOUT_S) as log,
    ):
        with log.producer() as producer:
            for _ in range(4_000):
                producer.append(b"x" * 1_000)
        levels = log.admin.format_levels()
        assert (levels.level, levels.common) == (1, NEWEST_LEVEL)
        with pytest.raises(LevelRefused, match="level 1: run `logstore upgrade` first"):
            log.admin.trim(kept.last_lsn)
        assert log.admin.raise_level(TRIM_LEVEL) == TRIM_LEVEL
        for name in kept.cursors:
            log.admin.set_cursor(name, kept.last_lsn)
        first = log.admin.trim(kept.last_lsn)
        assert 1 < first <= kept.last_lsn
        assert log.admin.verify().is_good


@pytest.mark.long
def test_a_kept_cluster_is_raised_to_a_newer_level_and_refused_by_this_version_then(
    tmp_path: Path,
) -> None:
    """SAFETY S11: what was written before logs had levels is at level 1."""
    kept = what_was_kept()
    with (
        kept_cluster(CLUSTER, tmp_path / "kept") as cluster,
        logstore.connect(cluster.endpoints, timeout=TIMEOUT_S) as log,
    ):
        for _ in range(2):  # as it was, and raised
            with reading_levels(NEW, tmp_path):
                cluster.start_all()
            cluster.wait_for_leader()
            assert poll_until(
                lambda: set(log.admin.format_levels().newest_levels.values()) == {NEW}, TIMEOUT_S
            )
            levels = log.admin.format_levels()
            for node in cluster.nodes:
                cluster.wait_until_visible(node, kept.last_lsn)
                found = log.digest(1, kept.last_lsn, replica=node)
                assert (found.hexdigest(), found.batches) == (kept.digest, kept.batches)
            assert log.admin.verify().is_good
            assert {each.name: each.lsn for each in log.admin.cursors()} == kept.cursors
            while levels.level < NEW:
                assert log.admin.raise_level(levels.level + 1) == levels.level + 1
                levels = log.admin.format_levels()
            assert poll_until(
                lambda: all(cluster.counters(n)["format_level"] == NEW for n in cluster.nodes),
                TIMEOUT_S,
            )
            assert cluster.stop_all()
        cluster.start(1)
        with pytest.raises(Unreachable, match=f"format level {NEW}, this version reads"):
            cluster.wait_for_leader()


def test_a_log_with_a_sequence_that_no_snapshot_holds_opens(tmp_path: Path) -> None:
    with (
        started(BOUND, tmp_path / "kept") as cluster,
        logstore.connect(cluster.endpoints, timeout=TIMEOUT_S) as log,
    ):
        assert log.admin.commit_lsn() == 6
        with log.producer() as producer:
            assert producer.append(b"on it goes").result(TIMEOUT_S).first == 7
