"""Dropping a log on disk for a log start that is installed (SAFETY G5a)."""

from __future__ import annotations

import msgspec
import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import CorruptData, DiskFull, FolderRefused, InvariantViolated
from logstore.format.meta import InstallMark
from logstore.model import Index
from logstore.storage.log_reader import BelowLogStart, LogReader
from logstore.storage.segment import log_start_at, segment_numbers
from tests.crash.storage_trial import FOLDER, StorageTrial, entry_elsewhere, look
from tests.unit.test_storage_log_start import pairs, three_pairs

BEFORE = entry_elsewhere(20, 2)


@pytest.mark.parametrize("is_half_done", [False, True])
def test_the_log_begins_anew_after_the_entry_and_goes_on_from_its_stamp_and_bytes(
    is_half_done: bool,
) -> None:
    trial = three_pairs()
    if is_half_done:
        mark(trial)
        trial.restart()
    else:
        trial.install(BEFORE)
    assert len(pairs(trial)) == 1
    for _ in range(2):
        found = trial.recovered
        if is_half_done:
            assert (found.start, found.last) == (log_start_at(BEFORE), BEFORE)
            assert (found.faulty, found.persisted, found.commit_floor) == ((), 20, 20)
            assert (found.term_runs, found.has_torn_tail) == ((), False)
        assert trial.writer.last == BEFORE
        trial.restart()
        is_half_done = True
    trial.commit(3, [8, 8])
    assert trial.writer.last.header.cumulative_bytes == BEFORE.header.cumulative_bytes + 16
    kept = look(trial.disk.copy())
    assert sorted(kept.kept) == [21, 22]
    assert kept.recovered.term_runs == ((21, 3),)


def mark(trial: StorageTrial) -> None:
    meta, header = trial.recovered.meta, BEFORE.header
    mark = InstallMark(header.cumulative_bytes, header.timestamp_ns)
    meta.save(msgspec.structs.replace(meta.meta, log_start=log_start_at(BEFORE), installing=mark))


def test_a_number_is_not_used_again() -> None:
    trial = three_pairs()
    before = segment_numbers(trial.disk.list_folder(FOLDER))
    mark(trial)
    trial.restart()
    assert pairs(trial)[0] > before[-1]


def test_the_vote_and_the_level_stay_as_they_were() -> None:
    trial = three_pairs()
    trial.vote(7, 3)
    mark(trial)
    trial.restart()
    assert (trial.recovered.term, trial.recovered.vote) == (7, 3)
    assert trial.recovered.meta.meta.installing is None


def test_without_the_mark_no_pairs_is_damage() -> None:
    """SAFETY S10: nothing says that the log was to be dropped."""
    trial = three_pairs()
    meta = trial.recovered.meta
    meta.save(msgspec.structs.replace(meta.meta, log_start=log_start_at(BEFORE)))
    trial.writer.drop(BEFORE)
    with pytest.raises(CorruptData, match="none"):
        trial.restart()


def test_segments_of_another_replica_are_not_dropped() -> None:
    """SAFETY L3: two folders were mixed."""
    trial = three_pairs()
    mark(trial)
    meta = trial.recovered.meta
    meta.save(msgspec.structs.replace(meta.meta, replica_uuid=b"another replica!"))
    before = segment_numbers(trial.disk.list_folder(FOLDER))
    with pytest.raises(FolderRefused):
        trial.restart()
    assert segment_numbers(trial.disk.list_folder(FOLDER)) == before


def test_the_log_is_not_dropped_under_a_flush() -> None:
    """SAFETY F6."""
    trial = three_pairs()
    trial.append(2, [8])
    with pytest.raises(InvariantViolated, match="being flushed"):
        trial.writer.drop(BEFORE)


def test_on_a_full_disk_the_drop_itself_makes_the_space() -> None:
    trial = three_pairs()
    trial.disk.fill()
    with pytest.raises(DiskFull):
        trial.writer.roll()
    trial.install(BEFORE)
    assert not trial.writer.is_disk_full
    trial.disk.free_space()
    trial.commit(3, [8])


def test_without_any_space_the_new_pair_waits_for_some() -> None:
    trial = three_pairs()
    mark(trial)
    trial.writer.drop(BEFORE)
    trial.disk.capacity_bytes = 1
    for _ in range(2):
        with pytest.raises(DiskFull):
            trial.writer.open_first()
    assert trial.writer.is_disk_full
    trial.restart()
    assert trial.writer.is_disk_full
    trial.vote(7, 3)
    assert trial.recovered.meta.meta.installing is not None
    trial.disk.free_space()
    trial.restart()
    assert trial.recovered.meta.meta.installing is None
    assert (trial.recovered.term, trial.recovered.vote) == (7, 3)
    trial.commit(8, [8])
    assert sorted(look(trial.disk.copy()).kept) == [21]


def test_s9_old_pairs_that_a_full_disk_does_not_remove_keep_no_start_waiting() -> None:
    """A copy-on-write file system: an unlink takes space, too."""
    trial = three_pairs()
    mark(trial)

    def refuse(what: str, path: str) -> None:
        if what == "unlink":
            raise DiskFull(path)

    trial.disk.on_call = refuse
    trial.restart()
    trial.disk.on_call = None
    trial.commit(3, [8])
    assert len(pairs(trial)) > 1
    trial.restart()
    assert (len(pairs(trial)), trial.writer.last.header.index) == (1, 21)


def test_a_torn_tail_goes_with_the_log() -> None:
    trial = three_pairs()
    trial.append(2, [800, 800])
    trial.restart()
    trial.install(BEFORE)
    assert not trial.writer.has_torn_tail
    trial.commit(3, [8])
    assert sorted(look(trial.disk.copy()).kept) == [21]


def test_a_reader_is_told_what_is_gone_and_closes_its_files() -> None:
    """SAFETY G4, G6, V7."""
    trial = three_pairs()
    reader = LogReader(trial.disk, FOLDER)
    for index in (1, 4, 6):
        reader.read_body(Index(index))
    fresh = LogReader(trial.disk, FOLDER)
    trial.install(BEFORE)
    with pytest.raises(BelowLogStart):
        fresh.row(Index(5))
    assert reader.pairs_open == 3
    reader.refresh()
    assert (reader.pairs_open, reader.start) == (0, log_start_at(BEFORE))
    with pytest.raises(BelowLogStart):
        reader.index_of_lsn(BEFORE.header.next_lsn - 1, Index(20))
    assert reader.index_of_lsn(BEFORE.header.next_lsn, Index(20)) == 21
    trial.commit(3, [8])
    assert reader.index_of_lsn(BEFORE.header.next_lsn, Index(21)) == 21
    assert len(reader.read_body(Index(21))) == 8


@pytest.mark.parametrize("step", ["marked", "dropped"])
def test_a_reader_in_the_middle_of_it_finds_an_empty_log(step: str) -> None:
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    trial.commit(1, [8])
    mark(trial)
    if step == "dropped":
        trial.writer.drop(BEFORE)
    reader = LogReader(trial.disk, FOLDER)
    with pytest.raises(BelowLogStart):
        reader.row(Index(1))
    assert reader.index_of_lsn(BEFORE.header.next_lsn, Index(20)) == 21
