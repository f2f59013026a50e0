"""One Parquet file of a lake: whole batches of the log in, rows; rows in, whole batches.

Owns the columns: those of the source (`columns`), and `batch_header`, the 48 bytes that a batch
begins with, in the row of its first payload and null in the others. What a batch holds besides,
offsets, payloads and padding, follows from its payloads; so every batch comes out of a file byte
for byte as it went in, and its CRC says so. Of a compressed batch `batch_header` has its block,
too: no codec promises to make the same block again. Its payloads are in the file for readers of
rows, and nothing but the file's digest stands for them.

Row groups end between batches. There is no loop over payloads, only one over batches.

A file's bytes are proved before it is parsed (`lake_bytes`). One of a lake of version 1 cannot be:
of it the batches are compared with their digest, and every column that follows from them with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from logstore.client.digest import BatchDigest
from logstore.client.future import LsnRange
from logstore.client.records import RawBatch, RecordBatch
from logstore.errors import CorruptData, FormatError, InvalidRequest, InvariantViolated
from logstore.format.batch import (
    BATCH_HEADER_SIZE,
    LENGTH_SIZE,
    pack_batch_header,
    read_batch_header,
    stored_block,
    verify_batch,
)
from logstore.limits import MESSAGE_MAX_BYTES, MIB
from logstore.spark.columns import COLUMNS, PAYLOAD
from logstore.spark.lake_bytes import DigestingFile, open_proved
from logstore.spark.lake_manifest import LakeFile

HEADER = "batch_header"
# What a task that writes or reads a file has in memory, a few times over. Larger row groups pack no
# better: payloads are compressed by pages of 1 MiB.
ROW_GROUP_BYTES = 16 * MIB
ROW_GROUP_ROWS = 1 << 20
ZSTD_LEVEL = 1
_DELTAS = ("lsn", "batch_first_lsn", "raft_index", "timestamp")
_FEW = ("batch_size", "producer_id", "term")
# What Arrow and numpy raise at bytes that make no sense.
_UNREADABLE = (OSError, pa.ArrowException, FormatError, InvalidRequest, KeyError, ValueError)


def lake_schema() -> Any:
    """The file's columns as Arrow has them; only `lsn` is never null."""
    fields = [pa.field(name, each.arrow, name != "lsn") for name, each in COLUMNS.items()]
    return pa.schema([*fields, pa.field(HEADER, pa.binary())])


def write_lake_file(path: str, batches: Iterable[RecordBatch], *, cluster_id: str) -> LakeFile:
    """Write consecutive whole batches, at least one, to a new file; what the manifest says of it.

    The file is not durable yet.
    """
    schema = lake_schema()
    digest, is_compressed = BatchDigest(), False
    payload_bytes = stored_bytes = first_ns = last_ns = 0
    with open(path, "wb") as file:
        sink = DigestingFile(file)
        with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, **_settings()) as writer:
            for parts in _row_groups(batches):
                for part in parts:
                    digest.add(part.first_lsn, len(part), whole_batch(part))
                table = _table(parts, schema)
                writer.write_table(table, row_group_size=len(table))
                payload_bytes += sum(part.payload_bytes for part in parts)
                stored_bytes += sum(part.batch_stored_bytes for part in parts)
                is_compressed = is_compressed or any(part.batch.codec for part in parts)
                first_ns, last_ns = first_ns or parts[0].timestamp_ns, parts[-1].timestamp_ns
    if not digest.batches:
        raise InvariantViolated(f"no batches for {path}")
    return LakeFile(
        first_lsn=digest.first_lsn,
        last_lsn=digest.last_lsn,
        batches=digest.batches,
        payloads=digest.payloads,
        payload_bytes=payload_bytes,
        stored_bytes=stored_bytes if is_compressed else msgspec.UNSET,
        batch_bytes=digest.size_bytes,
        file_bytes=sink.size_bytes,
        first_timestamp_us=first_ns // 1_000,
        last_timestamp_us=last_ns // 1_000,
        cluster_id=cluster_id,
        digest=digest.hexdigest(),
        file_digest=sink.hexdigest(),
    )


