"""A worker in its caller's thread: a bell that rings during a job is answered (SAFETY S8, M7)."""

from __future__ import annotations

import select
from collections.abc import Iterator
from threading import Event, current_thread

import pytest

from actors.flush_workers import CallerThreadWorker
from transport.doorbell import Doorbell


class Attended:
    """A worker and its bell; `taken` counts calls of `on_bell`."""

    def __init__(self) -> None:
        self.bell = Doorbell.create()
        self.waiting = 0
        self.taken: list[str] = []
        self.came = Event()
        self.worker = CallerThreadWorker("data", self.bell, self.on_bell)

    def on_bell(self) -> int:
        if not self.waiting:
            return 0
        self.waiting -= 1
        self.taken.append(current_thread().name)
        self.came.set()
        return 1

    def ring(self) -> None:
        self.waiting += 1
        self.bell.ring()

    def is_ringing(self) -> bool:
        return bool(select.select([self.bell.fileno()], [], [], 0)[0])


@pytest.fixture
def attended() -> Iterator[Attended]:
    made = Attended()
    yield made
    made.worker.close()
    made.bell.close()


def test_a_job_has_its_callers_thread_and_what_comes_meanwhile_has_another(
    attended: Attended,
) -> None:
    names = []

    def flush() -> Iterator[None]:
        names.append(current_thread().name)
        attended.ring()
        assert attended.came.wait(30)
        yield
        attended.came.clear()
        attended.ring()
        assert attended.came.wait(30)

    attended.worker.start(flush)
    assert names == [current_thread().name]
    assert attended.taken == ["data", "data"]


def test_what_had_come_before_the_job_is_attended_to_as_well(attended: Attended) -> None:
    def flush() -> Iterator[None]:
        assert attended.came.wait(30)
        yield

    attended.ring()
    attended.worker.start(flush)
    assert attended.taken == ["data"]


def test_behind_a_job_the_bell_is_the_callers_own_again(attended: Attended) -> None:
    def flush() -> Iterator[None]:
        yield

    for _ in range(100):
        attended.worker.start(flush)
    attended.ring()
    attended.worker.close()
    assert attended.taken == []
    assert attended.is_ringing()
    attended.worker = CallerThreadWorker("data", attended.bell, attended.on_bell)


def test_what_a_job_raises_is_raised_at_once(attended: Attended) -> None:
    def fail() -> Iterator[None]:
        raise OSError("flush failed")
        yield

    with pytest.raises(OSError, match="flush failed"):
        attended.worker.start(fail)


def test_what_goes_wrong_in_the_other_thread_is_raised_behind_the_job(attended: Attended) -> None:
    failed = Event()

    def on_bell() -> int:
        failed.set()
        raise ValueError("no such order")

    def flush() -> Iterator[None]:
        assert failed.wait(30)
        yield

    worker = CallerThreadWorker("data", attended.bell, on_bell)
    attended.ring()
    with pytest.raises(ValueError, match="no such order"):
        worker.start(flush)
    worker.close()
