"""The rows of one task on their way to the driver, and all of them as the log's payloads.

A task's rows ride in its commit message as an Arrow stream: Spark delivers the messages of the
tasks that succeeded, once each, in the order of the partitions, whatever failed and ran again.
Bytes are copied as blocks; there is no loop over payloads.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from logstore.errors import BatchTooLarge, InvalidRequest
from logstore.format.batch import PAYLOAD_BYTES_MAX, PackedPayloads, batch_size

PAYLOAD = "payload"
_SCHEMA = pa.schema([pa.field(PAYLOAD, pa.binary())])
_BINARY = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string())
_SMALLER = (
    "lower the source's maxRecordsPerTrigger or maxBytesPerTrigger (of a batch write, its rows), "
    "raise limits.batch_max on the replicas, or let it go in parts with atomic=false"
)


class TaskRows(WriterCommitMessage):
    """What one task wrote.

    Attributes:
      rows: an Arrow stream of one binary column, as an Arrow buffer, which pickles as it lies;
        empty for none.
      query_id: of the stream; "" in a batch write.
    """

    def __init__(self, *, rows: Any, count: int, payload_bytes: int, query_id: str) -> None:
        self.rows = rows
        self.count = count
        self.payload_bytes = payload_bytes
        self.query_id = query_id


def too_large(count: int, payload_bytes: int, batch_max_bytes: int) -> BatchTooLarge:
    """The error for rows that do not fit into one batch."""
    return BatchTooLarge(
        f"{count} rows of {payload_bytes} bytes are more than one atomic batch of the log holds "
        f"({batch_max_bytes} bytes with 4 for each row); nothing was written: {_SMALLER}"
    )


def collect_task(batches: Iterable[Any], *, batch_max_bytes: int, is_atomic: bool) -> TaskRows:
    """A task's rows, gathered.

    Raises:
      BatchTooLarge: they cannot be appended, as far as this task can tell.
      InvalidRequest: a row has no payload.
    """
    count = payload_bytes = 0
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as stream:
        for batch in batches:
            column = _binary(batch.column(0))
            count += len(column)
            payload_bytes += _payload_bytes(column)
            if is_atomic and batch_size(count, payload_bytes) > batch_max_bytes:
                raise too_large(count, payload_bytes, batch_max_bytes)
            stream.write_batch(pa.RecordBatch.from_arrays([column], schema=_SCHEMA))
    context = TaskContext.get()
    query_id = context.getLocalProperty("sql.streaming.queryId") if context else None
    rows = sink.getvalue() if count else pa.py_buffer(b"")
    return TaskRows(rows=rows, count=count, payload_bytes=payload_bytes, query_id=query_id or "")


def join_payloads(messages: Sequence[TaskRows]) -> PackedPayloads:
    """The payloads of all tasks, one after the other; there is one at least.

    Raises:
      BatchTooLarge: they are above what 32 bits count.
    """
    payload_bytes = sum(each.payload_bytes for each in messages)
    if payload_bytes > PAYLOAD_BYTES_MAX:
        raise BatchTooLarge(
            f"{payload_bytes} bytes in one write, at most {PAYLOAD_BYTES_MAX}; nothing was "
            "written: lower the source's maxRecordsPerTrigger or maxBytesPerTrigger"
        )
    offsets = np.empty(sum(each.count for each in messages) + 1, np.int32)
    offsets[0] = row = end = 0
    blocks = []
    for column in _columns(messages):
        starts, data = _offsets(column), column.buffers()[2]
        first, last = int(starts[0]), int(starts[-1])
        np.add(starts[1:], end - first, out=offsets[row + 1 : row + len(column) + 1])
        if last > first:
            blocks.append(memoryview(data)[first:last])
        row += len(column)
        end += last - first
    return PackedPayloads(_int_array(offsets), b"".join(blocks))


def cut_payloads(packed: PackedPayloads, part_bytes: int) -> Iterator[PackedPayloads]:
    """Consecutive parts that fit into batches of `part_bytes`, one payload at least in each. Where
    they are cut depends on the payloads alone."""
    ends = np.frombuffer(packed.offsets, np.int32).astype(np.int64)
    values, first = memoryview(packed.values), 0
    # A batch of rows [first, row) has at most this size: header and padding are below 64 bytes.
    sizes = ends + 4 * np.arange(len(ends))
    while first < len(packed):
        last = int(np.searchsorted(sizes, sizes[first] + part_bytes - 64, side="right")) - 1
        last = max(last, first + 1)
        offsets = (ends[first : last + 1] - ends[first]).astype(np.int32)
        yield PackedPayloads(_int_array(offsets), values[ends[first] : ends[last]])
        first = last


def largest_payload(packed: PackedPayloads) -> int:
    """Bytes of the largest one."""
    return int(np.diff(np.frombuffer(packed.offsets, np.int32)).max())


def _columns(messages: Sequence[TaskRows]) -> Iterator[Any]:
    for message in messages:
        if message.count:
            with pa.ipc.open_stream(message.rows) as stream:
                for batch in stream:
                    yield batch.column(0)


def _binary(column: Any) -> Any:
    """The column as binary, its bytes where they are."""
    if column.null_count:
        raise InvalidRequest(
            f"{column.null_count} rows have no payload (NULL): filter them out, or give them one"
        )
    if column.type not in _BINARY:
        raise InvalidRequest(f"column payload is {column.type}, not binary or string")
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _offsets(column: Any) -> Any:
    """int32, one more than there are rows."""
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)


def _payload_bytes(column: Any) -> int:
    if not len(column):
        return 0
    offsets = _offsets(column)
    return int(offsets[-1] - offsets[0])


def _int_array(numbers: Any) -> array[int]:
    found = array("i")
    found.frombytes(numbers.tobytes())
    return found
