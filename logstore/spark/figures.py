"""The benchmarks' raw samples, lines of JSON, as a table and as curves.

Owns the arithmetic. A sample is an acknowledged batch: `at_ms` since the beginning of the run,
`latency_ms`, and how many `payloads`; `figure` and `pair` name what was measured and which run it
was, and may be left out. Every payload of a batch has its latency.
"""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from logstore.errors import InvalidRequest

_SCHEMA = "figure STRING, pair INT, at_ms DOUBLE, latency_ms DOUBLE, payloads BIGINT, bad STRING"
STEP_MS = 100
# In hundredths of a percent: every percent, and the tail that people ask for.
_POINTS = (*range(0, 10_000, 100), 9_950, 9_990, 9_999, 10_000)
_P50, _P99, _P999, _MOST = (_POINTS.index(each) for each in (5_000, 9_900, 9_990, 10_000))


class Run(msgspec.Struct, frozen=True):
    """One run of one figure.

    Attributes:
      file: the samples' file, without folder and suffix.
      seconds: to the last acknowledgement.
      latency_ms: by `percents`.
      rates: payloads a second in each step of a tenth of a second from the beginning on.
    """

    file: str
    figure: str
    pair: int
    samples: int
    payloads: int
    seconds: float
    latency_ms: list[float]
    rates: list[float]

    @property
    def rate(self) -> float:
        """Payloads a second over the whole run."""
        return self.payloads / self.seconds if self.seconds else 0.0


def percents() -> list[float]:
    """Where `Run.latency_ms` was taken, rising from 0 to 100."""
    return [point / 100 for point in _POINTS]


def gather_runs(spark: SparkSession, paths: Sequence[str]) -> list[Run]:
    """The runs in these files, by file, figure and pair.

    Raises:
      InvalidRequest: a line is no sample; names it.
    """
    samples = _read(spark, paths).cache()
    try:
        _refuse_others(samples)
        keys = ["file", "figure", "pair"]
        points = sql.array(*(sql.lit(point / 10_000) for point in _POINTS))
        runs = samples.groupBy(*keys).agg(
            sql.count(sql.lit(1)).alias("samples"),
            sql.sum("payloads").alias("payloads"),
            sql.max("at_ms").alias("last_ms"),
            sql.percentile("latency_ms", points, sql.col("payloads")).alias("latency_ms"),
        )
        step = sql.floor(sql.col("at_ms") / STEP_MS).cast("int").alias("step")
        steps = samples.groupBy(*keys, step).agg(sql.sum("payloads").alias("payloads"))
        counts = {(*(row[key] for key in keys), row.step): row.payloads for row in steps.collect()}
        return [_run(row, counts) for row in runs.orderBy(*keys).collect()]
    finally:
        samples.unpersist()


def table_of(runs: Sequence[Run]) -> str:
    """The runs as a table in Markdown."""
    lines = [
        "| file | figure | run | batches | payloads/s | p50 ms | p99 ms | p99.9 ms | most ms |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        latencies = " | ".join(f"{run.latency_ms[at]:.2f}" for at in (_P50, _P99, _P999, _MOST))
        lines.append(
            f"| {run.file} | {run.figure or '-'} | {run.pair} | {run.samples} | {run.rate:,.0f} | "
            f"{latencies} |"
        )
    return "\n".join(lines) + "\n"


def _read(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    reader = spark.read.schema(_SCHEMA).option("columnNameOfCorruptRecord", "bad")
    path = sql.element_at(sql.split(sql.input_file_name(), "/"), -1)
    lines = reader.json(list(paths)).withColumn("file", sql.regexp_replace(path, r"\.jsonl$", ""))
    return lines.fillna("", "figure").fillna(1, "pair")


def _refuse_others(samples: DataFrame) -> None:
    wanted = ("at_ms", "latency_ms", "payloads")
    is_none = " OR ".join([f"{name} IS NULL" for name in wanted] + ["bad IS NOT NULL"])
    row: Any = samples.where(f"{is_none} OR at_ms < 0 OR payloads < 1").first()
    if row is not None:
        raise InvalidRequest(
            f"{row.file}.jsonl has a line that is no sample: {row.bad or row.asDict()}; wanted are "
            f"{', '.join(wanted)}, and figure and pair if there are several"
        )


def _run(row: Any, counts: dict[tuple[Any, ...], int]) -> Run:
    key = row.file, row.figure, row.pair
    last = int(row.last_ms // STEP_MS)
    rates = [counts.get((*key, step), 0) * 1_000 / STEP_MS for step in range(last + 1)]
    return Run(
        row.file, row.figure, row.pair, row.samples, row.payloads, row.last_ms / 1_000,
        list(row.latency_ms), rates,
    )  # fmt: skip


def check_names(paths: Sequence[str]) -> None:
    """Raises: InvalidRequest: two files have the same name, which their runs are told by."""
    names = [os.path.basename(path) for path in paths]
    if len(set(names)) < len(names):
        raise InvalidRequest("two files have the same name: give them in two calls")
