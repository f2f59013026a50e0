"""That appends have their turn: leaders that take requests and no batch are told of (SAFETY E6)."""

from __future__ import annotations

from actors.simulation.checkers.turns import AppendTurns

FIRST, SECOND = object(), object()


def test_requests_taken_while_one_batch_waits_are_counted() -> None:
    turns = AppendTurns(3)
    assert turns.passed_over(1, FIRST) == 0
    for _ in range(3):
        turns.taken(1)
    assert turns.passed_over(1, FIRST) == 0
    turns.taken(1)
    assert turns.passed_over(1, FIRST) == 4


def test_a_batch_that_is_read_begins_anew() -> None:
    turns = AppendTurns(3)
    turns.passed_over(1, FIRST)
    for unread in (SECOND, None, None):
        for _ in range(9):
            turns.taken(1)
        assert turns.passed_over(1, unread) == 0


def test_each_leader_has_its_own_count() -> None:
    turns = AppendTurns(3)
    turns.passed_over(1, FIRST)
    turns.passed_over(2, FIRST)
    for _ in range(9):
        turns.taken(2)
    assert turns.passed_over(1, FIRST) == 0
    assert turns.passed_over(2, FIRST) == 9
