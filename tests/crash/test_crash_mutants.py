"""Checks that can fail: with one rule switched off, the enumerator finds a broken promise.

Each mutant removes one flush or step from the shipped code; what is found must be of the expected
sort.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from actors.simulation.disk.medium import Medium
from logstore.format.segment_header import FileRole
from logstore.storage import folder_scan, log_writer, meta_store, recovery, verdict
from logstore.storage.log_writer import AppendedGroup, LogWriter
from tests.crash.storage_trial import StorageTrial

TWO = 800


def work(trial: StorageTrial) -> None:
    trial.vote(1, 1)
    trial.commit(1, [TWO, 8])
    trial.writer.roll()
    trial.commit(1, [TWO])
    trial.truncate(3)
    trial.commit(2, [8, TWO])


def no_flush_data(writer: LogWriter, group: AppendedGroup) -> None:
    pass


def records_before_their_data(writer: LogWriter, group: AppendedGroup) -> None:
    """FAULTS D4: both halves written, then both flushed (SAFETY F3)."""
    writer.write_records(group)
    writer._disk.flush(group.pair.raft)
    writer._disk.flush(group.pair.data)


def no_folder_flush(medium: Medium, folder: str, begin_ns: int, end_ns: int) -> None:
    """FAULTS D23."""


def headers_without_a_flush(
    disk: SimulatedDisk, folder: str, header: Any, *, summary: bytes, data: int, raft: int
) -> int:
    for handle, role, more in ((raft, FileRole.RAFT, summary), (data, FileRole.DATA, b"")):
        image = log_writer.msgspec.structs.replace(header, role=role).pack()
        disk.write(handle, 0, [image + more])
    disk.sync_folder(folder)
    return 0


def meta_without_a_flush(store: meta_store.MetaStore, meta: Any) -> None:
    for handle in store._handles:
        store._disk.write(handle, 0, [meta.pack()])
    store.meta = meta


MUTANTS: dict[str, tuple[Any, str, Callable[..., Any], str]] = {
    "the data flush is skipped": (LogWriter, "flush_data", no_flush_data, "false alarm"),
    "records before their data": (LogWriter, "flush_data", records_before_their_data, "alarm"),
    "the folder is not flushed": (Medium, "flush_names", no_folder_flush, ""),
    "headers are not flushed": (log_writer, "write_headers_durable", headers_without_a_flush, ""),
    "META is not flushed": (meta_store.MetaStore, "save", meta_without_a_flush, "term and vote"),
}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_missing_step_is_found(
    name: str, enumerator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, attribute, mutant, expected = MUTANTS[name]
    trial = StorageTrial(enumerator.new_disk())
    trial.create_log()
    with monkeypatch.context() as patched:
        patched.setattr(owner, attribute, mutant)
        enumerator.watch(trial)
        work(trial)
    faults = enumerator.faults()
    assert faults, "the enumerator found nothing"
    assert any(expected in fault for fault in faults), faults


@pytest.mark.slow
def test_recovery_that_trusts_the_page_cache_after_a_kill_is_found(
    enumerator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without flushing first, a record is adopted whose frame is only in the page cache."""
    trial = StorageTrial(enumerator.new_disk())
    trial.create_log()
    trial.commit(1, [8])
    trial.append(1, [TWO, TWO])
    trial.disk.kill_process()
    monkeypatch.setattr(folder_scan, "_flush_and_drop_caches", lambda *_args, **_named: None)
    enumerator.run_life(trial.disk, trial.promises(), life=2)
    assert any("false alarm" in fault for fault in enumerator.faults())


@pytest.mark.slow
def test_building_upon_a_torn_tail_is_found(
    enumerator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a new segment, what was discarded stands behind the new entry and is adopted: the
    second frame of a torn group, once the first has been written again with the same bytes."""
    trial = StorageTrial(enumerator.new_disk())
    trial.create_log()
    trial.commit(1, [8])
    group = trial.group(1, [TWO, TWO])
    trial.writer.append(group)
    trial.disk.kill_process()
    first_sector = 4096 // 512 + 1
    trial.disk.damage("/data/0000000000000001.data", first_sector, b"")
    monkeypatch.setattr(verdict, "has_torn_tail", lambda *_args, **_named: False)
    second = StorageTrial(trial.disk.fork(), life=2, promises=trial.promises())
    assert second.writer.last.header.index == 1
    second.finish(second.writer.append(group[:1]))
    second.restart()
    assert second.writer.last.header.index == 3
    monkeypatch.undo()
    third = StorageTrial(trial.disk.fork(), life=3, promises=trial.promises())
    third.finish(third.writer.append(group[:1]))
    third.restart()
    assert third.writer.last.header.index == 2


def test_the_mutants_replace_what_exists() -> None:
    assert recovery.scan_folder is folder_scan.scan_folder
    for owner, attribute, _, _ in MUTANTS.values():
        assert hasattr(owner, attribute)
