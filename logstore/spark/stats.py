"""Traffic: how many records, batches and bytes, by time, by producer and by size.

Owns the query: one pass over the records, whatever is asked. Times are those of acceptance; a batch
counts where its first record does.
"""

from __future__ import annotations

from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from logstore.errors import InvalidRequest
from logstore.spark.columns import BATCH_STORED_BYTES, PAYLOAD

# Rows told of one kind: a year by the hour is 8,760.
ROWS_MAX = 10_000
# What it asks of the records.
STATS_COLUMNS = (
    "lsn", PAYLOAD, "timestamp", "batch_first_lsn", "producer_id", BATCH_STORED_BYTES,
)  # fmt: skip
_MICROSECONDS_MIN = 1_000


class Traffic(msgspec.Struct, frozen=True):
    """Records, and what they have: `payload_bytes` is of payloads alone, `stored_bytes` of those of
    the batches as the log stores them, fewer where they are compressed."""

    records: int
    batches: int
    payload_bytes: int
    stored_bytes: int


class At(msgspec.Struct, frozen=True):
    """Traffic of a step of time, which begins at this many microseconds since the Unix epoch."""

    time_us: int
    traffic: Traffic


class Of(msgspec.Struct, frozen=True):
    producer_id: str
    traffic: Traffic


class UpTo(msgspec.Struct, frozen=True):
    """Traffic of payloads of more than half of this size, and at most of it; of 0: empty ones."""

    size_bytes: int
    traffic: Traffic


class Stats(msgspec.Struct, frozen=True):
    """What a range of the log holds; steps and sizes without records are left out.

    `producers` is how many there are, of which `by_producer` has the largest, the largest first;
    `steps` is how many steps of time there are, of which `by_time` has the first ROWS_MAX.
    """

    total: Traffic
    producers: int
    steps: int
    by_time: list[At]
    by_producer: list[Of]
    by_size: list[UpTo]


NOTHING = Stats(Traffic(0, 0, 0, 0), 0, 0, [], [], [])


def check_steps(*, step_us: int, top: int) -> None:
    """Raises: InvalidRequest: a step below a millisecond, or no producers asked for."""
    if step_us < _MICROSECONDS_MIN or not 1 <= top <= ROWS_MAX:
        raise InvalidRequest(f"step {step_us} us, top {top}: give 1ms or more, 1 to {ROWS_MAX}")


def gather_stats(frame: DataFrame, *, step_us: int, top: int) -> Stats:
    """The traffic of these records, which have STATS_COLUMNS, in steps of `step_us`, with the `top`
    largest producers.

    Raises:
      InvalidRequest: as `check_steps`.
    """
    check_steps(step_us=step_us, top=top)
    rows = _grouped(frame, step_us).cache()
    try:
        total = rows.where("time IS NULL AND producer_id IS NULL AND size IS NULL").first()
        times = rows.where("time IS NOT NULL")
        by_time = times.orderBy("time").limit(ROWS_MAX).collect()
        producers = rows.where("producer_id IS NOT NULL")
        largest = producers.orderBy(sql.desc("bytes"), "producer_id").limit(top).collect()
        by_size = rows.where("size IS NOT NULL").orderBy("size").collect()
        return Stats(
            Traffic(0, 0, 0, 0) if total is None else _traffic(total),
            producers.count(),
            times.count() if len(by_time) == ROWS_MAX else len(by_time),
            [At(row.time, _traffic(row)) for row in by_time],
            [Of(row.producer_id, _traffic(row)) for row in largest],
            [UpTo(row.size, _traffic(row)) for row in by_size],
        )
    finally:
        rows.unpersist()


def _grouped(frame: DataFrame, step_us: int) -> DataFrame:
    """One row a step, one a producer, one a size, and one of all: the other columns are null."""
    size = sql.length(PAYLOAD)
    bits = sql.length(sql.bin(size - 1))
    power = sql.when(size == 0, 0).when(size == 1, 1)
    micros = sql.unix_micros("timestamp")
    time = micros - sql.pmod(micros, sql.lit(step_us))
    records = frame.select(
        time.alias("time"),
        "producer_id",
        power.otherwise(sql.pow(sql.lit(2), bits)).cast("long").alias("size"),
        size.cast("long").alias("length"),
        (frame.lsn == frame.batch_first_lsn).cast("int").alias("is_first"),
        sql.when(frame.lsn == frame.batch_first_lsn, frame[BATCH_STORED_BYTES]).alias("stored"),
    )
    keys = [sql.col(name) for name in ("time", "producer_id", "size")]
    grouped = records.groupingSets([[key] for key in keys] + [[]], *keys)
    return grouped.agg(
        sql.count(sql.lit(1)).alias("records"),
        sql.sum("is_first").alias("batches"),
        sql.sum("length").alias("bytes"),
        sql.sum("stored").alias("stored"),
    )


def _traffic(row: Any) -> Traffic:
    return Traffic(row.records, row.batches or 0, row.bytes or 0, row.stored or 0)
