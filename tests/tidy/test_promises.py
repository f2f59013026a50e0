"""The table of promises is current, and no promise lacks what looks at it."""

from __future__ import annotations

import pytest

from actors.simulation.checkers.invariant import NOT_BUILT, PROMISES
from tests.tidy.promises import (
    REAL,
    TABLE,
    checkers,
    found_mutants,
    marked_tests,
    not_hunted,
    promises,
    render,
)
from tests.tidy.repository import text_of


def test_the_table_of_promises_is_current() -> None:
    assert text_of(TABLE) == render(), "run `make reference`"


def test_every_promise_has_invariants() -> None:
    assert list(promises()) == list(PROMISES) == [f"P{number}" for number in range(1, 10)]
    assert not {each for several in PROMISES.values() for each in several} & NOT_BUILT.keys()


@pytest.mark.parametrize("number", PROMISES)
def test_every_promise_has_a_checker_a_found_mutant_and_a_test_on_real_processes(
    number: str,
) -> None:
    invariants = PROMISES[number]
    assert all(checkers(each) for each in invariants)
    assert not_hunted() or any(found_mutants(each) for each in invariants), "run `make mutants`"
    assert [each for each in marked_tests() if number in each.promises]


def test_whatever_is_marked_with_a_promise_is_a_test_on_real_processes() -> None:
    wrong = [
        f"{each.path}: {each.name}"
        for each in marked_tests()
        if not str(each.path).startswith(REAL)
        or not (each.path.name.startswith("test_") and each.name.startswith("test_"))
        or not set(each.promises) <= PROMISES.keys()
    ]
    assert not wrong
