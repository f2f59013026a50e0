"""A rebuild on a log whose start moves or has moved, its newest snapshot damaged (SAFETY E5)."""

from __future__ import annotations

import pytest

from actors.messages import RotReported
from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import CorruptData
from logstore.format.entry import Row
from logstore.format.segment_header import FileRole
from logstore.format.session_snapshot import PartHead
from logstore.storage.log_reader import BelowLogStart, LogReader
from logstore.storage.segment import segment_path
from tests.crash.storage_trial import FOLDER, StorageTrial
from tests.unit.ingress_stage import StageLog
from tests.unit.test_ingress_snapshots import lead_again
from tests.unit.test_ingress_trims import leader_with_entries, snapshot


@pytest.fixture
def stage():
    return leader_with_entries()


def snapshot_after_an_append(stage):
    stage.pushed.push(4)
    stage.accept_and_commit()
    return snapshot(stage)


def test_g6_a_rebuild_that_the_log_start_overtakes_begins_again_above_it(stage, monkeypatch):
    """The record of the newest snapshot is damaged, so the walk begins at the one before. Then the
    TRIM acts that the newest one allowed. Ingress would have ended, and the replica with it."""
    first = snapshot(stage)
    newest = snapshot_after_an_append(stage)
    starts = []

    def search(log, _kind, _last):
        log.start.index = max(starts, default=0)
        return None if starts else first

    def row(log, _index):
        if not log.start.index:
            starts.append(newest - 1)
            raise BelowLogStart
        raise CorruptData("00.raft", 0, expected="a record", got="rot")

    monkeypatch.setattr(StageLog, "newest_of_kind", search)
    monkeypatch.setattr(StageLog, "row", row)
    stage.heard()
    lead_again(stage, accepted=newest - 1)
    stage.work()
    assert [each.index for each in stage.heard() if isinstance(each, RotReported)] == [newest]


def test_g1_a_snapshot_that_a_trim_has_cut_is_no_place_to_begin_at(stage, monkeypatch):
    """The record of the newest snapshot is damaged, and the log begins between the parts of the one
    before: the search for its first part began again and again, and nobody heard of the damage."""
    cut = snapshot(stage)
    newest = snapshot_after_an_append(stage)

    def row(log, index):
        if index <= log.start.index:
            raise BelowLogStart
        if index == newest:
            raise CorruptData("00.raft", 0, expected="a record", got="rot")
        return Row(stage.entries[index - 1][0], 0)

    def search(log, _kind, _last):
        log.start.index = cut - 1
        return cut

    head = PartHead(term=1, number=1, part=1, is_last=True)
    monkeypatch.setattr("actors.ingress.rebuild.read_part_head", lambda _body: head)
    monkeypatch.setattr(StageLog, "newest_of_kind", search)
    monkeypatch.setattr(StageLog, "row", row)
    stage.heard()
    lead_again(stage, accepted=newest - 1)
    stage.work()
    assert [each.index for each in stage.heard() if isinstance(each, RotReported)] == [newest]


def test_q3_a_file_that_is_missing_under_the_search_is_damage_of_its_entries(stage, monkeypatch):
    """The search for the newest snapshot passes it. It was reported as entry 0, which raft took
    for none of its own: the replica led on, admitted nothing, and did not hand over."""
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    for sizes in ([0, 0], [0]):
        trial.commit(1, sizes)
        trial.writer.roll()
    trial.commit(1, [0])
    trial.disk.unlink(segment_path(FOLDER, 2, FileRole.RAFT))
    reader = LogReader(trial.disk, FOLDER)
    monkeypatch.setattr(stage.ingress.admission, "_open_log", lambda: reader)
    stage.heard()
    lead_again(stage, accepted=len(stage.entries) - 1)
    stage.work()
    assert [each.index for each in stage.heard() if isinstance(each, RotReported)] == [3]
