"""A batch read: planned once, at the DataFrame's first action, and the same ever after.

Spark keeps the plan: call `load()` again to see what was appended since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from logstore.spark.columns import Field, arrow_batches
from logstore.spark.planning import Planner
from logstore.spark.ranges import LsnPartition, log_lost, read_partition
from logstore.spark.read_options import Earliest, ReadOptions


class LogBatchReader(DataSourceReader):
    """Offers no `pushFilters`: Spark 4.3 mixes up the filters of two scans of one DataFrame, and
    gives wrong rows. Ranges are options."""

    def __init__(self, options: ReadOptions, fields: Sequence[Field]) -> None:
        self._options = options
        self._fields = fields

    def partitions(self) -> list[InputPartition]:
        planner = Planner(self._options)
        bounds = planner.bounds()
        first_lsn = planner.first_lsn(self._options.start, bounds)
        last_lsn = planner.last_lsn(self._options.end, bounds)
        planned, lost = planner.plan_from(
            first_lsn,
            last_lsn,
            lambda lsn: planner.partitions(lsn, last_lsn),
            log_start_lsn=bounds.log_start_lsn,
            is_earliest=isinstance(self._options.start, Earliest),
        )
        log_lost(lost)
        return list(planned)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_rows(self._options, self._fields, partition)


def read_rows(
    options: ReadOptions, fields: Sequence[Field], partition: InputPartition
) -> Iterator[Any]:
    """The Arrow batches of a partition; of one that Spark made up for an empty plan, none."""
    if not isinstance(partition, LsnPartition):
        return iter(())
    return arrow_batches(read_partition(options, partition), fields)
