"""A start that repairs a pair older than the newest, and is killed."""

from __future__ import annotations

import os.path

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.format.raft_record import RECORD_SIZE
from logstore.format.segment_header import FileRole
from logstore.storage.repair_mark import REPAIRING_NAME
from logstore.storage.segment import segment_numbers, segment_path
from tests.crash.storage_trial import FOLDER, StorageTrial
from tests.unit.test_storage_recovery import DATA, FIRST, RAFT, faulty, started

SHOWN_BYTES = 4096 + RECORD_SIZE  # a header, and what is needed of the first frame or record


@pytest.mark.parametrize(
    ("path", "sector"), [(DATA, 0), (RAFT, 0), (RAFT, FIRST)], ids=["data", "raft", "record"]
)
def test_a_repair_that_was_killed_is_durable_after_the_next_start(path: str, sector: int) -> None:
    """Older pairs are flushed, so a start does not flush them again: but what a killed start wrote
    there is in the page cache only, and looks whole (seed 1676 of 2026-11-28)."""
    trial = started([8], [8])
    trial.writer.roll()
    trial.commit(1, [8])
    medium = trial.disk.file_named(path)
    whole = medium.durable_bytes(0, SHOWN_BYTES)
    trial.disk.damage(path, sector, b"rot")
    killed: list[SimulatedDisk] = []

    def kill_here(_what: str, _path: str) -> None:
        killed.append(trial.disk.fork())
        killed[-1].kill_process()

    trial.disk.on_call = kill_here
    trial.restart()
    assert medium.durable_bytes(0, SHOWN_BYTES) == whole
    for disk in killed:
        assert faulty(StorageTrial(disk)) == []
        assert disk.file_named(path).durable_bytes(0, SHOWN_BYTES) == whole
        assert REPAIRING_NAME not in {os.path.basename(name) for name in disk.names_in(FOLDER)}


def test_on_a_full_disk_a_spare_makes_room_for_the_mark() -> None:
    trial = started([8])
    trial.writer.roll()
    trial.commit(1, [8])
    trial.writer.prepare_spare()
    trial.disk.damage(DATA, 0, b"rot")
    trial.disk.fill()
    trial.restart()
    assert trial.recovered.last.header.index == 2
    assert segment_numbers(trial.disk.list_folder(FOLDER)) == [1, 2]
    assert REPAIRING_NAME not in trial.disk.list_folder(FOLDER)


def test_a_pair_is_repaired_under_the_mark_where_a_later_one_cannot_be_read_now() -> None:
    """The newest pair is empty, and the device refuses its headers for a while: the one before it
    looks like the newest, but the next start may see it otherwise."""
    trial = started([8])
    trial.writer.roll()
    trial.disk.damage(DATA, 0, b"rot")
    for role in FileRole:
        trial.disk.set_unreadable(segment_path(FOLDER, 2, role), 0)
    made: list[str] = []
    trial.disk.on_call = lambda _what, path: made.append(os.path.basename(path))
    trial.restart()
    assert REPAIRING_NAME in made
