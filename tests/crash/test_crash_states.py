"""Every crash state of append, group commit, roll, truncation, trim, install and META, recovered by
the shipped code.

Crash points are the calls that change the disk; at each, subsets of what was not flushed survive.
In every state: nothing acknowledged is lost, nothing truncated comes back, no alarm is raised, the
vote and the log start answered last stand (SAFETY sections 2 to 4, FAULTS D1 to D6, D17, D22).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from logstore.errors import WriteFailed
from logstore.storage.log_writer import AppendedGroup
from tests.crash.storage_trial import StorageTrial, entry_elsewhere

ONE = 376  # a body whose frame is 504 bytes: one sector
TWO = 800  # a frame of two sectors: it can be torn


def single_appends(trial: StorageTrial) -> None:
    for size in (TWO, 0, ONE, TWO, 8):
        trial.commit(1, [size])


def group_commit(trial: StorageTrial) -> None:
    """Groups of several entries; the next one's frames are written and flushed while the records of
    the one before are under way."""
    first = trial.append(1, [TWO, 8, ONE])
    trial.writer.flush_data(first)
    trial.writer.write_records(first)
    second = trial.append(1, [TWO, 0, 16], commit=1)
    trial.writer.flush_data(second)
    trial.finish_records(first)
    trial.writer.write_records(second)
    third = trial.append(1, [TWO, 24], commit=3)
    trial.finish_records(second)
    trial.finish(third)


def overlapped_before_the_flush(trial: StorageTrial) -> None:
    """Frames of the next group stand unflushed beside records of this one."""
    first = trial.append(1, [ONE, 8])
    trial.writer.flush_data(first)
    trial.writer.write_records(first)
    second = trial.append(1, [TWO, TWO])
    trial.finish_records(first)
    trial.finish(second)
    third = trial.append(1, [8])
    trial.writer.flush_data(third)
    trial.writer.write_records(third)
    fourth = trial.append(1, [TWO, ONE])
    trial.finish_records(third)
    trial.finish(fourth)


def rolls(trial: StorageTrial) -> None:
    for sizes in ([TWO, 8], [ONE, TWO], [8, 8, 8], [TWO], [TWO, TWO], [16, TWO]):
        trial.commit(1, sizes)
        if trial.writer.is_half_full:
            trial.writer.prepare_spare()
    trial.commit(1, [TWO, TWO])


def truncate_once(trial: StorageTrial) -> None:
    trial.commit(1, [TWO, ONE])
    trial.commit(1, [8, TWO])
    trial.vote(2, 0)
    trial.truncate(3)
    trial.commit(2, [TWO, 8])
    trial.commit(2, [ONE])


def truncate_twice(trial: StorageTrial) -> None:
    trial.commit(1, [TWO, 8, 16])
    trial.truncate(3)
    trial.commit(2, [TWO, ONE])
    trial.truncate(4)
    trial.commit(3, [8, TWO])


def truncate_deeper(trial: StorageTrial) -> None:
    """The second truncation goes back into the first segment, over a roll."""
    trial.commit(1, [ONE, TWO, 8])
    trial.writer.roll()
    trial.commit(1, [TWO, 8])
    trial.truncate(5)
    trial.commit(2, [TWO])
    trial.truncate(2)
    trial.commit(3, [TWO, 8])


def truncate_to_nothing(trial: StorageTrial) -> None:
    trial.commit(1, [TWO, 8])
    trial.truncate(1)
    trial.commit(2, [ONE])
    trial.truncate(1)
    trial.commit(3, [TWO])


def roll_an_empty_segment(trial: StorageTrial) -> None:
    trial.commit(1, [TWO])
    trial.writer.roll()
    trial.writer.roll()
    trial.commit(1, [8, ONE])
    trial.writer.roll()
    trial.truncate(2)
    trial.commit(2, [8])


def votes(trial: StorageTrial) -> None:
    trial.vote(1, 1)
    trial.commit(1, [TWO])
    trial.vote(2, 0)
    trial.vote(2, 3)
    trial.commit(2, [8])


def restart_over_a_torn_tail(trial: StorageTrial) -> None:
    """Kill, recovery, more work: the second incarnation builds on what the first one left."""
    trial.commit(1, [TWO, 8])
    trial.append(1, [TWO, ONE])
    trial.restart()
    trial.commit(1, [TWO])
    group = trial.append(1, [8, TWO])
    trial.writer.flush_data(group)
    trial.writer.write_records(group)
    trial.restart()
    trial.commit(2, [ONE])


def failed_flush_then_restart(trial: StorageTrial) -> None:
    """A data flush fails: no record is written; the next flush of the file proves nothing (F5)."""
    trial.commit(1, [TWO])
    group = trial.append(1, [8, TWO])
    trial.disk.fail_next("flush", ".data")
    with pytest.raises(WriteFailed):
        trial.writer.flush_data(group)
    trial.restart()
    trial.commit(1, [TWO, 8])


def failed_record_flush_then_restart(trial: StorageTrial) -> None:
    trial.commit(1, [8])
    group = trial.append(1, [TWO, 8])
    trial.writer.flush_data(group)
    trial.writer.write_records(group)
    trial.disk.fail_next("flush", ".raft")
    with pytest.raises(WriteFailed):
        trial.writer.flush_records(group)
    trial.restart()
    trial.commit(1, [ONE])


def trims(trial: StorageTrial) -> None:
    """The log start moves inside a pair, to a boundary, over pairs, into the newest pair."""
    trial.commit(1, [TWO, 8, 16])
    trial.trim(1)
    trial.writer.roll()
    trial.commit(1, [ONE])
    trial.trim(4)
    trial.commit(1, [8, TWO])
    trial.writer.roll()
    trial.commit(1, [8])
    trial.trim(8)
    trial.trim(9)
    trial.commit(1, [TWO])


def log_starts_without_a_trim(trial: StorageTrial) -> None:
    """Inside a pair, at the last flushed entry with one above that is not, at the last of all."""
    trial.commit(1, [TWO, 8])
    trial.writer.roll()
    trial.commit(1, [ONE, 8])
    trial.take_start(3)
    trial.append(1, [TWO, 8])
    trial.take_start(4)
    trial.restart()
    trial.take_start(trial.writer.last.header.index)
    trial.commit(1, [TWO, 8, 8])
    trial.vote(2, 0)
    trial.take_start(trial.writer.last.header.index - 1)
    trial.truncate(trial.writer.last.header.index)
    trial.commit(2, [8, ONE])


def trims_and_truncations(trial: StorageTrial) -> None:
    trial.commit(1, [8, TWO])
    trial.trim(1)
    trial.vote(2, 0)
    trial.truncate(3)
    trial.commit(2, [ONE, 8])
    trial.trim(3)
    trial.restart()
    trial.commit(2, [TWO, 8])
    trial.truncate(6)
    trial.commit(3, [8])


def installs(trial: StorageTrial) -> None:
    """A log start after the last entry, twice, with several pairs, votes and a restart."""
    trial.commit(1, [TWO, 8])
    trial.writer.roll()
    trial.commit(1, [ONE, 8])
    trial.vote(2, 0)
    trial.install(entry_elsewhere(20, 2))
    trial.commit(2, [TWO, 8])
    trial.vote(3, 2)
    trial.install(entry_elsewhere(40, 3))
    trial.restart()
    trial.commit(3, [8])
    trial.trim(41)
    trial.truncate(43)
    trial.commit(4, [ONE])


def installs_over_another_log(trial: StorageTrial) -> None:
    """The log has other entries where the new one begins, and above."""
    trial.commit(1, [8, TWO])
    trial.trim(1)
    trial.truncate(3)
    trial.commit(2, [8, ONE, 8])
    trial.writer.roll()
    trial.commit(2, [TWO, 8])
    trial.install(entry_elsewhere(4, 3))
    trial.commit(3, [8, TWO, 8])
    trial.restart()


def installs_without_a_spare(trial: StorageTrial) -> None:
    """Right after a roll, over a torn tail, at log start itself plus one."""
    trial.commit(1, [8, TWO])
    trial.writer.roll()
    trial.append(1, [TWO, 8])
    trial.restart()
    trial.install(entry_elsewhere(3, 2))
    trial.append(2, [TWO, 8])
    trial.restart()
    trial.commit(2, [8])


def random_work(seed: int) -> Callable[[StorageTrial], None]:
    """A short life of everything: groups of any shape, overlapped or not, rolls, truncations,
    votes, restarts, trims, installs, in an order that nobody thought of."""

    def scenario(trial: StorageTrial) -> None:
        random = Random(seed)
        term, waiting = 1, None
        for _ in range(random.randint(4, 9)):
            act = random.choices(ACTS, weights=(8, 4, 2, 2, 2, 1, 2, 2, 2))[0]
            sizes = random.choices((0, 8, ONE, TWO), k=random.randint(1, 3))
            if act != "overlap" and waiting is not None:
                trial.finish_records(waiting)
                waiting = None
            if act == "commit":
                trial.commit(term, sizes)
            elif act == "overlap":
                waiting = overlap(trial, waiting, term, sizes)
            elif act == "roll":
                trial.writer.roll()
            elif act == "truncate" and trial.writer.last.header.index > trial.start:
                term += 1
                trial.vote(term, 0)
                trial.truncate(random.randint(trial.start + 1, trial.writer.last.header.index))
            elif act == "trim" and trial.writer.last.header.index > trial.start:
                trial.trim(random.randint(trial.start + 1, trial.writer.last.header.index))
            elif act == "take" and trial.writer.last.header.index > trial.start:
                trial.take_start(random.randint(trial.start + 1, trial.writer.last.header.index))
            elif act == "install":
                term += 1
                trial.vote(term, 0)
                trial.install(entry_elsewhere(trial.start + random.randint(1, 9), term))
            elif act == "spare":
                trial.writer.prepare_spare()
            elif act == "restart":
                trial.append(term, sizes)
                trial.restart()

    scenario.__name__ = f"random_work_{seed}"
    return scenario


def overlap(
    trial: StorageTrial, waiting: AppendedGroup | None, term: int, sizes: list[int]
) -> AppendedGroup:
    """The writer's pipeline: frames of this group while the records of `waiting` flush."""
    if waiting is not None and trial.writer.needs_roll(trial.group(term, sizes)):
        trial.finish_records(waiting)
        waiting = None
    group = trial.append(term, sizes)
    trial.writer.flush_data(group)
    if waiting is not None:
        trial.finish_records(waiting)
    trial.writer.write_records(group)
    return group


ACTS = ("commit", "overlap", "roll", "truncate", "spare", "restart", "trim", "install", "take")
SCENARIOS: list[Callable[[StorageTrial], None]] = [
    single_appends,
    group_commit,
    overlapped_before_the_flush,
    rolls,
    truncate_once,
    truncate_twice,
    truncate_deeper,
    truncate_to_nothing,
    roll_an_empty_segment,
    votes,
    restart_over_a_torn_tail,
    failed_flush_then_restart,
    failed_record_flush_then_restart,
    trims,
    log_starts_without_a_trim,
    trims_and_truncations,
    installs,
    installs_over_another_log,
    installs_without_a_spare,
    *[random_work(seed) for seed in range(40)],
]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_every_crash_state_keeps_all_promises(
    enumerator: Any, scenario: Callable[[StorageTrial], None]
) -> None:
    enumerator.run(scenario)
    enumerator.check()


@pytest.mark.long
@pytest.mark.slow
def test_at_least_ten_thousand_distinct_crash_states_are_checked_above(enumerator: Any) -> None:
    for scenario in SCENARIOS:
        enumerator.run(scenario)
    print(f"{len(enumerator.states)} distinct crash states of {len(SCENARIOS)} scenarios")
    assert len(enumerator.states) >= 10_000
