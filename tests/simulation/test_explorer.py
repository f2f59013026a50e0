"""The bounded exhaustive explorer: it ends, it finds nothing in sound rules, and broken ones it
finds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from logstore.format.peer_messages import VoteReply
from logstore.model import Index, NodeId, Term
from logstore.raft import commit, election, replication
from logstore.raft.effects import Effect
from logstore.raft.quorum import VoterSets
from logstore.raft.state import State
from logstore.raft.term_and_vote import TermAndVote
from tests.explorer import search
from tests.explorer.__main__ import main
from tests.explorer.bound import Bound
from tests.explorer.events import (
    Campaign,
    Crash,
    Delivery,
    Flushed,
    Proposal,
    Saved,
    TermSeen,
)
from tests.explorer.explored_replica import Disk, Replica
from tests.explorer.freezing import digest_of, freeze
from tests.explorer.local_states import LocalStates
from tests.explorer.messages_in_flight import MessagesInFlight
from tests.explorer.report import transcript
from tests.explorer.search import Explorer, Outcome, Violation
from tests.explorer.symmetry import images, mirror_event

SMALL = Bound(terms=2, entries=2, crashes=1, streams=2)


def explore(bound: Bound, states: int = 1_000_000_000) -> Outcome:
    """All of the bound, or some more than so many states of it."""
    explorer = Explorer(bound)
    return explorer.run(lambda: explorer.states > states)


@pytest.mark.slow
def test_a_small_bound_is_exhausted_and_keeps_every_promise() -> None:
    outcome = explore(Bound(terms=1, entries=1, crashes=1, streams=2))
    assert outcome.violation is None
    assert outcome.is_exhausted
    assert outcome.states >= 1_000
    assert outcome.transitions > outcome.states > outcome.local_states


@pytest.mark.slow
def test_a_second_entry_is_exhausted_without_crashes() -> None:
    outcome = explore(Bound(terms=1, entries=2, crashes=0, streams=1))
    assert outcome.violation is None
    assert outcome.is_exhausted
    assert outcome.states >= 10_000


def test_the_same_bound_gives_the_same_figures() -> None:
    bound = Bound(terms=1, entries=1, crashes=0, streams=2)
    assert explore(bound) == explore(bound)


def test_an_exploration_that_is_stopped_does_not_claim_to_be_exhausted() -> None:
    outcome = explore(SMALL, states=500)
    assert not outcome.is_exhausted
    assert outcome.violation is None


# --- broken rules ---


def replay(bound: Bound, violation: Violation) -> None:
    """Each event of the path is possible in its state: a message is delivered after it was sent."""
    local = LocalStates(bound)
    nodes = list(local.first)
    sent = set()
    for replica, event in violation.path:
        if isinstance(event, Delivery):
            sender = (replica + event.peer) % 3
            assert (sender, replica, event.boot, event.message) in sent
        elif not isinstance(event, TermSeen):
            assert event in local.states[nodes[replica]].events
        step = local.step(nodes[replica], event)
        nodes[replica] = step.state
        for peer, boot, message in step.sent:
            sent.add((replica, (replica + peer) % 3, boot, message))


def broken(monkeypatch: pytest.MonkeyPatch, bound: Bound = SMALL) -> tuple[str, int]:
    """What is found, and the length of the way to it."""
    outcome = explore(bound, states=200_000)
    assert outcome.violation is not None
    replay(bound, outcome.violation)
    monkeypatch.undo()
    assert not outcome.is_exhausted
    assert explore(bound, states=2_000).violation is None
    assert len(list(transcript(outcome))) == len(outcome.violation.path) + 1
    return outcome.violation.text, len(outcome.violation.path)


def test_one_vote_as_a_majority_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "has_won", lambda state: bool(state.campaign.granted))
    text, steps = broken(monkeypatch)
    assert text == "I9: two replicas led term 1"
    assert steps == 4  # both campaign, both save


def test_commit_by_one_replica_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def highest(voters: VoterSets[NodeId], matches: Mapping[NodeId, Index]) -> Index:
        return max(matches.values())

    monkeypatch.setattr(replication, "commit_candidate", highest)
    text, _ = broken(monkeypatch)
    assert text == "I10: committed entry 1 is on 1 disks"


@pytest.mark.slow
def test_a_vote_that_is_not_persisted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS.R2."""

    def cast_in_memory(meta: TermAndVote, node: NodeId, uuid: bytes = b"") -> None:
        meta.vote, meta.vote_uuid = node, uuid

    monkeypatch.setattr(TermAndVote, "cast_vote", cast_in_memory)
    text, _ = broken(monkeypatch)
    assert text.startswith("PromiseBroken: told of a vote (1, ")


def test_a_vote_sent_before_it_is_durable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """SAFETY C1."""

    def emit_at_once(state: State, effect: Effect) -> None:
        state.out.append(effect)

    monkeypatch.setattr(State, "_emit_durable", emit_at_once)
    text, _ = broken(monkeypatch)
    assert text.startswith("PromiseBroken: told of a vote")


