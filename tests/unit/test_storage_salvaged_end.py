"""Where a log ends, as salvage says (SAFETY L8), if the newest Raft file is lost in whole or in
part: frames say what the entries are, and nothing says where they ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.format.segment_header import FileRole
from logstore.storage.disk import RealDisk
from logstore.storage.folder_log import read_folder_log
from logstore.storage.segment import segment_path
from logstore.storage.whole_entries import WholeEntries
from tests.crash.storage_trial import FOLDER, StorageTrial
from tests.unit.folder_stage import FolderStage, batch, flip, located

ENTRIES = 20
DAMAGED = 16


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """LSNs 1 to 20 in entries 1 to 20 of one pair, each of which knows the one before to be
    committed."""
    stage = FolderStage(tmp_path)
    for _ in range(ENTRIES):
        stage.append(batch([b"payload"]))
    stage.close()
    return tmp_path


def newest_raft(folder: Path) -> Path:
    return folder / f"{located(folder, ENTRIES)[0].number:016d}.raft"


def remove(path: Path) -> None:
    path.unlink()


def leave_the_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4096])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def walked(folder: Path, *, certain_only: bool = False) -> WholeEntries:
    log = read_folder_log(RealDisk(), str(folder))
    walk = WholeEntries(RealDisk(), log, certain_only=certain_only)
    assert [each.first_lsn for each in walk.batches()] == list(range(1, walk.last_lsn + 1))
    return walk


LOSSES = [remove, leave_the_header, zero]


@pytest.mark.parametrize("lose", LOSSES)
def test_an_end_with_bytes_after_it_is_damage(folder: Path, lose: Callable[[Path], None]) -> None:
    """They were called those of an entry that was never acknowledged."""
    segment, record = located(folder, DAMAGED)
    lose(newest_raft(folder))
    flip(folder, f"{segment.number:016d}.data", record.frame_offset + 30)
    walk = walked(folder)
    assert (walk.last_lsn, walk.has_torn_tail) == (DAMAGED - 1, False)
    assert walk.not_taken is not None
    assert (walk.not_taken.lsn, walk.not_taken.is_damage) == (DAMAGED, True)
    assert (walk.not_taken.last_lsn, walk.not_taken.size_bytes) == (None, None)


@pytest.mark.parametrize("lose", LOSSES)
def test_without_damage_all_is_taken_and_it_has_an_end(
    folder: Path, lose: Callable[[Path], None]
) -> None:
    lose(newest_raft(folder))
    walk = walked(folder)
    assert (walk.last_lsn, walk.not_taken, walk.has_torn_tail) == (ENTRIES, None, False)


def test_an_empty_pair_says_how_far_the_missing_one_before_it_went() -> None:
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    for sizes in ([8], [8, 8]):
        trial.commit(1, sizes)
        trial.writer.roll()
    for role in FileRole:
        trial.disk.remove(segment_path(FOLDER, 2, role))
    log = read_folder_log(trial.disk, FOLDER)
    assert log.newest is not None
    assert (log.newest.index, log.newest.next_lsn, log.is_end_known) == (3, 4, True)


@pytest.mark.parametrize("lose", LOSSES)
def test_what_frames_prove_committed_is_certain(folder: Path, lose: Callable[[Path], None]) -> None:
    """Each frame knows the entry before it to be committed."""
    lose(newest_raft(folder))
    assert walked(folder).certain_lsn == ENTRIES - 1
    walk = walked(folder, certain_only=True)
    assert (walk.last_lsn, walk.certain_lsn) == (ENTRIES - 1, ENTRIES - 1)
    assert walk.not_taken is not None
    assert (walk.not_taken.lsn, walk.not_taken.is_damage) == (ENTRIES, False)
    assert (walk.not_taken.last_lsn, walk.not_taken.size_bytes) == (None, None)


def test_damage_after_what_is_certain_ends_it_there(folder: Path) -> None:
    segment, record = located(folder, DAMAGED)
    newest_raft(folder).unlink()
    flip(folder, f"{segment.number:016d}.data", record.frame_offset + 30)
    walk = walked(folder, certain_only=True)
    assert walk.last_lsn == walk.certain_lsn == DAMAGED - 2
