"""The faulty ranges against a set of indexes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logstore.model import Index
from logstore.raft.faulty import FaultyEntries

INDEXES = st.integers(1, 40)
ACTS = st.lists(st.tuples(st.sampled_from(["add", "truncate"]), INDEXES), max_size=40)


def ranges_of(indexes: set[int]) -> list[tuple[int, int]]:
    firsts = sorted(each for each in indexes if each - 1 not in indexes)
    lasts = sorted(each for each in indexes if each + 1 not in indexes)
    return list(zip(firsts, lasts, strict=True))


@given(st.lists(st.tuples(INDEXES, st.integers(0, 5)), max_size=8), ACTS)
def test_q1_ranges_are_those_of_a_set_whatever_is_added_and_cut(
    recovered: list[tuple[int, int]], acts: list[tuple[str, int]]
) -> None:
    faulty = FaultyEntries((Index(first), Index(first + more)) for first, more in recovered)
    model = {index for first, more in recovered for index in range(first, first + more + 1)}
    for act, index in acts:
        if act == "add":
            faulty.add(Index(index))
            model.add(index)
        else:
            faulty.truncate(Index(index))
            model = {each for each in model if each < index}
        assert faulty.ranges == ranges_of(model)
    for index in range(48):
        assert (Index(index) in faulty) == (index in model)
        assert faulty.first_above(Index(index)) == min(
            (each for each in model if each > index), default=None
        )
        if index in model:
            first, last = faulty.range_of(Index(index))
            assert first <= index <= last
