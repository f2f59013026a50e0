"""The columns of a source, and log batches as Arrow record batches of them.

Owns the schema and how each column is made. Payload bytes are copied once at most, as whole blocks:
there is no loop over payloads, only one over the log's batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from logstore.client.records import RecordBatch
from logstore.errors import ConfigError
from logstore.limits import MIB

# What one Arrow batch holds before the next is begun: 1 to 4 MiB were best to hand to the JVM, and
# int32 offsets hold far more than this and one batch of the log.
ARROW_BATCH_BYTES = 2 * MIB
ARROW_BATCH_ROWS = 65_536


class Column(msgspec.Struct, frozen=True):
    """`sql`: the type in a schema; `spark`: as Spark's `simpleString` says it."""

    name: str
    sql: str
    spark: str
    arrow: Any
    make: Callable[[Sequence[RecordBatch], Any], Any]


class Field(msgspec.Struct, frozen=True):
    """A column as one query wants it."""

    name: str
    is_nullable: bool


# --- how columns are made ---


def _per_row(parts: Sequence[RecordBatch], values: list[int], dtype: type) -> Any:
    """One value a log batch, repeated for its rows."""
    return np.repeat(np.array(values, dtype), [len(part) for part in parts])


def _fixed(values: Any, arrow: Any) -> Any:
    """A numpy array as an Arrow array over the same memory."""
    return pa.Array.from_buffers(arrow, len(values), [None, pa.py_buffer(values)])


def _lsn(parts: Sequence[RecordBatch], arrow: Any) -> Any:
    return _fixed(np.arange(parts[0].first_lsn, parts[-1].last_lsn + 1, dtype=np.int64), arrow)


def _payload(parts: Sequence[RecordBatch], arrow: Any) -> Any:
    """One part: views of what came. Several: their bytes joined, their offsets moved."""
    if len(parts) == 1:
        return _binary(parts[0].offsets, parts[0].plain(), arrow)
    offsets = np.empty(sum(map(len, parts)) + 1, np.int32)
    offsets[0] = row = end = 0
    blocks = []
    for part in parts:
        first, last = int(part.offsets[0]), int(part.offsets[-1])
        count = len(part)
        np.add(part.offsets[1:], end - first, out=offsets[row + 1 : row + count + 1])
        blocks.append(np.frombuffer(part.plain()[first:last], np.uint8))
        row += count
        end += last - first
    return _binary(offsets, np.concatenate(blocks), arrow)


def _binary(offsets: Any, values: Any, arrow: Any) -> Any:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(values)]
    return pa.Array.from_buffers(arrow, len(offsets) - 1, buffers)


