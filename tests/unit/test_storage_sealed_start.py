"""What a start does with sealed pairs: it neither flushes them nor walks their records one by one,
and finds all the same what the walk finds (SAFETY section 4)."""

from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c

from actors.simulation.disk.disk import SimulatedDisk
from logstore.format.pair_summary import PairSummary
from logstore.format.raft_record import RECORD_SIZE
from logstore.format.segment_header import FileRole, SegmentHeader
from logstore.limits import SECTOR_BYTES
from logstore.model import EntryKind
from logstore.storage import verdict
from logstore.storage.log_reader import LogReader
from logstore.storage.segment import (
    read_either_header,
    read_summary,
    segment_numbers,
    segment_path,
)
from tests.crash.storage_trial import FOLDER, OPTIONS, StorageTrial, look

FIRST = 4096 // SECTOR_BYTES  # the sector where frames and records begin
SUMMARY = 1  # the sector of the summary in a Raft file


def sealed_pairs(count: int) -> StorageTrial:
    """Pairs 1 to `count` of two entries each, of rising terms, and an open one of one entry."""
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    for term in range(1, count + 1):
        trial.commit(term, [8, 800], commit=2 * term - 2)
        trial.writer.roll()
    trial.commit(count, [8])
    return trial


def raft_file(number: int) -> str:
    return segment_path(FOLDER, number, FileRole.RAFT)


def header(trial: StorageTrial, number: int) -> SegmentHeader:
    found = read_either_header(trial.disk, FOLDER, number)
    assert found is not None
    return found


def summary(trial: StorageTrial, number: int) -> PairSummary | None:
    """Of pair `number`, which the next pair holds."""
    return read_summary(trial.disk, FOLDER, header(trial, number + 1))


def found_in(trial: StorageTrial) -> tuple[Any, ...]:
    recovered = look(trial.disk.copy(), newest_level=2).recovered
    return (
        recovered.last, recovered.term_runs, recovered.trims, recovered.levels,
        recovered.commit_floor, recovered.persisted, recovered.faulty, recovered.records_rebuilt,
    )  # fmt: skip


