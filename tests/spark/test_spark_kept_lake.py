"""A lake that commit 5f87717 wrote, before a manifest named the bytes of its files: it opens, is
read, audited, added to by its own cluster, restored and replayed. The tests follow one another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest
from pyspark.sql import SparkSession

import logstore
from logstore.cli.embedded import EmbeddedCluster, make_small_config
from logstore.spark import read_log
from logstore.spark.audit import run_audit
from logstore.spark.audit_sources import Lake, Replica
from logstore.spark.lake import MANIFEST, read_manifest
from logstore.spark.replay import Replay, ReplayOptions
from logstore.spark.restore import Restore
from tests.kept.kept import CLUSTER, LAKE, kept_cluster, unpack, what_was_kept
from tests.spark.lakes import archive_once, digest_of
from tests.spark.rows import append, expected, rows_of

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """The cluster that the lake was archived from."""
    with kept_cluster(CLUSTER, tmp_path_factory.mktemp("kept") / CLUSTER) as running:
        running.start_all()
        running.wait_for_leader()
        yield running


@pytest.fixture(scope="module")
def kept_log(kept: EmbeddedCluster) -> Iterator[logstore.LogClient]:
    with logstore.connect(kept.endpoints, timeout=TIMEOUT_S) as client:
        yield client


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(LAKE, tmp_path_factory.mktemp("lake") / LAKE)


def audit(spark: SparkSession, kept: EmbeddedCluster, folder: Path) -> None:
    endpoints = ",".join(kept.endpoints)
    sources = [Lake(str(folder)), *(Replica(endpoints, node, TIMEOUT_S) for node in kept.nodes)]
    found = run_audit(
        lambda: spark, sources, first_lsn=None, last_lsn=None, bucket=50, on_tasks=lambda *_: None
    )
    assert (found.findings, found.unanswered) == ([], {})
    assert found.verdicts[0].payloads == read_manifest(str(folder)).next_lsn - 1


def test_it_is_read_and_agrees_with_its_log(
    spark: SparkSession, kept: EmbeddedCluster, kept_log: logstore.LogClient, folder: Path
) -> None:
    told = what_was_kept()
    assert digest_of(folder).hexdigest() == told.digest
    rows = rows_of(read_log(spark, lake=str(folder)))
    assert rows == expected(kept_log, 1, told.last_lsn)
    audit(spark, kept, folder)


def test_its_cluster_adds_to_it_and_leaves_what_is_there(
    spark: SparkSession, kept: EmbeddedCluster, kept_log: logstore.LogClient, folder: Path
) -> None:
    lines = (folder / MANIFEST).read_bytes().splitlines()[1:]
    first, last = append(kept_log, [b"new", b""], [b"x" * 900] * 3)
    found = archive_once(spark, kept, folder, "lake")
    assert (found.files[len(lines)].first_lsn, found.next_lsn) == (first, last + 1)
    now = (folder / MANIFEST).read_bytes().splitlines()
    assert now[0].startswith(b'{"lake":2,')
    assert now[1 : len(lines) + 1] == lines
    assert [bool(file.file_digest) for file in found.files] == [
        number >= len(lines) for number in range(len(found.files))
    ]
    assert rows_of(read_log(spark, lake=str(folder))) == expected(kept_log, 1, last)
    audit(spark, kept, folder)


def test_it_is_restored(
    spark: SparkSession,
    kept_log: logstore.LogClient,
    folder: Path,
    tmp_path: Path,
) -> None:
    config = make_small_config(1, Random())
    config = msgspec.structs.replace(
        config, cluster=msgspec.structs.replace(config.cluster, auto_init=False)
    )
    with EmbeddedCluster(tmp_path, config) as fresh:
        fresh.start_all()
        manifest = read_manifest(str(folder))
        work = Restore(str(folder), manifest, 1)
        found = work.run(
            lambda: spark, fresh.endpoints[0], timeout_s=TIMEOUT_S, on_bytes=lambda _: None
        )
    assert (found.first_lsn, found.last_lsn) == (1, manifest.next_lsn - 1)
    assert found.imported_batches == sum(file.batches for file in manifest.files)


def test_it_is_replayed(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    kept_log: logstore.LogClient,
    folder: Path,
) -> None:
    before = log.admin.commit_lsn()
    options = ReplayOptions(
        lake=str(folder), source=None, target=",".join(cluster.endpoints), name="kept",
        first_lsn=None, timeout_s=TIMEOUT_S,
    )  # fmt: skip
    work = Replay(lambda: spark, options)
    chunks = list(work.chunks(work.last_lsn))
    assert chunks[-1].last_lsn == work.last_lsn
    wanted = [row[1] for row in expected(kept_log, 1, work.last_lsn)]
    found = [row[1] for row in expected(log, before + 1, log.admin.commit_lsn())]
    assert found == wanted
