"""`format("logstore")`: what Spark makes, pickles and asks for readers.

Owns the name and the schema. Does nothing on its own: options are parsed where they are used.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from logstore.spark.batch_reader import LogBatchReader
from logstore.spark.columns import Field, choose_fields, schema_ddl
from logstore.spark.options import check_read_names, parse_read_options
from logstore.spark.stream_reader import LogStreamReader
from logstore.spark.write_options import parse_write_options
from logstore.spark.writers import LogBatchWriter, LogStreamWriter, ask_batch_max, check_sink


class LogStoreDataSource(DataSource):
    """The log as a source and a sink, of batches and streams."""

    @classmethod
    def name(cls) -> str:
        return "logstore"

    def schema(self) -> str:
        return schema_ddl(has_payload=check_read_names(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_read_options(self.options, is_streaming=False)
        return LogBatchReader(options, _fields(schema, has_payload=options.has_payload))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = parse_read_options(self.options, is_streaming=True)
        return LogStreamReader(options, _fields(schema, has_payload=options.has_payload))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = parse_write_options(self.options, is_streaming=False)
        check_sink(_types(schema), is_overwrite=overwrite)
        return LogBatchWriter(options, ask_batch_max(options))

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        options = parse_write_options(self.options, is_streaming=True)
        check_sink(_types(schema), is_overwrite=overwrite)
        return LogStreamWriter(options, ask_batch_max(options))


def register(spark: SparkSession) -> None:
    """Make `format("logstore")` known to a session that has not found it by itself."""
    spark.dataSource.register(LogStoreDataSource)


def _types(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema]


def _fields(schema: StructType, *, has_payload: bool) -> list[Field]:
    wanted = ((field.name, field.dataType.simpleString(), field.nullable) for field in schema)
    return choose_fields(wanted, has_payload=has_payload)
