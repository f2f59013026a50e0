"""A lake's file: what goes in comes out byte for byte, and damage is seen. No Spark is needed."""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from random import Random

import lz4.block
import pyarrow.parquet as pq
import pytest

import logstore
from logstore.client.records import RecordBatch, WholeBatch
from logstore.errors import CorruptData, DiskFull, InvariantViolated
from logstore.format.batch import (
    batch_offsets,
    batch_payloads,
    batch_sizes,
    encode_batch,
    read_batch_header,
)
from logstore.model import Codec
from logstore.spark import archive, lake_file
from logstore.spark.columns import Field
from logstore.spark.lake_file import read_lake_file, whole_batch, write_lake_file
from logstore.spark.lake_manifest import LakeFile
from logstore.spark.lake_rows import read_rows
from logstore.spark.ranges import LsnPartition
from logstore.spark.read_options import parse_read_options
from tests.spark.lakes import damage_payloads
from tests.unit.compressed_batches import TEXT, compressed, with_block

CLUSTER = "0f" * 16
FIRST_LSN = 1_000


def encoded(sizes: list[list[int]]) -> list[bytes]:
    random = Random(3)
    return [
        encode_batch(
            [random.randbytes(size) for size in batch],
            producer_id=random.getrandbits(64), producer_epoch=random.getrandbits(32),
            sequence=random.getrandbits(64), timestamp_ns=random.getrandbits(60),
        )
        for batch in sizes
    ]  # fmt: skip


def record_batches(batches: list[bytes]) -> list[RecordBatch]:
    """As a replica gives them."""
    found = []
    lsn = FIRST_LSN
    for place, data in enumerate(batches):
        header = read_batch_header(data)
        offsets = batch_offsets(data, 0, header)
        stamp = 1_700_000_000_000_000_123 + place * 1_000_000
        whole = WholeBatch(memoryview(data), lsn, header, batch_sizes(data, 0, header))
        found.append(RecordBatch(lsn, offsets, whole, place + 5, 3, stamp, True))
        lsn += header.count
    return found


SIZES = [
    [0],
    [5],
    [0, 0, 0],
    [1, 0, 100, 7],
    [70_000],
    *[[n % 50] * (n % 9 + 1) for n in range(300)],
]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, LakeFile, list[bytes]]:
    """A file of several row groups."""
    monkeypatch.setattr(lake_file, "ROW_GROUP_BYTES", 20_000)
    batches = encoded(SIZES)
    path = tmp_path / "file.parquet"
    file = write_lake_file(str(path), record_batches(batches), cluster_id=CLUSTER)
    return path, file, batches


def test_every_batch_comes_out_byte_for_byte(written: tuple[Path, LakeFile, list[bytes]]) -> None:
    path, file, batches = written
    found = list(read_lake_file(str(path), file))
    assert [bytes(each.data) for each in found] == batches
    assert [each.count for each in found] == [len(sizes) for sizes in SIZES]
    assert found[0].first_lsn == FIRST_LSN
    assert all(a.last_lsn + 1 == b.first_lsn for a, b in pairwise(found))
    assert pq.read_metadata(path).num_row_groups == 3


def test_the_manifest_is_told_what_the_file_holds(
    written: tuple[Path, LakeFile, list[bytes]],
) -> None:
    path, file, batches = written
    digest = logstore.BatchDigest()
    for each in read_lake_file(str(path), file):
        digest.add(each.first_lsn, each.count, each.data)
    payloads = sum(map(len, SIZES))
    assert file == LakeFile(
        first_lsn=FIRST_LSN, last_lsn=FIRST_LSN + payloads - 1, batches=len(SIZES),
        payloads=payloads, payload_bytes=sum(map(sum, SIZES)),
        batch_bytes=sum(map(len, batches)), file_bytes=path.stat().st_size,
        first_timestamp_us=1_700_000_000_000_000,
        last_timestamp_us=1_700_000_000_000_000 + (len(SIZES) - 1) * 1_000,
        cluster_id=CLUSTER, digest=digest.hexdigest(),
        file_digest=blake2b(path.read_bytes(), digest_size=32).hexdigest(),
    )  # fmt: skip


def test_rows_are_those_of_the_source(written: tuple[Path, LakeFile, list[bytes]]) -> None:
    path, _, batches = written
    rows = pq.read_table(path).to_pylist()
    assert [row["lsn"] for row in rows] == list(range(FIRST_LSN, FIRST_LSN + len(rows)))
    row = rows[7]
    header = read_batch_header(batches[3])
    assert (row["batch_first_lsn"], row["batch_size"], row["raft_index"], row["term"]) == (
        FIRST_LSN + 5, 4, 8, 3,
    )  # fmt: skip
    assert row["producer_id"] == str(header.producer_id)
    assert (len(row["payload"]), row["batch_header"]) == (100, None)
    assert rows[5]["batch_header"] == batches[3][:48]


