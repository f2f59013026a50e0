"""A simulated process: when it runs, how long it takes, how it dies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from actors.simulation.world.process import (
    PARK_MAX_NS,
    SPIN_NS,
    WORK_NS,
    Process,
    ProcessKilled,
)
from logstore.errors import DiskFull, FolderInUse, WriteFailed
from tests.simulation.process_stage import MILLISECOND_NS, OneProcess

WAKE_NS = 10 * MILLISECOND_NS


def raises(error: BaseException) -> Callable[[Process], int]:
    def work(_: Process) -> int:
        raise error

    return work


# --- waking ---


def test_a_wake_up_runs_it_at_its_time() -> None:
    stage = OneProcess()
    stage.process.wake_at(WAKE_NS)
    stage.world.run_until(2 * WAKE_NS)
    assert stage.runs == [WAKE_NS]


def test_an_earlier_wake_up_does_not_lose_a_later_one() -> None:
    stage = OneProcess()
    stage.process.wake_at(3 * WAKE_NS)
    stage.process.wake_at(WAKE_NS)
    stage.process.wake_at(2 * WAKE_NS)
    stage.world.run_until(4 * WAKE_NS)
    assert stage.runs == [WAKE_NS, 2 * WAKE_NS, 3 * WAKE_NS]


def test_an_earlier_run_does_not_lose_a_wake_up_that_a_timer_would_have_covered() -> None:
    stage = OneProcess()
    stage.process.wake_delay_ns = MILLISECOND_NS
    stage.actor.timer_ns = 3 * WAKE_NS + MILLISECOND_NS // 2
    stage.process.wake_at(WAKE_NS)
    stage.world.run_until(2 * WAKE_NS)
    stage.process.wake_at(3 * WAKE_NS)
    stage.process.wake()
    stage.actor.timer_ns = 1 << 62
    stage.world.run_until(4 * WAKE_NS)
    assert stage.runs[-1] == 3 * WAKE_NS + MILLISECOND_NS


def test_a_wake_up_while_it_works_is_seen_when_it_is_done() -> None:
    def busy(process: Process) -> int:
        if len(stage.runs) == 1:
            process.charge(5 * MILLISECOND_NS)
        return 0

    stage = OneProcess()
    stage.work = busy
    stage.process.wake_at(WAKE_NS)
    stage.world.run_until(WAKE_NS + MILLISECOND_NS)
    stage.process.wake()
    stage.world.run_until(2 * WAKE_NS)
    assert stage.runs == [WAKE_NS, WAKE_NS + WORK_NS + 5 * MILLISECOND_NS]


def test_as_long_as_there_was_work_it_runs_again_without_a_wake_up() -> None:
    stage = OneProcess()
    stage.work = lambda _: 3 - len(stage.runs)
    stage.process.wake_at(WAKE_NS)
    stage.world.run_until(2 * WAKE_NS)
    assert stage.runs == [WAKE_NS, WAKE_NS + WORK_NS, WAKE_NS + 2 * WORK_NS]


def test_less_work_than_again_from_parks_it() -> None:
    stage = OneProcess()
    stage.process.rerun_work_min = 2
    stage.work = lambda _: 3 - len(stage.runs)
    stage.process.wake_at(WAKE_NS)
    stage.world.run_until(2 * WAKE_NS)
    assert stage.runs == [WAKE_NS, WAKE_NS + WORK_NS]


def test_a_timer_wakes_it() -> None:
    stage = OneProcess()
    stage.actor.timer_ns = 7 * WAKE_NS
    stage.process.wake_at(WAKE_NS)
    stage.world.run_until(7 * WAKE_NS + 1)
    assert stage.runs == [WAKE_NS, 7 * WAKE_NS]


def test_without_a_timer_it_looks_again_after_the_longest_park() -> None:
    stage = OneProcess()
    stage.process.wake_at(WAKE_NS)
    stage.world.run_until(WAKE_NS + PARK_MAX_NS + 1)
    first_ns, second_ns = stage.runs
    assert first_ns == WAKE_NS
    assert first_ns < second_ns <= first_ns + PARK_MAX_NS


def test_what_is_left_readable_keeps_it_from_parking() -> None:
    class Readable:
        is_readable = True

    stage = OneProcess()
    stage.actor.sources = (Readable(),)
    stage.process.unread = 1
    stage.process.wake_at(WAKE_NS)
    stage.world.run_until(WAKE_NS + WORK_NS + SPIN_NS + 1)
    assert stage.runs == [WAKE_NS, WAKE_NS + WORK_NS + SPIN_NS]


def test_what_a_call_takes_delays_what_happens_after_it() -> None:
    seen = []

    def write(process: Process) -> int:
        before_ns = process.local_now_ns
        process.charge(2 * MILLISECOND_NS)
        seen.append((before_ns, process.local_now_ns))
        return 0

    stage = OneProcess()
    stage.work = write
    stage.process.wake_at(WAKE_NS)
    stage.world.run_until(2 * WAKE_NS)
    assert seen == [(WAKE_NS + WORK_NS, WAKE_NS + WORK_NS + 2 * MILLISECOND_NS)]
    assert stage.process.local_now_ns == stage.world.now_ns


def test_it_loses_the_processor_once_in_a_run() -> None:
    def ring(process: Process) -> int:
        process.preempt(MILLISECOND_NS)
        process.preempt(2 * MILLISECOND_NS)
        ended_ns.append(process.local_now_ns - process.world.now_ns)
        return 0

    ended_ns: list[int] = []
    stage = OneProcess()
    stage.work = ring
    for at_ns in (WAKE_NS, 2 * WAKE_NS):
        stage.process.wake_at(at_ns)
    stage.world.run_until(3 * WAKE_NS)
    assert ended_ns == [WORK_NS + MILLISECOND_NS] * 2


def test_the_end_of_a_do_work_is_reported_and_that_of_a_process_is_not() -> None:
    ended: list[int] = []

    def work(process: Process) -> int:
        assert len(ended) == len(stage.runs) - 1
        if len(stage.runs) == 3:
            raise ProcessKilled("before write")
        return 0

    stage = OneProcess()
    stage.work = work
    stage.process.on_worked = lambda: ended.append(stage.world.now_ns)
    for time in range(1, 4):
        stage.process.wake_at(time * WAKE_NS)
    stage.world.run_until(4 * WAKE_NS)
    assert ended == stage.runs[:2] == [WAKE_NS, 2 * WAKE_NS]
    assert stage.supervisor.deaths == ["killed in a disk call"]


# --- pauses ---


def test_a_paused_process_runs_when_it_goes_on() -> None:
    stage = OneProcess()
    stage.process.pause(5 * WAKE_NS)
    stage.process.wake_at(WAKE_NS)
    stage.world.run_until(5 * WAKE_NS)
    assert (stage.runs, stage.process.is_paused) == ([], True)
    stage.world.run_until(6 * WAKE_NS)
    assert (stage.runs, stage.process.is_paused) == ([MILLISECOND_NS + 5 * WAKE_NS], False)


def test_a_shorter_pause_does_not_end_a_longer_one() -> None:
    stage = OneProcess()
    stage.process.pause(5 * WAKE_NS)
    stage.process.pause(WAKE_NS)
    stage.process.wake()
    stage.world.run_until(5 * WAKE_NS)
    assert stage.runs == []


def test_resume_ends_a_pause_at_once() -> None:
    stage = OneProcess()
    stage.process.pause(5 * WAKE_NS)
    stage.process.wake()
    stage.world.run_until(WAKE_NS)
    stage.process.resume()
    stage.world.run_until(2 * WAKE_NS)
    assert stage.runs == [WAKE_NS]


# --- messages without a bell ---


def lateness_of_first_run(stage: OneProcess, since_ns: int) -> list[int]:
    """How late the first run after `since_ns` was, if that is reported."""
    late: list[int] = []
    stage.process.on_overslept = late.append

    def work(process: Process) -> int:
        process.check_woken_in_time(since_ns)
        return 0

    stage.work = work
    stage.world.run_until(since_ns + PARK_MAX_NS)
    return late


def test_a_message_without_a_bell_is_reported_when_it_is_found() -> None:
    stage = OneProcess()
    (late_ns,) = lateness_of_first_run(stage, WAKE_NS)
    assert WAKE_NS + late_ns == stage.runs[0]


def test_a_bell_after_the_message_is_in_time() -> None:
    stage = OneProcess()
    stage.process.wake_at(WAKE_NS)
    assert lateness_of_first_run(stage, WAKE_NS) == []


def test_a_paused_process_does_not_oversleep() -> None:
    stage = OneProcess()
    stage.process.pause(5 * WAKE_NS)
    stage.process.wake_at(WAKE_NS)
    assert lateness_of_first_run(stage, WAKE_NS) == []
    assert stage.runs[0] > 5 * WAKE_NS


def test_a_working_process_does_not_oversleep() -> None:
    stage = OneProcess()
    late: list[int] = []
    stage.process.on_overslept = late.append

    def work(process: Process) -> int:
        process.check_woken_in_time(WAKE_NS + WORK_NS)
        process.charge(5 * WAKE_NS)
        return 1 if len(stage.runs) == 1 else 0

    stage.work = work
    stage.process.wake_at(WAKE_NS)
    stage.world.run_until(20 * WAKE_NS)
    assert (len(stage.runs), late) == (2, [])


@pytest.mark.parametrize("is_rung", [True, False])
def test_an_expected_message_is_found_by_the_next_run(is_rung: bool) -> None:
    stage = OneProcess()
    late: list[int] = []
    stage.process.on_overslept = late.append
    stage.process.expect_bell()
    stage.process.expect_bell()
    if is_rung:
        stage.process.wake()
    stage.world.run_until(2 * PARK_MAX_NS)
    assert len(late) == (0 if is_rung else 1)


# --- deaths ---


def test_killed_in_a_disk_call_it_does_nothing_after_it() -> None:
    after = []

    def write(process: Process) -> int:
        raises(ProcessKilled("before write"))(process)
        after.append(process)
        return 0

    stage = OneProcess()
    stage.work = write
    stage.process.wake_at(WAKE_NS)
    stage.process.wake_at(2 * WAKE_NS)
    stage.world.run_until(3 * WAKE_NS)
    assert stage.supervisor.deaths == ["killed in a disk call"]
    assert stage.runs == [WAKE_NS]
    assert after == []


def test_a_failed_write_or_flush_is_a_death() -> None:
    stage = OneProcess()
    stage.work = raises(WriteFailed("flush"))
    stage.process.wake_at(WAKE_NS)
    stage.world.run_until(2 * WAKE_NS)
    assert stage.supervisor.deaths == ["WriteFailed: flush"]
    assert stage.supervisor.errors == []


def for_want_of_space() -> WriteFailed:
    error = WriteFailed("no space left")
    error.__cause__ = DiskFull("no space left")
    return error


@pytest.mark.parametrize(
    "error",
    [ValueError("wrong"), DiskFull("no room"), for_want_of_space(), FolderInUse("another")],
    ids=["wrong", "full", "write-on-a-full-disk", "in-use"],
)
def test_any_other_error_is_no_death_that_a_condition_explains(error: Exception) -> None:
    stage = OneProcess()
    stage.work = raises(error)
    stage.process.wake_at(WAKE_NS)
    stage.world.run_until(2 * WAKE_NS)
    assert (stage.supervisor.deaths, stage.supervisor.errors) == ([], [error])


def test_an_ended_process_is_not_woken() -> None:
    stage = OneProcess()
    stage.process.wake_at(WAKE_NS)
    stage.process.kill()
    stage.process.wake_at(2 * WAKE_NS)
    stage.world.run_until(3 * WAKE_NS)
    assert stage.runs == []
