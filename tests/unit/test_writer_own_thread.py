"""A writer whose flushes have its own thread: the ends of jobs ring no bell there, so a turn that
leaves something to do says so (SAFETY M7)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.flush_workers import Job
from actors.host import RealHost
from logstore.raft.events import DiskFullChanged
from tests.unit.writer_stage import HeldCalls, WriterStage


class OwnThread:
    """As `CallerThreadWorker`; `amid` is called in the middle of the next job."""

    is_busy = False

    def __init__(self) -> None:
        self.amid = lambda: None

    def start(self, job: Job) -> None:
        for _ in job():
            amid, self.amid = self.amid, lambda: None
            amid()

    def wait(self) -> None:
        """No job is under way."""

    check = close = wait


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WriterStage]:
    monkeypatch.setattr(RealHost, "own_thread_worker", lambda *_: OwnThread())
    made = WriterStage(tmp_path)
    made.bear()
    made.persist(80, 80)
    made.settle()
    yield made
    made.close()


def turn(stage: WriterStage) -> None:
    """As the runner: again while the writer says so, then it parks."""
    while stage.writer.do_work(stage.stage.now_ns) >= stage.writer.full_turn:
        pass


def needs_a_spare(stage: WriterStage) -> bool:
    work = stage.writer._work
    return not work._spare_worker.is_busy and stage.writer._folder.log.needs_spare


def test_after_a_truncation_the_next_spare_is_prepared_before_the_writer_parks(
    stage: WriterStage,
) -> None:
    assert not needs_a_spare(stage)
    stage.truncate(2)
    turn(stage)
    assert not needs_a_spare(stage)


def test_a_disk_that_gets_full_during_a_job_is_reported_before_the_writer_parks(
    stage: WriterStage,
) -> None:
    """The thread that answers the bell meanwhile has cleared it."""
    held = HeldCalls(stage.disk, "allocate")
    stage.disk.fill()
    stage.truncate(2)
    stage.work()
    held.wait_until_begun()
    stage.heard()

    def amid() -> None:
        held.release()
        stage.writer._work._spare_worker.wait()

    stage.writer._work._data_worker.amid = amid
    stage.persist(80)
    turn(stage)
    assert DiskFullChanged in map(type, stage.heard())
