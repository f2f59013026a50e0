"""What a truncation leaves as the last entry, when that entry's record is damaged."""

from __future__ import annotations

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import ReplicaLost
from logstore.format.entry import Row
from logstore.format.raft_record import RaftRecord
from logstore.format.segment_header import SEGMENT_HEADER_SIZE, FileRole
from logstore.limits import SECTOR_BYTES
from logstore.model import Index
from logstore.storage.log_reader import LogReader
from logstore.storage.segment import segment_path
from tests.crash.storage_trial import FOLDER, StorageTrial

FIRST_RECORDS = SEGMENT_HEADER_SIZE // SECTOR_BYTES  # the sector of records 1 to 4
RAFT = segment_path(FOLDER, 1, FileRole.RAFT)
DATA = segment_path(FOLDER, 1, FileRole.DATA)


def three_groups() -> tuple[StorageTrial, dict[int, RaftRecord]]:
    """Entries 1 to 3, 4, 5, in flush groups of their own."""
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    for sizes in ([8, 16, 8], [8], [8]):
        trial.commit(1, sizes)
    reader = LogReader(trial.disk, FOLDER)
    return trial, {index: reader.record(Index(index)) for index in range(1, 6)}


@pytest.mark.parametrize("is_unreadable", [False, True])
@pytest.mark.parametrize("last", [1, 2, 3, 4])
def test_the_frame_says_what_a_damaged_record_does_not(last: int, is_unreadable: bool) -> None:
    trial, records = three_groups()
    if is_unreadable:
        trial.disk.set_unreadable(RAFT, FIRST_RECORDS)
    else:
        trial.disk.damage(RAFT, FIRST_RECORDS, b"rot")
    trial.writer.truncate(Index(last + 1))
    assert trial.writer.last == records[last].row
    trial.commit(2, [8])
    trial.restart()
    reader = LogReader(trial.disk, FOLDER)
    assert [reader.row(Index(index)) for index in range(1, last + 1)] == [
        records[index].row for index in range(1, last + 1)
    ]
    assert trial.recovered.last.header.term == 2
    assert not trial.recovered.faulty


def test_a_segment_behind_the_entry_says_it_in_its_header() -> None:
    trial, records = three_groups()
    trial.writer.roll()
    trial.commit(1, [8])
    trial.disk.damage(RAFT, FIRST_RECORDS + 1, b"rot")
    trial.disk.damage(DATA, records[5].frame_offset // SECTOR_BYTES, b"rot")
    trial.writer.truncate(Index(6))
    assert _place(trial.writer.last) == _place(records[5].row)
    assert trial.writer.last.header.timestamp_ns == records[5].row.header.timestamp_ns


@pytest.mark.parametrize("rotten_records", [1, 2])
@pytest.mark.parametrize("rotten_frame", [3, 4])
def test_an_entry_whose_time_nobody_knows_ends_the_writer(
    rotten_records: int, rotten_frame: int
) -> None:
    """The next entry says all but its time. With the old segment's as its own, searches by time
    passed over the old segment, and a leader that began behind it went back in time (G2)."""
    trial, records = three_groups()
    for number in range(rotten_records):
        trial.disk.damage(RAFT, FIRST_RECORDS + number, b"rot")
    trial.disk.damage(DATA, records[rotten_frame].frame_offset // SECTOR_BYTES, b"rot")
    with pytest.raises(ReplicaLost, match="behind entry 4, whose record is damaged, .*; replace"):
        trial.writer.truncate(Index(5))


def _place(row: Row) -> tuple[int, int, int, int]:
    return row.header.index, row.header.term, row.header.next_lsn, row.chain
