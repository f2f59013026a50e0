"""`format("logstore")`: what Spark makes, pickles and asks for readers and writers.

Owns the name. Does nothing on its own: options are parsed where they are used. Spark imports this
module whenever it looks for data sources, for whatever query; so what reads and writes is imported
only when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from logstore.spark.columns import Field


class LogStoreDataSource(DataSource):
    """The log as a source and a sink, of batches and streams."""

    @classmethod
    def name(cls) -> str:
        return "logstore"

    def schema(self) -> str:
        from logstore.spark.columns import schema_ddl
        from logstore.spark.read_options import check_read_names

        return schema_ddl(has_payload=check_read_names(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from logstore.spark.batch_reader import LogBatchReader
        from logstore.spark.read_options import parse_read_options

        options = parse_read_options(self.options, is_streaming=False)
        return LogBatchReader(options, _fields(schema, has_payload=options.has_payload))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from logstore.spark.read_options import parse_read_options
        from logstore.spark.stream_reader import LogStreamReader

        options = parse_read_options(self.options, is_streaming=True)
        return LogStreamReader(options, _fields(schema, has_payload=options.has_payload))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from logstore.spark.write_options import parse_write_options
        from logstore.spark.writers import LogBatchWriter, ask_batch_max, check_sink

        options = parse_write_options(self.options, is_streaming=False)
        check_sink(_types(schema), is_overwrite=overwrite)
        return LogBatchWriter(options, ask_batch_max(options))

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from logstore.spark.write_options import parse_write_options
        from logstore.spark.writers import LogStreamWriter, ask_batch_max, check_sink

        options = parse_write_options(self.options, is_streaming=True)
        check_sink(_types(schema), is_overwrite=overwrite)
        return LogStreamWriter(options, ask_batch_max(options))


def register(spark: SparkSession) -> None:
    """Make `format("logstore")` known to a session that has not found it by itself."""
    spark.dataSource.register(LogStoreDataSource)


def _types(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema]


def _fields(schema: StructType, *, has_payload: bool) -> list[Field]:
    from logstore.spark.columns import choose_fields

    wanted = ((field.name, field.dataType.simpleString(), field.nullable) for field in schema)
    return choose_fields(wanted, has_payload=has_payload)
