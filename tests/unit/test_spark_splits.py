"""Cutting a range into tasks: everything once, in order, balanced by bytes. No Spark."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logstore.client.core.spans import Span
from logstore.limits import MIB
from logstore.spark.splits import SPLIT_BYTES, Split, make_splits, step_bytes


def spans(*sizes: tuple[int, int], first: int = 1) -> list[Span]:
    """Spans of (records, bytes)."""
    found = []
    for records, size in sizes:
        found.append(Span(first, first + records - 1, size, 0))
        first += records
    return found


def split(found: list[Span], last: int, least: int = 1, most: int | None = None) -> list[Split]:
    return make_splits(found, last_lsn=last, min_partitions=least, max_records_per_partition=most)


def test_a_span_is_a_split() -> None:
    assert split(spans((10, 100), (1, 900)), 11) == [Split(1, 10, 100), Split(11, 11, 900)]
    assert split([], 0) == []


def test_the_largest_are_halved_until_there_are_enough() -> None:
    found = split(spans((10, 100), (8, 800)), 18, least=4)
    assert found == [Split(1, 10, 100), Split(11, 12, 200), Split(13, 14, 200), Split(15, 18, 400)]


def test_there_are_never_more_splits_than_records() -> None:
    found = split(spans((1, 50), (2, 10)), 3, least=50)
    assert [(each.first_lsn, each.last_lsn) for each in found] == [(1, 1), (2, 2), (3, 3)]


def test_a_limit_of_records_holds_for_each() -> None:
    found = split(spans((10, 100)), 10, most=4)
    assert [len(each) for each in found] == [3, 3, 4]


def test_what_the_spans_leave_out_is_taken_to_be_like_them() -> None:
    assert split(spans((10, 100)), 30) == [Split(1, 10, 100), Split(11, 30, 200)]


def test_steps_give_as_many_splits_as_bytes_or_options_want() -> None:
    assert step_bytes(100, 1) == 100
    assert step_bytes(100, 3) == 34
    assert step_bytes(0, 5) == 1
    assert step_bytes(10 * SPLIT_BYTES, 1) == SPLIT_BYTES
    assert step_bytes(10 * SPLIT_BYTES, 20) == SPLIT_BYTES // 2
    assert SPLIT_BYTES == 64 * MIB


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 10_000)), min_size=1, max_size=20),
    st.integers(0, 40),
    st.integers(1, 60),
    st.one_of(st.none(), st.integers(1, 30)),
)
def test_splits_cover_the_range_in_order_without_gap_or_overlap(
    sizes: list[tuple[int, int]], more: int, least: int, most: int | None
) -> None:
    given_spans = spans(*sizes, first=7)
    last = given_spans[-1].last_lsn + more
    found = split(given_spans, last, least, most)
    lsns = [lsn for each in found for lsn in range(each.first_lsn, each.last_lsn + 1)]
    assert lsns == list(range(7, last + 1))
    assert len(found) >= min(least, len(lsns))
    assert all(0 < len(each) <= (most or len(lsns)) for each in found)
