"""The benchmark of Spark: what its figures are made of."""

from __future__ import annotations

from time import process_time

import pytest
from pyspark.sql import SparkSession

from benchmarks.spark import (
    ALONE,
    BATCH_MAX_BYTES,
    BESIDE,
    WANTED,
    Load,
    batch_rows,
    summarise,
)
from benchmarks.spark_rounds import ROW_BYTES, Round
from benchmarks.spark_usage import PeakMemory, SparkUsage, find_jvm
from logstore.format.batch import batch_size
from tests.unit.load_rows import product

BUSY_S = 0.3
PEAK = PeakMemory(jvm=900.0, worker=200.0, workers=500.0, driver=90.0)


def round_of(name: str, *, wall_s: float, cpu_s: float) -> Round:
    return Round(
        name=name, rows=1_000_000, mb=100.0, wall_s=wall_s, jvm_s=cpu_s, workers_s=0.0,
        driver_s=0.0, mb_per_s=100 / wall_s, mb_per_s_core=100 / cpu_s, rows_per_s=1e6 / wall_s,
    )  # fmt: skip


def load_of(name: str, kept: float) -> Load:
    return Load(name, 10_000.0, kept, 0.0, product())


def test_medians_and_pairs_decide() -> None:
    rounds = [
        round_of(name, wall_s=wall_s, cpu_s=cpu_s)
        for name, wall_s, cpu_s in (
            ("source", 1.0, 0.5), ("parquet", 0.4, 0.5),
            ("source", 9.0, 9.0), ("parquet", 9.0, 4.5),
            ("source", 1.0, 0.4), ("parquet", 0.6, 0.2),
            ("archive", 1.0, 2.0), ("sink", 4.0, 1.0), ("sink in parts", 3.0, 1.0),
        )
    ]  # fmt: skip
    loads = [load_of(ALONE, 0.1), load_of(BESIDE, 0.97), load_of(BESIDE, 0.98)]
    summary = summarise(rounds, loads, PEAK)
    assert {name: row["measured"] for name, row in summary.items() if name != "peak_mb"} == {
        "source": 200.0, "source over parquet, a core": 0.5, "source over parquet, wall": 0.6,
        "archive": 50.0, "sink": 250_000.0, "sink in parts": pytest.approx(333_333, abs=1),
        BESIDE: 0.975,
    }  # fmt: skip
    reached = [summary[wanted.figure]["is_reached"] for wanted in WANTED]
    assert reached == [True, True, True, False, False, True, True]
    assert summary["sink"] == {
        "unit": "rows/s", "target": 300_000, "measured": 250_000.0, "is_reached": False
    }  # fmt: skip
    assert summary["peak_mb"] == {"jvm": 900.0, "worker": 200.0, "workers": 500.0, "driver": 90.0}


def test_the_largest_batch_is_filled() -> None:
    rows = batch_rows()
    assert batch_size(rows, rows * ROW_BYTES) <= BATCH_MAX_BYTES
    assert batch_size(rows + 1_000, (rows + 1_000) * ROW_BYTES) > BATCH_MAX_BYTES


def test_processor_time_is_told_by_who_used_it(spark: SparkSession) -> None:

    def task(seconds: float) -> None:
        until = process_time() + seconds
        while process_time() < until:
            pass

    def run(seconds: float) -> None:
        spark.sparkContext.parallelize([seconds], 1).foreach(task)

    run(0.0)  # a worker is there
    usage = SparkUsage(find_jvm())
    before = usage.mark()
    run(BUSY_S)
    used = usage.mark().since(before)
    assert used.workers >= BUSY_S - 0.02, "the kernel counts in hundredths"
    assert used.total == pytest.approx(used.jvm + used.workers + used.driver)
    peak = usage.peak_memory()
    assert peak.jvm > 100
    assert peak.workers > peak.worker > 10 < peak.driver
