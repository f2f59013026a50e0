"""Crashes of recovery itself, kills before power cuts, and lives that go on after a recovery.

What SAFETY section 4 names as holes of careless builds: going on after a recovery, kill then power
cut, a failed flush then restart then power cut. Each is enumerated like a first life.
"""

from __future__ import annotations

from typing import Any

import pytest

from logstore.model import FORMED_STATES, Index, NodeId, ReplicaState
from tests.crash.storage_trial import StorageTrial, entry_elsewhere

ONE = 376
TWO = 800


def busy_life(trial: StorageTrial) -> None:
    """Group commit, overlap, a roll and a truncation, with a torn tail at the end."""
    trial.commit(1, [TWO, 8])
    first = trial.append(1, [ONE, 8])
    trial.writer.flush_data(first)
    trial.writer.write_records(first)
    second = trial.append(1, [TWO, 8])
    trial.finish_records(first)
    trial.finish(second)
    trial.writer.roll()
    trial.commit(1, [TWO])
    trial.vote(2, 0)
    trial.truncate(6)
    trial.commit(2, [ONE])
    trial.append(2, [TWO, 8])


def go_on(trial: StorageTrial) -> None:
    """More of everything, in a newer term, on whatever recovery left."""
    term = trial.recovered.term + 1
    trial.vote(term, 1)
    trial.commit(term, [ONE])
    last = trial.writer.last.header.index
    if last > 1:
        trial.vote(term + 1, 0)
        trial.truncate(last)
    trial.commit(term + 1, [TWO, 8])


@pytest.mark.long
@pytest.mark.slow
def test_recovery_interrupted_anywhere_and_run_again_keeps_all_promises(enumerator: Any) -> None:
    enumerator.run(busy_life)
    first_lives = enumerator.sample(80)
    for life, (disk, promises) in enumerate(first_lives, start=2):
        enumerator.run_life(disk.copy(), promises, life=life)
    enumerator.check()


@pytest.mark.long
@pytest.mark.slow
def test_going_on_after_a_recovery_keeps_all_promises(enumerator: Any) -> None:
    enumerator.run(busy_life)
    first_lives = enumerator.sample(8)
    for life, (disk, promises) in enumerate(first_lives, start=2):
        enumerator.run_life(disk.copy(), promises, life=life, go_on=go_on)
    enumerator.check()


@pytest.mark.long
@pytest.mark.slow
def test_a_kill_and_then_a_power_cut_keep_all_promises(enumerator: Any) -> None:
    """After a kill the page cache shows what the disk may not hold: never build on it."""
    killed = []

    def kill_here(trial: StorageTrial) -> None:
        disk = trial.disk.fork()
        disk.kill_process()
        killed.append((disk, trial.promises()))

    trial = StorageTrial(enumerator.new_disk())
    trial.create_log()
    trial.disk.on_call = lambda _what, _path: kill_here(trial)
    busy_life(trial)
    for life, (disk, promises) in enumerate(killed, start=2):
        enumerator.run_life(disk, promises, life=life)
    enumerator.check()


@pytest.mark.slow
def test_that_the_log_has_had_a_config_is_never_forgotten(enumerator: Any) -> None:
    """Nor is a vote, or the mark INSTALL, that is saved before or after it."""

    def learn_of_one(trial: StorageTrial) -> None:
        trial.commit(1, [8])
        trial.vote(2, 1)
        trial.know_config()
        trial.vote(3, 0)
        trial.commit(3, [ONE])
        trial.install(entry_elsewhere(20, 3))
        trial.commit(3, [8])

    enumerator.run(learn_of_one)
    for life, (disk, promises) in enumerate(enumerator.sample(20), start=2):
        enumerator.run_life(disk.copy(), promises, life=life)
    enumerator.check()
    assert any(promises.has_config for _, promises in enumerator.states)


@pytest.mark.slow
@pytest.mark.parametrize("formed", sorted(FORMED_STATES))
def test_a_bootstrap_cut_anywhere_begins_anew_or_has_its_log(
    enumerator: Any, formed: ReplicaState
) -> None:
    """SAFETY L1, L2: META speaks of a cluster only once the log is durable."""
    disk = enumerator.new_disk()
    trial = StorageTrial(disk, on_call=enumerator.collect)
    trial.create_log(state=formed)
    enumerator.collect(trial)
    for life, (state, _) in enumerate(enumerator.states, start=2):
        again = StorageTrial(state.copy(), life=life)
        if again.recovered.writer is None:
            assert again.recovered.state == ReplicaState.EMPTY
            again.create_log(state=formed)
        again.commit(1, [8])
        again.restart()
        assert again.writer.last.header.index == Index(1)
        assert (again.recovered.node, again.recovered.state) == (NodeId(1), formed)