def walked(trial: StorageTrial, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """What a start finds that knows no summaries, nor the array."""
    with monkeypatch.context() as patched:
        patched.setattr(verdict, "read_summary", lambda *_args: None)
        patched.setattr(verdict, "whole_records", lambda *_args, **_named: None)
        return found_in(trial)


def proves_all(trial: StorageTrial, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a start checks no sealed pair as an array, which comes before the walk."""
    arrays: list[int] = []
    whole_records = verdict.whole_records

    def counted(*args: Any, **named: Any) -> Any:
        arrays.append(1)
        return whole_records(*args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(verdict, "whole_records", counted)
        found_in(trial)
    return not arrays


def test_only_the_newest_pair_is_flushed() -> None:
    """Every flush of the others ended before its header was written (F6)."""
    trial = sealed_pairs(5)
    calls: list[tuple[str, str]] = []
    trial.disk.on_call = lambda what, path: calls.append((what, path.rpartition("/")[2]))
    trial.restart()
    flushed = [name for what, name in calls if what == "flush" and not name.startswith("meta")]
    assert flushed == ["0000000000000006.data", "0000000000000006.raft"]
    assert segment_numbers(trial.disk.list_folder(FOLDER)) == [1, 2, 3, 4, 5, 6]


def test_pairs_below_the_log_start_are_neither_flushed_nor_walked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A crash came after META had the log start and before they were removed."""
    trial = sealed_pairs(5)
    monkeypatch.setattr(trial.writer, "remove_pairs", lambda pairs: None)
    trial.trim(7)
    walks: list[int] = []
    run = verdict._Walk.run

    def counted(walk: Any, *args: Any) -> None:
        walks.append(walk.header.number)
        run(walk, *args)

    monkeypatch.setattr(verdict._Walk, "run", counted)
    assert segment_numbers(trial.disk.list_folder(FOLDER)) == [1, 2, 3, 4, 5, 6]
    trial.restart()
    assert walks == [4, 5, 6]
    assert segment_numbers(trial.disk.list_folder(FOLDER)) == [4, 5, 6]
    assert trial.recovered.term_runs == ((8, 4), (9, 5))


def test_a_summary_is_proved_by_one_checksum_and_says_what_the_walk_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial = sealed_pairs(3)
    trial.trim(1)
    trial.raise_level(2)
    trial.commit(4, [0])
    trial.writer.roll()
    trial.commit(4, [8], commit=9)
    found = summary(trial, 4)
    assert found is not None
    assert found == PairSummary(
        header(trial, 4).segment_uuid, 7, 11, 1, found.records_crc, ((7, 3), (10, 4)), (8,),
        ((9, 2),),
    )  # fmt: skip
    assert proves_all(trial, monkeypatch)
    assert found_in(trial) == walked(trial, monkeypatch)
    assert found_in(trial)[2:4] == ((8,), ((9, 2),))


def test_a_pair_that_was_open_at_a_start_gets_a_summary_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With an orphan whose record recovery writes, and with a torn tail after it."""
    for is_torn in (False, True):
        trial = sealed_pairs(1)
        group = trial.append(2, [8, 8])
        trial.writer.flush_data(group)
        if is_torn:
            torn = trial.append(2, [800])
            trial.disk.damage(segment_path(FOLDER, 2, FileRole.DATA), FIRST + 3, b"torn")
            assert torn.first_index == 6
        trial.restart()
        assert (trial.recovered.records_rebuilt, trial.recovered.has_torn_tail) == (2, is_torn)
        trial.commit(3, [8])
        trial.writer.roll()
        trial.commit(3, [8])
        assert proves_all(trial, monkeypatch)
        assert found_in(trial) == walked(trial, monkeypatch)


def test_a_pair_that_a_truncation_cuts_has_no_summary_and_is_checked_record_by_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial = sealed_pairs(2)
    trial.commit(2, [8, 8])
    trial.truncate(6)
    trial.commit(3, [8])
    assert (summary(trial, 2) is None, summary(trial, 3) is None) == (False, True)
    assert not proves_all(trial, monkeypatch)
    assert found_in(trial) == walked(trial, monkeypatch)


def test_a_truncation_at_the_end_of_a_pair_leaves_it_without_the_summary_of_another() -> None:
    trial = sealed_pairs(2)
    trial.truncate(5)
    trial.commit(3, [8])
    assert read_summary(trial.disk, FOLDER, header(trial, 4)) is None
    assert trial.writer.last.header.index == 5


@pytest.mark.parametrize("number", [1, 2, 3])
def test_damage_below_a_summary_is_found_and_mended_as_ever(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record is lost; its frame gives it back."""
    trial = sealed_pairs(3)
    before = trial.disk.content(raft_file(number))
    sector = bytearray(before[FIRST])
    sector[RECORD_SIZE + 40] ^= 4
    trial.disk.damage(raft_file(number), FIRST, bytes(sector))
    assert found_in(trial)[-1] == 1
    assert found_in(trial) == walked(trial, monkeypatch)
    trial.restart()
    assert trial.disk.content(raft_file(number)) == before
    assert proves_all(trial, monkeypatch)


def test_records_in_each_others_place_are_not_taken_for_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The CRC32C of a row of whole records does not show it: each ends with its own."""
    trial = sealed_pairs(2)
    sector = trial.disk.content(raft_file(1))[FIRST]
    one, two = sector[:RECORD_SIZE], sector[RECORD_SIZE : 2 * RECORD_SIZE]
    assert crc32c(one + two) == crc32c(two + one)
    trial.disk.damage(raft_file(1), FIRST, two + one + sector[2 * RECORD_SIZE :])
    assert found_in(trial)[-1] == 2
    assert found_in(trial) == walked(trial, monkeypatch)


def test_a_record_damaged_while_its_pair_was_open_does_not_fit_the_summary() -> None:
    """The summary is of the records as they were meant, not as they lie on the disk."""
    trial = sealed_pairs(1)
    sector = bytearray(trial.disk.content(raft_file(2))[FIRST])
    sector[40] ^= 4
    trial.disk.damage(raft_file(2), FIRST, bytes(sector))
    trial.writer.roll()
    trial.commit(2, [8])
    assert summary(trial, 2) is not None
    assert found_in(trial)[-1] == 1


@pytest.mark.parametrize("damage", [b"", b"LSUM"], ids=["an older version's", "damaged"])
def test_a_pair_without_a_summary_is_checked_record_by_record(
    damage: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions before 2026-11-23 wrote none, and pass over those that they find."""
    trial = sealed_pairs(3)
    found = found_in(trial)
    for number in (2, 3, 4):
        trial.disk.damage(raft_file(number), SUMMARY, damage)
    assert summary(trial, 1) is None
    assert not proves_all(trial, monkeypatch)
    assert found_in(trial) == found == walked(trial, monkeypatch)


def test_frames_that_are_cut_off_are_found_under_a_summary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial = sealed_pairs(2)
    trial.disk.cut(segment_path(FOLDER, 1, FileRole.DATA), 4096 + 512)
    [faulty] = found_in(trial)[6]
    assert (faulty.first, faulty.last) == (2, 2)
    assert found_in(trial) == walked(trial, monkeypatch)


def test_a_faulty_entry_of_the_open_pair_keeps_it_from_having_a_summary() -> None:
    trial = sealed_pairs(1)
    trial.disk.damage(segment_path(FOLDER, 2, FileRole.DATA), FIRST, b"rot")
    trial.restart()
    assert len(trial.recovered.faulty) == 1
    trial.commit(2, [8])
    trial.writer.roll()
    trial.commit(2, [8])
    assert summary(trial, 2) is None


def test_a_pair_in_which_more_happened_than_a_summary_holds_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trial = StorageTrial(SimulatedDisk())
    monkeypatch.setattr("logstore.storage.sealed.MARKS_MAX", 3)
    trial.create_log()
    for term in (1, 2, 3, 4):
        trial.commit(term, [8])
    trial.writer.roll()
    for _ in range(2):
        trial.commit_body(EntryKind.TRIM, b"a trim's")
    trial.writer.roll()
    trial.commit(4, [8])
    assert (summary(trial, 1), summary(trial, 2) is None) == (None, False)
    assert found_in(trial) == walked(trial, monkeypatch)
    assert LogReader(trial.disk, FOLDER).record(5).header.kind == EntryKind.TRIM
    assert OPTIONS.segment_records == 8
