"""The rows of a lake as Spark reads them: a task a file, which gives all it was asked for or fails.

Owns the count of rows. Spark's own reader of Parquet believes statistics and footers, and leaves
out what they say it may; here a file is proved first, and rows are taken by their place: LSN n is
row n − first LSN of the file. Each is there, once, or the task fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from logstore.client.future import LsnRange
from logstore.errors import OutOfRange
from logstore.spark.columns import (
    ARROW_BATCH_BYTES,
    BATCH_STORED_BYTES,
    PAYLOAD,
    Field,
    arrow_schema,
    choose_fields,
)
from logstore.spark.lake import data_path, read_manifest
from logstore.spark.lake_file import HEADER, open_lake_file, row_groups, stored_bytes_column
from logstore.spark.lake_manifest import LakeFile

NAME = "logstore-lake"


class LakeDataSource(DataSource):
    """`format("logstore-lake")`, of `read_log` alone: options `lake`, `first_lsn`, `last_lsn`, all
    of them, and a schema."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def reader(self, schema: StructType) -> DataSourceReader:
        wanted = ((each.name, each.dataType.simpleString(), each.nullable) for each in schema)
        return _LakeReader(self.options, choose_fields(wanted, has_payload=True))


class LakePartition(InputPartition):
    """What one task reads: LSNs [first_lsn, last_lsn] of one file."""

    def __init__(self, file: LakeFile, *, first_lsn: int, last_lsn: int) -> None:
        super().__init__((first_lsn, last_lsn))
        self.file = file
        self.first_lsn = first_lsn
        self.last_lsn = last_lsn


class _LakeReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], fields: Sequence[Field]) -> None:
        self._folder = options["lake"]
        self._first_lsn = int(options["first_lsn"])
        self._last_lsn = int(options["last_lsn"])
        self._fields = fields

    def partitions(self) -> list[InputPartition]:
        first, last = self._first_lsn, self._last_lsn
        manifest = read_manifest(self._folder)
        if not manifest.first_lsn <= first <= last < manifest.next_lsn:
            raise OutOfRange(
                f"LSNs {first} to {last} are not in {self._folder}",
                first=manifest.first_lsn,
                last=manifest.next_lsn - 1,
            )
        return [
            LakePartition(
                file, first_lsn=max(first, file.first_lsn), last_lsn=min(last, file.last_lsn)
            )
            for file in manifest.overlapping(first, last)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, LakePartition):  # Spark's own, for an empty plan
            return iter(())
        path = data_path(self._folder, partition.file)
        return read_rows(
            path, partition.file, partition.first_lsn, partition.last_lsn, self._fields
        )


def read_rows(
    path: str, told: LakeFile, first_lsn: int, last_lsn: int, fields: Sequence[Field]
) -> Iterator[Any]:
    """Arrow batches of about ARROW_BATCH_BYTES with the rows [first_lsn, last_lsn], all of them.

    Raises:
      CorruptData: the file is damaged, gone, or not what the manifest says.
    """
    schema, within = arrow_schema(fields), LsnRange(first_lsn, last_lsn)
    is_derived = BATCH_STORED_BYTES in schema.names
    columns = list({"lsn", *schema.names, *((PAYLOAD, HEADER) if is_derived else ())})
    columns = [name for name in columns if name != BATCH_STORED_BYTES]
    with open_lake_file(path, told) as source:
        for table in row_groups(source, path, told, columns, within):
            if is_derived:
                table = table.append_column(BATCH_STORED_BYTES, stored_bytes_column(table))
            start = table["lsn"][0].as_py()
            first, last = max(first_lsn, start), min(last_lsn, start + len(table) - 1)
            yield from _cut(table.slice(first - start, last - first + 1), schema)


def _cut(table: Any, schema: Any) -> Iterator[Any]:
    """Batches of about ARROW_BATCH_BYTES with the columns of a schema."""
    step = max(1, len(table) * ARROW_BATCH_BYTES // max(1, table.nbytes))
    for batch in table.to_batches(max_chunksize=step):
        yield pa.RecordBatch.from_arrays(
            [batch.column(name) for name in schema.names], schema=schema
        )
