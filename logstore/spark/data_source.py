"""`format("logstore")`: what Spark makes, pickles and asks for readers.

Owns the name and the schema. Does nothing on its own: options are parsed where they are used.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from logstore.spark.batch_reader import LogBatchReader
from logstore.spark.columns import Field, choose_fields, schema_ddl
from logstore.spark.options import check_read_names, parse_read_options
from logstore.spark.stream_reader import LogStreamReader


class LogStoreDataSource(DataSource):
    """The log as a source of batch reads and streams."""

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


def register(spark: SparkSession) -> None:
    """Make `format("logstore")` known to a session that has not found it by itself."""
    spark.dataSource.register(LogStoreDataSource)


def _fields(schema: StructType, *, has_payload: bool) -> list[Field]:
    wanted = ((field.name, field.dataType.simpleString(), field.nullable) for field in schema)
    return choose_fields(wanted, has_payload=has_payload)
