"""The ledger with real consensus cores reports nothing while they keep the rules, and a violation
when one rule is off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from actors.simulation.checkers import facts
from logstore.errors import InvariantViolated
from logstore.model import Index, NodeId
from logstore.raft import commit, election, replication
from logstore.raft.persist import PersistQueue
from logstore.raft.quorum import VoterSets
from logstore.raft.state import State
from logstore.raft.term_and_vote import TermAndVote
from tests.simulation.observed_cluster import ObservedCluster

STEPS = 3_000
SEEDS_MAX = 150


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5])
def test_no_checker_reports_while_the_rules_are_kept(nodes: int) -> None:
    committed = 0
    for seed in range(8):
        cluster = ObservedCluster(nodes, seed)
        cluster.run(STEPS)
        cluster.heal_and_settle()
        cluster.ledger.tell(facts.Converged())
        assert cluster.ledger.violations == []
        committed += cluster.ledger.record.committed.last_index
    assert committed > 40


def first_found(first_seed: int) -> str:
    """The invariant that the ledger finds broken first, in the first seed that shows it."""
    for seed in range(first_seed, first_seed + SEEDS_MAX):
        cluster = ObservedCluster(3, seed)
        # Core and cluster notice some breaks too, after the ledger has seen the step.
        with suppress(AssertionError, InvariantViolated):
            for _ in range(STEPS // 50):
                cluster.run(50)
                if cluster.ledger.violations:
                    break
        if cluster.ledger.violations:
            return cluster.ledger.violations[0].invariant
    return "nothing"


def commit_what_one_has(voters: VoterSets[NodeId], matches: Mapping[NodeId, Index]) -> Index:
    return max(matches.values())


def win_with_half(state: State) -> bool:
    return len(state.campaign.granted) >= len(state.config.voters) // 2


def show_what_is_committed(state: State) -> None:
    shown, index = state.shown, state.commit
    if not shown.is_ready or (shown.index is not None and index <= shown.index):
        return
    position = state.log.position(index)
    assert position is not None
    shown.index, shown.lsn = index, type(shown.lsn)(position.next_lsn - 1)
    state.emit(commit.Visible(shown.lsn, index))


def keep_what_was_in_flight(self: PersistQueue, first_index: Index, *, now_ns: int) -> int:
    kept = Index(first_index - 1)
    self.persisted = min(self.persisted, kept)
    return self.append(kept, ring_start=0, ring_end=0, now_ns=now_ns)


def vote_again(self: TermAndVote, node: NodeId, uuid: bytes = b"") -> None:
    self.vote, self.vote_uuid = node, uuid  # never saved


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "name", "broken", "invariants", "first_seed"),
    [
        (replication, "commit_candidate", commit_what_one_has, {"I10"}, 0),
        (election, "has_won", win_with_half, {"I1", "I3", "I9", "I13"}, 0),
        (commit, "advance_visible", show_what_is_committed, {"I8"}, 0),
        # One seed in a hundred shows it.
        (PersistQueue, "truncate", keep_what_was_in_flight, {"I10", "I12"}, 260),
        (TermAndVote, "cast_vote", vote_again, {"I9", "I10"}, 0),
    ],
    ids=["commit-what-anyone-has", "half-the-votes", "show-unflushed", "aba", "vote-unsaved"],
)
def test_a_rule_that_is_off_is_found(
    place: object,
    name: str,
    broken: Callable[..., Any],
    invariants: set[str],
    first_seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(place, name, broken)
    assert first_found(first_seed) in invariants
