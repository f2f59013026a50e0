"""Format levels on disk: entries that raise one are found, too new a log is left as it is (S11)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import UnsupportedLevel
from logstore.format import entry
from logstore.format.level import level_kind
from logstore.format.segment_header import FileRole
from logstore.storage import inspect, salvage
from logstore.storage.disk import RealDisk
from logstore.storage.inspect import inspect_meta, inspect_records
from logstore.storage.salvage import salvage_folder, salvage_segment
from logstore.storage.segment import segment_path
from tests.crash import storage_trial
from tests.crash.storage_trial import FOLDER, StorageTrial, look
from tests.unit.folder_stage import FolderStage
from tests.unit.test_storage_recovery import DATA, FIRST, RAFT, faulty, started

NEWEST = 2
NEW_KIND = 40


def raised() -> StorageTrial:
    """Entry 3 raises the log to level 2, entry 5 to level 3."""
    trial = started([8, 8])
    trial.newest_level = 3
    assert trial.raise_level(2) == 3
    trial.commit(1, [8])
    assert trial.raise_level(3) == 5
    trial.commit(1, [8])
    return trial


def files(trial: StorageTrial) -> dict[str, bytes]:
    """Every file, as the writer would read it."""
    disk = trial.disk.copy()
    found = {}
    for name in disk.list_folder(FOLDER):
        handle = disk.open_read(f"{FOLDER}/{name}")
        found[name] = disk.read(handle, 0, disk.size(handle))
    return found


@pytest.mark.parametrize("in_sealed", [False, True])
def test_recovery_finds_every_entry_that_raises_the_level(in_sealed: bool) -> None:
    trial = raised()
    if in_sealed:
        trial.writer.roll()
        trial.commit(1, [8])
    trial.restart()
    assert trial.recovered.levels == ((3, 2), (5, 3))
    assert faulty(trial) == []


@pytest.mark.parametrize("lost", [RAFT, DATA])
def test_a_level_whose_record_or_frame_is_damaged_is_found_by_the_other(lost: str) -> None:
    trial = started([8])
    trial.newest_level = 2
    index = trial.raise_level(2)
    if lost == RAFT:
        trial.disk.damage(RAFT, FIRST, b"")  # the sector with both records
    else:
        trial.disk.damage(DATA, FIRST + 1, b"")
    trial.restart()
    assert trial.recovered.levels == ((index, 2),)
    assert faulty(trial) == ([] if lost == RAFT else [(index, index)])


def test_a_truncated_level_is_not_found() -> None:
    trial = started([8])
    trial.newest_level = 2
    trial.truncate(trial.raise_level(2))
    trial.commit(2, [0, 8])
    trial.restart()
    assert trial.recovered.levels == ()


@pytest.mark.parametrize("newest", [1, 2])
def test_a_log_above_the_newest_level_is_refused_and_left_as_it_is(newest: int) -> None:
    """Without META's word, from the entry alone; the torn tail after it is not discarded."""
    trial = raised()
    trial.writer.append(trial.group(1, [8]))  # written and not flushed
    trial.disk.kill_process()
    before = files(trial)
    trial.newest_level = newest
    with pytest.raises(UnsupportedLevel) as refused:
        trial.restart()
    assert str(refused.value) == (
        f"the log in {FOLDER} is at format level {newest + 1}, this version reads levels up to "
        f"{newest}: start a newer version"
    )
    after = files(trial)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed <= {"meta.a", "meta.b"}  # the boot counter
    trial.newest_level = 3
    trial.restart()
    assert trial.recovered.levels == ((3, 2), (5, 3))
    assert set(look_newest(trial)) >= set(trial.acknowledged)


@pytest.mark.parametrize("in_sealed", [False, True])
def test_a_kind_of_entry_that_came_with_the_level_hides_it_from_nobody(
    in_sealed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The short cut for sealed segments reads all fields of the last record only."""
    trial = started([8])
    trial.newest_level = 2
    trial.raise_level(2)
    with monkeypatch.context() as newer:
        newer.setattr(entry, "_KINDS", entry._KINDS | {NEW_KIND})
        newer.setattr(storage_trial, "level_kind", lambda _level: NEW_KIND)
        trial.raise_level(2)
        if in_sealed:
            trial.writer.roll()
    trial.newest_level = 1
    with pytest.raises(UnsupportedLevel, match="format level 2"):
        trial.restart()


def look_newest(trial: StorageTrial) -> dict[int, int]:
    trial.disk.kill_process()
    return dict(look(trial.disk, newest_level=3).kept)


def test_a_meta_above_the_newest_level_is_refused_before_anything_is_written() -> None:
    trial = started([8])
    store = trial.recovered.meta
    store.save(msgspec.structs.replace(store.meta, level=2))
    trial.disk.kill_process()
    before = files(trial)
    trial.newest_level = 1
    with pytest.raises(UnsupportedLevel, match="format level 2"):
        trial.restart()
    assert files(trial) == before
    trial.newest_level = 2
    trial.restart()
    assert trial.recovered.meta.meta.level == 2
    trial.vote(4, 2)
    assert trial.recovered.meta.meta.level == 2


# --- tools that read a folder without a replica ---


def folder_at(level: int, folder: Path) -> FolderStage:
    stage = FolderStage(folder)
    stage.append()
    stage.append(kind=level_kind(level))
    return stage


def test_people_see_a_level_that_this_version_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (inspect, salvage):
        monkeypatch.setattr(module, "NEWEST_LEVEL", NEWEST)
    folder_at(NEWEST, tmp_path)
    disk = RealDisk()
    for role in FileRole:
        rows = list(inspect_records(disk, segment_path(str(tmp_path), 1, role)))
        assert rows[-1]["kind"] == "LEVEL 2"
        assert rows[-1]["fault"] == ""
    assert inspect_meta(disk, str(tmp_path / "meta.a"))["level"] == 1
    found = salvage_folder(disk, str(tmp_path))
    assert list(salvage_segment(disk, str(tmp_path), found.segments[0])) == []  # nothing unknown


def test_tools_refuse_what_follows_a_level_that_is_too_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (inspect, salvage):
        monkeypatch.setattr(module, "NEWEST_LEVEL", NEWEST)
    folder_at(NEWEST + 1, tmp_path)
    disk = RealDisk()
    for role in FileRole:
        rows = inspect_records(disk, segment_path(str(tmp_path), 1, role))
        with pytest.raises(UnsupportedLevel, match="format level 3, this version reads levels up"):
            assert [row["kind"] for row in rows][-1] == "LEVEL 3"
    found = salvage_folder(disk, str(tmp_path))
    with pytest.raises(UnsupportedLevel, match="format level 3"):
        list(salvage_segment(disk, str(tmp_path), found.segments[0]))


def test_tools_refuse_a_meta_that_is_too_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = StorageTrial(SimulatedDisk())
    meta = msgspec.structs.replace(trial.recovered.meta.meta, level=NEWEST + 1)
    for name in ("meta.a", "meta.b"):
        (tmp_path / name).write_bytes(meta.pack())
    for module in (inspect, salvage):
        monkeypatch.setattr(module, "NEWEST_LEVEL", NEWEST)
    with pytest.raises(UnsupportedLevel, match="format level 3"):
        inspect_meta(RealDisk(), str(tmp_path / "meta.b"))
    with pytest.raises(UnsupportedLevel, match="format level 3"):
        salvage_folder(RealDisk(), str(tmp_path))
