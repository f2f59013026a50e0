"""How fast Spark reads, archives and writes a log of three replicas on this machine.

Owns the course of a run, the figures and what is wanted of them. One session with one task at a
time (`local[1]`), one cluster; what is compared with each other runs in turn. Medians decide.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from threading import Event, Thread
from typing import Any

import msgspec

from benchmarks.saturate import Row, Sample, Settings, measure_load
from benchmarks.spark_rounds import PAYLOAD_BYTES, ROW_BYTES, Round, Rounds, fill
from benchmarks.spark_usage import PeakMemory, SparkUsage, find_jvm
from logstore.cli.embedded import EmbeddedCluster, make_config
from logstore.client.clock import monotonic_ns
from logstore.config import Config
from logstore.errors import Unreachable
from logstore.format.batch import batch_size
from logstore.limits import MIB
from logstore.settings import LimitSettings
from logstore.spark import register, start_session

REPLICAS = 3
BATCH_MAX_BYTES = 16 * MIB
PARTS_ROWS = 1_000_000
OFFERED_PER_S = 10_000.0
LOAD_SECONDS = 8.0
LOAD_WINDOW_MB = 16.0
ATTEMPTS = 3
ALONE = "producers alone"
BESIDE = "producers beside readers"
# The JVM compiles what is hot while it runs: the first rounds measure the compiler.
WARM_UP_ROUNDS = 3

_SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
}


class Load(msgspec.Struct, frozen=True):
    """Producers at a rate, with followers read at full speed beside them (`mb_read_per_s`) or
    not (0.0). `kept`: acknowledged over offered."""

    name: str
    offered_per_s: float
    kept: float
    mb_read_per_s: float
    row: Row


class SparkFigures(msgspec.Struct, frozen=True):
    """`samples`: of the loads, one line per acknowledged batch."""

    rounds: list[Round]
    loads: list[Load]
    samples: list[dict[str, Any]]
    versions: dict[str, str]
    summary: dict[str, Any]


Say = Callable[[str], None]


def measure_spark(folder: Path, *, size_mb: int, rounds: int, say: Say) -> SparkFigures:
    """Everything, once.

    Raises:
      LogStoreError: the cluster, a query or the load did not run through.
    """
    with (
        tempfile.TemporaryDirectory(prefix="spark-", dir=folder) as own,
        EmbeddedCluster(Path(own), _config()) as cluster,
    ):
        cluster.start_all()
        cluster.wait_for_leader()
        rows = fill(cluster.endpoints, size_mb)
        for node in cluster.nodes:
            cluster.wait_until_visible(node, rows)
        with _session(Path(own)) as spark:
            usage = SparkUsage(find_jvm())
            work = Rounds(spark, usage, cluster.endpoints, rows, Path(own))
            found = _all_rounds(work, rounds, say)
            loads = Loads(cluster, work, Path(own) / "samples")
            for number in range(max(1, rounds // 2)):
                for each in (loads.alone(number + 1), loads.beside_readers(number + 1)):
                    say(_load_line(each))
            return SparkFigures(
                rounds=found,
                loads=loads.found,
                samples=loads.samples,
                versions=_versions(spark),
                summary=summarise(found, loads.found, usage.peak_memory()),
            )


def _config() -> Config:
    """As it ships, but with the largest batches that there may be."""
    limits = LimitSettings(batch_max="16MiB", bulk_window="16MiB", ring="128MiB")
    return msgspec.structs.replace(make_config(REPLICAS, Random(os.urandom(8))), limits=limits)


@contextmanager
def _session(folder: Path) -> Iterator[Any]:
    spark = start_session(
        master="local[1]",
        name="benchmark",
        settings={**_SETTINGS, "spark.local.dir": str(folder / "local")},
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def _versions(spark: Any) -> dict[str, str]:
    return {
        "spark": spark.version,
        "java": str(spark.sparkContext._jvm.java.lang.System.getProperty("java.version")),
    }


def _all_rounds(work: Rounds, rounds: int, say: Say) -> list[Round]:
    """Warm-up first; its rounds are not among those returned."""
    found: list[Round] = []

    def repeat(*each: Callable[[], Round]) -> None:
        for number in range(WARM_UP_ROUNDS + rounds):
            for measure in each:
                done = measure()
                is_warm = number >= WARM_UP_ROUNDS
                say(f"{_line(done)}{'' if is_warm else ', warming up'}")
                if is_warm:
                    found.append(done)

    repeat(work.source, work.parquet)
    repeat(work.archive)
    rows = batch_rows()
    frame = work.prepare_rows(rows)
    repeat(lambda: work.write("sink", frame, rows, atomic=True))
    frame.unpersist()
    frame = work.prepare_rows(PARTS_ROWS)
    repeat(lambda: work.write("sink in parts", frame, PARTS_ROWS, atomic=False))
    frame.unpersist()
    return found


def batch_rows() -> int:
    """How many payloads of ROW_BYTES the largest batch holds, in round thousands."""
    count = BATCH_MAX_BYTES // (ROW_BYTES + 4) // 1_000 * 1_000
    return count if batch_size(count, count * ROW_BYTES) <= BATCH_MAX_BYTES else count - 1_000


def _line(done: Round) -> str:
    return (
        f"{done.name}: {done.wall_s} s, {done.mb_per_s} MB/s, {done.mb_per_s_core} MB/s a core, "
        f"{done.rows_per_s:.0f} rows/s; CPU {done.jvm_s} JVM + {done.workers_s} workers + "
        f"{done.driver_s} driver"
    )


# --- producers beside readers ---


class Loads:
    """The same load alone and beside readers. Used by one thread."""

    def __init__(self, cluster: EmbeddedCluster, work: Rounds, samples: Path) -> None:
        self._cluster = cluster
        self._work = work
        self._path = samples
        self.found: list[Load] = []
        self.samples: list[dict[str, Any]] = []

    def alone(self, number: int) -> Load:
        return self._measure(ALONE, number, lambda: 0.0)

    def beside_readers(self, number: int) -> Load:
        reader = _Reader(self._work)
        try:
            return self._measure(BESIDE, number, reader.stop)
        finally:
            reader.stop()

    def _measure(self, name: str, number: int, stop: Callable[[], float]) -> Load:
        row, samples = self._offer(ATTEMPTS)
        kept = round(row.payloads_per_s / OFFERED_PER_S, 4)
        load = Load(name, OFFERED_PER_S, kept, round(stop(), 1), row)
        self.found.append(load)
        self.samples += [
            {"figure": name, "pair": number, **msgspec.structs.asdict(each)} for each in samples
        ]
        return load

    def _offer(self, attempts: int) -> tuple[Row, list[Sample]]:
        """Once; again if the leader changed meanwhile, which would be another figure."""
        settings = Settings(PAYLOAD_BYTES, 1, LOAD_WINDOW_MB, LOAD_SECONDS, OFFERED_PER_S)
        try:
            leader = self._cluster.wait_for_leader()
            return measure_load(settings, self._cluster, leader, self._path)
        except Unreachable:
            if attempts <= 1:
                raise
        return self._offer(attempts - 1)


def _load_line(load: Load) -> str:
    return (
        f"{load.name}: kept {load.kept}, p50 {load.row.p50_ms} ms, p99 {load.row.p99_ms} ms, "
        f"{load.mb_read_per_s} MB/s read"
    )


class _Reader:
    """Reads the whole log again and again, in a thread of its own."""

    def __init__(self, work: Rounds) -> None:
        self._work = work
        self._is_over = Event()
        self._began_ns = monotonic_ns()
        self._mb = 0.0
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="reader", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._mb += self._work.source().mb
        except BaseException as error:
            self._error = error

    def stop(self) -> float:
        """End after the read under way; MB/s."""
        self._is_over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._mb * 1e9 / (monotonic_ns() - self._began_ns)


# --- what it comes to ---


class Wanted(msgspec.Struct, frozen=True):
    figure: str
    unit: str
    target: float


WANTED = (
    Wanted("source", "MB/s a core", 150.0),
    Wanted("source over parquet, a core", "ratio", 0.5),
    Wanted("source over parquet, wall", "ratio", 0.5),
    Wanted("archive", "MB/s a core", 80.0),
    Wanted("sink", "rows/s", 300_000.0),
    Wanted("sink in parts", "rows/s", 300_000.0),
    Wanted(BESIDE, "kept", 0.97),
)


def summarise(rounds: list[Round], loads: list[Load], peak: PeakMemory) -> dict[str, Any]:
    """Per figure the median, what is wanted and whether it is reached; and peak memory."""

    def of(name: str, field: str) -> float:
        return float(median(getattr(each, field) for each in rounds if each.name == name))

    def over_parquet(field: str) -> float:
        pairs = zip(
            (each for each in rounds if each.name == "source"),
            (each for each in rounds if each.name == "parquet"),
            strict=True,
        )
        return float(round(median(getattr(a, field) / getattr(b, field) for a, b in pairs), 3))

    measured = {
        "source": of("source", "mb_per_s_core"),
        "source over parquet, a core": over_parquet("mb_per_s_core"),
        "source over parquet, wall": over_parquet("mb_per_s"),
        "archive": of("archive", "mb_per_s_core"),
        "sink": of("sink", "rows_per_s"),
        "sink in parts": of("sink in parts", "rows_per_s"),
        BESIDE: median(each.kept for each in loads if each.name == BESIDE),
    }
    summary: dict[str, Any] = {
        wanted.figure: {
            "unit": wanted.unit,
            "target": wanted.target,
            "measured": measured[wanted.figure],
            "is_reached": measured[wanted.figure] >= wanted.target,
        }
        for wanted in WANTED
    }
    summary["peak_mb"] = msgspec.structs.asdict(peak)
    return summary
