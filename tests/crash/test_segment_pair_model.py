"""The rules for segment pairs, explored exhaustively: crashes, faults on top, lives that go on.

The model is `tests/crash/pair_model.py`. SAFETY section 4 names what careless builds leave
open; each is here: a pair whose second header never came and then a fault on the first, a missing
middle pair, kill then power cut, no-ops, META, shared sectors. A failed flush, then restart, then
power cut is a crash without the flush, once caches are dropped before reading.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.pair_model import (
    Cells,
    Entry,
    Life,
    Promises,
    explore,
    is_lost,
    recover,
    single_faults,
)


def pipelined(life: Life) -> None:
    """A group of two, then one whose frames are flushed while the first one's records are not."""
    life.open_segment(1)
    life.vote(1)
    first = life.frames(1, "dn")
    life.flush_frames()
    life.records(first)
    second = life.frames(1, "dd")
    life.flush_frames()
    life.flush_records(first)
    life.records(second)
    life.flush_records(second)


def rolled(life: Life) -> None:
    pipelined(life)
    life.open_segment(5)
    life.group(1, "dn")
    life.vote(2)


def truncated(life: Life) -> None:
    pipelined(life)
    life.truncate(3)
    life.group(2, "dn")
    life.group(2, "d")


def truncated_twice(life: Life) -> None:
    truncated(life)
    life.truncate(5)
    life.group(3, "nd")


def truncated_deeper(life: Life) -> None:
    truncated(life)
    life.truncate(2)
    life.group(3, "dd")


LIVES = [pipelined, rolled, truncated, truncated_twice, truncated_deeper]


def first_life(script: Callable[[Life], None]) -> list[tuple[Any, ...]]:
    life = Life({}, Promises({}))
    script(life)
    return list(explore({}, [], life.events, Promises({})))


def second_life(seen: Cells, promises: Promises) -> Life:
    """Recovery of these cells, then more of everything in a newer term."""
    life = Life(seen, promises)
    life.recovery()
    if not life.headers:
        life.open_segment(1)
    life.group(7, "d")
    life.truncate(len(life.chain))
    life.group(8, "dn")
    return life


@pytest.mark.slow
@pytest.mark.parametrize("script", LIVES, ids=lambda each: each.__name__)
def test_no_crash_loses_a_promise_or_raises_an_alarm(script: Callable[[Life], None]) -> None:
    for cells, promises, _, _ in first_life(script):
        assert not is_lost(cells, promises)
        assert not recover(cells).faulty


@pytest.mark.slow
@pytest.mark.parametrize("script", LIVES, ids=lambda each: each.__name__)
def test_no_single_fault_on_any_crash_loses_a_promise(script: Callable[[Life], None]) -> None:
    tried = 0
    for cells, promises, _, _ in first_life(script):
        for damaged in single_faults(cells):
            tried += 1
            assert not is_lost(damaged, promises), (damaged, promises)
    assert tried > 400


@pytest.mark.slow
@pytest.mark.parametrize("script", LIVES, ids=lambda each: each.__name__)
def test_lives_that_go_on_after_a_recovery_keep_promises_under_a_fault_too(
    script: Callable[[Life], None],
) -> None:
    """A pair whose second header never came, then a fault on the first; torn tails built over."""
    for cells, promises, _, _ in first_life(script):
        life = second_life(cells, promises)
        for place, (left, now, _, _) in enumerate(explore(cells, [], life.events, promises)):
            assert not is_lost(left, now)
            assert not recover(left).faulty
            if place % 5 == 0:
                assert not any(is_lost(damaged, now) for damaged in single_faults(left))


@pytest.mark.slow
@pytest.mark.parametrize("script", LIVES, ids=lambda each: each.__name__)
def test_a_kill_and_then_a_power_cut_keep_promises(script: Callable[[Life], None]) -> None:
    """After a kill recovery sees the page cache: what is pending is there, and may yet be lost."""
    for _, promises, pending, durable in first_life(script):
        seen = {**durable, **{key: value for _, key, value in pending}}
        life = second_life(seen, promises)
        for left, now, _, _ in explore(durable, pending, life.events, promises):
            assert not is_lost(left, now)
            assert not recover(left).faulty


def test_the_model_finds_a_missing_data_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Life, "flush_frames", lambda _life: None)
    states = first_life(pipelined)
    assert any(
        is_lost(cells, promises) or recover(cells).faulty for cells, promises, _, _ in states
    )


def test_the_model_finds_records_that_are_acknowledged_before_their_flush(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Frames alone survive a crash; a fault on top of it is then taken for a torn tail."""

    def too_early(life: Life, entries: list[Entry]) -> None:
        acknowledged = {entry.index: entry.term for entry in entries}
        life.promise(life.promises._replace(entries={**life.promises.entries, **acknowledged}))

    monkeypatch.setattr(Life, "flush_records", too_early)
    assert any(
        is_lost(damaged, promises)
        for cells, promises, _, _ in first_life(pipelined)
        for damaged in single_faults(cells)
    )
