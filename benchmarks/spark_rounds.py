"""What is measured of Spark, a round each: the source, Parquet, an archive, a write.

Owns how a round goes and what it is over. Must not know how often, or what is wanted.
"""

from __future__ import annotations

import shutil
from array import array
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec

import logstore
from benchmarks.spark_usage import SparkUsage
from logstore.client.clock import monotonic_ns
from logstore.format.batch import PackedPayloads
from logstore.limits import KIB, MIB
from logstore.spark.archive import Archive, ArchiveOptions
from logstore.spark.lake import LakeWriter

PAYLOAD_BYTES = KIB
# What a producer packs of small appends, so what most logs consist of.
BATCH_PAYLOADS = 64
POOL_BYTES = 16 * MIB
ROW_BYTES = 100
FILES_AT_ONCE = 4
TIMEOUT_S = 60.0


class Round(msgspec.Struct, frozen=True):
    """One round. MB are 10**6 payload bytes; "a core" is over the processor seconds of JVM, Python
    workers and driver together, whatever the wall clock says.
    """

    name: str
    rows: int
    mb: float
    wall_s: float
    jvm_s: float
    workers_s: float
    driver_s: float
    mb_per_s: float
    mb_per_s_core: float
    rows_per_s: float


def fill(endpoints: list[str], size_mb: int) -> int:
    """Append about so many MB of random payloads; how many."""
    batch_bytes = BATCH_PAYLOADS * PAYLOAD_BYTES
    pool = Random(size_mb).randbytes(POOL_BYTES)
    offsets = array("i", range(0, batch_bytes + 1, PAYLOAD_BYTES))
    count = max(1, size_mb * 1_000_000 // batch_bytes)
    with logstore.connect(endpoints, timeout=TIMEOUT_S) as log, log.producer() as producer:
        for number in range(count):
            start = number * batch_bytes % POOL_BYTES
            last = producer.append_batch(
                PackedPayloads(offsets, memoryview(pool)[start : start + batch_bytes])
            )
        last.result(timeout=TIMEOUT_S)
    return count * BATCH_PAYLOADS


class Rounds:
    """Rounds in one session of Spark, over one log. Used by one thread."""

    def __init__(
        self, spark: Any, usage: SparkUsage, endpoints: list[str], rows: int, folder: Path
    ) -> None:
        self._spark = spark
        self._usage = usage
        self._endpoints = ",".join(endpoints)
        self._rows = rows
        self._folder = folder
        self._number = 0

    def source(self) -> Round:
        """Followers into nowhere."""
        return self._measure("source", self._rows, PAYLOAD_BYTES, self._read)

    def _read(self) -> None:
        _discard(self._log().option("replica", "follower").option("endingLsn", self._rows).load())

    def parquet(self) -> Round:
        """The same rows from Parquet, as Spark itself writes it, into nowhere."""
        path = str(self._folder / "parquet")
        if not Path(path).exists():
            self._log().option("endingLsn", self._rows).load().write.parquet(path)
        work = lambda: _discard(self._spark.read.parquet(path))  # noqa: E731 - a word for it
        return self._measure("parquet", self._rows, PAYLOAD_BYTES, work)

    def archive(self) -> Round:
        """All of it into a new lake."""
        self._number += 1
        name = f"lake-{self._number}"
        try:
            return self._measure("archive", self._rows, PAYLOAD_BYTES, lambda: self._archive(name))
        finally:
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def _archive(self, name: str) -> None:
        options = ArchiveOptions(
            endpoints=self._endpoints,
            cursor=name,
            files_at_once=FILES_AT_ONCE,
            timeout_s=TIMEOUT_S,
        )
        with LakeWriter(str(self._folder / name)) as writer:
            work = Archive(lambda: self._spark, writer, options)
            work.begin()
            for _ in work.rounds(self._rows):
                pass

    def prepare_rows(self, rows: int) -> Any:
        """A frame of so many payloads of ROW_BYTES, computed and kept in memory."""
        digits = "lpad(CAST(id AS STRING), 10, '0')"
        payload = f"CAST(repeat({digits}, {ROW_BYTES // 10}) AS BINARY) AS payload"
        frame = self._spark.range(rows).selectExpr(payload).coalesce(1).cache()
        frame.count()
        return frame

    def write(self, name: str, frame: Any, rows: int, *, atomic: bool) -> Round:
        """A named batch write of a prepared frame: what happens once, however often it is tried."""
        self._number += 1
        writer = (
            frame.write.format("logstore")
            .mode("append")
            .option("endpoints", self._endpoints)
            .option("atomic", atomic)
            .option("txnAppId", "benchmark")
            .option("txnVersion", self._number)
        )
        return self._measure(name, rows, ROW_BYTES, writer.save)

    def _log(self) -> Any:
        return self._spark.read.format("logstore").option("endpoints", self._endpoints)

    def _measure(self, name: str, rows: int, row_bytes: int, work: Callable[[], None]) -> Round:
        before, began_ns = self._usage.mark(), monotonic_ns()
        work()
        wall_s = (monotonic_ns() - began_ns) / 1e9
        used = self._usage.mark().since(before)
        mb = rows * row_bytes / 1e6
        return Round(
            name=name,
            rows=rows,
            mb=round(mb, 3),
            wall_s=round(wall_s, 3),
            jvm_s=used.jvm,
            workers_s=used.workers,
            driver_s=used.driver,
            mb_per_s=round(mb / wall_s, 1),
            mb_per_s_core=round(mb / used.total, 1),
            rows_per_s=round(rows / wall_s, 1),
        )


def _discard(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()
