"""The explorer where members change: the whole change is in the bound, and rules of members that
are broken are found."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from logstore.format.configuration_body import Configuration, Member
from logstore.model import NodeId
from logstore.raft import configuration, membership
from logstore.raft.configurations import Configurations
from logstore.raft.events import ChangeKind
from logstore.raft.quorum import VoterSets
from logstore.raft.state import Leading, State
from tests.explorer import search
from tests.explorer.bound import Bound, FirstChange
from tests.explorer.events import (
    Campaign,
    ChangeAsked,
    Delivery,
    Flushed,
    Happening,
    NextProposed,
    Saved,
)
from tests.explorer.explored_changes import Voting, possible
from tests.explorer.explored_replica import Replica
from tests.explorer.freezing import digest_of
from tests.explorer.local_states import Facts, LocalStates
from tests.explorer.report import transcript
from tests.explorer.search import Explorer
from tests.explorer.symmetry import EXCHANGE, mirror_event
from tests.simulation.test_explorer import replay


def one_change(change: FirstChange, terms: int = 1, entries: int = 3) -> Bound:
    """Three entries: a no-op, the joint CONFIG, and the one that it leads to."""
    return Bound(terms, entries, 0, 1, changes=1, change=change)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "voters"), [("promote", {1, 2, 3}), ("replace", {1, 3})], ids=("promote", "replace")
)
def test_a_whole_change_is_exhausted_and_keeps_every_promise(
    change: FirstChange, voters: set[int]
) -> None:
    explorer = Explorer(one_change(change))
    outcome = explorer.run(lambda: False)
    assert outcome.violation is None
    assert outcome.is_exhausted
    last = {ledger.votings[-1] for ledger in explorer._ledgers}
    assert sorted({each.id for each in last}) == [1, 2, 3]
    assert {frozenset(each.voters) for each in last if each.id == 3} == {frozenset(voters)}


class Settling:
    """Three replicas at which every message arrives again and again, and every write is flushed."""

    def __init__(self, bound: Bound) -> None:
        self.local = LocalStates(bound)
        self.nodes = list(self.local.first)
        self.sent: dict[tuple[int, Delivery], None] = {}

    def facts(self, node: int) -> Facts:
        return self.local.states[self.nodes[node - 1]].facts

    def after(self, node: int, event: Happening) -> None:
        """What is left to happen after `event` at the node happens."""
        self._step(node - 1, event)
        before: list[int] = []
        while before != self.nodes:
            before = list(self.nodes)
            for target, delivery in list(self.sent):
                self._step(target, delivery)
            for place in range(3):
                for each in (Saved(), Flushed()):
                    while each in self.local.states[self.nodes[place]].events:
                        self._step(place, each)

    def _step(self, place: int, event: Happening) -> None:
        step = self.local.step(self.nodes[place], event)
        assert step.fault is None
        self.nodes[place] = step.state
        for peer, boot, message in step.sent:
            self.sent[(place + peer) % 3, Delivery(3 - peer, boot, message)] = None


def test_a_removed_leader_leads_no_more_and_never_campaigns() -> None:
    bound = one_change("remove", terms=2)
    cluster = Settling(bound)
    cluster.after(3, Campaign())
    cluster.after(3, ChangeAsked(ChangeKind.REMOVE, NodeId(3)))
    cluster.after(3, NextProposed())
    facts = cluster.facts(3)
    assert (facts.leading_term, facts.commit) == (1, 4)
    assert facts.votings[-1] == Voting(4, 3, (1, 2), ())
    replica = Replica.thawed(bound, cluster.local.states[cluster.nodes[2]].frozen)
    assert not replica.core.is_admitting
    assert possible(bound, replica.state) == []
    cluster.after(3, Campaign())
    assert cluster.facts(3).leading_term == 0
    assert [cluster.facts(node).term for node in (1, 2, 3)] == [1, 1, 1]
    cluster.after(2, Campaign())
    assert cluster.facts(2).leading_term == 2


# --- broken rules ---


def found(change: FirstChange) -> str:
    """Which promise the broken core breaks."""
    explorer = Explorer(one_change(change))
    outcome = explorer.run(lambda: explorer.states > 30_000)
    assert outcome.violation is not None
    replay(explorer.bound, outcome.violation)
    assert len(list(transcript(outcome))) == len(outcome.violation.path) + 1
    return outcome.violation.text


def test_a_joint_configuration_that_needs_only_the_old_majority_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached = VoterSets.reached

    def of_the_old(sets: VoterSets[NodeId], values: Mapping[NodeId, int]) -> int:
        return reached(VoterSets(sets.voters), values)

    monkeypatch.setattr(VoterSets, "reached", of_the_old)
    text = found("remove")
    assert text.startswith("I10: committed entry 3 is on the disks of nodes [2, 3], the voters are")


def test_a_joint_configuration_that_needs_only_the_new_majority_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached = VoterSets.reached

    def of_the_new(sets: VoterSets[NodeId], values: Mapping[NodeId, int]) -> int:
        return reached(VoterSets(sets.incoming or sets.voters), values)

    monkeypatch.setattr(VoterSets, "reached", of_the_new)
    text = found("promote")
    assert text.startswith("I10: committed entry 3 is on the disks of nodes [2, 3], the voters are")


def test_a_configuration_in_force_only_once_it_is_committed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    committed = property(lambda configurations: configurations.committed)
    monkeypatch.setattr(Configurations, "in_force", committed)
    assert found("remove").startswith("I10: committed entry 3 is on the disks of nodes [2, 3]")


def test_a_change_before_an_entry_of_the_term_is_committed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    why_busy = membership._why_busy

    def ready_at_once(state: State, leading: Leading) -> str:
        is_first = leading.change is None and leading.transfer is None
        return "" if is_first else why_busy(state, leading)

    monkeypatch.setattr(membership, "_why_busy", ready_at_once)
    text = found("promote")
    assert text.startswith("too early: Voting(at=3, id=2,")
    assert text.endswith("when 1 entries were committed")


def test_a_joint_configuration_that_is_left_before_it_is_committed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def go_on_at_once(state: State) -> None:
        leading = state.leading
        if leading is None or state.commit < leading.noop_index:
            return
        if leading.change is None or leading.change.index:
            membership._on_committed(state, leading, state.configurations.in_force)
        else:
            membership._offer(state, leading, leading.change)

    monkeypatch.setattr(membership, "advance", go_on_at_once)
    assert found("promote").startswith("too early: Voting(at=4, id=3,")


def test_a_change_of_voters_without_a_joint_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(before: Configuration, incoming: tuple[Member, ...]) -> Configuration:
        learners = tuple(each for each in before.learners if each not in incoming)
        return Configuration(before.id + 1, incoming, learners=learners)

    monkeypatch.setattr(configuration, "_joint", at_once)
    assert found("promote").startswith("the committed CONFIG Voting(at=3, id=2,")


def test_a_learner_that_campaigns_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(State, "may_campaign", property(lambda _: True))
    assert found("promote").startswith("node 3 campaigns, and is no voter by")


def test_a_learner_that_is_counted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    count_voters = State.count_voters

    def count_all(state: State) -> None:
        count_voters(state)
        everybody = configuration.members(state.configurations.in_force)
        state.voters = VoterSets(tuple(each.number for each in everybody))

    monkeypatch.setattr(State, "count_voters", count_all)
    assert found("promote").startswith("I10: committed entry 2 is on the disks of nodes [2, 3]")


# --- two nodes that are alike ---


@pytest.mark.slow
@pytest.mark.parametrize("change", ["promote", "remove"])
def test_the_other_of_two_that_are_alike_does_what_the_one_does(change: FirstChange) -> None:
    explorer = Explorer(one_change(change, terms=2))
    explorer.run(lambda: explorer.states > 4_000)
    local = explorer.local
    steps = list(local._steps.items())
    assert len(steps) > 500
    for (number, event), step in steps:
        mirrored = local.mirrored(number)
        assert local.mirrored(mirrored) == number
        other = local.step(mirrored, mirror_event(event))
        assert other.state == local.mirrored(step.state)
        swapped = {(3 - peer, boot, message) for peer, boot, message in step.sent}
        assert {tuple(each) for each in other.sent} == swapped


def reached(bound: Bound) -> tuple[set[tuple[object, ...]], int]:
    """Which replicas and ledgers come up together, but for an exchange of nodes 1 and 2, and the
    depth."""
    explorer = Explorer(bound)
    outcome = explorer.run(lambda: False)
    assert outcome.is_exhausted
    local = explorer.local
    found = set()
    for (one, two, three), ledger in explorer._seen:
        exchanged = (local.mirrored(two), local.mirrored(one), local.mirrored(three))
        named = []
        for nodes, turn in (((one, two, three), 0), (exchanged, EXCHANGE)):
            turned = explorer._ledgers[explorer._renumbered_ledger(ledger, turn)]
            digests = tuple(digest_of(local.states[each].frozen) for each in nodes)
            named.append((digests, turned))
        found.add(min(named))
    return found, outcome.depth


@pytest.mark.slow
def test_the_exchange_leaves_out_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = one_change("promote", entries=2)
    reduced, depth = reached(bound)
    monkeypatch.setattr(search.Explorer, "_alike", lambda _, nodes: (nodes,))
    assert reached(bound) == (reduced, depth)
