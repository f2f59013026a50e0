"""What is told of a damaged folder: every entry that anything tells of, and what is wrong."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from logstore.format.batch import batch_payloads, read_batch_header
from logstore.format.group import FRAME_HEADER_SIZE
from logstore.format.meta import InstallMark, LogStart
from logstore.format.raft_record import RECORD_SIZE
from logstore.storage.disk import RealDisk
from logstore.storage.meta_store import META_NAMES, read_meta
from logstore.storage.salvage import (
    SalvagedEntry,
    committed_lsn,
    salvage_folder,
    salvage_segment,
)
from logstore.storage.salvaged_batches import SalvagedBatch, salvage_batches
from tests.unit.folder_stage import (
    CLUSTER,
    FolderStage,
    batch,
    fill,
    flip,
    flip_payload,
    forget,
    located,
    repeat,
)

FIRST_LSN = 11


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """LSNs 11 to 70."""
    fill(tmp_path, FIRST_LSN)
    return tmp_path


def entries(folder: Path) -> list[SalvagedEntry]:
    disk = RealDisk()
    found = salvage_folder(disk, str(folder))
    return [
        each for segment in found.segments for each in salvage_segment(disk, str(folder), segment)
    ]


def batches(folder: Path) -> list[SalvagedBatch]:
    return [each for entry in entries(folder) for each in salvage_batches(entry)]


def lsns(folder: Path) -> list[int]:
    return [
        lsn
        for each in batches(folder)
        for lsn in range(each.first_lsn, each.first_lsn + each.count)
    ]


def faults(folder: Path) -> list[tuple[int, int, str]]:
    return [(each.first_lsn, each.count, each.fault) for each in batches(folder) if each.fault]


def name_of(folder: Path, lsn: int, suffix: str) -> str:
    return f"{located(folder, lsn)[0].number:016d}.{suffix}"


def test_a_whole_folder_is_told_whole(folder: Path) -> None:
    found = salvage_folder(RealDisk(), str(folder))
    assert (found.cluster_id, found.first_lsn, found.faults) == (CLUSTER, FIRST_LSN, ())
    assert len(found.segments) >= 2
    assert lsns(folder) == list(range(11, 71))
    assert not [each for each in entries(folder) if each.fault]
    last = batches(folder)[-1]
    header = read_batch_header(last.data)
    assert batch_payloads(last.data, 0, header) == [b"9-b" * 900, b"c", b"d"]


def test_what_is_below_the_log_start_is_not_told(folder: Path) -> None:
    """Log start lies inside a pair: its entries below are still in the file."""
    header = located(folder, 23)[1].header
    start = LogStart(header.index, header.term, header.chain(), header.next_lsn)
    meta = read_meta(RealDisk(), f"{folder}/meta.a")
    for name in META_NAMES:
        (folder / name).write_bytes(msgspec.structs.replace(meta, log_start=start).pack())
    assert salvage_folder(RealDisk(), str(folder)).first_lsn == header.next_lsn
    assert lsns(folder) == list(range(header.next_lsn, 71))


def test_of_a_log_that_is_being_dropped_nothing_is_told(folder: Path) -> None:
    """SAFETY G5a. Its segments may hold other entries above the log start than the cluster has."""
    header = located(folder, 23)[1].header
    start = LogStart(header.index, header.term, header.chain(), header.next_lsn)
    meta = read_meta(RealDisk(), f"{folder}/meta.a")
    marked = msgspec.structs.replace(meta, log_start=start, installing=InstallMark(0, 0))
    for name in META_NAMES:
        (folder / name).write_bytes(marked.pack())
    found = salvage_folder(RealDisk(), str(folder))
    assert (found.first_lsn, found.segments) == (header.next_lsn, ())
    assert committed_lsn(RealDisk(), str(folder), found) == header.next_lsn - 1


def test_committed_is_what_the_newest_record_knows(folder: Path) -> None:
    disk = RealDisk()
    found = salvage_folder(disk, str(folder))
    assert committed_lsn(disk, str(folder), found) == 70
    data = (folder / name_of(folder, 70, "raft")).read_bytes()
    used = max(at for at in range(4096, len(data), RECORD_SIZE) if any(data[at : at + RECORD_SIZE]))
    # Without the last NOOP's record, the entry before it knows of its predecessor only.
    flip(folder, name_of(folder, 70, "raft"), used + 20)
    assert committed_lsn(disk, str(folder), found) == 65


def test_an_empty_log_has_nothing_committed(tmp_path: Path) -> None:
    FolderStage(tmp_path).close()
    disk = RealDisk()
    found = salvage_folder(disk, str(tmp_path))
    assert committed_lsn(disk, str(tmp_path), found) == 0
    assert entries(tmp_path) == []
    (tmp_path / "other").mkdir()
    nothing = salvage_folder(disk, str(tmp_path / "other"))
    assert (nothing.cluster_id, nothing.segments) == (bytes(16), ())
    assert nothing.faults == ("meta.a is missing", "meta.b is missing")


def test_a_changed_payload_is_told_with_its_batch_and_nothing_else(folder: Path) -> None:
    flip_payload(folder, 24, b"2-b" * 900)
    [(first, count, fault)] = faults(folder)
    assert (first, count) == (26, 3)
    assert "the CRC of the body" in fault
    assert name_of(folder, 24, "data") in fault
    assert lsns(folder) == list(range(11, 71))
    [damaged] = [each for each in batches(folder) if each.fault]
    payloads = batch_payloads(damaged.data, 0, read_batch_header(damaged.data))
    assert payloads[1:] == [b"c", b"d"]
    assert payloads[0] != b"2-b" * 900


def test_a_broken_batch_header_leaves_its_lsns_and_those_behind_it(folder: Path) -> None:
    _, record = located(folder, 24)
    flip(folder, name_of(folder, 24, "data"), record.frame_offset + FRAME_HEADER_SIZE + 8)
    assert faults(folder)[0][:2] == (24, 2)
    assert lsns(folder) == list(range(11, 71))
    [damaged] = [each for each in batches(folder) if each.fault]
    assert damaged.data == b"", "its size is wrong, so nothing in it can be told"


def test_a_broken_last_batch_has_the_rest_of_the_lsns(folder: Path) -> None:
    _, record = located(folder, 24)
    size = record.header.body_size
    flip(
        folder, name_of(folder, 24, "data"), record.frame_offset + FRAME_HEADER_SIZE + size - 2_749
    )
    [(first, count, _)] = faults(folder)
    assert (first, count) == (26, 3)


def test_a_broken_frame_header_hides_no_payload(folder: Path) -> None:
    _, record = located(folder, 24)
    flip(folder, name_of(folder, 24, "data"), record.frame_offset + 30)
    [entry] = [each for each in entries(folder) if each.fault]
    assert (entry.first_lsn, entry.count) == (24, 5)
    assert faults(folder) == []
    assert lsns(folder) == list(range(11, 71))


def test_a_broken_record_is_made_up_for_by_its_frame(folder: Path) -> None:
    segment, record = located(folder, 24)
    slot = record.header.index - segment.first_index
    flip(folder, name_of(folder, 24, "raft"), 4096 + slot * RECORD_SIZE + 40)
    [entry] = [each for each in entries(folder) if each.fault]
    assert (entry.first_lsn, entry.count) == (24, 5)
    assert f"no record {record.header.index}" in entry.fault
    assert lsns(folder) == list(range(11, 71))


def test_without_record_and_frame_an_entry_is_unknown(folder: Path) -> None:
    segment, record = located(folder, 24)
    slot = record.header.index - segment.first_index
    flip(folder, name_of(folder, 24, "data"), record.frame_offset + 30)
    flip(folder, name_of(folder, 24, "raft"), 4096 + slot * RECORD_SIZE + 40)
    [entry] = [each for each in entries(folder) if each.fault]
    assert (entry.first_lsn, entry.count) == (0, 0)
    assert "and no frame" in entry.fault
    assert lsns(folder) == [*range(11, 24), *range(29, 71)]


def test_headers_are_made_up_for_by_their_twins_and_lost_pairs_are_named(folder: Path) -> None:
    number = located(folder, 40)[0].number
    flip(folder, f"{number:016d}.raft", 30)
    flip(folder, "meta.b", 30)
    found = salvage_folder(RealDisk(), str(folder))
    assert [fault.partition(":")[0] for fault in found.faults] == ["meta.b", f"{number:016d}.raft"]
    assert lsns(folder) == list(range(11, 71))
    (folder / f"{number:016d}.raft").unlink()
    (folder / f"{number:016d}.data").unlink()
    gone = salvage_folder(RealDisk(), str(folder))
    assert any("both files or their headers are gone" in fault for fault in gone.faults)
    assert set(lsns(folder)) < set(range(11, 71))


@pytest.mark.parametrize("suffix", ["raft", "data"])
def test_one_file_of_a_pair_may_be_gone(folder: Path, suffix: str) -> None:
    """The other one tells as much as it can: payloads, or that there were some."""
    (folder / name_of(folder, 13, suffix)).unlink()
    found = entries(folder)
    assert found[0].first_lsn == 11
    assert found[0].fault
    assert lsns(folder) == list(range(11, 71))
    assert bool(batches(folder)[0].data) == (suffix == "raft")


def test_planted_gaps_and_doubles_are_told_as_they_are(folder: Path) -> None:
    forget(folder, 17)
    assert lsns(folder) == [*range(11, 17), *range(18, 71)]
    repeat(folder, 41)
    assert lsns(folder).count(41) == 2
    assert not [each for each in entries(folder) if each.fault]


def test_an_entry_that_counts_otherwise_than_its_batches_says_so() -> None:
    body = batch([b"a", b"b"])
    told = list(salvage_batches(SalvagedEntry(5, 10, 3, body, 0, "")))
    assert [(each.first_lsn, each.count, bool(each.fault)) for each in told] == [
        (10, 2, False),
        (12, 1, True),
    ]
    assert "says LSNs 10 to 12, its batches hold 2 payloads" in told[1].fault
    more = list(salvage_batches(SalvagedEntry(5, 10, 1, body, 0, "")))
    assert [(each.first_lsn, each.count) for each in more] == [(10, 2), (12, 0)]
