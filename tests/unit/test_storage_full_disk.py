"""Recovery on a full disk: nothing that a power cut leaves needs space to start (SAFETY S9)."""

from __future__ import annotations

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import DiskFull, InvariantViolated, WriteFailed
from logstore.format.segment_header import FileRole
from logstore.limits import SECTOR_BYTES
from logstore.model import Index, Lsn
from logstore.storage.log_reader import LogReader
from logstore.storage.segment import read_header, segment_numbers, segment_path
from tests.crash.storage_trial import FOLDER, StorageTrial

DATA = segment_path(FOLDER, 1, FileRole.DATA)
RAFT = segment_path(FOLDER, 1, FileRole.RAFT)
FIRST = 4096 // SECTOR_BYTES


def with_a_torn_tail(*, has_spare: bool) -> StorageTrial:
    """One entry, the bytes of another behind it, and no space on the disk."""
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    trial.commit(1, [8])
    if has_spare:
        trial.writer.prepare_spare()
    trial.append(1, [800])
    trial.disk.damage(DATA, FIRST + 2, b"")
    trial.disk.fill()
    return trial


def log_epoch(trial: StorageTrial, number: int) -> int:
    return read_header(trial.disk, segment_path(FOLDER, number, FileRole.RAFT)).log_epoch


def test_a_spare_without_entries_makes_room_for_the_discard_of_a_torn_tail() -> None:
    """SAFETY S10: what is lifeless goes before anything is allocated."""
    trial = with_a_torn_tail(has_spare=True)
    trial.restart()
    assert not trial.writer.has_torn_tail
    trial.commit(1, [8])
    trial.restart()
    assert trial.recovered.last.header.index == 2


def test_without_any_room_a_replica_starts_and_discards_its_torn_tail_later() -> None:
    trial = with_a_torn_tail(has_spare=False)
    for _ in range(2):  # another start finds the same, and claims the same
        trial.restart()
        assert trial.writer.has_torn_tail
        assert trial.writer.is_disk_full
        assert (trial.recovered.last.header.index, trial.recovered.persisted) == (1, 1)
    entries = trial.group(1, [8])
    assert trial.writer.needs_roll(entries)
    with pytest.raises(InvariantViolated):
        trial.writer.append(entries)
    with pytest.raises(DiskFull):
        trial.writer.roll()
    trial.vote(3, 2)
    trial.disk.free_space()
    assert trial.writer.prepare_spare()
    trial.writer.roll()
    assert log_epoch(trial, 2) == 1  # a truncation, not a roll (S7)
    trial.commit(3, [800])
    trial.restart()
    assert not trial.writer.has_torn_tail
    assert trial.recovered.last.header.index == 2
    assert LogReader(trial.disk, FOLDER).row(Index(2)).header.term == 3


def test_a_truncation_discards_the_torn_tail_too() -> None:
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    trial.commit(1, [8, 8])
    trial.append(1, [800])
    trial.disk.damage(DATA, FIRST + 2, b"")
    trial.disk.fill()
    trial.restart()
    assert trial.writer.has_torn_tail
    trial.disk.free_space()
    trial.truncate(2)
    assert not trial.writer.has_torn_tail
    trial.commit(2, [8])
    trial.restart()
    assert trial.recovered.term_runs == ((1, 1), (2, 2))


def test_a_new_folder_without_space_is_let_go_of_and_nothing_stays_behind() -> None:
    disk = SimulatedDisk(capacity_bytes=SECTOR_BYTES)  # the first copy of META fits, no second one
    with pytest.raises(DiskFull):
        StorageTrial(disk)
    assert disk.used_bytes <= SECTOR_BYTES
    disk.free_space()
    assert StorageTrial(disk).recovered.boot_counter == 1


@pytest.mark.parametrize("path", [DATA, RAFT, f"{FOLDER}/meta.b"])
def test_a_file_that_was_lost_is_made_again_once_there_is_space(path: str) -> None:
    """Never WriteFailed: that would end the replica at every start."""
    trial = StorageTrial(SimulatedDisk())
    trial.create_log(Lsn(5))
    trial.commit(1, [8])
    trial.disk.kill_process()
    trial.disk.remove(path)
    trial.disk.fill()
    for _ in range(2):
        with pytest.raises(DiskFull):
            trial.recovered = trial.recover()
    trial.disk.free_space()
    trial.recovered = trial.recover()
    assert trial.recovered.last.header.index == 1


