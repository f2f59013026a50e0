"""What the writer cannot do yet, for want of space or of the folder, it does later by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.messages import InitSaved, LogRecovered, RecoveryDelayed
from actors.simulation.disk.deferred import StillClock
from actors.simulation.disk.disk import SimulatedDisk
from actors.topology import Counter
from actors.writer.log_work import NEVER_NS
from logstore.limits import SECTOR_BYTES
from logstore.model import FIRST_LSN, ReplicaState
from logstore.raft.bootstrap import SaveInit
from logstore.raft.effects import SaveMeta
from logstore.raft.events import DiskFullChanged, MetaPersisted, Persisted
from logstore.storage.segment import is_segment_name
from tests.unit.actor_stage import CLUSTER
from tests.unit.writer_stage import WriterStage

SECOND_NS = 1_000_000_000


def later(stage: WriterStage) -> None:
    timer_ns = stage.writer.next_timer_ns()
    if timer_ns < NEVER_NS:
        stage.stage.now_ns = max(stage.stage.now_ns, timer_ns)
    stage.settle()


def restarted(stage: WriterStage, folder: Path) -> WriterStage:
    stage.disk.kill_process()
    return WriterStage(folder, disk=stage.disk)


def test_p17_a_folder_that_another_writer_still_holds_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk()
    stage = WriterStage(tmp_path, disk=disk)
    hung = disk.view(lambda _ns: None, StillClock())
    hung.lock_folder(stage.writer._folder._station.folder)
    stage.start()
    [delayed] = stage.born
    assert isinstance(delayed, RecoveryDelayed)
    for _ in range(130):
        later(stage)
        assert [type(each) for each in stage.heard()] == [RecoveryDelayed]
        assert not stage.stage.is_busy_loop(stage.writer)
    assert stage.stage.now_ns >= 120 * SECOND_NS
    assert 2 <= len([each for each in caplog.records if "in use" in each.message]) <= 4
    hung.kill()
    later(stage)
    [recovered] = stage.heard()
    assert isinstance(recovered, LogRecovered)
    stage.close()


def test_s9_without_space_for_meta_recovery_waits_for_it(tmp_path: Path) -> None:
    """FAULTS D28."""
    disk = SimulatedDisk(capacity_bytes=SECTOR_BYTES)
    stage = WriterStage(tmp_path, disk=disk)
    stage.start()
    assert "free some space" in stage.born[0].reason
    later(stage)
    assert [type(each) for each in stage.heard()] == [RecoveryDelayed]
    disk.free_space()
    later(stage)
    assert [type(each) for each in stage.heard()] == [LogRecovered]
    stage.close()


def test_s9_a_bootstrap_waits_for_space_for_its_first_segment(tmp_path: Path) -> None:
    stage = WriterStage(tmp_path)
    stage.start()
    stage.disk.fill()
    stage.tell(SaveInit(1, ReplicaState.STARTING, 5, CLUSTER, FIRST_LSN))
    stage.tell(SaveInit(2, ReplicaState.VOTER, 5, CLUSTER, FIRST_LSN))
    stage.settle()
    saved, delayed, *again = stage.heard()
    assert saved == InitSaved(1)
    assert "free some space" in delayed.reason
    assert again in ([], [delayed])  # the second step's own job, if the first one took both steps
    assert not stage.stage.is_busy_loop(stage.writer)
    later(stage)
    assert [type(each) for each in stage.heard()] == [RecoveryDelayed]
    stage.disk.free_space()
    later(stage)
    assert stage.heard() == [InitSaved(2)]
    stage.close()


def test_s9_a_torn_tail_without_space_is_discarded_when_there_is_some(tmp_path: Path) -> None:
    """Until then the replica votes, and appends nothing behind the tail."""
    first = WriterStage(tmp_path)
    first.bear()
    first.persist(60 << 10)
    first.settle()
    [data] = [name for name in first.disk.paths() if name.endswith("1.data")]
    handle = first.disk.open_write(data)
    first.disk.write(handle, 100 << 10, [b"torn"])
    for name in first.disk.paths():
        if is_segment_name(name.rpartition("/")[2]) and "1." not in name:
            first.disk.remove(name)
    second = restarted(first, tmp_path)
    second.disk.fill()
    second.rows, second.seq = first.rows, 0
    second.start()
    second.persist(8)
    second.tell(SaveMeta(1, 2, 1))
    second.settle()
    second.settle()
    full, voted = sorted(second.heard(), key=lambda each: type(each).__name__)
    assert (full, voted) == (DiskFullChanged(True, seq=1), MetaPersisted(1))
    generation = second.counter(Counter.MAP_GENERATION)
    second.disk.free_space()
    for _ in range(3):
        later(second)
    assert set(second.heard()) == {DiskFullChanged(False), Persisted(1)}
    assert second.counter(Counter.MAP_GENERATION) == generation + 1
    assert not second.writer._folder.log.has_torn_tail
    second.close()


def test_a_discard_that_was_left_undone_needs_no_append_to_be_done(tmp_path: Path) -> None:
    first = WriterStage(tmp_path)
    first.bear()
    [data] = [name for name in first.disk.paths() if name.endswith("1.data")]
    first.disk.write(first.disk.open_write(data), 100 << 10, [b"torn"])
    for name in first.disk.paths():
        if is_segment_name(name.rpartition("/")[2]) and "1." not in name:
            first.disk.remove(name)
    second = restarted(first, tmp_path)
    second.disk.fill()
    second.start()
    second.settle()
    assert second.writer._folder.log.has_torn_tail
    second.disk.free_space()
    for _ in range(3):
        later(second)
    assert not second.writer._folder.log.has_torn_tail
    assert not second.stage.is_busy_loop(second.writer)
    second.close()
