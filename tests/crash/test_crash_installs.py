"""Each step of dropping a log for a log start that is installed, left out or misplaced: the
enumerator finds what it was for (SAFETY G5a, F7, S10, FAULTS R20).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from logstore.format.entry import Row
from logstore.format.meta import InstallMark, Meta
from logstore.storage import recovery
from logstore.storage.segment import log_start_at
from tests.crash.storage_trial import StorageTrial, entry_elsewhere

ONE = 376
TWO = 800


def work(trial: StorageTrial) -> None:
    """The log has other entries above the new log start, in two pairs."""
    trial.commit(1, [8, TWO])
    trial.writer.roll()
    trial.commit(1, [ONE, 8])
    trial.vote(3, 0)
    trial.install(entry_elsewhere(2, 2))
    trial.commit(3, [8])


def marked(trial: StorageTrial, before: Row) -> Meta:
    mark = InstallMark(before.header.cumulative_bytes, before.header.timestamp_ns)
    meta = trial.recovered.meta.meta
    return msgspec.structs.replace(meta, log_start=log_start_at(before), installing=mark)


def begin(trial: StorageTrial, before: Row) -> None:
    """What the trial promises while a log start is being installed."""
    trial._dropped |= set(trial.acknowledged.items())
    trial.acknowledged.clear()
    trial._next_start = before.header.index


def end(trial: StorageTrial) -> None:
    trial.start = trial._next_start
    trial.truncated |= trial._dropped


def without_a_mark(trial: StorageTrial, before: Row) -> None:
    begin(trial, before)
    meta = trial.recovered.meta
    meta.save(msgspec.structs.replace(meta.meta, log_start=log_start_at(before)))
    trial.writer.drop(before)
    trial.writer.open_first()
    end(trial)


def with_a_mark_that_is_not_flushed(trial: StorageTrial, before: Row) -> None:
    begin(trial, before)
    meta = trial.recovered.meta
    for handle in meta._handles:
        trial.disk.write(handle, 0, [marked(trial, before).pack()])
    trial.writer.drop(before)
    trial.writer.open_first()
    meta.save(msgspec.structs.replace(marked(trial, before), installing=None))
    end(trial)


def old_pairs_first(trial: StorageTrial, before: Row) -> None:
    begin(trial, before)
    trial.writer.drop(before)
    trial.recovered.meta.save(marked(trial, before))
    trial.writer.open_first()
    meta = trial.recovered.meta
    meta.save(msgspec.structs.replace(meta.meta, installing=None))
    end(trial)


def mark_off_first(trial: StorageTrial, before: Row) -> None:
    begin(trial, before)
    meta = trial.recovered.meta
    meta.save(marked(trial, before))
    trial.writer.drop(before)
    meta.save(msgspec.structs.replace(meta.meta, installing=None))
    trial.writer.open_first()
    end(trial)


def mark_off_after_the_answer(trial: StorageTrial, before: Row) -> None:
    begin(trial, before)
    trial.recovered.meta.save(marked(trial, before))
    trial.writer.drop(before)
    trial.writer.open_first()
    end(trial)


MUTANTS: dict[str, tuple[Callable[[StorageTrial, Row], None], str]] = {
    "without the mark": (without_a_mark, "recovery stopped"),
    "the mark is not flushed": (with_a_mark_that_is_not_flushed, "recovery stopped"),
    "old pairs are removed first": (old_pairs_first, "recovery stopped"),
    "the mark is off before there is a pair": (mark_off_first, "recovery stopped"),
    "the mark is still on after the answer": (mark_off_after_the_answer, "is lost"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_misplaced_step_is_found(
    name: str, enumerator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant, expected = MUTANTS[name]
    with monkeypatch.context() as patched:
        patched.setattr(StorageTrial, "install", mutant)
        enumerator.run(work)
    assert any(expected in fault for fault in enumerator.faults())


@pytest.mark.slow
def test_a_recovery_that_keeps_old_pairs_under_the_mark_is_found(
    enumerator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    enumerator.run(work)
    finish = recovery._finish_install

    def keeps_them(
        disk: Any, folder: str, options: Any, store: Any, mark: Any, **named: Any
    ) -> Any:
        scan = recovery.scan_folder(disk, folder, options, store.meta, tick=lambda: None)
        if not scan.headers:
            return finish(disk, folder, options, store, mark, **named)
        store.save(msgspec.structs.replace(store.meta, installing=None))
        level = {"newest_level": 1, "tick": lambda: None}
        return recovery._recover_log(disk, folder, options, store, **named, **level)

    monkeypatch.setattr(recovery, "_finish_install", keeps_them)
    assert any("came back" in fault for fault in enumerator.faults())


@pytest.mark.long
@pytest.mark.slow
def test_an_install_that_is_cut_anywhere_is_finished_by_recoveries_that_are_cut(
    enumerator: Any,
) -> None:
    enumerator.run(work)
    for life, (disk, promises) in enumerate(enumerator.sample(60), start=2):
        enumerator.run_life(disk.copy(), promises, life=life)
    enumerator.check()


@pytest.mark.long
@pytest.mark.slow
def test_going_on_after_an_install_that_was_cut_keeps_all_promises(enumerator: Any) -> None:
    def go_on(trial: StorageTrial) -> None:
        term = max(trial.recovered.term, 4)
        trial.vote(term + 1, 1)
        trial.commit(term + 1, [ONE, TWO])
        trial.install(entry_elsewhere(trial.writer.last.header.index + 5, term + 1))
        trial.commit(term + 2, [8])

    enumerator.run(work)
    for life, (disk, promises) in enumerate(enumerator.sample(6), start=2):
        enumerator.run_life(disk.copy(), promises, life=life, go_on=go_on)
    enumerator.check()
