"""One Parquet file of a lake: whole batches of the log in, rows; rows in, whole batches.

Owns the columns: those of the source (`columns`), and `batch_header`, the 48 bytes that a batch
begins with, in the row of its first payload and null in the others. What a batch holds besides,
offsets, payloads and padding, follows from its payloads; so every batch comes out of a file byte
for byte as it went in, and its CRC says so.

Row groups end between batches. There is no loop over payloads, only one over batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from logstore.client.digest import BatchDigest
from logstore.client.records import RawBatch, RecordBatch
from logstore.errors import CorruptData, FormatError, InvalidRequest, InvariantViolated
from logstore.format.batch import (
    BATCH_HEADER_SIZE,
    pack_batch_header,
    read_batch_header,
    verify_batch,
)
from logstore.limits import MESSAGE_MAX_BYTES, MIB
from logstore.spark.columns import COLUMNS, PAYLOAD
from logstore.spark.lake_manifest import LakeFile

HEADER = "batch_header"
# What a task that writes or reads a file has in memory, a few times over. Larger row groups pack no
# better: payloads are compressed by pages of 1 MiB.
ROW_GROUP_BYTES = 16 * MIB
ROW_GROUP_ROWS = 1 << 20
ZSTD_LEVEL = 1
_DELTAS = ("lsn", "batch_first_lsn", "raft_index", "timestamp")
_FEW = ("batch_size", "producer_id", "term")


def lake_schema() -> Any:
    """The file's columns as Arrow has them; only `lsn` is never null."""
    fields = [pa.field(name, each.arrow, name != "lsn") for name, each in COLUMNS.items()]
    return pa.schema([*fields, pa.field(HEADER, pa.binary())])


def write_lake_file(path: str, batches: Iterable[RecordBatch], *, cluster_id: str) -> LakeFile:
    """Write consecutive whole batches, at least one, to a new file; what the manifest says of it.

    The file is not durable yet.
    """
    schema = lake_schema()
    digest = BatchDigest()
    payload_bytes = first_ns = last_ns = 0
    with pq.ParquetWriter(path, schema, **_settings()) as writer:
        for parts in _row_groups(batches):
            for part in parts:
                digest.add(part.first_lsn, len(part), whole_batch(part))
            table = _table(parts, schema)
            writer.write_table(table, row_group_size=len(table))
            payload_bytes += sum(part.payload_bytes for part in parts)
            first_ns, last_ns = first_ns or parts[0].timestamp_ns, parts[-1].timestamp_ns
    if not digest.batches:
        raise InvariantViolated(f"no batches for {path}")
    with open(path, "rb") as file:
        file_bytes = file.seek(0, 2)
    return LakeFile(
        first_lsn=digest.first_lsn,
        last_lsn=digest.last_lsn,
        batches=digest.batches,
        payloads=digest.payloads,
        payload_bytes=payload_bytes,
        batch_bytes=digest.size_bytes,
        file_bytes=file_bytes,
        first_timestamp_us=first_ns // 1_000,
        last_timestamp_us=last_ns // 1_000,
        cluster_id=cluster_id,
        digest=digest.hexdigest(),
    )


def read_lake_file(path: str) -> Iterator[RawBatch]:
    """Every batch of a file, in order, checked by its own CRC.

    Raises:
      CorruptData: the file is damaged or gone; what came before was whole.
    """
    group = 0
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for group in range(file.metadata.num_row_groups):
                yield from _batches(file.read_row_group(group, columns=["lsn", PAYLOAD, HEADER]))
    except (OSError, pa.ArrowException, FormatError, InvalidRequest) as error:
        raise CorruptData(
            path, 0, expected=f"whole batches in row group {group}", got=str(error)
        ) from error


def whole_batch(batch: RecordBatch) -> bytes:
    """The batch as the log stores it."""
    if not batch.is_whole:
        raise InvariantViolated(f"the batch at LSN {batch.first_lsn} is cut")
    padding = batch.batch.body_size - batch.offsets.nbytes - batch.payload_bytes
    return b"".join(
        (pack_batch_header(batch.batch), batch.offsets.data, batch.values.data, bytes(padding))
    )


def _settings() -> dict[str, Any]:
    return {
        "compression": "zstd",
        "compression_level": ZSTD_LEVEL,
        "use_dictionary": list(_FEW),
        "column_encoding": dict.fromkeys(_DELTAS, "DELTA_BINARY_PACKED"),
        "write_statistics": [*_DELTAS, *_FEW],
        "write_page_checksum": True,
    }


def _row_groups(batches: Iterable[RecordBatch]) -> Iterator[list[RecordBatch]]:
    parts: list[RecordBatch] = []
    size = rows = 0
    for batch in batches:
        parts.append(batch)
        size += batch.payload_bytes
        rows += len(batch)
        if size >= ROW_GROUP_BYTES or rows >= ROW_GROUP_ROWS:
            yield parts
            parts, size, rows = [], 0, 0
    if parts:
        yield parts


def _table(parts: Sequence[RecordBatch], schema: Any) -> Any:
    arrays = [column.make(parts, column.arrow) for column in COLUMNS.values()]
    return pa.Table.from_arrays([*arrays, _headers(parts)], schema=schema)


def _headers(parts: Sequence[RecordBatch]) -> Any:
    """Each batch's header in the row of its first payload, null in the others."""
    rows = sum(map(len, parts))
    is_first = np.zeros(rows, np.bool_)
    is_first[np.cumsum([0, *map(len, parts[:-1])])] = True
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(is_first, out=offsets[1:])
    offsets *= BATCH_HEADER_SIZE
    values = b"".join(pack_batch_header(part.batch) for part in parts)
    validity = np.packbits(is_first, bitorder="little")
    buffers = [pa.py_buffer(validity), pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def _batches(table: Any) -> Iterator[RawBatch]:
    """The batches of a row group.

    Raises:
      FormatError, InvalidRequest: its columns do not fit each other.
    """
    payloads, headers = (table[name].combine_chunks() for name in (PAYLOAD, HEADER))
    first_lsn = table["lsn"][0].as_py()
    starts = np.flatnonzero(headers.is_valid().to_numpy(zero_copy_only=False)).tolist()
    if not starts or starts[0]:
        raise FormatError("a row group that does not begin with a batch")
    offsets, values = _binary_buffers(payloads)
    for start, end in zip(starts, [*starts[1:], len(table)], strict=True):
        first, last = int(offsets[start]), int(offsets[end])
        head = headers[start].as_py()
        body = (offsets[start : end + 1] - first).astype("<i4").tobytes()
        size = len(head) + len(body) + last - first
        data = b"".join((head, body, values[first:last], bytes(-size % 8)))
        header = read_batch_header(data)
        if header.count != end - start or header.size != len(data):
            raise FormatError(
                f"{end - start} rows and {len(data)} bytes for a batch of {header.count} payloads "
                f"and {header.size} bytes at LSN {first_lsn + start}"
            )
        verify_batch(data, 0, header, batch_max_bytes=MESSAGE_MAX_BYTES)
        yield RawBatch(first_lsn + start, header.count, memoryview(data))


def _binary_buffers(array: Any) -> tuple[Any, memoryview]:
    """Offsets, one more than there are rows, and the bytes they point into."""
    if array.null_count:
        raise FormatError("a payload that is null")
    _, offsets, values = array.buffers()
    found = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4)
    return found, memoryview(values) if values is not None else memoryview(b"")
