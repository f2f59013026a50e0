"""Batch reads: every column, range, split and replica, against what the client reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import logstore
from logstore.cli.embedded import EmbeddedCluster
from tests.spark.rows import NAMES, append, expected, load, lsns_of, rows_of

KIB = 1 << 10


@pytest.fixture(scope="module")
def span(log: logstore.LogClient) -> tuple[int, int]:
    """Payloads empty, short and long, alone and together, over several Arrow batches."""
    batches = [
        [b"one"],
        [b"", b"two", b""],
        [b"x" * 900 * KIB],
        *[[b"%d" % number] * (number % 7 + 1) for number in range(200)],
        *[[bytes([number]) * 300 * KIB, b"", b"after"] for number in range(12)],
    ]
    return append(log, *batches)


def test_every_column_of_every_record_is_what_the_client_reads(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, span: tuple[int, int]
) -> None:
    frame = load(spark, cluster, startingLsn=span[0], endingLsn=span[1])
    assert frame.columns == list(NAMES)
    assert not frame.schema["lsn"].nullable
    assert rows_of(frame) == expected(log, *span)


def test_a_range_that_cuts_batches_gives_its_rows_with_their_whole_batch(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, span: tuple[int, int]
) -> None:
    first = span[0] + 2
    frame = load(spark, cluster, startingLsn=first, endingLsn=first, minPartitions=4)
    assert frame.rdd.getNumPartitions() == 1
    [row] = rows_of(frame)
    assert row == expected(log, first, first)[0]
    assert (row[1], row[3], row[4]) == (b"two", span[0] + 1, 3)


def test_splits_are_many_when_asked_and_lose_nothing(
    spark: SparkSession, cluster: EmbeddedCluster, span: tuple[int, int]
) -> None:
    wanted = list(range(span[0], span[1] + 1))
    many = load(spark, cluster, startingLsn=span[0], endingLsn=span[1], minPartitions=9)
    assert 9 <= many.rdd.getNumPartitions() <= 18
    assert lsns_of(many) == wanted
    few = load(spark, cluster, startingLsn=span[0], endingLsn=span[1], maxRecordsPerPartition=100)
    sizes = few.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
    assert max(sizes) <= 100
    assert sum(sizes) == len(wanted)


@pytest.mark.parametrize("replica", ["any", "leader", "follower", "1", "2", "3"])
def test_every_replica_gives_the_same(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    span: tuple[int, int],
    replica: str,
) -> None:
    cluster.wait_until_visible(int(replica) if replica.isdigit() else 1, span[1])
    frame = load(spark, cluster, startingLsn=span[1] - 50, endingLsn=span[1], replica=replica)
    assert rows_of(frame) == expected(log, span[1] - 50, span[1])


def test_without_a_range_everything_committed_is_read(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, span: tuple[int, int]
) -> None:
    frame = load(spark, cluster, startingOffsets="earliest")
    _, last = append(log, [b"committed before the first action"])
    assert frame.count() == last
    append(log, [b"and after"])
    assert frame.count() == last, "a DataFrame is frozen at its first action"
    assert load(spark, cluster).count() == last + 1


def test_times_bound_a_range_from_the_first_not_older_to_the_last_older(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    first, last = append(log, [b"a", b"b"])
    append(log, [b"later"])
    stamps = {row[0]: row[2] for row in expected(log, first, last + 1)}
    assert stamps[last] < stamps[last + 1]
    found = load(
        spark,
        cluster,
        startingTimestamp=stamps[first].isoformat(),
        endingTimestamp=stamps[last + 1].isoformat(),
    )
    assert lsns_of(found)[-1] == last
    assert first in lsns_of(found)
    future = datetime.now(UTC) + timedelta(days=1)
    none = load(spark, cluster, startingTimestamp=int(future.timestamp() * 1_000))
    assert none.count() == 0


def test_without_payloads_the_other_columns_are_the_same(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, span: tuple[int, int]
) -> None:
    frame = load(spark, cluster, startingLsn=span[0], endingLsn=span[1], includePayload="false")
    assert frame.columns == [name for name in NAMES if name != "payload"]
    assert rows_of(frame) == [row[:1] + row[2:] for row in expected(log, *span)]


def test_a_schema_given_chooses_columns_and_their_order(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, span: tuple[int, int]
) -> None:
    reader = spark.read.format("logstore").option("endpoints", cluster.endpoints[0])
    reader = reader.option("startingLsn", span[0]).option("endingLsn", span[1])
    frame = reader.schema("batch_size INT, lsn BIGINT").load()
    assert [(row.lsn, row.batch_size) for row in frame.orderBy("lsn").collect()] == [
        (row[0], row[4]) for row in expected(log, *span)
    ]
    only = reader.schema(StructType().add("lsn", "long", nullable=False)).load()
    assert lsns_of(only) == list(range(span[0], span[1] + 1))


def test_sql_and_two_scans_of_one_frame_give_right_rows(
    spark: SparkSession, cluster: EmbeddedCluster, span: tuple[int, int]
) -> None:
    """Spark 4.3 mixes up pushed filters of two scans of one DataFrame: none is ever pushed."""
    frame = load(spark, cluster, startingLsn=span[0], endingLsn=span[1])
    low = frame.filter(frame.lsn < span[0] + 10)
    high = frame.filter(frame.lsn >= span[1] - 9)
    assert low.count() == 10
    assert frame.count() == span[1] - span[0] + 1
    assert lsns_of(low.union(high)) == [
        *range(span[0], span[0] + 10),
        *range(span[1] - 9, span[1] + 1),
    ]
    frame.createOrReplaceTempView("log")
    [row] = spark.sql("SELECT max(lsn) - min(lsn) + 1 - count(*) AS gaps FROM log").collect()
    assert row.gaps == 0


def test_spark_finds_the_source_by_itself(
    spark: SparkSession, cluster: EmbeddedCluster, span: tuple[int, int]
) -> None:
    """The module of the wheel's top level that Spark discovers."""
    import pyspark_logstore

    assert pyspark_logstore.DefaultSource.name() == "logstore"
    fresh = spark.newSession()
    frame = load(fresh, cluster, startingLsn=span[0], endingLsn=span[0])
    assert frame.count() == 1