@pytest.mark.slow
def test_a_leader_that_counts_itself_before_its_flush_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """FAULTS.R23, SAFETY F9."""
    monkeypatch.setattr(State, "persisted", property(lambda state: state.log.last_index))
    text, _ = broken(monkeypatch)
    assert text.startswith("I12: claims 1 flushed entries")


@pytest.mark.slow
def test_a_vote_for_a_shorter_log_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The election restriction: without it a leader lacks what was committed."""
    monkeypatch.setattr(election, "_is_up_to_date", lambda state, index, term: True)
    text, _ = broken(monkeypatch, Bound(terms=2, entries=2, crashes=0, streams=2))
    assert text == "I1: the leader of term 2 lacks committed entries"


@pytest.mark.long
@pytest.mark.slow
def test_a_commit_of_an_unverified_suffix_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS.R5, SAFETY V2."""

    def follow_commit(state: State, leader_commit: Index) -> None:
        commit.raise_commit(state, min(leader_commit, state.log.last_index))

    monkeypatch.setattr(commit, "follow_commit", follow_commit)
    text, _ = broken(monkeypatch, Bound(terms=2, entries=2, crashes=0, streams=2))
    assert text == "I3: a replica committed other entries than another did"


# --- reductions ---


def reached(bound: Bound) -> tuple[set[tuple[object, ...]], int]:
    """Which replicas and ledgers come up together, whatever their numbers, and the depth."""
    explorer = Explorer(bound)
    outcome = explorer.run(lambda: False)
    assert outcome.is_exhausted
    local = explorer.local
    for each in range(len(local.states)):
        local.mirrored(each)
    digests = [digest_of(state.frozen) for state in local.states]
    found = set()
    for nodes, ledger in explorer._seen:
        alike = images(nodes, tuple(local.mirrored(each) for each in nodes))
        named = []
        for turn, image in enumerate(alike):
            turned = explorer._ledgers[explorer._renumbered_ledger(ledger, turn)]
            named.append((tuple(digests[each] for each in image), turned))
        found.add(min(named))
    return found, outcome.depth


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("bound", [Bound(1, 1, 0, 2), Bound(2, 1, 0, 1)])
def test_symmetry_leaves_out_nothing(monkeypatch: pytest.MonkeyPatch, bound: Bound) -> None:
    reduced, depth = reached(bound)
    monkeypatch.setattr(search, "images", lambda nodes, mirrored: (nodes,))
    assert reached(bound) == (reduced, depth)


@pytest.mark.long
@pytest.mark.slow
def test_forgetting_messages_leaves_out_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = Bound(2, 1, 0, 1)
    reduced, _ = reached(bound)
    monkeypatch.setattr(
        MessagesInFlight, "relevant", lambda wire, target, receiver_terms: wire.to_replica[target]
    )
    assert reached(bound)[0] == reduced


@pytest.mark.slow
def test_a_mirror_image_does_what_the_replica_does() -> None:
    explorer = Explorer(SMALL)
    explorer.run(lambda: explorer.states > 5_000)
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


# --- parts ---


def test_what_is_thawed_is_what_was_frozen() -> None:
    replica = Replica.started(SMALL, Disk(), boot=1)
    for event in (
        Campaign(),
        Saved(),
        Delivery(1, 1, VoteReply(Term(1), True)),
        Proposal(),
        Flushed(),
    ):
        frozen = replica.frozen()
        replica = Replica.thawed(SMALL, frozen)
        assert digest_of(replica.frozen()) == digest_of(frozen)
        replica.apply(event)
    assert replica.core.last_index == 2
    assert replica.core.persisted == 1


def test_every_part_of_a_core_has_a_place_in_its_frozen_form() -> None:
    with pytest.raises(TypeError, match="cannot freeze a object"):
        freeze([object()])


def test_a_crash_keeps_any_prefix_of_what_was_ordered() -> None:
    local = LocalStates(SMALL)
    number = 0
    for event in (Campaign(), Saved(), Delivery(1, 1, VoteReply(Term(1), True)), Proposal()):
        number = local.step(number, event).state
    crashes = [each for each in local.states[number].events if isinstance(each, Crash)]
    assert crashes == [Crash(writes, 0) for writes in range(3)]
    kept = [local.states[local.step(number, crash).state].facts.durable for crash in crashes]
    assert [each.terms for each in kept] == [(), (1,), (1, 1)]
    after = local.step(number, crashes[1]).state
    assert not any(isinstance(each, Crash) for each in local.states[after].events)


def test_the_command_writes_its_figures_a_row_a_bound(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    for terms in (2, 1, 1):
        words = {"--terms": terms, "--entries": 1, "--crashes": 0, "--streams": 1, "--json": file}
        result = CliRunner().invoke(main, [str(each) for each in itertools.chain(*words.items())])
        assert result.exit_code == 0
        assert "exhausted: every state" in result.output
    rows = msgspec.json.decode(file.read_bytes())["rows"]
    assert [each["terms"] for each in rows] == [1, 2]
    for row in rows:
        assert row["commit"]
        assert row["is_exhausted"] is True
        assert row["violation"] is None
        assert (row["entries"], row["crashes"]) == (1, 0)
        assert row["states"] > 100
