"""A lake is verified from PROTOCOL.md's section 11 alone: nothing of logstore reads it here."""

from __future__ import annotations

import json
import struct
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from crc32c import crc32c

from logstore.model import Codec
from logstore.spark.lake import LakeWriter, Written, make_durable
from logstore.spark.lake_file import write_lake_file
from logstore.spark.lake_manifest import LakeFile, _Head
from tests.spark.test_spark_lake_file import CLUSTER, FIRST_LSN, encoded, record_batches
from tests.tidy.repository import text_of
from tests.unit.compressed_batches import TEXT, compressed

SECTION = text_of(Path("PROTOCOL.md")).partition("## 11. A lake")[2].partition("\n## ")[0]
SIZES = [[0], [5, 0, 9], [70_000], *[[n % 50] * (n % 9 + 1) for n in range(60)]]
PHYSICAL = ["INT64", "BYTE_ARRAY", *["INT64"] * 2, "INT32", "BYTE_ARRAY", *["INT64"] * 2]


def verify(folder: Path) -> dict[str, Any]:
    """As the section says it; the head. AssertionError: it is not as it says."""
    text = (folder / "manifest.jsonl").read_bytes()
    assert text.endswith(b"\n")
    first, *lines = text[:-1].split(b"\n")
    head = json.loads(first)
    assert head["lake"] == (3 if b'"stored_bytes":' in text else 2)
    next_lsn = head["first_lsn"]
    chain = blake2b(bytes.fromhex(head["cluster_id"]) + b"%d" % next_lsn, digest_size=32).digest()
    for line in lines:
        row = json.loads(line)
        assert line.endswith(b'"chain":"' + row["chain"].encode() + b'"}')
        chain = blake2b(chain + line[: -2 - 64] + b'"}', digest_size=32).digest()
        assert (row["first_lsn"], row["chain"]) == (next_lsn, chain.hex())
        verify_file(folder / "data" / f"{next_lsn:019}-{row['last_lsn']:019}.parquet", row)
        next_lsn = row["last_lsn"] + 1
    assert (head["next_lsn"], head["files"], head["chain"]) == (next_lsn, len(lines), chain.hex())
    return dict(head)


def verify_file(path: Path, told: dict[str, Any]) -> None:
    assert told["file_digest"] == blake2b(path.read_bytes(), digest_size=32).hexdigest()
    rows = pq.read_table(path, page_checksum_verification=True).to_pylist()
    digest = blake2b(digest_size=32)
    batches = batch_bytes = stored_bytes = start = 0
    while start < len(rows):
        row = rows[start]
        batch = rows[start : start + row["batch_size"]]
        data = batch_of(row["batch_header"], [each["payload"] for each in batch])
        assert [each["batch_header"] for each in batch[1:]] == [None] * (len(batch) - 1)
        assert {each["batch_first_lsn"] for each in batch} == {row["lsn"]}
        assert {each["producer_id"] for each in batch} == {str(*struct.unpack_from("<Q", data, 16))}
        digest.update(struct.pack("<QII", row["lsn"], len(batch), len(data)) + data)
        plain = sum(len(each["payload"]) for each in batch)
        head = row["batch_header"]
        stored_bytes += struct.unpack_from("<I", head, 48)[0] if len(head) > 48 else plain
        batches, batch_bytes, start = batches + 1, batch_bytes + len(data), start + len(batch)
    assert [row["lsn"] for row in rows] == list(range(told["first_lsn"], told["last_lsn"] + 1))
    assert (told["batches"], told["payloads"]) == (batches, len(rows))
    assert told["payload_bytes"] == sum(len(row["payload"]) for row in rows)
    assert told.get("stored_bytes", told["payload_bytes"]) == stored_bytes
    assert (told["batch_bytes"], told["file_bytes"]) == (batch_bytes, path.stat().st_size)
    times = [rows[place]["timestamp"].timestamp() for place in (0, -1)]
    assert [told["first_timestamp_us"], told["last_timestamp_us"]] == [
        round(time * 1e6) for time in times
    ]
    assert told["digest"] == digest.hexdigest()