def test_nothing_is_appended_among_bytes_that_cannot_be_read_now() -> None:
    """SAFETY S7: a frame without a record may be there, and be read again later."""
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    trial.commit(1, [8])
    trial.writer.flush_data(trial.append(1, [8]))
    trial.disk.set_unreadable(DATA, FIRST + 1)
    before = log_epoch(trial, 1)
    trial.restart()
    assert trial.recovered.last.header.index == 1
    assert trial.writer.last.header.index == 1
    assert [log_epoch(trial, number) for number in (1, 2)] == [before, before + 1]


def test_a_segment_is_opened_also_where_removing_and_cutting_files_takes_space() -> None:
    """On a copy-on-write file system: after the headers are durable it is no full disk. The next
    start removes what was left."""
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    trial.commit(1, [8, 8])
    trial.writer.roll()
    trial.commit(1, [8])
    trial.writer.prepare_spare()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("unlink", "truncate"):
            patch.setattr(trial.disk, name, without_space)
        trial.truncate(2)
        trial.commit(2, [8])
    assert segment_numbers(trial.disk.list_folder(FOLDER)) == [1, 2, 3]
    trial.disk.kill_process()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("unlink", "truncate"):
            patch.setattr(trial.disk, name, without_space)
        trial.recovered = trial.recover()
    assert trial.recovered.last.header.index == 2
    trial.restart()
    assert trial.recovered.term_runs == ((1, 1), (2, 2))
    assert segment_numbers(trial.disk.list_folder(FOLDER)) == [1, 3]


def without_space(*_args: object) -> None:
    raise DiskFull("no space for it; free some")


def test_a_spare_that_could_be_neither_filled_nor_removed_is_left_for_the_next_start() -> None:
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    trial.commit(1, [8])
    trial.disk.capacity_bytes = trial.disk.used_bytes + SECTOR_BYTES
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial.disk, "unlink", without_space)
        assert [trial.writer.prepare_spare() for _ in range(2)] == [False, False]
    trial.disk.free_space()
    trial.writer.roll()
    trial.commit(1, [8])
    trial.restart()
    assert len(segment_numbers(trial.disk.list_folder(FOLDER))) == 2


class Holes:
    """The files of a copied folder whose unwritten space the copy left out, on a full disk."""

    def __init__(self, trial: StorageTrial, *paths: str) -> None:
        self.paths = {*paths}
        self.is_full = True
        trial.disk.on_call = self._see

    def _see(self, what: str, path: str) -> None:
        if path in self.paths and what == "allocate":
            if self.is_full:
                raise DiskFull(path)
            self.paths.remove(path)
        if path in self.paths and what == "write":
            raise WriteFailed(path)


@pytest.mark.parametrize("path", [DATA, RAFT])
@pytest.mark.parametrize("sizes", [[], [8, 8]])
def test_a_copied_folder_without_the_space_that_was_prepared_waits_for_some(
    path: str, sizes: list[int]
) -> None:
    """`cp --sparse=always`, `rsync -S` and `tar -S` leave it out. Appends to such a file ended the
    replica, and each start of it, where it should have waited for space."""
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    if sizes:
        trial.commit(1, sizes)
    trial.disk.fill()
    holes = Holes(trial, path)
    for _ in range(2):
        trial.restart()
        assert trial.recovered.last.header.index == len(sizes)
        assert trial.writer.room() == (0, 0)
        entries = trial.group(1, [8])
        assert trial.writer.needs_roll(entries)
        with pytest.raises(DiskFull):
            trial.writer.make_room(entries)
        assert trial.writer.is_disk_full
    holes.is_full = False
    trial.disk.free_space()
    trial.writer.make_room(entries)
    trial.finish(trial.writer.append(entries))
    trial.restart()
    assert trial.recovered.last.header.index == len(sizes) + 1


def test_a_copied_folder_gets_its_space_back_at_a_start() -> None:
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    trial.commit(1, [8])
    room = trial.writer.room()
    holes = Holes(trial, DATA, RAFT)
    holes.is_full = False
    trial.restart()
    assert not holes.paths
    assert trial.writer.room() == room
    trial.commit(1, [8])
