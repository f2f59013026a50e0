"""`logstore inspect` on files: every block a row, damage a row like any other."""

from __future__ import annotations

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import InvalidRequest
from logstore.format.segment_header import FileRole
from logstore.limits import SECTOR_BYTES
from logstore.model import EntryKind
from logstore.storage.inspect import inspect_meta, inspect_records, inspect_segment
from logstore.storage.segment import segment_path
from tests.crash.storage_trial import FOLDER, StorageTrial

DATA = segment_path(FOLDER, 1, FileRole.DATA)
RAFT = segment_path(FOLDER, 1, FileRole.RAFT)
FIRST = 4096 // SECTOR_BYTES


def started() -> StorageTrial:
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    trial.commit(1, [800, 0])
    trial.commit(1, [8])
    return trial


def test_meta_is_one_row() -> None:
    trial = started()
    trial.vote(4, 1)
    assert inspect_meta(trial.disk, f"{FOLDER}/meta.a")["has_config"] is False
    trial.know_config()
    row = inspect_meta(trial.disk, f"{FOLDER}/meta.a")
    assert row["has_config"] is True
    assert (row["term"], row["vote"], row["state"], row["fault"]) == (4, 1, "VOTER", "")
    trial.disk.damage(f"{FOLDER}/meta.a", 0, b"x")
    assert "magic" in str(inspect_meta(trial.disk, f"{FOLDER}/meta.a")["fault"])


def test_a_segment_is_the_row_of_its_header() -> None:
    trial = started()
    row = inspect_segment(trial.disk, RAFT)
    assert (row["number"], row["first_index"], row["role"], row["fault"]) == (1, 1, "RAFT", "")
    trial.disk.damage(DATA, 0, b"")
    assert inspect_segment(trial.disk, DATA)["fault"]


@pytest.mark.parametrize("path", [DATA, RAFT])
def test_records_and_frames_are_rows_in_file_order(path: str) -> None:
    rows = list(inspect_records(started().disk, path))
    assert [row["index"] for row in rows] == [1, 2, 3]
    assert [row["kind"] for row in rows] == ["DATA", "NOOP", "DATA"]
    assert [row["fault"] for row in rows] == ["", "", ""]


@pytest.mark.parametrize("path", [DATA, RAFT])
def test_a_file_that_a_roll_cuts_meanwhile_ends_there(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica runs on: space after the last entry of its newest pair is given back."""
    trial = started()
    monkeypatch.setattr("logstore.storage.inspect.MIB", SECTOR_BYTES)
    disk = trial.disk.view(lambda _ns: None)
    reads: list[int] = []
    read = disk.read

    def counted(handle: int, offset: int, size: int) -> bytes:
        reads.append(offset)
        assert len(reads) < 1_000, "it never ends"
        return read(handle, offset, size)

    monkeypatch.setattr(disk, "read", counted)
    rows = inspect_records(disk, path)
    next(rows)
    trial.writer.roll()
    assert [row["index"] for row in rows] == [2, 3]


def test_records_and_frames_agree_on_the_chain() -> None:
    disk = started().disk
    frames, records = (list(inspect_records(disk, path)) for path in (DATA, RAFT))
    assert [row["chain"] for row in frames] == [row["chain"] for row in records]
    assert [row["position"] for row in frames] == [row["frame_offset"] for row in records]


def test_a_trim_shows_the_log_start_that_it_makes() -> None:
    trial = started()
    trial.trim(2)
    row = list(inspect_records(trial.disk, DATA))[-1]
    assert (row["kind"], row["trim"]) == ("TRIM", "OPERATOR")
    meta = inspect_meta(trial.disk, f"{FOLDER}/meta.a")
    names = [name for name in meta if name.startswith("log_start")]
    assert [row[name] for name in names] == [meta[name] for name in names]
    trial.commit_body(EntryKind.TRIM, b"no body!" * 8)
    assert "magic" in str(list(inspect_records(trial.disk, DATA))[-1]["trim"])


def test_damage_is_a_row_and_what_follows_is_still_shown() -> None:
    trial = started()
    trial.disk.damage(DATA, FIRST + 1, b"")
    rows = list(inspect_records(trial.disk, DATA))
    assert "body CRC" in str(rows[0]["fault"])
    assert rows[-1]["index"] == 3
    sector = bytearray(trial.disk.content(RAFT)[FIRST])
    sector[130] ^= 1
    trial.disk.damage(RAFT, FIRST, bytes(sector))
    rows = list(inspect_records(trial.disk, RAFT))
    assert [bool(row["fault"]) for row in rows] == [False, True, False]


def test_other_files_are_refused() -> None:
    disk = started().disk
    with pytest.raises(InvalidRequest, match="no segment file"):
        inspect_segment(disk, f"{FOLDER}/meta.a")
    disk.damage(RAFT, 0, b"")
    with pytest.raises(InvalidRequest, match="other file of the pair"):
        list(inspect_records(disk, RAFT))


@pytest.mark.parametrize("role", list(FileRole))
def test_a_pair_prepared_ahead_is_a_spare_and_no_damage(role: FileRole) -> None:
    trial = started()
    assert trial.writer.prepare_spare()
    path = segment_path(FOLDER, 2, role)
    assert inspect_segment(trial.disk, path)["role"] == "SPARE"
    assert inspect_segment(trial.disk, path)["fault"] == ""
    assert list(inspect_records(trial.disk, path)) == []
