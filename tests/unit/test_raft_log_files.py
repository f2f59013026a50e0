"""Rows that raft reads from files are those of the log as it is, not as it was (SAFETY V7, M9)."""

from __future__ import annotations

from actors.raft.log_files import FileLogView
from actors.simulation.disk.disk import SimulatedDisk
from logstore.model import Index
from logstore.storage.log_reader import LogReader
from tests.crash.storage_trial import FOLDER, StorageTrial


class Site:
    """A log of three entries in two pairs, and raft's view of it, which has read the second one."""

    def __init__(self) -> None:
        self.trial = StorageTrial(SimulatedDisk())
        self.trial.create_log()
        self.trial.commit(1, [8])
        self.trial.writer.roll()
        self.trial.commit(1, [8, 8])
        self.generation = 0
        self.log = LogReader(self.trial.disk, FOLDER)
        self.view = FileLogView(self.log, lambda: self.generation)
        assert self.view.row(Index(2)).header.term == 1

    def rewrite(self) -> None:
        """Another term's entries take the place of the last two; the writer says so."""
        self.trial.truncate(2)
        self.trial.commit(2, [8, 8])
        self.generation += 1


def test_a_row_of_a_dead_pair_that_is_still_open_is_not_answered() -> None:
    site = Site()
    site.rewrite()
    assert [site.view.row(Index(index)).header.term for index in (1, 2, 3)] == [1, 2, 2]


def test_removed_files_are_closed_though_nobody_reads() -> None:
    site = Site()
    site.view.close_if_stale()
    assert site.log.pairs_open == 1
    site.rewrite()
    site.view.close_if_stale()
    assert site.log.pairs_open == 0
    assert site.view.row(Index(3)).header.term == 2
    site.view.close_if_stale()
    assert site.log.pairs_open == 1
