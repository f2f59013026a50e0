"""What the log holds, read without Spark, as rows of the source; and how tests write and load."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import logstore
from logstore.cli.embedded import EmbeddedCluster

NAMES = (
    "lsn", "payload", "timestamp", "batch_first_lsn", "batch_size", "producer_id", "raft_index",
    "term",
)  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def append(log: logstore.LogClient, *batches: Sequence[bytes]) -> tuple[int, int]:
    """Append each as an atomic batch of its own; first and last LSN."""
    with log.producer() as producer:
        futures = [producer.append_batch(batch) for batch in batches]
        found = [future.result(timeout=60) for future in futures]
    return found[0].first, found[-1].last


def expected(log: logstore.LogClient, first: int, last: int) -> list[tuple[Any, ...]]:
    """The rows [first, last], in Python, payload by payload."""
    rows: list[tuple[Any, ...]] = []
    batch_first = 0
    for batch in log.read(1, last, min_lsn=last):
        batch_first = batch.first_lsn
        stamp = _EPOCH + timedelta(microseconds=batch.timestamp_ns // 1_000)
        for lsn, payload in enumerate(batch.payloads(), batch.first_lsn):
            if lsn >= first:
                rows.append(
                    (
                        lsn, payload, stamp, batch_first, batch.batch.count,
                        str(batch.batch.producer_id), batch.index, batch.term,
                    )
                )  # fmt: skip
    return rows


def load(spark: SparkSession, cluster: EmbeddedCluster, **options: object) -> DataFrame:
    reader = spark.read.format("logstore").option("endpoints", ",".join(cluster.endpoints))
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Collected rows by LSN, times in UTC."""
    found = []
    for row in frame.orderBy("lsn").collect():
        values = [bytes(each) if isinstance(each, bytearray) else each for each in row]
        found.append(
            tuple(each.astimezone(UTC) if isinstance(each, datetime) else each for each in values)
        )
    return found


def lsns_of(frame: DataFrame) -> list[int]:
    return [row.lsn for row in frame.select("lsn").orderBy("lsn").collect()]
