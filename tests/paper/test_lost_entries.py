"""A replica whose log ends before what it had acknowledged says so itself (FAULTS O4, D33)."""

from __future__ import annotations

from collections.abc import Sequence

from logstore.limits import LOG_AGAIN_NS
from logstore.raft.effects import Effect, Log
from tests.paper.one_node import OneNode, of_type, rows_of
from tests.paper.virtual_node import MS


def lost_lines(effects: Sequence[Effect]) -> list[str]:
    return [each.text for each in of_type(effects, Log) if "LOST" in each.text]


def put_back() -> OneNode:
    """Node 1's folder is of a time when its log ended at entry 2, in term 1."""
    return OneNode(rows=rows_of([1, 1]), term=1)


def test_a_folder_put_back_from_an_older_copy_says_what_it_lost() -> None:
    node = put_back()
    rows = rows_of([1, 1, 2, 2, 2])
    effects = node.hear_heartbeat(2, term=2, commit=5, prev=rows[4])
    assert len(lost_lines(effects)) == 1
    assert "node 1 has LOST entries 3 to 5" in lost_lines(effects)[0]
    lost = node.core.lost
    assert lost is not None
    assert (lost.last_index, lost.acknowledged, lost.term) == (2, 5, 2)


def test_it_says_so_once_a_minute() -> None:
    node = put_back()
    last = rows_of([1, 1, 2])[2]
    said = 0
    for _ in range(2 * LOG_AGAIN_NS // (200 * MS)):
        said += len(lost_lines(node.hear_heartbeat(2, term=2, prev=last)))
        node.tick(200)
    assert said == 2


def test_it_remembers_after_the_entries_came_again() -> None:
    node = put_back()
    rows = rows_of([1, 1, 2, 3])
    node.hear_heartbeat(2, term=2, prev=rows[2])
    node.follow(3, 3)
    for row in rows[2:]:
        node.hear_append(3, row)
    node.hear_heartbeat(3, term=3, prev=rows[3])
    assert node.core.last_index == 4
    lost = node.core.lost
    assert lost is not None
    assert lost.acknowledged == 3


def test_a_replica_that_lags_has_lost_nothing() -> None:
    node = put_back()
    assert not lost_lines(node.hear_heartbeat(2, term=2, commit=9, prev=rows_of([1, 1])[1]))
    node.flush_meta()
    node.hear_append(2, rows_of([1, 1, 2])[2])
    assert node.core.lost is None


def test_a_conflict_that_is_truncated_is_no_loss() -> None:
    node = OneNode(rows=rows_of([1, 1, 1]), term=1)
    node.follow(2, 2)
    node.hear_append(2, rows_of([1, 2])[1])
    node.hear_heartbeat(2, term=2, prev=rows_of([1, 2])[1])
    assert (node.core.last_index, node.core.lost) == (2, None)