def open_lake_file(path: str, told: LakeFile) -> Any:
    """What Arrow reads the file from, once it is proved; a context manager.

    Raises:
      CorruptData: the file is damaged or gone, or not what the manifest says.
    """
    source = open_proved(path, told)
    try:
        if not told.file_digest:
            _prove_batches(source, path, told)
            source.seek(0)
    except BaseException:
        source.close()
        raise
    return source


def read_lake_file(path: str, told: LakeFile) -> Iterator[RawBatch]:
    """Every batch of the file that the manifest names, in order, checked by its own CRC.

    Raises:
      CorruptData: as `open_lake_file`, before any batch comes.
    """
    with open_lake_file(path, told) as source:
        for table in row_groups(source, path, told, ["lsn", PAYLOAD, HEADER]):
            yield from _batches(table)


def row_groups(
    source: Any, path: str, told: LakeFile, columns: Sequence[str], within: LsnRange | None = None
) -> Iterator[Any]:
    """The row groups of an open file that have LSNs `within`, as tables with these columns, `lsn`
    one of them; None: all.

    Raises:
      CorruptData: they do not have the LSNs that the manifest says, each once.
    """
    first, last = within or LsnRange(told.first_lsn, told.last_lsn)
    next_lsn = told.first_lsn
    try:
        with pq.ParquetFile(source, page_checksum_verification=True) as file:
            groups = range(file.num_row_groups)
            counts = [file.metadata.row_group(group).num_rows for group in groups]
            if sum(counts) != told.payloads:
                raise FormatError(f"{sum(counts)} rows, not {told.payloads}")
            for group, count in zip(groups, counts, strict=True):
                start, next_lsn = next_lsn, next_lsn + count
                if next_lsn > first and start <= last:
                    table = file.read_row_group(group, columns=list(columns))
                    _check_rows(table, start, next_lsn)
                    yield table
    except _UNREADABLE as error:
        raise CorruptData(
            path, 0, expected=f"whole row groups up to LSN {next_lsn - 1}", got=str(error),
            first_lsn=told.first_lsn, last_lsn=told.last_lsn,
        ) from error  # fmt: skip


def whole_batch(batch: RecordBatch) -> bytes:
    """The batch as the log stores it."""
    if not batch.is_whole:
        raise InvariantViolated(f"the batch at LSN {batch.first_lsn} is cut")
    return bytes(batch.whole.data)


def stored_bytes_column(table: Any) -> Any:
    """Of a row group with its payloads and headers: `batch_stored_bytes` of the source.

    Raises:
      FormatError: it does not begin with a batch.
    """
    payloads, headers = (table[name].combine_chunks() for name in (PAYLOAD, HEADER))
    starts = _batch_starts(headers)
    ends = [*starts[1:], len(table)]
    offsets, _ = _binary_buffers(payloads)
    found = [
        _stored_bytes(headers[start].as_py(), int(offsets[end] - offsets[start]))
        for start, end in zip(starts, ends, strict=True)
    ]
    counts = np.diff([*starts, len(table)])
    return pa.array(np.repeat(np.array(found, np.int32), counts))


def _stored_bytes(head: bytes, plain_bytes: int) -> int:
    if len(head) == BATCH_HEADER_SIZE:
        return plain_bytes
    return int.from_bytes(head[BATCH_HEADER_SIZE : BATCH_HEADER_SIZE + LENGTH_SIZE], "little")


