"""The sink by a real Spark: atomic, once each through retries, replays and kills, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming import StreamingQuery

import logstore
from logstore.cli.embedded import EmbeddedCluster
from logstore.spark import json_payloads, last_commit
from tests.spark.refusals import failure_of
from tests.spark.rows import append, expected
from tests.spark.streams import forget_last_commit, open_stream
from tests.unit.client_stage import free_base_ports

KIB = 1 << 10


def numbers(spark: SparkSession, count: int, partitions: int = 3) -> DataFrame:
    """Payloads "0", "1", … as strings."""
    return spark.range(0, count, 1, partitions).selectExpr("CAST(id AS STRING) AS payload")


def write(frame: DataFrame, cluster: EmbeddedCluster, **options: object) -> None:
    writer = frame.write.format("logstore").mode("append")
    for name, value in {"endpoints": ",".join(cluster.endpoints), **options}.items():
        writer = writer.option(name, value)
    writer.save()


def new_rows(log: logstore.LogClient, after: int) -> list[tuple[Any, ...]]:
    """What has been committed since."""
    last = log.admin.commit_lsn()
    return expected(log, after + 1, last) if last > after else []


def copy(stream: DataFrame, cluster: EmbeddedCluster, checkpoint: Path, **options: object) -> str:
    """Run a stream into the log until it ends; the query's id."""
    query = start_copy(stream, cluster, checkpoint, **options)
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return str(query.id)


def start_copy(
    stream: DataFrame, cluster: EmbeddedCluster, checkpoint: Path, **options: object
) -> StreamingQuery:
    writer = stream.select("payload").writeStream.format("logstore").trigger(availableNow=True)
    given = {"endpoints": ",".join(cluster.endpoints), "checkpointLocation": str(checkpoint)}
    for name, value in (given | options).items():
        writer = writer.option(name, value)
    return writer.start()


