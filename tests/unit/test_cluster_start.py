"""What the figures of a cluster's start are made of."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import cluster_start
from benchmarks.cluster_start import StartRow, draw_start, make_row, summarise
from benchmarks.results import Result, as_read
from logstore.errors import Unreachable

MS = 1_000_000


def row(number: int, factor: int) -> StartRow:
    seen = {}
    for node in (1, 2, 3):
        seen["runs", node] = factor * (100 + node) * MS
        seen["votes", node] = factor * (200 + node) * MS
        seen["shows", node] = factor * (300 + node) * MS
    seen["leads", 2] = factor * 250 * MS
    return make_row(number, 0, factor * 400 * MS, seen)


def test_a_row_counts_from_the_first_process() -> None:
    found = make_row(1, 50 * MS, 450 * MS, {("leads", 3): 150 * MS, ("runs", 1): 60 * MS})
    assert (found.first_acknowledged_s, found.leads_s, found.runs_s) == (0.4, 0.1, {"1": 0.01})


def test_a_start_of_which_no_look_saw_a_leader_says_so() -> None:
    with pytest.raises(Unreachable, match="no replica was seen to lead"):
        make_row(1, 50 * MS, 450 * MS, {("runs", 1): 60 * MS})


def test_of_three_replicas_the_first_and_the_last_are_told() -> None:
    found = summarise([row(1, 1), row(2, 3), row(3, 2)])
    assert found["first replica: votes"] == {"median_s": 0.402, "low_s": 0.201, "high_s": 0.603}
    assert found["last replica: votes"]["median_s"] == 0.406
    assert found["first replica: leads"]["median_s"] == 0.5
    assert "last replica: leads" not in found
    assert found["first append acknowledged"]["median_s"] == 0.8


def test_each_moment_has_a_bar() -> None:
    rows = [row(1, 1)]
    result = as_read(Result("start", {}, "", list(rows), summarise(rows)))
    axes = draw_start(result, [])["start"].axes[0]
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    assert names[::-1] == list(summarise(rows))


class Cluster:
    nodes = (1, 2)

    def __init__(self) -> None:
        self.now: dict[int, dict[str, int]] = {1: {}, 2: {}}

    def counters(self, node: int) -> dict[str, int]:
        return self.now[node]


def test_each_moment_is_noted_when_it_is_first_seen() -> None:
    cluster: Any = Cluster()
    seen: dict[tuple[str, int], int] = {}
    assert not cluster_start._look(cluster, seen)
    cluster.now[1] = {"raft.loops": 5, "egress.loops": 0, "term": 0, "is_leader": 0, "visible": 0}
    assert not cluster_start._look(cluster, seen)
    assert not seen
    cluster.now[1] = {"raft.loops": 5, "egress.loops": 1, "term": 1, "is_leader": 1, "visible": 1}
    assert not cluster_start._look(cluster, seen)
    assert set(seen) == {("runs", 1), ("votes", 1), ("leads", 1), ("shows", 1)}
    before = dict(seen)
    cluster.now[2] = {"raft.loops": 5, "egress.loops": 1, "term": 1, "is_leader": 0, "visible": 1}
    assert cluster_start._look(cluster, seen)
    assert before.items() < seen.items()