def _timestamp(parts: Sequence[RecordBatch], arrow: Any) -> Any:
    return _fixed(_per_row(parts, [part.timestamp_ns // 1_000 for part in parts], np.int64), arrow)


def _batch_first_lsn(parts: Sequence[RecordBatch], arrow: Any) -> Any:
    return _fixed(_per_row(parts, [part.batch_first_lsn for part in parts], np.int64), arrow)


def _batch_size(parts: Sequence[RecordBatch], arrow: Any) -> Any:
    return _fixed(_per_row(parts, [part.batch.count for part in parts], np.int32), arrow)


def _batch_stored_bytes(parts: Sequence[RecordBatch], arrow: Any) -> Any:
    return _fixed(_per_row(parts, [part.batch_stored_bytes for part in parts], np.int32), arrow)


def _producer_id(parts: Sequence[RecordBatch], arrow: Any) -> Any:
    places: dict[int, int] = {}
    codes = [places.setdefault(part.batch.producer_id, len(places)) for part in parts]
    names = pa.array([str(each) for each in places], arrow)
    return names.take(_fixed(_per_row(parts, codes, np.int32), pa.int32()))


def _raft_index(parts: Sequence[RecordBatch], arrow: Any) -> Any:
    return _fixed(_per_row(parts, [part.index for part in parts], np.int64), arrow)


def _term(parts: Sequence[RecordBatch], arrow: Any) -> Any:
    return _fixed(_per_row(parts, [part.term for part in parts], np.int64), arrow)


PAYLOAD = "payload"
COLUMNS = {
    column.name: column
    for column in (
        Column("lsn", "BIGINT NOT NULL", "bigint", pa.int64(), _lsn),
        Column(PAYLOAD, "BINARY", "binary", pa.binary(), _payload),
        Column("timestamp", "TIMESTAMP", "timestamp", pa.timestamp("us", "UTC"), _timestamp),
        Column("batch_first_lsn", "BIGINT", "bigint", pa.int64(), _batch_first_lsn),
        Column("batch_size", "INT", "int", pa.int32(), _batch_size),
        Column("producer_id", "STRING", "string", pa.string(), _producer_id),
        Column("raft_index", "BIGINT", "bigint", pa.int64(), _raft_index),
        Column("term", "BIGINT", "bigint", pa.int64(), _term),
    )
}


# Only for who asks for it, by `.schema(…)` or by `read_log(columns=…)`; no lake has it as a column.
BATCH_STORED_BYTES = "batch_stored_bytes"
CHOICE = COLUMNS | {
    BATCH_STORED_BYTES: Column(BATCH_STORED_BYTES, "INT", "int", pa.int32(), _batch_stored_bytes)
}


def schema_ddl(*, has_payload: bool) -> str:
    """The whole schema, as Spark reads it."""
    return ", ".join(
        f"{column.name} {column.sql}"
        for column in COLUMNS.values()
        if has_payload or column.name != PAYLOAD
    )


def choose_fields(wanted: Iterable[tuple[str, str, bool]], *, has_payload: bool) -> list[Field]:
    """The columns of a schema that Spark, or the user by `.schema(…)`, asks for.

    Args:
      wanted: name, Spark's simple type and whether it is nullable, of each field in order.
      has_payload: what includePayload says.

    Raises:
      ConfigError: a column that is not there, twice, or of another type.
    """
    fields: list[Field] = []
    for name, spark_type, is_nullable in wanted:
        column = CHOICE.get(name)
        if column is None:
            raise ConfigError(f"schema: no column {name!r}; there are {', '.join(CHOICE)}")
        if spark_type != column.spark:
            raise ConfigError(f"schema: column {name} is {column.sql}, not {spark_type.upper()}")
        if name == PAYLOAD and not has_payload:
            raise ConfigError("schema: there is no column payload with includePayload=false")
        if name in (field.name for field in fields):
            raise ConfigError(f"schema: column {name} is there twice")
        fields.append(Field(name, is_nullable))
    return fields


def arrow_schema(fields: Sequence[Field]) -> Any:
    """As Arrow has them; Spark takes no other types than these."""
    return pa.schema(
        [pa.field(field.name, CHOICE[field.name].arrow, field.is_nullable) for field in fields]
    )


def arrow_batches(batches: Iterable[RecordBatch], fields: Sequence[Field]) -> Iterator[Any]:
    """Arrow record batches of about ARROW_BATCH_BYTES from consecutive log batches."""
    schema = arrow_schema(fields)
    parts: list[RecordBatch] = []
    size = rows = 0
    for batch in batches:
        if parts and (
            size + batch.payload_bytes > ARROW_BATCH_BYTES
            or rows + len(batch) > ARROW_BATCH_ROWS
            or batch.first_lsn != parts[-1].last_lsn + 1
        ):
            yield _arrow_batch(parts, schema)
            parts, size, rows = [], 0, 0
        parts.append(batch)
        size += batch.payload_bytes
        rows += len(batch)
    if parts:
        yield _arrow_batch(parts, schema)


def _arrow_batch(parts: Sequence[RecordBatch], schema: Any) -> Any:
    arrays = [CHOICE[field.name].make(parts, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
