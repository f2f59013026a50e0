"""Flush workers of a simulated process: jobs in order, in parallel to the process' own work."""

from __future__ import annotations

import pytest

from actors.simulation.world.machine import WORKER_START_NS, SimulatedWorker
from actors.simulation.world.process import WORK_NS
from logstore.errors import WriteFailed
from tests.simulation.process_stage import MILLISECOND_NS, OneProcess, as_job


class LaneStage(OneProcess):
    """`job(name)` notes when it began and takes a millisecond."""

    def __init__(self) -> None:
        super().__init__()
        self.woken_ns: list[int] = []
        self.began: list[tuple[str, int]] = []
        self.worker = SimulatedWorker(
            "records", self.process, lambda: self.woken_ns.append(self.world.now_ns)
        )

    def start(self, name: str) -> None:
        def job() -> None:
            self.began.append((name, self.process.local_now_ns))
            self.process.charge(MILLISECOND_NS)

        self.worker.start(as_job(job))


def test_jobs_run_one_after_the_other_and_wake_the_process() -> None:
    stage = LaneStage()
    now_ns = stage.world.now_ns
    stage.start("a")
    stage.start("b")
    assert stage.worker.is_busy
    stage.world.run_until(now_ns + 3 * MILLISECOND_NS)
    first_ns = now_ns + WORKER_START_NS
    assert stage.began == [("a", first_ns), ("b", first_ns + MILLISECOND_NS)]
    assert stage.woken_ns == [first_ns + MILLISECOND_NS, first_ns + 2 * MILLISECOND_NS]
    assert not stage.worker.is_busy


def test_a_job_that_is_waited_for_runs_when_it_would_have() -> None:
    stage = LaneStage()
    start_ns = stage.world.now_ns
    stage.start("a")
    stage.process.charge(MILLISECOND_NS // 2)  # the actor does something else meanwhile
    stage.worker.wait()
    assert stage.began == [("a", start_ns + WORKER_START_NS)]
    assert stage.process.local_now_ns == start_ns + WORKER_START_NS + MILLISECOND_NS


def test_waiting_for_a_job_that_has_ended_takes_no_time() -> None:
    stage = LaneStage()
    stage.start("a")
    stage.process.charge(5 * MILLISECOND_NS)
    before_ns = stage.process.local_now_ns
    stage.worker.wait()
    assert stage.process.local_now_ns == before_ns
    assert not stage.worker.is_busy


def test_a_job_that_is_started_after_a_wait_does_not_run_in_the_place_of_the_first() -> None:
    stage = LaneStage()
    start_ns = stage.world.now_ns
    stage.start("a")
    stage.worker.wait()
    stage.start("b")
    stage.process.busy_ns = 0
    stage.world.run_until(start_ns + 5 * MILLISECOND_NS)
    ended_ns = start_ns + WORKER_START_NS + MILLISECOND_NS
    assert stage.began == [("a", start_ns + WORKER_START_NS), ("b", ended_ns + WORKER_START_NS)]


def test_a_job_that_fails_raises_where_it_is_waited_for_and_ends_later_jobs() -> None:
    stage = LaneStage()

    def fail() -> None:
        raise WriteFailed("no")

    stage.worker.start(as_job(fail))
    stage.start("b")
    with pytest.raises(WriteFailed):
        stage.worker.wait()
    assert stage.began == []
    stage.worker.check()


def test_a_paused_process_has_paused_workers() -> None:
    stage = LaneStage()
    stage.process.pause(3 * MILLISECOND_NS)
    resumed_ns = stage.process.paused_until_ns
    stage.start("a")
    stage.world.run_until(resumed_ns + WORK_NS)
    assert stage.began == [("a", resumed_ns)]
