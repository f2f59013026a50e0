"""Moving the log start on disk, and recovering a log whose start lies anywhere (SAFETY G4)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import CorruptData, InvariantViolated
from logstore.format.meta import LogStart
from logstore.format.segment_header import FileRole
from logstore.limits import SECTOR_BYTES
from logstore.model import EntryKind, Index, Lsn
from logstore.storage import verdict
from logstore.storage.log_reader import BelowLogStart, LogReader
from logstore.storage.segment import row_at_start, segment_numbers, segment_path
from tests.crash.storage_trial import FOLDER, StorageTrial, look

FIRST = 4096 // SECTOR_BYTES  # the sector where frames and records begin
DATA = segment_path(FOLDER, 1, FileRole.DATA)
RAFT = segment_path(FOLDER, 1, FileRole.RAFT)


def three_pairs() -> StorageTrial:
    """Pairs 1, 2 and 3 begin at entries 1, 4 and 6; the log ends at 7."""
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    trial.commit(1, [800, 8, 8])
    trial.writer.roll()
    trial.commit(1, [8])
    trial.commit(2, [8], commit=4)
    trial.writer.roll()
    trial.commit(2, [8, 800], commit=5)
    return trial


def start_at(trial: StorageTrial, index: int) -> LogStart:
    row = LogReader(trial.disk, FOLDER).row(Index(index))
    return LogStart(row.header.index, row.header.term, row.chain, row.header.next_lsn)


def pairs(trial: StorageTrial) -> list[int]:
    return segment_numbers(trial.disk.list_folder(FOLDER))


def faulty(trial: StorageTrial) -> list[tuple[int, int]]:
    return [(each.first, each.last) for each in trial.recovered.faulty]


@pytest.mark.parametrize(
    ("index", "left", "runs"),
    [
        (1, [1, 2, 3], ((2, 1), (5, 2))),  # inside a pair
        (3, [2, 3], ((4, 1), (5, 2))),  # at a pair's boundary
        (4, [2, 3], ((5, 2),)),
        (5, [3], ((6, 2),)),
        (6, [3], ((7, 2),)),  # in the newest pair, which stays
        (7, [3], ()),  # at the last entry
    ],
)
def test_pairs_wholly_below_the_log_start_are_removed_and_nothing_below_is_reported(
    index: int, left: list[int], runs: tuple[Any, ...]
) -> None:
    trial = three_pairs()
    last, start = trial.writer.last, start_at(trial, index)
    trial.move_start(start)
    assert pairs(trial) == left
    for _ in range(2):
        trial.restart()
        found = trial.recovered
        assert (found.start, found.last, found.term_runs) == (start, last, runs)
        assert (found.faulty, found.persisted, found.has_torn_tail) == ((), 7, False)
        assert pairs(trial) == left
    trial.commit(3, [8])
    found = look(trial.disk.copy())
    assert sorted(found.kept) == list(range(index + 1, 9))
    assert found.kept == trial.acknowledged


# --- the walk begins at the pair's own first entry ---


def trimmed_in_the_newest_pair() -> StorageTrial:
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    trial.commit(1, [8, 8])
    trial.commit(1, [8])
    trial.move_start(start_at(trial, 1))
    return trial


def test_an_entry_above_a_log_start_inside_the_newest_pair_is_not_forgotten() -> None:
    """Its record is damaged, its frame is whole: only the frames before say where that is."""
    trial = trimmed_in_the_newest_pair()
    trial.disk.damage(RAFT, FIRST, b"")
    found = look(trial.disk.copy())
    assert found.kept == trial.acknowledged
    assert not found.faulty


def test_a_walk_that_began_at_log_start_forgot_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """SAFETY G4 names it: what it did not find it took for a torn tail."""
    trial = trimmed_in_the_newest_pair()
    trial.disk.damage(RAFT, FIRST, b"")
    monkeypatch.setattr(verdict, "_begin", lambda _segments, start: row_at_start(start))
    found = look(trial.disk.copy())
    assert (found.kept, found.faulty) == ({}, frozenset())


def damaged_at_the_start() -> StorageTrial:
    """Log start is entry 4 of six in one pair; nothing is left of entries 1 to 4."""
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    for _ in range(6):
        trial.commit(1, [8])
    trial.move_start(start_at(trial, 4))
    trial.disk.damage(RAFT, FIRST, b"")
    for sector in range(4):
        trial.disk.damage(DATA, FIRST + sector, b"")
    return trial


def test_damage_at_or_below_the_log_start_is_left_out() -> None:
    """META is evidence of what was there, also in the newest pair, and says how it ends."""
    trial = damaged_at_the_start()
    last = trial.writer.last
    found = look(trial.disk.copy())
    assert (found.recovered.last, found.faulty) == (last, frozenset())
    assert (found.recovered.term_runs, found.recovered.persisted) == (((5, 1),), 6)
    assert found.kept == trial.acknowledged


def test_nothing_is_torn_at_or_below_the_log_start() -> None:
    """Everything after log start is damaged as well. The TRIM was there: this is no torn tail. The
    next entry would not add up with what is left, whose bytes and time are those of none."""
    trial = damaged_at_the_start()
    trial.disk.damage(RAFT, FIRST + 1, b"")
    for sector in (4, 5):
        trial.disk.damage(DATA, FIRST + sector, b"")
    with pytest.raises(CorruptData, match="an entry above 4, after which the log starts"):
        look(trial.disk.copy())


def test_a_log_that_ends_at_the_log_start_goes_on_where_that_entry_is_whole() -> None:
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    for _ in range(6):
        trial.commit(1, [8])
    row = LogReader(trial.disk, FOLDER).row(Index(5))
    trial.move_start(start_at(trial, 4))
    trial.disk.damage(RAFT, FIRST + 1, b"")
    for sector in (4, 5):
        trial.disk.damage(DATA, FIRST + sector, b"")
    trial.restart()
    found = trial.recovered
    assert (found.last.header.index, found.persisted, found.faulty) == (4, 4, ())
    assert found.last.chain == found.start.chain
    body = memoryview((row.header.index - 1 + 1_000_000).to_bytes(8, "little"))
    trial.finish(trial.writer.append([(row.header, row.chain, 0, [body])]))


def test_a_damaged_entry_right_above_the_log_start_is_faulty() -> None:
    trial = damaged_at_the_start()
    trial.disk.damage(DATA, FIRST + 4, b"")
    trial.restart()
    assert faulty(trial) == [(5, 5)]


def test_a_missing_pair_that_held_the_log_start_is_damage_above_it_only() -> None:
    trial = three_pairs()
    trial.move_start(start_at(trial, 4))
    for role in FileRole:
        trial.disk.remove(segment_path(FOLDER, 2, role))
    trial.restart()
    assert faulty(trial) == [(5, 5)]
    assert trial.recovered.last.header.index == 7


# --- what a crash leaves ---


@pytest.mark.parametrize("left", FileRole)
@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_pair_below_that_is_half_removed_is_removed(left: FileRole, is_damaged: bool) -> None:
    """Also if the header of the file that is left is damaged: none of its entries is above log
    start."""
    trial = three_pairs()
    meta, start = trial.recovered.meta, start_at(trial, 4)
    meta.save(msgspec.structs.replace(meta.meta, log_start=start))
    for role in set(FileRole) - {left}:
        trial.disk.remove(segment_path(FOLDER, 1, role))
    if is_damaged:
        trial.disk.damage(segment_path(FOLDER, 1, left), 0, b"")
    trial.restart()
    assert trial.recovered.first_index == 5
    assert pairs(trial) == [2, 3]


# --- truncation ---


@pytest.mark.parametrize("index", [2, 3])  # at a pair's boundary, inside a pair
def test_a_truncation_reaches_down_to_the_log_start_and_no_further(index: int) -> None:
    """What follows goes on with the stamp and the bytes of the entry at log start."""
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    trial.commit(1, [8, 8])
    trial.writer.roll()
    trial.commit(1, [8, 8])
    row = LogReader(trial.disk, FOLDER).row(Index(index))
    trial.move_start(start_at(trial, index))
    with pytest.raises(InvariantViolated, match="the log starts"):
        trial.writer.truncate(Index(index))
    trial.truncate(index + 1)
    for _ in range(2):
        last = trial.writer.last
        assert (last.header.index, last.chain) == (index, row.chain)
        assert last.header.timestamp_ns == row.header.timestamp_ns
        assert last.header.cumulative_bytes == row.header.cumulative_bytes
        trial.restart()
    trial.commit(1, [8])
    assert look(trial.disk.copy()).kept == trial.acknowledged


# --- reading ---


def test_searches_begin_at_the_log_start() -> None:
    """SAFETY G6."""
    trial = three_pairs()
    reader = LogReader(trial.disk, FOLDER)
    rows = {index: reader.row(Index(index)).header for index in range(1, 8)}
    assert reader.newest_of_kind(EntryKind.DATA, Index(4)) == 4
    trial.move_start(start_at(trial, 4))
    assert reader.refresh()
    last = Index(7)
    for index, header in rows.items():
        if index <= 4:
            for read in (reader.row, reader.read_body):
                with pytest.raises(BelowLogStart):
                    read(Index(index))
            with pytest.raises(BelowLogStart):
                reader.index_of_lsn(header.first_lsn, last)
        else:
            assert reader.index_of_lsn(header.first_lsn, last) == index
        found = max(index, 5)
        assert reader.index_of_time(header.timestamp_ns, last) == found
        assert reader.index_of_bytes(header.cumulative_bytes, last) == found
    assert reader.newest_of_kind(EntryKind.DATA, Index(4)) is None


def test_a_reader_that_was_not_told_finds_out_instead_of_naming_damage() -> None:
    """The files are gone and META says why."""
    trial = three_pairs()
    reader = LogReader(trial.disk, FOLDER)
    trial.move_start(start_at(trial, 5))
    with pytest.raises(BelowLogStart):
        reader.row(Index(4))
    assert (reader.start.index, reader.row(Index(6)).header.index) == (5, 6)
    reader = LogReader(trial.disk, FOLDER)
    trial.move_start(start_at(trial, 6))
    with pytest.raises(BelowLogStart):
        reader.index_of_lsn(Lsn(1), Index(7))


def test_a_reader_reads_on_in_what_it_has_open_and_lets_go_of_it_at_a_refresh() -> None:
    trial = three_pairs()
    reader = LogReader(trial.disk, FOLDER)
    for index in (1, 4, 6):
        reader.read_body(Index(index))
    assert reader.pairs_open == 3
    trial.move_start(start_at(trial, 5))
    assert len(reader.read_body(Index(1))) == 800
    reader.refresh()
    assert reader.pairs_open == 1


# --- truncations ---


def test_s7_a_truncation_below_the_oldest_pair_that_is_left_opens_a_segment_there_or_none() -> None:
    """The first pair is lost, and what it held is not committed. A segment at the next pair's first
    index would keep entries that were to go, and refuse the leader's."""
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    trial.commit(1, [8, 8, 8])
    trial.writer.roll()
    trial.commit(1, [8, 8])
    trial.disk.unlink(DATA)
    trial.disk.unlink(RAFT)
    trial.restart()
    assert faulty(trial) == [(1, 3)]
    with pytest.raises(CorruptData):
        trial.writer.truncate(Index(3))
    assert trial.writer.last.header.index == 5
    trial.writer.truncate(Index(1))
    assert trial.writer.last.header.index == 0
    trial.commit(2, [8])
    assert look(trial.disk.copy()).kept.keys() == {1}


def test_s7_a_truncation_right_above_the_log_start_keeps_the_time_and_bytes_of_its_entry() -> None:
    """META does not know them, the header of the oldest pair does."""
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    trial.commit(1, [800, 8])
    trial.writer.roll()
    trial.commit(1, [8])
    last = LogReader(trial.disk, FOLDER).row(Index(2)).header
    trial.move_start(start_at(trial, 2))
    trial.writer.truncate(Index(3))
    kept = trial.writer.last.header
    told = (kept.index, kept.term, kept.timestamp_ns, kept.cumulative_bytes)
    assert told == (2, 1, last.timestamp_ns, 808)