def batch_of(header: bytes, payloads: list[bytes]) -> bytes:
    offsets = [0]
    for payload in payloads:
        offsets.append(offsets[-1] + len(payload))
    body = struct.pack(f"<{len(offsets)}i", *offsets) + b"".join(payloads)
    if struct.unpack_from("<H", header, 6)[0]:
        body = struct.pack(f"<{len(offsets)}i", *offsets) + header[48:]
    else:
        assert len(header) == 48
    data = header[:48] + body + bytes(-len(body) % 8)
    body_size, count = struct.unpack_from("<II", header, 8)
    assert (body_size, count) == (len(data) - 48, len(payloads))
    assert struct.unpack_from("<I", header, 28)[0] == crc32c(data[32:], crc32c(data[:28]))
    return data


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two files, added in two rounds."""
    return make_lake(tmp_path / "lake", encoded(SIZES))


def make_lake(folder: Path, encoded_batches: list[bytes]) -> Path:
    batches = record_batches(encoded_batches)
    with LakeWriter(str(folder)) as writer:
        manifest = writer.make(cluster_id=CLUSTER, first_lsn=FIRST_LSN)
        for part in (batches[:40], batches[40:]):
            path = str(Path(writer.incoming) / f"{part[0].first_lsn}.parquet")
            written = Written(path, write_lake_file(path, part, cluster_id=CLUSTER))
            make_durable(path)
            manifest = writer.add(manifest, [written])
    return folder


def test_a_lake_is_what_the_protocol_says(lake: Path) -> None:
    head = verify(lake)
    assert (head["files"], head["first_lsn"]) == (2, FIRST_LSN)
    assert head["next_lsn"] == FIRST_LSN + sum(map(len, SIZES))


def test_a_lake_with_compressed_batches_is_too(tmp_path: Path) -> None:
    blocks = [compressed(TEXT, codec) for codec in (Codec.LZ4, Codec.ZSTD)]
    assert verify(make_lake(tmp_path / "lake", [*encoded(SIZES), *blocks]))["lake"] == 3


def test_an_empty_lake_is_too(tmp_path: Path) -> None:
    with LakeWriter(str(tmp_path)) as writer:
        writer.make(cluster_id=CLUSTER, first_lsn=7)
    assert verify(tmp_path)["next_lsn"] == 7


def test_a_changed_payload_is_seen_even_if_its_page_is_whole(lake: Path) -> None:
    path = min((lake / "data").iterdir())
    table = pq.read_table(path)
    payloads = table["payload"].to_pylist()
    place = next(n for n, each in enumerate(payloads) if len(each) > 8)
    payloads[place] = Random(1).randbytes(len(payloads[place]))
    column = table.schema.get_field_index("payload")
    changed = table.set_column(column, table.schema.field(column), [payloads])
    pq.write_table(changed, path, write_page_checksum=True)
    with pytest.raises(AssertionError):
        verify(lake)


def test_fields_and_columns_are_those_of_the_section(lake: Path) -> None:
    cells = [line.split("|")[1].strip() for line in SECTION.splitlines() if line.startswith("| ")]
    names = [name for cell in cells for name in cell.split(", ")]
    head = names[names.index("lake") : names.index("chain") + 1]
    assert head == [field.name for field in msgspec.structs.fields(_Head)]
    names = names[len(head) + names.index("lake") :]
    names = [name for name in names if name not in ("field", "column")]
    fields = [field.name for field in msgspec.structs.fields(LakeFile)]
    assert names[: len(fields)] == fields
    schema = pq.ParquetFile(next((lake / "data").iterdir())).schema
    columns = [schema.column(place) for place in range(len(schema))]
    assert names[len(fields) :] == [column.name for column in columns]
    assert [column.physical_type for column in columns] == [*PHYSICAL, "BYTE_ARRAY"]
    assert [column.max_definition_level for column in columns] == [0, *[1] * 8]
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in str(columns[2].logical_type)
    assert str(columns[5].logical_type) == "String"
