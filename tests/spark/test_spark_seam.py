"""A range across a lake and a log: who gives which LSNs, and the rows that come of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import logstore
from logstore.cli.embedded import EmbeddedCluster
from logstore.cli.main import main
from logstore.errors import InvalidRequest, OutOfRange, WrongCluster
from logstore.spark import read_log
from logstore.spark.lake import LakeWriter, data_path
from logstore.spark.seam import Range, Seam, plan_seam
from tests.spark.lakes import append_some, archive_once, damage_payloads, lend
from tests.spark.refusals import failure_of
from tests.spark.rows import NAMES, append, expected, lsns_of, rows_of


@pytest.mark.parametrize(
    ("lake", "log", "first", "last", "wanted"),
    [
        ((1, 50), (1, 90), None, None, Seam((1, 50), (51, 90))),
        ((1, 50), (30, 90), None, None, Seam((1, 50), (51, 90))),
        ((1, 50), (51, 90), 10, 60, Seam((10, 50), (51, 60))),
        ((1, 50), (51, 90), 10, 50, Seam((10, 50), None)),
        ((1, 50), (51, 90), 51, 60, Seam(None, (51, 60))),
        ((1, 50), (1, 50), 7, None, Seam((7, 50), None)),
        ((20, 50), (1, 90), 10, 60, Seam(None, (10, 60))),
        ((20, 50), (1, 90), 20, None, Seam((20, 50), (51, 90))),
        ((1, 50), None, None, None, Seam((1, 50), None)),
        (None, (5, 9), None, None, Seam(None, (5, 9))),
        ((5, 4), (5, 4), None, None, Seam(None, None)),
        ((5, 4), (5, 8), None, None, Seam(None, (5, 8))),
        (None, (5, 9), 10, None, Seam(None, None)),
    ],
)
def test_the_lake_gives_what_it_has_and_the_log_the_rest(
    lake: Range | None, log: Range | None, first: int | None, last: int | None, wanted: Seam
) -> None:
    assert plan_seam(lake, log, first, last) == wanted


@pytest.mark.parametrize(
    ("lake", "log", "first", "last"),
    [
        ((1, 50), (52, 90), None, None),
        ((1, 50), (51, 90), None, 91),
        ((10, 50), (20, 90), 5, 60),
        ((1, 50), None, 1, 51),
        (None, (5, 9), 4, 9),
        ((1, 50), (70, 90), 60, 80),
    ],
)
def test_a_range_that_neither_has_is_refused_with_what_they_have(
    lake: Range | None, log: Range | None, first: int | None, last: int | None
) -> None:
    with pytest.raises(OutOfRange, match="has LSNs"):
        plan_seam(lake, log, first, last)


def test_no_source_and_no_range_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="give a lake"):
        plan_seam(None, None, None, None)
    with pytest.raises(InvalidRequest, match="give 1 <= first"):
        plan_seam((1, 50), None, 9, 7)


def test_rows_across_the_seam_are_those_of_the_log(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    append_some(log)
    seam = archive_once(spark, cluster, tmp_path, "seam").next_lsn
    _, last = append(log, [b"after", b"it"], [b"x" * 999])
    wanted = expected(log, seam - 20, last)
    endpoints = ",".join(cluster.endpoints)
    frame = read_log(spark, lake=str(tmp_path), endpoints=endpoints, first_lsn=seam - 20)
    assert frame.columns == list(NAMES)
    assert rows_of(frame) == wanted
    lake_only = read_log(spark, lake=str(tmp_path), first_lsn=seam - 20, last_lsn=seam - 1)
    assert rows_of(lake_only) == wanted[:20]
    unreachable = read_log(
        spark, lake=str(tmp_path), endpoints="127.0.0.1:9", first_lsn=seam - 3, last_lsn=seam - 1
    )
    assert lsns_of(unreachable) == [seam - 3, seam - 2, seam - 1]
    assert lsns_of(read_log(spark, endpoints=endpoints, first_lsn=last)) == [last]
    assert read_log(spark, endpoints=endpoints, first_lsn=last + 1).count() == 0
    two = read_log(spark, lake=str(tmp_path), endpoints=endpoints, columns=["payload", "lsn"])
    assert two.columns == ["payload", "lsn"]
    assert rows_of(two.where(f"lsn > {seam - 3}")) == [
        (row[1], row[0]) for row in wanted if row[0] > seam - 3
    ]
    with pytest.raises(InvalidRequest, match="columns size: give some of lsn, payload"):
        read_log(spark, lake=str(tmp_path), columns=["lsn", "size"])
    with pytest.raises(OutOfRange):
        read_log(spark, lake=str(tmp_path), last_lsn=last)


def test_a_log_that_is_not_the_lakes_is_refused(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    with LakeWriter(str(tmp_path)) as writer:
        writer.make(cluster_id="0f" * 16, first_lsn=1)
    with pytest.raises(WrongCluster, match="holds nothing of it to compare"):
        read_log(spark, lake=str(tmp_path), endpoints=cluster.endpoints[0])


def test_a_damaged_file_fails_the_read(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    first, last = append(log, [bytes(range(256)) * 40])
    [*_, file] = archive_once(spark, cluster, tmp_path, "damaged").files
    path = Path(data_path(str(tmp_path), file))
    damage_payloads(path)
    frame = read_log(spark, lake=str(tmp_path), first_lsn=first, last_lsn=last)
    assert path.name in failure_of(frame.collect)


def test_the_command_writes_payloads_in_order_or_parquet(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    append_some(log)
    seam = archive_once(spark, cluster, tmp_path / "lake", "printed").next_lsn
    _, last = append(log, [b"after", b"", b"it"])
    lend(monkeypatch, spark, ["read"])
    monkeypatch.setenv("LOGSTORE_ENDPOINT", cluster.endpoints[0])
    call = ["pipeline", "read", "--lake", str(tmp_path / "lake"), "--from", str(seam - 9)]
    capfdbinary.readouterr()
    assert main(call) == 0
    payloads = [row[1] for row in expected(log, seam - 9, last)]
    assert capfdbinary.readouterr().out == b"".join(each + b"\n" for each in payloads)
    assert main([*call, "--to", str(seam), "--raw"]) == 0
    assert capfdbinary.readouterr().out == b"".join(payloads[:10])
    output = tmp_path / "out"
    assert main([*call, "--output", str(output)]) == 0
    assert f"has {last - seam + 10} records" in capfdbinary.readouterr().err.decode()
    assert rows_of(spark.read.parquet(str(output))) == expected(log, seam - 9, last)
    assert main([*call, "--output", str(output)]) == 2
    assert main([*call, "--to", str(last + 1)]) == 4