def test_a_changed_byte_is_damage_before_any_batch_comes(
    written: tuple[Path, LakeFile, list[bytes]],
) -> None:
    path, file, _ = written
    damage_payloads(path, row_group=1)
    with pytest.raises(CorruptData, match="as the manifest says, got digest"):
        next(read_lake_file(str(path), file))


def test_a_file_that_is_gone_or_cut_is_damage(
    written: tuple[Path, LakeFile, list[bytes]],
) -> None:
    path, file, _ = written
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CorruptData, match="as the manifest says, got [0-9]+ bytes"):
        list(read_lake_file(str(path), file))
    path.unlink()
    with pytest.raises(CorruptData, match="got No such file"):
        list(read_lake_file(str(path), file))


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_compressed_batches_keep_their_blocks_beside_their_payloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    monkeypatch.setattr(lake_file, "ROW_GROUP_BYTES", 9_000)
    plain = encoded([[5, 0], [300]])
    batches = [plain[0], compressed(TEXT, codec), plain[1], *[compressed(TEXT[:20], codec)] * 9]
    path = str(tmp_path / "file.parquet")
    file = write_lake_file(path, record_batches(batches), cluster_id=CLUSTER)
    assert [bytes(each.data) for each in read_lake_file(path, file)] == batches
    sizes = [batch_sizes(each, 0, read_batch_header(each)) for each in batches]
    assert file.payload_bytes == sum(each.plain_bytes for each in sizes)
    assert file.stored_bytes == sum(each.stored_bytes for each in sizes) < file.payload_bytes
    assert pq.read_metadata(path).num_row_groups > 1
    payloads = [payload for each in batches for payload in payloads_of(each)]
    assert pq.read_table(path)["payload"].to_pylist() == payloads
    fields = [Field("lsn", False), Field("batch_stored_bytes", True)]
    rows = [
        row
        for part in read_rows(path, file, file.first_lsn + 3, file.last_lsn - 1, fields)
        for row in part.to_pylist()
    ]
    assert [row["lsn"] for row in rows] == list(range(file.first_lsn + 3, file.last_lsn))
    wanted = [each.stored_bytes for each in sizes for _ in range(each.count)]
    assert [row["batch_stored_bytes"] for row in rows] == wanted[3:-1]


def payloads_of(batch: bytes) -> list[bytes]:
    return batch_payloads(batch, 0, read_batch_header(batch))


def test_a_batch_that_cannot_be_decompressed_is_told_with_its_lsns(tmp_path: Path) -> None:
    batches = [compressed(TEXT, Codec.ZSTD), with_block([9, 9], b"no block", Codec.ZSTD)]
    first = FIRST_LSN + len(TEXT)
    with pytest.raises(CorruptData, match=f"go on at LSN {first + 2}") as damage:
        write_lake_file(str(tmp_path / "f"), record_batches(batches), cluster_id=CLUSTER)
    assert (damage.value.first_lsn, damage.value.last_lsn) == (first, first + 1)


def test_row_groups_are_bounded_by_what_is_stored_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks larger than what they stand for, which only another library would send."""
    block = lz4.block.compress(b"x", store_size=False)
    assert len(block) > 1
    batches = [with_block([1], block, Codec.LZ4, sequence=n) for n in range(3)]
    path = str(tmp_path / "file.parquet")
    monkeypatch.setattr(lake_file, "ROW_GROUP_BYTES", len(block))
    write_lake_file(path, record_batches(batches), cluster_id=CLUSTER)
    assert pq.read_metadata(path).num_row_groups == 3


def test_a_cut_batch_and_no_batch_are_never_written(tmp_path: Path) -> None:
    batch = record_batches(encoded([[1, 2, 3]]))[0]
    cut = batch.cut(FIRST_LSN, FIRST_LSN + 1)
    assert cut is not None
    with pytest.raises(InvariantViolated):
        whole_batch(cut)
    with pytest.raises(InvariantViolated):
        write_lake_file(str(tmp_path / "none.parquet"), [], cluster_id=CLUSTER)


def test_a_full_disk_is_told_by_the_task_that_meets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark told no more than that it had failed."""
    batches = record_batches(encoded([[9_000] * 9]))
    partition = LsnPartition(
        first_lsn=FIRST_LSN, last_lsn=FIRST_LSN + 8, number=0, leader=1, cluster_id=CLUSTER
    )
    monkeypatch.setattr(archive, "read_partition", lambda *_: batches)
    monkeypatch.setattr(
        archive,
        "write_lake_file",
        lambda _, rows, **more: write_lake_file("/dev/full", rows, **more),
    )
    options = parse_read_options({"endpoints": "127.0.0.1:1"}, is_streaming=False)
    with pytest.raises(DiskFull, match="free some space on this file system"):
        archive.archive_file(options, str(tmp_path), partition)
