"""Which sequences a monotone producer may be given (SAFETY E1, E11)."""

from __future__ import annotations

from threading import Lock

import pytest

from logstore.client.core.given_sequences import GivenSequences
from logstore.errors import InvalidRequest
from logstore.limits import POSITION_MAX


def given(*sequences: int) -> GivenSequences:
    found = GivenSequences(Lock())
    for each in sequences:
        found.give(each)
    return found


def test_sequences_rise() -> None:
    sequences = given(0, 5)
    for each in (5, 4, 0):
        with pytest.raises(InvalidRequest, match=f"sequence {each} after 5: they must rise"):
            sequences.give(each)
    assert sequences.give(6) == 6


def test_a_refused_sequence_may_be_given_again() -> None:
    sequences = given(3, 5)
    sequences.take_back(5)
    assert sequences.last == 3
    assert sequences.give(4) == 4


def test_a_refused_sequence_stays_used_where_a_higher_one_was_given() -> None:
    """The higher one may be stored: the log would then take the lower one for a duplicate."""
    sequences = given(3, 5, 7)
    sequences.take_back(5)
    with pytest.raises(InvalidRequest, match="after 7"):
        sequences.give(5)
    sequences.take_back(7)
    assert sequences.give(5) == 5


def test_what_the_log_has_is_below_all_that_may_come() -> None:
    sequences = given(3, 5)
    sequences.settle(3)
    sequences.take_back(5)
    sequences.take_back(5)  # a refusal that comes twice
    assert sequences.last == 3


def test_what_the_log_has_stays_used_even_if_it_was_taken_back() -> None:
    sequences = given(3)
    sequences.settle(3)
    sequences.give(5)
    sequences.take_back(5)
    assert sequences.last == 3
    sequences.settle(5)
    assert sequences.last == 5
    sequences.take_back(5)
    sequences.settle(3)
    with pytest.raises(InvalidRequest, match="sequence 5 after 5: they must rise"):
        sequences.give(5)


def test_sequences_that_are_settled_are_not_kept() -> None:
    sequences = GivenSequences(Lock())
    for each in range(1_000):
        sequences.give(each)
        sequences.settle(each)
    assert list(sequences._given) == []
    assert sequences.last == 999


@pytest.mark.parametrize("sequence", [None, -1, POSITION_MAX])
def test_what_is_no_sequence_is_refused(sequence: int | None) -> None:
    with pytest.raises(InvalidRequest, match="sequence"):
        GivenSequences(Lock()).give(sequence)
