"""A replay that is called again is the same one, whatever has become of its source. Pure."""

from __future__ import annotations

import pytest

from logstore.errors import InvalidRequest
from logstore.spark.replay_name import choose_name

A, B = "a" * 32, "b" * 32


def chosen(
    *ids: str, has: int = 1, wanted: int | None = None, begun: str = "", cursors: str = ""
) -> tuple[str, int]:
    return choose_name(
        ids,
        has_lsn=has,
        wanted_lsn=wanted,
        is_begun=lambda name: name in begun.split(),
        cursors=cursors.split(),
    )


def test_a_new_replay_is_named_after_its_source_and_where_it_begins() -> None:
    assert chosen(A) == (f"replay/{A}/1", 1)
    assert chosen(A, has=9, cursors=f"archive replay/{B}/1 replay/{A}/x replay/{A}") == (
        f"replay/{A}/9", 9
    )  # fmt: skip
    assert chosen("x/y", wanted=4, cursors="replay/x/y/1") == ("replay/x/y/4", 4)


def test_a_trimmed_source_is_the_same_replay() -> None:
    """It used to start over where the source begins now: all that is left came twice."""
    assert chosen(A, has=500, cursors=f"replay/{A}/1") == (f"replay/{A}/1", 1)
    assert chosen("x/y", has=500, cursors="replay/x/y/20") == ("replay/x/y/20", 20)
    assert chosen(A, has=500, cursors=f"replay/{A}/1 replay/{A}/500")[1] == 500
    assert chosen(A, has=500, wanted=500, cursors=f"replay/{A}/1")[1] == 500


def test_a_part_that_was_replayed_from_a_later_lsn_is_another_replay() -> None:
    assert chosen(A, has=1, cursors=f"replay/{A}/20") == (f"replay/{A}/1", 1)


def test_of_several_replays_of_a_trimmed_source_one_is_to_be_named() -> None:
    with pytest.raises(InvalidRequest, match="began at LSNs 1, 20: give --from"):
        chosen(A, has=500, cursors=f"replay/{A}/1 replay/{A}/20")


def test_an_adopted_lake_is_the_same_replay_under_whichever_of_its_clusters_it_began() -> None:
    """It used to be named after the newest one, so all came once more after each adoption."""
    assert chosen(A, B) == (f"replay/{A}/1", 1)
    assert chosen(A, B, cursors=f"replay/{A}/1") == (f"replay/{A}/1", 1)
    assert chosen(A, B, begun=f"replay/{B}/1") == (f"replay/{B}/1", 1)
