"""A lake back as a log: a real cluster that is formed for it. The tests follow one another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest
from pyspark.sql import SparkSession

import logstore
from logstore.cli.embedded import EmbeddedCluster
from logstore.cli.main import main
from logstore.errors import CorruptData, InvalidRequest, OutOfRange, WrongCluster
from logstore.spark import read_log, restore
from logstore.spark.lake import data_path, read_manifest
from logstore.spark.restore import Restore
from tests.spark.conftest import small_config
from tests.spark.lakes import append_some, archive_once, damage_payloads, digest_of, lend
from tests.spark.rows import NAMES, append, expected, rows_of

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """Three replicas that nobody has formed."""
    config = small_config()
    config = msgspec.structs.replace(
        config, cluster=msgspec.structs.replace(config.cluster, auto_init=False)
    )
    with EmbeddedCluster(tmp_path_factory.mktemp("fresh"), config) as running:
        running.start_all()
        yield running


@pytest.fixture(scope="module")
def restored(fresh: EmbeddedCluster) -> Iterator[logstore.LogClient]:
    with logstore.connect(fresh.endpoints, timeout=TIMEOUT_S) as client:
        yield client


@pytest.fixture(scope="module")
def folder(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A lake of several files."""
    append_some(log)
    random = Random(5)
    append(log, *[[random.randbytes(random.choice((0, 9, 900)))] * 3 for _ in range(60)])
    append_some(log)
    for compression in ("lz4", "zstd"):
        with log.producer(logstore.ProducerOptions(compression=compression)) as producer:
            producer.append_batch([b"text " * 2_000, b"and more"]).result(TIMEOUT_S)
    found = tmp_path_factory.mktemp("lake")
    assert len(archive_once(spark, cluster, found, "restored").files) > 3
    return found


@pytest.fixture(scope="module")
def first_lsn(folder: Path, log: logstore.LogClient) -> int:
    """In the midst of a file, and of a batch; its batch begins one LSN earlier. Where batches lie
    depends on what other tests have appended before."""
    _, file, after, *_ = read_manifest(str(folder)).files
    batches = list(log.read(file.first_lsn + 1, after.first_lsn - 1))[1:]
    return next(each.first_lsn + 1 for each in batches if each.last_lsn > each.first_lsn)


def test_what_is_not_in_the_lake_cannot_be_restored(folder: Path) -> None:
    manifest = read_manifest(str(folder))
    with pytest.raises(OutOfRange, match="is not in the lake"):
        Restore(str(folder), manifest, manifest.next_lsn)


def test_a_damaged_lake_is_found_before_anything_is_sent(
    spark: SparkSession, fresh: EmbeddedCluster, folder: Path, tmp_path: Path
) -> None:
    manifest = read_manifest(str(folder))
    (tmp_path / "data").mkdir()
    for file in manifest.files:
        copy = Path(data_path(str(tmp_path), file))
        copy.write_bytes(Path(data_path(str(folder), file)).read_bytes())
        if file is manifest.files[-1]:
            damage_payloads(copy)
    work = Restore(str(tmp_path), manifest, 1)
    with pytest.raises(CorruptData, match=manifest.files[-1].name):
        work.run(lambda: spark, fresh.endpoints[0], timeout_s=TIMEOUT_S, on_bytes=lambda _: None)


