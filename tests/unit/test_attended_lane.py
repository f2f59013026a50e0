"""The lane that has its caller's thread: who rings during a job is attended to (SAFETY S8, M7)."""

from __future__ import annotations

import select
from collections.abc import Iterator
from threading import Event, current_thread

import pytest

from actors.flush_lanes import AttendedLane
from transport.doorbell import Doorbell


class Attended:
    """A lane and its bell; `taken` grows by one each time that somebody stands in."""

    def __init__(self) -> None:
        self.bell = Doorbell.create()
        self.waiting = 0
        self.taken: list[str] = []
        self.came = Event()
        self.lane = AttendedLane("data", self.bell, self.attend)

    def attend(self) -> int:
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
    made.lane.close()
    made.bell.close()


def test_a_job_has_its_callers_thread_and_what_comes_meanwhile_has_another(
    attended: Attended,
) -> None:
    names = []

    def flush() -> Iterator[None]:
        names.append(current_thread().name)
        attended.ring()
        assert attended.came.wait(5)
        yield
        attended.came.clear()
        attended.ring()
        assert attended.came.wait(5)

    attended.lane.start(flush)
    assert names == [current_thread().name]
    assert attended.taken == ["data", "data"]


def test_what_had_come_before_the_job_is_attended_to_as_well(attended: Attended) -> None:
    def flush() -> Iterator[None]:
        assert attended.came.wait(5)
        yield

    attended.ring()
    attended.lane.start(flush)
    assert attended.taken == ["data"]


def test_behind_a_job_the_bell_is_the_callers_own_again(attended: Attended) -> None:
    def flush() -> Iterator[None]:
        yield

    for _ in range(100):
        attended.lane.start(flush)
    attended.ring()
    attended.lane.close()
    assert attended.taken == []
    assert attended.is_ringing()
    attended.lane = AttendedLane("data", attended.bell, attended.attend)


def test_what_a_job_raises_is_raised_at_once(attended: Attended) -> None:
    def fail() -> Iterator[None]:
        raise OSError("flush failed")
        yield

    with pytest.raises(OSError, match="flush failed"):
        attended.lane.start(fail)


def test_what_goes_wrong_in_the_other_thread_is_raised_behind_the_job(attended: Attended) -> None:
    failed = Event()

    def attend() -> int:
        failed.set()
        raise ValueError("no such order")

    def flush() -> Iterator[None]:
        assert failed.wait(5)
        yield

    lane = AttendedLane("data", attended.bell, attend)
    attended.ring()
    with pytest.raises(ValueError, match="no such order"):
        lane.start(flush)
    lane.close()