def _head(batch: RecordBatch) -> bytes:
    """What `batch_header` has of a batch: all but its offsets, payloads and padding."""
    header = batch.batch
    if not header.codec:
        return pack_batch_header(header)
    block = stored_block(batch.whole.data, 0, header)
    return b"".join((pack_batch_header(header), len(block).to_bytes(LENGTH_SIZE, "little"), block))


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
        size += max(batch.payload_bytes, batch.batch_stored_bytes)
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
    heads = [_head(part) for part in parts]
    sizes = np.zeros(rows, np.int32)
    sizes[is_first] = [len(head) for head in heads]
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    values = b"".join(heads)
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
    starts = _batch_starts(headers)
    offsets, values = _binary_buffers(payloads)
    for start, end in zip(starts, [*starts[1:], len(table)], strict=True):
        first, last = int(offsets[start]), int(offsets[end])
        head = headers[start].as_py()
        stored = head[BATCH_HEADER_SIZE:] or values[first:last]
        body = (offsets[start : end + 1] - first).astype("<i4").tobytes()
        size = BATCH_HEADER_SIZE + len(body) + len(stored)
        data = b"".join((head[:BATCH_HEADER_SIZE], body, stored, bytes(-size % 8)))
        header = read_batch_header(data)
        if header.count != end - start or header.size != len(data):
            raise FormatError(
                f"{end - start} rows and {len(data)} bytes for a batch of {header.count} payloads "
                f"and {header.size} bytes at LSN {first_lsn + start}"
            )
        verify_batch(data, 0, header, batch_max_bytes=MESSAGE_MAX_BYTES)
        yield RawBatch(first_lsn + start, header.count, memoryview(data))


def _batch_starts(headers: Any) -> list[int]:
    """The rows of a row group's `batch_header` that begin batches.

    Raises:
      FormatError: the first one does not.
    """
    starts: list[int] = np.flatnonzero(headers.is_valid().to_numpy(zero_copy_only=False)).tolist()
    if not starts or starts[0]:
        raise FormatError("a row group that does not begin with a batch")
    return starts


def _check_rows(table: Any, first_lsn: int, next_lsn: int) -> None:
    wanted = lake_schema()
    if any(field.type != wanted.field(field.name).type for field in table.schema):
        raise FormatError(f"columns of other types: {table.schema.types}")
    if not np.array_equal(table["lsn"].to_numpy(), np.arange(first_lsn, next_lsn)):
        raise FormatError(f"rows with other LSNs than {first_lsn} to {next_lsn - 1}")


def _prove_batches(source: Any, path: str, told: LakeFile) -> None:
    """Of a file of which the manifest has no digest of the bytes: the batches' own, and whatever
    follows from them.

    Raises:
      CorruptData: they are not what the manifest says.
    """
    digest = BatchDigest()
    try:
        for table in row_groups(source, path, told, lake_schema().names):
            batches = list(_batches(table))
            _check_columns(table, batches)
            for batch in batches:
                digest.add(batch.first_lsn, batch.count, batch.data)
        if digest.hexdigest() != told.digest:
            raise FormatError(f"batches of digest {digest.hexdigest()}")
    except _UNREADABLE as error:
        raise CorruptData(
            path, 0, expected=f"batches of digest {told.digest}", got=str(error),
            first_lsn=told.first_lsn, last_lsn=told.last_lsn,
        ) from error  # fmt: skip


def _check_columns(table: Any, batches: Sequence[RawBatch]) -> None:
    """What no digest of version 1 stands for.

    Raises:
      FormatError: a column is not what the batches say, or falls where it never does.
    """
    headers = [read_batch_header(batch.data) for batch in batches]
    if any(header.codec for header in headers):
        raise FormatError("compressed batches, of which version 1 knew nothing")
    counts = [batch.count for batch in batches]
    producers = np.repeat(np.array([str(each.producer_id) for each in headers]), counts)
    for name, wanted in (
        ("batch_first_lsn", np.repeat([batch.first_lsn for batch in batches], counts)),
        ("batch_size", np.repeat(counts, counts)),
        ("producer_id", producers),
    ):
        found = table[name].to_numpy().astype(wanted.dtype)
        if not np.array_equal(found, wanted):
            raise FormatError(f"column {name} is not what the batches say")
    for name in ("timestamp", "raft_index", "term"):
        numbers = table[name].cast(pa.int64()).to_numpy()
        if table[name].null_count or (np.diff(numbers) < 0).any():
            raise FormatError(f"column {name} has nulls, or falls")


def _binary_buffers(array: Any) -> tuple[Any, memoryview]:
    """Offsets, one more than there are rows, and the bytes they point into."""
    if array.null_count:
        raise FormatError("a payload that is null")
    _, offsets, values = array.buffers()
    found = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4)
    return found, memoryview(values) if values is not None else memoryview(b"")
