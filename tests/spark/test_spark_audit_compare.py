"""Who differs where: buckets, gaps, doubles, majorities. No Spark is needed."""

from __future__ import annotations

import pytest

from logstore.spark.audit_compare import (
    Digest,
    Finding,
    Kind,
    add_up,
    compare_lsns,
    differing_buckets,
    find_gaps_and_doubles,
    join_lsns,
    make_borders,
)
from logstore.spark.audit_digests import Bucket, Damage, LsnRow, PartDigest, Range


def digest(runs: list[Range], first: int = 1, last: int = 20, **buckets: int) -> Digest:
    found = {int(key[1:]): Bucket(1, 1, value) for key, value in buckets.items()}
    return Digest("x", first, last, found, runs, [])


def test_borders_are_a_grid_and_the_ends_of_every_range() -> None:
    assert make_borders([(3, 25), (7, 31)], 10) == [3, 7, 10, 20, 26, 30, 32]
    assert make_borders([(5, 5)], 10) == [5, 6]
    assert make_borders([(5, 4)], 10) == make_borders([], 10) == []
    assert make_borders([(5, 4), (1, 2)], 10) == [1, 3]


@pytest.mark.parametrize(
    ("runs", "found"),
    [
        ([(1, 20)], []),
        ([(11, 20), (1, 10)], []),
        ([(1, 9), (11, 20)], [(Kind.MISSING, 10, 10)]),
        ([(3, 18)], [(Kind.MISSING, 1, 2), (Kind.MISSING, 19, 20)]),
        ([], [(Kind.MISSING, 1, 20)]),
        ([(1, 12), (12, 20)], [(Kind.DOUBLED, 12, 12)]),
        ([(1, 20), (5, 7)], [(Kind.DOUBLED, 5, 7)]),
        ([(1, 12), (5, 25)], [(Kind.DOUBLED, 5, 12)]),
        ([(-4, 30)], []),
    ],
)
def test_gaps_and_doubles_follow_from_the_runs(
    runs: list[Range], found: list[tuple[Kind, int, int]]
) -> None:
    wanted = [Finding("x", *each) for each in found]
    assert find_gaps_and_doubles(digest(runs)) == wanted


def test_parts_add_up_whatever_their_order() -> None:
    big = (1 << 128) - 1
    parts = [
        PartDigest({0: Bucket(2, 1, big), 1: Bucket(3, 1, 7)}, [(1, 5)], []),
        PartDigest({1: Bucket(4, 2, 5)}, [(6, 9)], [Damage(7, 8, "torn"), Damage(9, 8, "frame")]),
    ]
    for order in (parts, parts[::-1]):
        found = add_up("x", 1, 9, order)
        assert found.buckets == {0: Bucket(2, 1, big), 1: Bucket(7, 3, 12)}
        assert sorted(found.runs) == [(1, 5), (6, 9)]
        assert found.damaged == [
            Finding("x", Kind.DAMAGED, 7, 8, "torn"),
            Finding("x", Kind.DAMAGED, 0, 0, "frame"),
        ]
    assert Bucket(1, 1, big).plus(Bucket(1, 1, 1)).digest == 0


def test_a_bucket_is_compared_among_those_that_should_have_it() -> None:
    borders = [1, 11, 21, 31]
    same = digest([], last=30, k0=5, k1=6, k2=7)
    assert differing_buckets(borders, [same, digest([], last=20, k0=5, k1=6)]) == []
    assert differing_buckets(borders, [same, digest([], last=30, k0=5, k1=6)]) == [2]
    assert differing_buckets(borders, [same, digest([], first=11, last=30, k1=8, k2=7)]) == [1]
    assert differing_buckets(borders, [same]) == []


def rows(*values: tuple[int, int, int]) -> list[LsnRow]:
    return [LsnRow(*each) for each in values]


def test_the_minority_is_named_at_each_lsn_and_lsns_that_follow_are_joined() -> None:
    right = rows(*[(lsn, lsn * 10, 1) for lsn in range(1, 8)])
    wrong = rows(*[(lsn, lsn * 10 + (lsn in (3, 4, 6)), 1) for lsn in range(1, 8)])
    ranges = dict.fromkeys("abc", (1, 7))
    assert compare_lsns({"a": right, "b": wrong, "c": right}, ranges) == [
        Finding("b", Kind.PAYLOAD, 3, 4),
        Finding("b", Kind.PAYLOAD, 6, 6),
    ]


def test_without_a_majority_all_are_named() -> None:
    ranges = dict.fromkeys("ab", (1, 7))
    found = compare_lsns({"a": rows((1, 5, 1)), "b": rows((1, 6, 1))}, ranges)
    assert found == [Finding("a", Kind.PAYLOAD, 1, 1), Finding("b", Kind.PAYLOAD, 1, 1)]


def test_equal_payloads_in_different_batches_are_told_as_that() -> None:
    ranges = dict.fromkeys("abc", (1, 7))
    same = rows((1, 5, 1), (2, 6, 1))
    found = compare_lsns({"a": same, "b": same, "c": rows((1, 5, 2), (2, 6, 2))}, ranges)
    assert found == [Finding("c", Kind.BATCH, 1, 2)]


def test_of_a_doubled_lsn_one_right_value_is_enough() -> None:
    ranges = dict.fromkeys("abc", (1, 7))
    one = rows((1, 5, 1))
    assert compare_lsns({"a": one, "b": one, "c": rows((1, 5, 1), (1, 9, 1))}, ranges) == []


def test_what_a_source_should_not_have_is_not_compared() -> None:
    """The tail of a stopped replica, which nobody has committed."""
    ranges = {"a": (1, 7), "b": (1, 3), "c": (1, 7)}
    same = rows((4, 5, 1))
    assert compare_lsns({"a": same, "b": rows((4, 9, 1)), "c": same}, ranges) == []


def test_lsns_join_to_ranges() -> None:
    assert join_lsns([1, 2, 3, 7, 9, 10]) == [(1, 3), (7, 7), (9, 10)]
    assert join_lsns([]) == []
