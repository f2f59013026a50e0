"""A range of LSNs as one DataFrame: from a lake as far as it goes, from the log after it.

Owns the seam. Both sides hold the same records at the same LSNs, so it matters for nothing but who
does the work: the lake spares the replicas, and has what the log does not have any more. Every task
of either side gives all LSNs that it was asked for, or fails.
`timestamp`, `raft_index` and `term` are those of the cluster that a part is from.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from logstore.errors import InvalidRequest, OutOfRange
from logstore.spark.columns import CHOICE, COLUMNS
from logstore.spark.data_source import register
from logstore.spark.lake import check_files_are_there, read_manifest
from logstore.spark.lake_proof import check_same_log
from logstore.spark.lake_rows import NAME, LakeDataSource
from logstore.spark.planning import Planner
from logstore.spark.read_options import parse_read_options

# Both ends included; empty if the last one is below the first.
Range = tuple[int, int]


class Seam(msgspec.Struct, frozen=True):
    """Which LSNs come from where; None: none do."""

    lake: Range | None
    log: Range | None


def plan_seam(
    lake: Range | None, log: Range | None, first_lsn: int | None, last_lsn: int | None
) -> Seam:
    """Who gives [first_lsn, last_lsn], of a lake and a log that have these ranges; None as first or
    last: as far as either goes.

    Raises:
      InvalidRequest: neither a lake nor a log, or a range that ends before it begins.
      OutOfRange: some of it is in neither.
    """
    known = [each for each in (lake, log) if each is not None]
    if not known:
        raise InvalidRequest("give a lake, endpoints of a log, or both")
    first = min(each[0] for each in known) if first_lsn is None else first_lsn
    last = max(each[1] for each in known) if last_lsn is None else last_lsn
    if first < 1 or last < first - 1:
        raise InvalidRequest(f"LSNs {first} to {last}: give 1 <= first <= last")
    next_lsn, from_lake = first, None
    if lake is not None and lake[0] <= first <= min(last, lake[1]):
        from_lake = first, min(last, lake[1])
        next_lsn = from_lake[1] + 1
    if next_lsn > last:
        return Seam(from_lake, None)
    if log is None or not log[0] <= next_lsn <= last <= log[1]:
        words = [
            _words(name, each) for name, each in (("the lake", lake), ("the log", log)) if each
        ]
        raise OutOfRange(
            f"LSNs {next_lsn} to {last} are in neither: {', '.join(words)}",
            first=known[0][0],
            last=known[-1][1],
        )
    return Seam(from_lake, (next_lsn, last))


class LogRange(msgspec.Struct, frozen=True):
    """A range that can be read: all questions about it are answered, without Spark."""

    seam: Seam
    lake: str
    endpoints: str
    columns: tuple[str, ...]
    options: dict[str, Any]

    @property
    def is_empty(self) -> bool:
        return self.seam.lake is None and self.seam.log is None

    def frame(self, spark: SparkSession) -> DataFrame:
        parts = []
        if self.seam.lake is not None:
            parts.append(self._from_lake(spark, self.seam.lake))
        if self.seam.log is not None:
            parts.append(self._from_log(spark, self.seam.log))
        if not parts:
            return spark.createDataFrame([], self._ddl())
        return parts[0] if len(parts) == 1 else parts[0].union(parts[1])

    def _from_lake(self, spark: SparkSession, wanted: Range) -> DataFrame:
        spark.dataSource.register(LakeDataSource)
        reader = spark.read.format(NAME).schema(self._ddl()).option("lake", self.lake)
        return reader.option("first_lsn", wanted[0]).option("last_lsn", wanted[1]).load()

    def _from_log(self, spark: SparkSession, wanted: Range) -> DataFrame:
        register(spark)
        reader = spark.read.format("logstore").schema(self._ddl()).options(**self.options)
        reader = reader.option("endpoints", self.endpoints)
        return reader.option("startingLsn", wanted[0]).option("endingLsn", wanted[1]).load()

    def _ddl(self) -> str:
        return ", ".join(f"{name} {CHOICE[name].sql}" for name in self.columns)


def read_log(
    spark: SparkSession,
    *,
    lake: str | None = None,
    endpoints: str | None = None,
    first_lsn: int | None = None,
    last_lsn: int | None = None,
    columns: Sequence[str] = tuple(COLUMNS),
    **options: Any,
) -> DataFrame:
    """The records [first_lsn, last_lsn], with the columns of `format("logstore")`. Arguments and
    errors as `plan_log`."""
    plan = plan_log(
        lake=lake,
        endpoints=endpoints,
        first_lsn=first_lsn,
        last_lsn=last_lsn,
        columns=columns,
        **options,
    )
    return plan.frame(spark)


def plan_log(
    *,
    lake: str | None = None,
    endpoints: str | None = None,
    first_lsn: int | None = None,
    last_lsn: int | None = None,
    columns: Sequence[str] = tuple(COLUMNS),
    **options: Any,
) -> LogRange:
    """The records [first_lsn, last_lsn].

    Args:
      lake: a lake's folder; None: the log alone.
      endpoints: of a log, the lake's or one restored from it; None: the lake alone.
      first_lsn, last_lsn: both included; None: as far as the lake, or the log, goes now.
      columns: those wanted; Spark reads no fewer by itself.
      options: further ones of `format("logstore")`, `replica` for example, for the log's part.

    Raises:
      InvalidRequest: no lake there, no such range, or no such column.
      OutOfRange: some of the range is in neither.
      WrongCluster: the log does not hold what the lake ends with.
      CorruptData: the lake's manifest is damaged, or a file is gone. What damage of a file does to
        the frame: its query fails.
    """
    unknown = [name for name in columns if name not in CHOICE]
    if unknown or not columns:
        raise InvalidRequest(f"columns {', '.join(unknown)}: give some of {', '.join(CHOICE)}")
    manifest = read_manifest(lake) if lake is not None else None
    has = (manifest.first_lsn, manifest.next_lsn - 1) if manifest else None
    if has is not None and first_lsn is not None and last_lsn is not None:
        if has[0] <= first_lsn and last_lsn <= has[1]:
            endpoints = None  # a log that does not answer is no reason not to read
    shown = None
    if endpoints is not None:
        given = {"endpoints": endpoints} | {key: str(value) for key, value in options.items()}
        planner = Planner(parse_read_options(given, is_streaming=False))
        bounds = planner.bounds()
        shown = bounds.log_start_lsn, bounds.visible_lsn
        if lake is not None and manifest is not None:
            check_same_log(planner.client, lake, manifest)
    seam = plan_seam(has, shown, first_lsn, last_lsn)
    if seam.lake is not None and lake is not None and manifest is not None:
        check_files_are_there(lake, manifest.overlapping(*seam.lake))
    folder = os.path.abspath(lake) if lake is not None else ""
    return LogRange(seam, folder, endpoints or "", tuple(columns), options)


def _words(name: str, has: Range) -> str:
    return f"{name} has LSNs {has[0]} to {has[1]}" if has[0] <= has[1] else f"{name} is empty"