def test_a_batch_write_is_one_atomic_batch_in_the_order_of_the_partitions(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    before = log.admin.commit_lsn()
    write(numbers(spark, 100), cluster)
    rows = new_rows(log, before)
    assert [row[1] for row in rows] == [b"%d" % number for number in range(100)]
    assert {(row[3], row[4]) for row in rows} == {(before + 1, 100)}
    binary = spark.createDataFrame([(bytearray(b"\x00\xff"),), (bytearray(),)], "payload BINARY")
    write(binary.coalesce(1), cluster)
    assert [row[1] for row in new_rows(log, before + 100)] == [b"\x00\xff", b""]
    write(spark.createDataFrame([], "payload STRING"), cluster)
    assert log.admin.commit_lsn() == before + 102


def test_a_write_with_a_version_that_the_log_has_changes_nothing(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    before = log.admin.commit_lsn()
    for version, count in ((1, 10), (1, 10), (2, 5), (1, 3)):
        write(numbers(spark, count), cluster, txnAppId="loader", txnVersion=version)
    assert len(new_rows(log, before)) == 15
    found = last_commit(cluster.endpoints[0], "loader")
    assert found is not None
    assert (found.sequence, found.first_lsn, found.last_lsn) == (2, before + 11, before + 15)


def test_a_task_that_failed_and_ran_again_leaves_its_rows_once(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    def fail_at_first(text: str) -> str:
        context = TaskContext.get()
        if context is not None and context.partitionId() == 1 and not context.attemptNumber():
            raise RuntimeError("the first attempt dies")
        return text

    before = log.admin.commit_lsn()
    frame = numbers(spark, 30)
    write(frame.select(udf(fail_at_first, useArrow=False)("payload").alias("payload")), cluster)
    rows = new_rows(log, before)
    assert [row[1] for row in rows] == [b"%d" % number for number in range(30)]


def test_each_micro_batch_is_an_atomic_batch_under_the_querys_id(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    first, last = append(log, [b"%d" % number for number in range(25)])
    stream = open_stream(spark, cluster, startingLsn=first, maxRecordsPerTrigger=10)
    query_id = copy(stream, cluster, tmp_path)
    rows = new_rows(log, last)
    assert [row[1] for row in rows] == [b"%d" % number for number in range(25)]
    assert [row[4] for row in rows] == [10] * 20 + [5] * 5
    found = log.admin.session_commits(query_id)
    assert found is not None
    assert [(each.sequence, len(each)) for each in found.commits] == [(0, 10), (1, 10), (2, 5)]


def test_a_driver_that_died_after_the_sinks_commit_repeats_nothing(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    first, last = append(log, [b"%d" % number for number in range(8)])
    stream = open_stream(spark, cluster, startingLsn=first, maxRecordsPerTrigger=4)
    query_id = copy(stream, cluster, tmp_path)
    committed = last_commit(cluster.endpoints[0], query_id)
    copied = log.admin.commit_lsn()
    assert forget_last_commit(tmp_path) == 1
    limit = append(log, [b"new"])[1]
    # The second run replays batch 1, then copies on: all that the first run has appended, too.
    stream = open_stream(spark, cluster, startingLsn=first, maxRecordsPerTrigger=1_000)
    assert copy(stream, cluster, tmp_path) == query_id
    rows = new_rows(log, last)
    assert [row[1] for row in rows[:8]] == [b"%d" % number for number in range(8)]
    assert rows[8][:2] == (limit, b"new")
    assert [row[1] for row in rows[9:]] == [row[1] for row in rows[:9]], "batch 2, once"
    assert committed is not None
    assert (committed.sequence, committed.last_lsn) == (1, copied)


def test_a_name_of_its_own_outlives_the_checkpoint(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    first, last = append(log, [b"one", b"two"])
    stream = open_stream(spark, cluster, startingLsn=first, maxRecordsPerTrigger=2)
    copy(stream.where(f"lsn <= {last}"), cluster, tmp_path / "a", txnAppId="copier")
    found = last_commit(cluster.endpoints[0], "copier")
    assert found is not None
    assert (found.sequence, found.first_lsn, found.last_lsn) == (0, last + 1, last + 2)
    copy(stream.where(f"lsn <= {last}"), cluster, tmp_path / "b", txnAppId="copier")
    assert last_commit(cluster.endpoints[0], "copier") == found, "batch 0 counts as written"
    assert log.admin.commit_lsn() == last + 2


@pytest.mark.parametrize("way", ["kill", "transfer"])
def test_a_change_of_leader_under_a_stream_neither_loses_nor_doubles(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    tmp_path: Path,
    way: str,
) -> None:
    payloads = [b"%d" % number for number in range(60)]
    first, last = append(log, payloads)
    stream = open_stream(spark, cluster, startingLsn=first, maxRecordsPerTrigger=10)
    leader = cluster.wait_for_leader()
    running = start_copy(stream, cluster, tmp_path)
    try:
        while running.isActive and log.admin.commit_lsn() < last + 10:
            running.awaitTermination(0.05)
        if way == "kill":
            cluster.kill(leader)
        else:
            log.admin.transfer()
        running.awaitTermination()
    finally:
        running.stop()
        cluster.start_all()
        cluster.wait_for_leader()
    assert [row[1] for row in new_rows(log, last)] == payloads


def test_more_than_a_batch_is_refused_or_goes_in_parts(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    payloads = [bytes([number]) * 100 * KIB for number in range(30)]
    first, last = append(log, *[payloads[start : start + 10] for start in (0, 10, 20)])
    stream = open_stream(spark, cluster, startingLsn=first)
    text = failure_of(lambda: copy(stream, cluster, tmp_path))
    assert "more than one atomic batch of the log holds (2097152 bytes" in text
    assert "nothing was written: lower the source's maxRecordsPerTrigger" in text
    assert "atomic=false" in text
    assert log.admin.commit_lsn() == last
    query_id = copy(stream, cluster, tmp_path, atomic="false")
    rows = new_rows(log, last)
    assert [row[1] for row in rows] == payloads
    assert len({row[3] for row in rows}) == 3
    assert last_commit(cluster.endpoints[0], query_id) is not None


@pytest.mark.parametrize("columns", [(), ("number", "text")])
def test_other_schemas_become_json(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    columns: tuple[str, ...],
) -> None:
    before = log.admin.commit_lsn()
    rows = [(1, "ä", None), (2, None, 0.5)]
    frame = spark.createDataFrame(rows, "number INT, text STRING, other DOUBLE").coalesce(1)
    write(json_payloads(frame, *columns), cluster)
    found = [json.loads(row[1]) for row in new_rows(log, before)]
    names = columns or ("number", "text", "other")
    assert found == [dict(zip(names, row, strict=False)) for row in rows]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT 1 AS value", "schema: no column payload among value: select it alone, or make"),
        ("SELECT 'x' AS payload, 1 AS lsn", "schema: only payload is appended, not lsn"),
        ("SELECT 1 AS payload", "schema: column payload is INT, not BINARY or STRING"),
        ("SELECT CAST(NULL AS STRING) AS payload", "1 rows have no payload (NULL)"),
    ],
)
def test_rows_that_are_no_payloads_are_refused(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, query: str, words: str
) -> None:
    before = log.admin.commit_lsn()
    assert words in failure_of(lambda: write(spark.sql(query), cluster))
    assert log.admin.commit_lsn() == before


def test_another_number_of_rows_than_expected_is_refused_and_nothing_written(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    before = log.admin.commit_lsn()
    for count in (0, 3):
        text = failure_of(lambda count=count: write(numbers(spark, count), cluster, expectedRows=4))
        assert f"option expectedRows: 4, and the query gave {count}; nothing was written" in text
    assert log.admin.commit_lsn() == before
    write(numbers(spark, 4), cluster, expectedRows=4)
    assert log.admin.commit_lsn() == before + 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"txnVersion": 3}, "options txnAppId and txnVersion go together"),
        ({"atomik": "true"}, "unknown option 'atomik'; did you mean atomic?"),
        ({"startingLsn": 3}, "unknown option 'startinglsn'"),
    ],
)
def test_options_of_the_sink_are_refused_by_name(
    spark: SparkSession, cluster: EmbeddedCluster, options: dict[str, object], words: str
) -> None:
    assert words in failure_of(lambda: write(numbers(spark, 1), cluster, **options))


def test_a_log_is_not_overwritten_nor_written_out_of_reach(
    spark: SparkSession, cluster: EmbeddedCluster
) -> None:
    writer = numbers(spark, 1).write.format("logstore").option("endpoints", cluster.endpoints[0])
    assert "a log is never overwritten" in failure_of(writer.mode("overwrite").save)
    [port] = free_base_ports(1)
    writer = writer.option("endpoints", f"127.0.0.1:{port}").option("commitTimeoutMs", 500)
    text = failure_of(writer.mode("append").save)
    assert f"no replica answers at 127.0.0.1:{port}: is the cluster up?" in text
    assert "commitTimeoutMs = 500" in text
