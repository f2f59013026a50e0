"""What the figures of a log that forgets are made of."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import forgetting
from benchmarks.forgetting import FIGURES, FULL_BESIDE, Turn, summarise
from logstore.errors import LogStoreError, OutcomeUnknown
from logstore.limits import MIB


def turn(ratio: float, **facts: float) -> list[Turn]:
    return [Turn(figure.name, 1, ratio, 1.0, facts) for figure in FIGURES]


def test_a_round_in_which_the_install_was_over_early_reaches_no_target() -> None:
    over = summarise([*turn(1.0, was_over=1.0), *turn(0.5, was_over=0.0)])[FULL_BESIDE.name]
    assert (over["median_ratio"], over["is_reached"]) == (0.5, False)
    assert over["rounds_that_say_something"] == 1
    none = summarise(turn(1.0, was_over=1.0))[FULL_BESIDE.name]
    assert (none["median_ratio"], none["is_reached"]) == (1.0, False)
    assert summarise(turn(1.0))[FULL_BESIDE.name]["is_reached"]


class Log:
    """A log whose appends fail, and that begins at `first_lsn` however it is trimmed."""

    def __init__(self, first_lsn: int, error: Exception | None = None) -> None:
        self.admin = self
        self._first_lsn = first_lsn
        self._error = error

    def producer(self) -> Log:
        return self

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def append_batch(self, _payloads: list[bytes]) -> Log:
        return self

    def result(self, _timeout: float) -> None:
        if self._error is not None:
            raise self._error

    def commit_lsn(self) -> int:
        return 100

    def trim(self, _lsn: int) -> int:
        return self._first_lsn


class Cluster:
    nodes = (1, 2, 3)

    def wait_for_leader(self) -> int:
        return 1

    def kill(self, node: int) -> None:
        assert node == 2


def leave_behind(log: Any) -> tuple[int, int]:
    cluster: Any = Cluster()
    return forgetting._leave_behind(cluster, log, MIB)


def test_a_follower_that_would_need_no_install_is_not_measured() -> None:
    assert leave_behind(Log(102)) == (2, 102)
    with pytest.raises(LogStoreError, match="node 2 may have 100"):
        leave_behind(Log(101))


def test_every_append_has_its_outcome_before_anything_is_measured() -> None:
    with pytest.raises(OutcomeUnknown):
        leave_behind(Log(102, OutcomeUnknown("late")))