def test_a_restore_that_is_broken_off_goes_on_and_all_replicas_are_equal_to_the_lake(
    spark: SparkSession,
    fresh: EmbeddedCluster,
    restored: logstore.LogClient,
    folder: Path,
    first_lsn: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest = read_manifest(str(folder))
    work = Restore(str(folder), manifest, first_lsn)
    assert work.first_lsn == first_lsn - 1

    def broken(done_bytes: int) -> None:
        if done_bytes > work.size_bytes // 2:
            raise KeyboardInterrupt

    endpoints = ",".join(fresh.endpoints)
    with pytest.raises(KeyboardInterrupt):
        work.run(lambda: spark, endpoints, timeout_s=TIMEOUT_S, on_bytes=broken)
    told: list[int] = []
    again = Restore(str(folder), manifest, first_lsn)
    found = again.run(lambda: spark, endpoints, timeout_s=TIMEOUT_S, on_bytes=told.append)
    last = manifest.next_lsn - 1
    assert (found.first_lsn, found.last_lsn, found.nodes) == (first_lsn - 1, last, (1, 2, 3))
    assert told[-1] == work.size_bytes
    assert restored.admin.watermarks(linearizable=True).log_start_lsn == first_lsn - 1
    assert restored.admin.commit_lsn() == last


def test_the_digest_is_that_of_the_log_it_comes_from(
    log: logstore.LogClient, restored: logstore.LogClient, folder: Path, first_lsn: int
) -> None:
    last = read_manifest(str(folder)).next_lsn - 1
    for node in (1, 2, 3):
        there = restored.digest(first_lsn - 1, last, replica=node, min_lsn=last)
        assert there.hexdigest() == log.digest(first_lsn - 1, last, min_lsn=last).hexdigest()
    assert restored.cluster_id != log.cluster_id


def test_the_command_finds_nothing_left_to_do(
    spark: SparkSession,
    fresh: EmbeddedCluster,
    folder: Path,
    first_lsn: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lend(monkeypatch, spark, ["restore"])
    call = ["pipeline", "restore", str(folder), "--endpoint", fresh.endpoints[1]]
    assert main([*call, "--from", str(first_lsn)]) == 0
    said = capsys.readouterr().err
    assert f"in a batch that begins at LSN {first_lsn - 1}" in said
    assert "0 batches by this call: nodes 1, 2, 3 hold what the lake does" in said
    assert main(call) == 2, "this cluster's log began elsewhere"


def test_a_replica_that_differs_is_named(
    spark: SparkSession,
    fresh: EmbeddedCluster,
    folder: Path,
    first_lsn: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest = read_manifest(str(folder))
    files = [msgspec.structs.replace(each, digest="0f" * 32) for each in manifest.files]
    work = Restore(str(folder), msgspec.structs.replace(manifest, files=tuple(files)), first_lsn)
    monkeypatch.setattr(restore, "check_lake_files", lambda *_: None)
    with pytest.raises(CorruptData, match=r"node 1, LSNs .* digest 0f0f"):
        work.run(lambda: spark, fresh.endpoints[0], timeout_s=TIMEOUT_S, on_bytes=lambda _: None)


def test_a_range_across_the_seam_begins_below_the_restored_log(
    spark: SparkSession,
    fresh: EmbeddedCluster,
    log: logstore.LogClient,
    restored: logstore.LogClient,
    folder: Path,
) -> None:
    """It is a log like any other now, with producers, and with the old LSNs in the lake."""
    seam = read_manifest(str(folder)).next_lsn
    assert append(restored, [b"new", b"life"]) == (seam, seam + 1)
    frame = read_log(spark, lake=str(folder), endpoints=fresh.endpoints[0])
    places = [NAMES.index(name) for name in ("lsn", "payload", "batch_first_lsn", "producer_id")]
    rows = [[row[place] for place in places] for row in rows_of(frame)]
    wanted = [[row[place] for place in places] for row in expected(log, 1, seam - 1)]
    assert rows[:-2] == wanted
    assert [row[:2] for row in rows[-2:]] == [[seam, b"new"], [seam + 1, b"life"]]


def test_the_lake_is_adopted_by_the_cluster_restored_from_it_and_by_no_other(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    fresh: EmbeddedCluster,
    log: logstore.LogClient,
    restored: logstore.LogClient,
    folder: Path,
) -> None:
    with pytest.raises(WrongCluster, match="--adopt"):
        archive_once(spark, fresh, folder, "adopted")
    seam = read_manifest(str(folder)).next_lsn
    found = archive_once(spark, fresh, folder, "adopted", adopts=True)
    assert found.next_lsn == restored.admin.commit_lsn() + 1
    assert found.newest_cluster_id == restored.cluster_id.hex() != found.cluster_id
    assert archive_once(spark, fresh, folder, "adopted") == found
    digest = digest_of(folder)
    assert digest.last_lsn == seam + 1
    append(log, [b"another", b"history"])
    with pytest.raises(WrongCluster, match="was not restored from this lake"):
        archive_once(spark, cluster, folder, "restored", adopts=True)


def test_a_log_with_producers_of_its_own_is_no_place_to_restore_to(
    spark: SparkSession, cluster: EmbeddedCluster, folder: Path, first_lsn: int
) -> None:
    manifest = read_manifest(str(folder))
    work = Restore(str(folder), manifest, first_lsn)
    with pytest.raises(InvalidRequest):
        work.run(lambda: spark, cluster.endpoints[0], timeout_s=TIMEOUT_S, on_bytes=lambda _: None)
