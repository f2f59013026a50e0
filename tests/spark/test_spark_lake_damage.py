"""Whatever bit of a lake's file is wrong, it is found before a row or a batch comes of it. No Spark
is needed."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logstore.errors import CorruptData
from logstore.spark import lake_bytes
from logstore.spark.audit_digests import digest_part
from logstore.spark.audit_sources import Lake, Part
from logstore.spark.columns import COLUMNS, Field
from logstore.spark.lake import check_files_are_there, data_path, read_manifest
from logstore.spark.lake_file import read_lake_file, write_lake_file
from logstore.spark.lake_manifest import LakeFile
from logstore.spark.lake_proof import check_lake_file
from logstore.spark.lake_rows import read_rows
from tests.kept.kept import LAKE, unpack
from tests.spark.test_spark_lake_file import CLUSTER, encoded, record_batches

FIELDS = [Field(name, name != "lsn") for name in COLUMNS]
SIZES = [[n % 50] * (n % 9 + 1) for n in range(200)]
OLD_FLIPS = 200


class OneFile:
    """A lake with one file that matters, and its bytes as they were written."""

    def __init__(self, folder: Path, file: LakeFile) -> None:
        self.folder = str(folder)
        self.file = file
        self.path = Path(data_path(self.folder, file))
        self.data = self.path.read_bytes()

    def flip(self, place: int, bit: int = 0) -> None:
        data = bytearray(self.data)
        data[place] ^= 1 << bit
        self.path.write_bytes(data)

    def rows(self) -> pa.Table:
        first, last = self.file.first_lsn, self.file.last_lsn
        return pa.Table.from_batches(read_rows(str(self.path), self.file, first, last, FIELDS))

    def audit(self) -> list[tuple[int, int]]:
        """The LSNs that an audit calls damaged."""
        first, last = self.file.first_lsn, self.file.last_lsn
        part = Part(Lake(self.folder), first, last, file=self.file)
        found = digest_part([first, last + 1], part)
        return [(each.first_lsn, each.last_lsn) for each in found.damage]


@pytest.fixture
def lake(tmp_path: Path) -> OneFile:
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "new"
    file = write_lake_file(str(path), record_batches(encoded(SIZES)), cluster_id=CLUSTER)
    path.rename(data_path(str(tmp_path), file))
    return OneFile(tmp_path, file)


@pytest.fixture
def old(tmp_path: Path) -> OneFile:
    """Of version 1, which has no digest of the bytes."""
    folder = unpack(LAKE, tmp_path / "old")
    return OneFile(folder, read_manifest(str(folder)).files[1])


def regions(data: bytes) -> dict[str, int]:
    """A place in each kind of bytes that a Parquet file has."""
    size = len(data)
    metadata = pq.read_metadata(pa.BufferReader(data))
    [footer_bytes] = struct.unpack_from("<I", data, size - 8)
    column = metadata.row_group(0).column(list(COLUMNS).index("raft_index"))
    payload = metadata.row_group(0).column(list(COLUMNS).index("payload"))
    footer = size - 8 - footer_bytes
    smallest = struct.pack("<q", column.statistics.min)
    return {
        "the magic at the beginning": 1,
        "the first page header": 5,
        "a page header of a column that batches are not read from": column.data_page_offset + 3,
        "a page of a column that batches are not read from": (
            column.data_page_offset + column.total_compressed_size - 1
        ),
        "a page of payloads": payload.data_page_offset + payload.total_compressed_size // 2,
        "a statistic": data.index(smallest, footer),
        "the footer": footer + footer_bytes // 2,
        "the length of the footer": size - 8,
        "the magic at the end": size - 1,
    }


def test_a_flipped_bit_of_any_region_fails_reads_and_is_found_by_an_audit(lake: OneFile) -> None:
    for region, place in regions(lake.data).items():
        lake.flip(place, bit=2)
        for read in (
            lake.rows,
            lambda: list(read_lake_file(str(lake.path), lake.file)),
            lambda: check_lake_file(lake.folder, lake.file),
        ):
            with pytest.raises(CorruptData, match="as the manifest says"):
                read()
        assert lake.audit() == [(lake.file.first_lsn, lake.file.last_lsn)], region


def test_a_flipped_bit_is_found_wherever_it_lies(lake: OneFile) -> None:
    random = Random(7)
    assert lake.audit() == []
    for place in range(0, len(lake.data), 17):
        lake.flip(place, random.randrange(8))
        assert lake.audit() == [(lake.file.first_lsn, lake.file.last_lsn)], place


def test_a_file_too_large_to_be_held_is_proved_and_read_by_its_parts(
    lake: OneFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = lake.rows()
    monkeypatch.setattr(lake_bytes, "WHOLE_BYTES", 1_000)
    monkeypatch.setattr(lake_bytes, "_BLOCK_BYTES", 300)
    assert lake.rows().equals(wanted)
    lake.flip(len(lake.data) // 2)
    with pytest.raises(CorruptData, match="got digest"):
        lake.rows()


def test_a_file_that_the_manifest_tells_otherwise_fails(lake: OneFile, tmp_path: Path) -> None:
    """A file whose bytes are whole, and which has other rows than are counted on."""
    fewer = tmp_path / "fewer"
    told = write_lake_file(str(fewer), record_batches(encoded(SIZES[:-1])), cluster_id=CLUSTER)
    lake.path.write_bytes(fewer.read_bytes())
    told = msgspec.structs.replace(
        lake.file, file_bytes=told.file_bytes, file_digest=told.file_digest
    )
    lake.file = told
    for read in (lake.rows, lambda: list(read_lake_file(str(lake.path), told))):
        with pytest.raises(CorruptData, match="rows, not"):
            read()


def test_a_part_of_the_rows_is_that_part(lake: OneFile) -> None:
    wanted = lake.rows()
    first, last = lake.file.first_lsn, lake.file.last_lsn
    for a, b in ((first, first), (first + 3, last - 5), (last, last)):
        batches = read_rows(str(lake.path), lake.file, a, b, FIELDS)
        assert pa.Table.from_batches(batches).equals(wanted.slice(a - first, b - a + 1))


def test_a_flipped_bit_of_an_old_file_is_found_or_changes_no_row(old: OneFile) -> None:
    """Nothing stands for the bytes of a file of version 1; all that it says is compared with its
    batches, and those with their digest."""
    random = Random(11)
    wanted = old.rows()
    assert not old.file.file_digest
    found = 0
    for _ in range(OLD_FLIPS):
        old.flip(random.randrange(len(old.data)), random.randrange(8))
        try:
            rows = old.rows()
        except CorruptData:
            found += 1
            assert old.audit() == [(old.file.first_lsn, old.file.last_lsn)]
        else:
            assert rows.equals(wanted)
    assert found > OLD_FLIPS // 2


def test_a_file_that_is_gone_is_told_with_what_to_do(lake: OneFile) -> None:
    check_files_are_there(lake.folder, [lake.file])
    lake.path.unlink()
    with pytest.raises(CorruptData, match="put it back from a copy of the lake"):
        check_files_are_there(lake.folder, [lake.file])
    assert lake.audit() == [(lake.file.first_lsn, lake.file.last_lsn)]
