"""What the disks would hold after a power cut now."""

from __future__ import annotations

from random import Random

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from actors.simulation.oracle.durability import DiskDurability
from logstore.format.segment_header import FileRole
from logstore.limits import SECTOR_BYTES
from logstore.storage.meta_store import META_NAMES, MetaStore
from logstore.storage.segment import segment_path
from tests.crash.storage_trial import FOLDER, StorageTrial

NODE = 1


class DurabilityStage:
    """A log of four entries, and what is known of the disk it is on."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.trial = StorageTrial(self.disk)
        self.trial.create_log()
        entries = self.trial.group(1, [8, 8, 8, 8])
        self.chains = {int(header.index): chain for header, chain, _, _ in entries}
        self.trial.finish(self.trial.writer.append(entries))
        self.durability = DiskDurability(lambda _: self.disk, lambda _: FOLDER, lambda _: False)

    def has_dropped(self, index: int) -> bool:
        return self.durability.has_dropped(NODE, index, self.chains[index])


def test_an_entry_is_dropped_when_nothing_durable_shows_it() -> None:
    stage = DurabilityStage()
    assert not stage.has_dropped(3)
    stage.trial.truncate(3)
    assert stage.has_dropped(3)
    assert not stage.has_dropped(2)


def test_an_entry_whose_end_only_waits_to_be_durable_may_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The new headers are in the page cache, and the closed files are cut there, too."""
    stage = DurabilityStage()
    stage.trial.writer.prepare_spare()
    with monkeypatch.context() as patch:
        patch.setattr(stage.disk, "flush", lambda handle: None)
        stage.trial.truncate(3)
    assert not stage.has_dropped(3)
    assert not stage.has_dropped(4)


def test_a_copy_of_meta_counts_when_it_is_whole_and_flushed() -> None:
    stage = DurabilityStage()
    stage.trial.vote(7, 2)
    assert [stage.durability.meta_copy(NODE, copy) for copy in (0, 1)] == [(7, 2), (7, 2)]
    handle = stage.disk.open_write(f"{FOLDER}/{META_NAMES[1]}")
    stage.disk.write(handle, 0, [b"torn"])
    assert stage.durability.meta_copy(NODE, 1) is None
    stage.disk.flush(handle)
    assert stage.durability.meta_copy(NODE, 1) is None
    assert stage.durability.meta_copy(NODE, 0) == (7, 2)


def test_bytes_count_once_they_are_flushed() -> None:
    disk = SimulatedDisk()
    durability = DiskDurability(lambda _: disk, lambda _: FOLDER, lambda _: False)
    path = f"{FOLDER}/1.data"
    handle = disk.create(path)
    disk.sync_folder(FOLDER)
    disk.write(handle, 100, [b"x"])
    assert not durability.has_bytes(NODE, path, 0, 512)
    disk.flush(handle)
    assert durability.has_bytes(NODE, path, 0, 512)
    assert not durability.has_bytes(NODE, path, 0, 100)


def test_an_entry_is_written_when_any_process_finds_it() -> None:
    stage = DurabilityStage()
    entries = stage.trial.group(1, [8])
    [(header, chain, _, _)] = entries
    group = stage.trial.writer.append(entries)
    assert not stage.durability.is_written(NODE, header.index, chain)
    stage.trial.writer.flush_data(group)
    stage.trial.writer.write_records(group)
    assert stage.durability.is_written(NODE, header.index, chain)
    assert not stage.durability.has_entry(NODE, header.index, chain)
    assert not stage.durability.is_written(NODE, header.index, chain + 1)


@pytest.mark.parametrize("is_lying", [False, True])
def test_a_header_that_a_recovery_wrote_for_a_lying_device_is_not_missed(is_lying: bool) -> None:
    stage = DurabilityStage()
    path = segment_path(FOLDER, 1, FileRole.RAFT)
    stage.disk.damage(path, 0, bytes(SECTOR_BYTES))
    stage.durability.started(NODE)
    assert stage.durability.segments_with_one_header(NODE) == [1]
    if is_lying:
        stage.disk.begin_lying()
    stage.trial.restart()
    assert stage.durability.segments_with_one_header(NODE) == []
    assert any(stage.disk.durable_bytes(path, 0, SECTOR_BYTES)) is not is_lying


def test_what_was_flushed_on_a_disk_is_known_when_it_is_put_back() -> None:
    """Else rot there might take what nothing proves to have been flushed (FAULTS D33)."""
    stage = DurabilityStage()
    folders = [FOLDER]
    durability = DiskDurability(lambda _: stage.disk, lambda _: folders[-1], lambda _: False)
    for index, chain in stage.chains.items():
        assert durability.has_entry(NODE, index, chain)
    held = durability.places(NODE).held()
    assert [each.index for each in held] == list(stage.chains)
    folders.append("/another")
    durability.replaced(NODE)
    assert durability.places(NODE).held() == []
    folders.pop()
    durability.replaced(NODE)
    assert durability.places(NODE).held() == held


def test_a_bootstrap_that_a_power_cut_undid_leaves_nothing_behind() -> None:
    """Its segment has the number of the next one's."""
    disk = SimulatedDisk()
    durability = DiskDurability(lambda _: disk, lambda _: FOLDER, lambda _: False)
    trial = StorageTrial(disk)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MetaStore, "save", lambda *_: None)
        trial.create_log()
    disk.kill_process()
    disk.power_cut(Random(1), garble=False)
    durability.disk_changed(NODE)
    assert durability.boot_of(NODE) == 1
    trial.restart()
    trial.create_log()
    durability.log_made(NODE)
    [(header, chain, _, _)] = entries = trial.group(1, [8])
    trial.finish(trial.writer.append(entries))
    assert durability.has_entry(NODE, header.index, chain)
    assert durability.is_written(NODE, header.index, chain)


def test_the_entry_at_the_log_start_counts_while_its_pair_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """META says so; its frame is gone first, its record later."""
    stage = DurabilityStage()
    assert stage.durability.has_entry(NODE, 3, stage.chains[3])
    stage.trial.writer.roll()
    stage.trial.commit(1, [8])
    removed: list[str] = []
    unlink = stage.disk.unlink

    def unlink_one(path: str) -> None:
        if not removed:
            unlink(path)
            removed.append(path)

    monkeypatch.setattr(stage.disk, "unlink", unlink_one)
    stage.trial.take_start(4)
    assert [path.rpartition(".")[2] for path in removed] == ["data"]
    assert stage.durability.has_entry(NODE, 4, stage.chains[4])
