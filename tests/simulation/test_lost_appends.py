"""A whole cluster whose bulk lanes lose all messages, while heartbeats and votes arrive."""

from __future__ import annotations

import pytest

from actors.simulation.faults.draw_episodes import both_ways
from logstore.limits import STALL_ELECTION_TIMEOUTS
from tests.simulation.quiet_cluster import SECOND_NS, QuietCluster
from transport.link import Lane

ELECTION_NS = SECOND_NS // 2


def lose_appends(stage: QuietCluster, links: tuple[tuple[int, int], ...]) -> None:
    stage.cluster.network.set_quality(links, loss=1_000, lane=Lane.BULK)


def commits(stage: QuietCluster) -> int:
    return max(core.commit for core in stage.cluster.observer.cores.values())


def term(stage: QuietCluster) -> int:
    return max(core.term for core in stage.cluster.observer.cores.values())


def test_another_replica_takes_over_from_a_leader_whose_appends_are_lost() -> None:
    stage = QuietCluster(has_clients=True)
    (leader,), before = stage.leaders, term(stage)
    others = [node for node in stage.cluster.nodes if node != leader]
    lose_appends(stage, tuple((leader, node) for node in others))
    stage.run_for((STALL_ELECTION_TIMEOUTS + 4) * ELECTION_NS)
    assert stage.leaders
    assert leader not in stage.leaders
    committed = commits(stage)
    stage.run_for(2 * SECOND_NS)
    assert commits(stage) > committed
    assert term(stage) == before + 1, "who gave up does not come back"
    assert stage.problems == []


def test_reads_without_a_pause_do_not_keep_such_a_leader() -> None:
    """Each linearizable read begins a round, and so puts the next heartbeat off (V5, W8)."""
    stage = QuietCluster(has_clients=True)
    (leader,) = stage.leaders
    others = [node for node in stage.cluster.nodes if node != leader]
    stage.workload.read_without_a_pause()
    stage.run_for(SECOND_NS)
    lose_appends(stage, tuple((leader, node) for node in others))
    stage.run_for((STALL_ELECTION_TIMEOUTS + 4) * ELECTION_NS)
    assert stage.leaders
    assert leader not in stage.leaders
    assert stage.problems == []


@pytest.mark.long
def test_leaders_that_fare_no_better_make_few_elections() -> None:
    """No append arrives for 120 election timeouts. Two leaders alternate, more and more slowly."""
    stage = QuietCluster(has_clients=True)
    before = term(stage)
    every = both_ways((a, b) for a in stage.cluster.nodes for b in stage.cluster.nodes if a < b)
    lose_appends(stage, every)
    terms = []
    for _ in range(4):
        stage.run_for(30 * ELECTION_NS)
        terms.append(term(stage) - before)
    assert 3 <= terms[-1] <= 10, terms
    assert terms[3] - terms[2] <= 2, terms
    stage.cluster.network.heal_all()
    committed = commits(stage)
    stage.run_for(8 * ELECTION_NS)
    assert commits(stage) > committed
    assert stage.problems == []


def test_a_leader_under_full_followers_stays() -> None:
    """It has space, and nothing is wrong with its lanes: appends wait for space (S9)."""
    stage = QuietCluster(has_clients=True)
    (leader,), before = stage.leaders, term(stage)
    others = [node for node in stage.cluster.nodes if node != leader]
    for node in others:
        stage.replica(node).disk.fill()
    committed = [0, commits(stage)]
    while committed[-1] > committed[-2] and len(committed) < 20:
        stage.run_for(3 * STALL_ELECTION_TIMEOUTS * ELECTION_NS)
        committed.append(commits(stage))
    assert committed[-1] == committed[-2], "the followers have run out of space"
    assert (stage.leaders, term(stage)) == ([leader], before)
    for node in others:
        stage.replica(node).disk.free_space()
    stage.run_for(8 * ELECTION_NS)
    assert commits(stage) > committed[-1]
    assert term(stage) == before
    assert stage.problems == []
