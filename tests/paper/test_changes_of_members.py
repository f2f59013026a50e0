"""What a leader does with a change of the members, from the request to the last CONFIG: joint
configurations, learners, replicas that leave, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from logstore.errors import ErrorCode, InvariantViolated
from logstore.format.configuration_body import Configuration, Member
from logstore.format.entry import Row
from logstore.format.peer_messages import (
    AppendPersisted,
    HeartbeatReply,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from logstore.model import EntryKind, Index, NodeId, Role, Term
from logstore.raft.configurations import Configurations
from logstore.raft.effects import (
    ChangeAnswered,
    Effect,
    Lead,
    ProposeConfiguration,
    StopLeading,
    TransferAnswered,
)
from logstore.raft.events import (
    ChangeKind,
    ChangeRequested,
    DiskFullChanged,
    Proposed,
    TransferRequested,
)
from tests.paper.member_cluster import replica
from tests.paper.one_node import OneNode, of_type, rows_of, sent

RAISES = {Index(1): 2, Index(2): 3, Index(3): 4}
ROWS = rows_of([1, 1, 1, 1], raises=RAISES, noops=[4])
A, B, C, D, E = map(replica, range(1, 6))
THREE = Configuration(1, (A, B, C))
WITH_D = Configuration(2, (A, B, C), (), (D,))


def node_with(configuration: Configuration | None, **changes: Any) -> OneNode:
    """Node 1 of the founders 1 to 3, over a committed log at the level of CONFIG entries.
    `configuration`: in its last entry."""
    held = () if configuration is None else ((Index(4), configuration),)
    state = {"rows": ROWS, "term": 1, "commit_floor": 4, "configurations": held}
    return OneNode(newest_level=4, **(state | changes))


def leader_with(configuration: Configuration | None, **changes: Any) -> OneNode:
    """A leader that has committed its no-op, heard by all founders."""
    node = node_with(configuration, **changes)
    node.lead_and_commit()
    for peer in node.config.peers:
        node.hear_reply(peer, 1)
    return node


def ask(node: OneNode, kind: ChangeKind, of: int = 0, by: int = 0, **parts: Any) -> list[Effect]:
    return node.step(ChangeRequested(7, kind, NodeId(of), NodeId(by), **parts))


def answers(effects: Sequence[Effect]) -> list[tuple[ErrorCode, str]]:
    return [(each.code, each.reason) for each in of_type(effects, ChangeAnswered)]


def refusal(effects: Sequence[Effect]) -> str:
    """The reason of the only answer; nothing is proposed."""
    assert not of_type(effects, ProposeConfiguration)
    [(code, reason)] = answers(effects)
    assert code != ErrorCode.OK
    return reason


def offered(effects: Sequence[Effect]) -> Configuration:
    [offer] = of_type(effects, ProposeConfiguration)
    return offer.configuration


def append(node: OneNode, configuration: Configuration, prop: int = 0) -> list[Effect]:
    """Ingress proposes the CONFIG that it was offered."""
    start, end = node.reserve(64)
    gen = (node.core.term, node.core.open_gen or 0, prop)
    entry = (EntryKind.CONFIG, 0, 7, start, end, 0)
    return node.step(Proposed(*gen, *entry, configuration=configuration))


def all_have(node: OneNode, *peers: int) -> list[Effect]:
    """This disk and those of `peers` have the whole log."""
    effects = node.flush()
    for peer in peers:
        effects += node.hear_match(peer, node.core.last_index)
    return effects


def joined(node: OneNode, number: int) -> None:
    """A learner has answered a heartbeat, and has the whole log."""
    node.hear_reply(number, 1)
    node.hear_match(number, node.core.last_index)


# --- the steps ---


def test_the_first_config_names_the_founders() -> None:
    node = leader_with(None)
    effects = ask(node, ChangeKind.FOUND, members=(A, B, C))
    assert offered(effects) == THREE
    append(node, THREE)
    assert answers(all_have(node, 2)) == [(ErrorCode.OK, "")]
    assert "already" in refusal(ask(node, ChangeKind.FOUND, members=(A, B, C)))


def test_the_first_config_names_no_others_than_the_founders() -> None:
    node = leader_with(None)
    assert "1, 2, 3" in refusal(ask(node, ChangeKind.FOUND, members=(A, B, D)))


def test_a_learner_gets_the_log_from_the_entry_that_adds_it_on() -> None:
    node = leader_with(THREE)
    assert offered(ask(node, ChangeKind.ADD, members=(D,))) == WITH_D
    effects = append(node, WITH_D)
    [lead] = of_type(effects, Lead)
    assert (lead.peer, lead.next_index) == (4, node.core.last_index)
    assert answers(all_have(node, 2)) == [(ErrorCode.OK, "")]
    assert 4 in node.core.match


def test_the_joint_configuration_is_followed_by_the_one_that_it_leads_to() -> None:
    node = leader_with(WITH_D)
    joined(node, 4)
    joint = Configuration(3, (A, B, C), (A, B, C, D))
    assert offered(ask(node, ChangeKind.PROMOTE, 4)) == joint
    append(node, joint)
    node.flush()
    effects = node.hear_match(2, node.core.last_index)
    assert not of_type(effects, ProposeConfiguration), "two of the four new voters are no majority"
    after = Configuration(4, (A, B, C, D))
    assert offered(node.hear_match(4, node.core.last_index)) == after
    append(node, after, prop=1)
    assert answers(all_have(node, 2, 4)) == [(ErrorCode.OK, "")]


def test_a_leader_that_finds_a_joint_configuration_goes_on_with_it() -> None:
    joint = Configuration(3, (A, B, C), (A, B, C, D))
    node = node_with(joint, commit_floor=3)
    node.lead()
    node.flush()
    node.hear_match(2, node.core.last_index)
    assert not of_type(node.tick(), ProposeConfiguration)
    effects = node.hear_match(4, node.core.last_index)
    assert offered(effects) == Configuration(4, (A, B, C, D))


def test_a_config_is_offered_again_in_the_next_gen() -> None:
    """What ingress had offered in a gen that was closed is dropped."""
    node = leader_with(THREE)
    [first] = of_type(ask(node, ChangeKind.ADD, members=(D,)), ProposeConfiguration)
    effects = node.step(TransferRequested(1, NodeId(3)))
    for _ in range(60):
        for peer in (2, 3):
            node.hear_reply(peer, 1)
        effects += node.tick()
    [second] = of_type(effects, ProposeConfiguration)
    assert first.gen < second.gen == node.core.open_gen
    assert first.configuration == second.configuration


def test_a_config_that_the_leader_did_not_want_stops_it() -> None:
    node = leader_with(THREE)
    with pytest.raises(InvariantViolated, match="not wanted"):
        append(node, WITH_D)


def test_a_change_that_a_leader_leaves_behind_has_an_unknown_outcome() -> None:
    node = leader_with(THREE)
    ask(node, ChangeKind.ADD, members=(D,))
    effects = node.hear_heartbeat(2, term=node.core.term + 1)
    assert [code for code, _ in answers(effects)] == [ErrorCode.OUTCOME_UNKNOWN]


# --- those that leave ---


def test_a_replica_that_left_gets_the_log_until_it_knows() -> None:
    node = leader_with(WITH_D)
    joined(node, 4)
    append(node, offered(ask(node, ChangeKind.REMOVE, 4)))
    all_have(node, 2)
    assert 4 in node.core.match
    effects = node.hear_match(4, node.core.last_index)
    effects += node.tick()
    assert [each.peer for each in of_type(effects, StopLeading)] == [4]
    assert 4 not in node.core.match
    node.hear_match(4, node.core.last_index)  # late: it counts for nothing


def test_a_replica_that_left_and_is_silent_is_waited_for_during_an_election_timeout() -> None:
    node = leader_with(WITH_D)
    joined(node, 4)
    append(node, offered(ask(node, ChangeKind.REMOVE, 4)))
    assert not of_type(all_have(node, 2), StopLeading)
    effects: list[Effect] = []
    for _ in range(60):
        for peer in (2, 3):
            node.hear_reply(peer, 1)
        effects += node.tick()
    assert [each.peer for each in of_type(effects, StopLeading)] == [4]


def test_a_leader_that_leaves_hands_over_once_that_is_committed() -> None:
    node = leader_with(THREE)
    joint = offered(ask(node, ChangeKind.REMOVE, 1))
    assert joint == Configuration(2, (A, B, C), (B, C))
    append(node, joint)
    [after] = of_type(all_have(node, 2, 3), ProposeConfiguration)
    append(node, after.configuration, prop=1)
    node.flush()
    effects = node.hear_match(2, node.core.last_index)
    assert not answers(effects), "it does not count itself: one of two is no majority"
    effects = node.hear_match(3, node.core.last_index)
    assert answers(effects) == [(ErrorCode.OK, "")]
    assert [peer for peer, _ in sent(effects, TimeoutNow)] == [2]
    assert node.core.role == Role.LEADER


def test_a_leader_that_leaves_hands_over_under_load() -> None:
    """Entries after the last CONFIG are on their way: it waits for a voter that catches up."""
    node = leader_with(THREE)
    append(node, offered(ask(node, ChangeKind.REMOVE, 1)))
    [after] = of_type(all_have(node, 2, 3), ProposeConfiguration)
    append(node, after.configuration, prop=1)
    last_config = node.core.last_index
    node.propose(2)
    node.flush()
    effects = node.hear_match(2, last_config) + node.hear_match(3, last_config)
    assert node.core.role == Role.LEADER
    assert not sent(effects, TimeoutNow)
    assert [peer for peer, _ in sent(node.hear_match(2, last_config + 1), TimeoutNow)] == [2]


def test_a_leader_that_leaves_and_is_not_replaced_steps_down() -> None:
    node = leader_with(THREE)
    append(node, offered(ask(node, ChangeKind.REMOVE, 1)))
    [after] = of_type(all_have(node, 2, 3), ProposeConfiguration)
    append(node, after.configuration, prop=1)
    all_have(node, 2, 3)
    for _ in range(60):  # neither campaigns
        for peer in (2, 3):
            node.hear_reply(peer, 1)
        node.tick()
    assert (node.core.role, node.core.leader) == (Role.FOLLOWER, 0)


def test_a_replica_that_is_no_voter_any_more_begins_no_election() -> None:
    node = node_with(Configuration(3, (B, C)))
    node.hear_heartbeat(2, term=1)
    for _ in range(4):
        node.time_out()
    assert (node.core.role, node.core.term, node.core.leader) == (Role.FOLLOWER, 1, 0)


def test_a_replica_that_may_not_know_the_newest_config_votes_and_begins_no_election() -> None:
    """Until a newer one is committed: the older could be a majority of its own."""
    node = node_with(THREE, config_hidden=(Index(5), Index(5)))
    for _ in range(4):
        node.time_out()
    assert (node.core.role, node.core.term) == (Role.FOLLOWER, 1)
    vote = VoteRequest(Term(2), Index(9), Term(1), False)
    node.hear(2, vote)
    assert sent(node.flush_meta(), VoteReply) == [(2, VoteReply(Term(2), True))]
    rows = rows_of([1, 1, 1, 1, 2, 2], raises=RAISES, noops=[4], changes=[5])
    header = replace(rows[4].header, kind=EntryKind.CONFIG)
    row = Row.of(header)
    node.follow(2, 2)
    node.hear_append(2, row, configuration=WITH_D)
    node.flush()
    node.hear_heartbeat(2, term=2, commit=5, prev=row)
    for _ in range(2):
        node.time_out()
    assert node.core.role == Role.PRE_CANDIDATE


def test_a_replica_whose_log_was_dropped_begins_no_election_before_it_has_a_config() -> None:
    held = ((Index(1), THREE),)
    node = OneNode(rows=ROWS[:1], term=1, commit_floor=1, configurations=held, newest_level=4)
    node.follow(2, 2)
    node.hear_install(2, ROWS[3], term=2, level=4)
    node.flush()
    for _ in range(4):
        node.time_out()
    assert (node.core.role, node.core.commit) == (Role.FOLLOWER, 4)


def test_a_learner_that_catches_up_brings_no_commit_nearer() -> None:
    """A leader whose appends reach no voter stops leading all the same."""
    node = leader_with(WITH_D)
    node.propose(0)
    node.flush()
    for at in range(1, 3_000):
        for peer in (2, 3, 4):
            node.hear_reply(peer, 1)
        node.hear(4, HeartbeatReply(node.core.term, 1, Index(at), Index(0), Index(0)))
        node.tick()
        if node.core.role != Role.LEADER:
            return
    raise AssertionError("it leads on")


def test_a_leader_hands_over_to_no_learner() -> None:
    node = leader_with(WITH_D)
    joined(node, 4)
    [answer] = of_type(node.step(TransferRequested(1, NodeId(4))), TransferAnswered)
    assert not answer.is_done
    assert "no voter" in answer.reason
    node.propose(0)
    node.hear_match(4, node.core.last_index)  # no voter has as much
    effects = node.step(TransferRequested(2, NodeId(0)))
    for peer in (2, 3):
        effects += node.hear_match(peer, node.core.last_index)
    assert [peer for peer, _ in sent(effects, TimeoutNow)] == [2]


def test_one_that_bears_a_voters_number_under_another_uuid_does_not_campaign() -> None:
    configurations = Configurations(THREE)
    assert configurations.names_voter(A.number, A.uuid)
    assert not configurations.names_voter(A.number, D.uuid)


def test_a_log_that_has_had_a_config_does_not_count_the_founders_again() -> None:
    configurations = Configurations(THREE, needs_one=True)
    assert not configurations.names_voter(NodeId(1), b"")
    configurations.append(Index(4), Configuration(2, (B, C)))
    assert not configurations.names_voter(NodeId(1), b"")
    assert configurations.names_voter(NodeId(2), b"")


def test_a_replica_that_left_and_comes_back_is_another_one() -> None:
    node = leader_with(WITH_D)
    joined(node, 4)
    append(node, offered(ask(node, ChangeKind.REMOVE, 4)))
    all_have(node, 2)
    early = ask(node, ChangeKind.ADD, members=(replica(4),))
    assert "has left a moment ago" in refusal(early)
    assert of_type(node.hear_match(4, node.core.last_index), StopLeading)
    assert of_type(ask(node, ChangeKind.ADD, members=(replica(4),)), ProposeConfiguration)


def test_where_full_disks_have_no_room_for_a_config_the_gen_is_for_the_trim() -> None:
    node = leader_with(Configuration(1, (A,)), voters=(1,))
    ask(node, ChangeKind.ADD, members=(D,))
    effects = node.step(DiskFullChanged(True, 4_096, 8)) + node.tick()
    assert node.core.open_gen is not None
    assert not node.core.is_admitting
    assert not of_type(effects, ProposeConfiguration)
    effects = node.step(DiskFullChanged(False))
    assert [each.gen for each in of_type(effects, ProposeConfiguration)] == [node.core.open_gen]


def test_a_change_is_refused_while_the_leader_takes_no_entries() -> None:
    node = leader_with(Configuration(1, (A,)), voters=(1,))
    node.step(DiskFullChanged(True, 0, 0))
    assert "takes no entries" in refusal(ask(node, ChangeKind.ADD, members=(D,)))


# --- what is refused ---


def test_a_change_waits_for_an_entry_of_this_term_to_be_committed() -> None:
    node = node_with(THREE)
    node.lead()
    assert "not ready" in refusal(ask(node, ChangeKind.ADD, members=(D,)))


def test_one_change_at_a_time() -> None:
    node = leader_with(THREE)
    ask(node, ChangeKind.ADD, members=(D,))
    assert "under way" in refusal(ask(node, ChangeKind.ADD, members=(E,)))
    append(node, WITH_D)
    assert "under way" in refusal(ask(node, ChangeKind.ADD, members=(E,)))
    all_have(node, 2)
    assert of_type(ask(node, ChangeKind.ADD, members=(E,)), ProposeConfiguration)


def test_a_change_that_another_leader_began_is_under_way_until_it_is_committed() -> None:
    """Also where this leader has committed its no-op, and nothing after it."""
    joint = Configuration(3, (A, B, C), (A, B, C, D))
    node = node_with(joint, commit_floor=3)
    node.lead()
    node.flush()
    for peer in (2, 4):
        node.hear_match(peer, node.core.last_index)
    assert "under way" in refusal(ask(node, ChangeKind.REMOVE, 2))


def test_a_learner_that_has_not_caught_up_is_no_voter_yet() -> None:
    node = leader_with(WITH_D)
    silent = refusal(ask(node, ChangeKind.PROMOTE, 4, is_forced=True))
    assert silent == "node 4 has not answered within an election timeout"
    node.hear_reply(4, 1)
    behind = refusal(ask(node, ChangeKind.PROMOTE, 4, is_forced=True))
    assert behind == refusal(ask(node, ChangeKind.PROMOTE, 4))
    assert "node 4 has not caught up" in behind
    node.hear_match(4, node.core.last_index)
    assert of_type(ask(node, ChangeKind.PROMOTE, 4), ProposeConfiguration)


def test_a_learner_within_a_window_of_the_end_has_caught_up() -> None:
    node = leader_with(WITH_D)
    joined(node, 4)
    node.propose(0, size=1_000)
    assert of_type(ask(node, ChangeKind.PROMOTE, 4), ProposeConfiguration)


def test_a_change_whose_new_majority_is_silent_must_be_forced() -> None:
    node = node_with(THREE)
    node.lead_and_commit()
    node.hear_reply(3, 1)
    reason = refusal(ask(node, ChangeKind.REMOVE, 3))
    assert "nodes [2] do not" in reason
    assert of_type(ask(node, ChangeKind.REMOVE, 3, is_forced=True), ProposeConfiguration)


@pytest.mark.parametrize(("kind", "of"), [(ChangeKind.REMOVE, 2), (ChangeKind.PROMOTE, 4)])
def test_a_voter_leaves_only_while_those_that_stay_are_whole(kind: ChangeKind, of: int) -> None:
    node = leader_with(WITH_D)
    joined(node, 4)
    node.hear_reply(2, 1, faulty=2)
    assert "entries of nodes [2] are damaged" in refusal(ask(node, ChangeKind.REMOVE, 3))
    assert of_type(ask(node, kind, of), ProposeConfiguration)


def test_a_change_waits_for_what_those_that_stay_say_of_their_disks() -> None:
    node = leader_with(THREE)
    assert of_type(ask(node, ChangeKind.REMOVE, 3), ProposeConfiguration)
    four = node_with(Configuration(1, (A, B, C, D)))
    four.lead()
    all_have(four, 2, 3)
    for peer in (2, 4):
        four.hear_reply(peer, 1)
    reason = refusal(ask(four, ChangeKind.REMOVE, 4))
    assert reason == "nodes [3] have not said yet whether they are damaged: try again"


def test_changes_need_the_level_of_config_entries() -> None:
    node = OneNode(rows=ROWS[:2], term=1, commit_floor=2)
    node.lead_and_commit()
    [(code, reason)] = answers(ask(node, ChangeKind.ADD, members=(D,)))
    assert code == ErrorCode.LEVEL_REFUSED
    assert "logstore upgrade" in reason


def test_a_follower_changes_nothing() -> None:
    [(code, _)] = answers(ask(node_with(THREE), ChangeKind.ADD, members=(D,)))
    assert code == ErrorCode.NOT_LEADER


@pytest.mark.parametrize(
    ("kind", "of", "by"),
    [(ChangeKind.PROMOTE, 2, 0), (ChangeKind.REMOVE, 9, 0), (ChangeKind.REPLACE, 2, 9)],
)
def test_what_no_member_is_cannot_be_changed(kind: ChangeKind, of: int, by: int) -> None:
    assert "no such member" in refusal(ask(leader_with(WITH_D), kind, of, by))


def test_a_member_that_no_entry_can_hold_is_refused() -> None:
    bad: Member = replace(D, host="no host")
    assert "host" in refusal(ask(leader_with(THREE), ChangeKind.ADD, members=(bad,)))


def test_a_config_without_its_content_stops_a_follower() -> None:
    node = node_with(THREE)
    node.follow(2, 2)
    row = rows_of([1, 1, 1, 1, 2], raises=RAISES, noops=[4])[4]
    header = replace(row.header, kind=EntryKind.CONFIG, count=0)
    with pytest.raises(InvariantViolated, match="came with None"):
        node.hear_append(2, Row.of(header))


def test_the_answer_of_a_replica_that_left_is_no_news() -> None:
    node = leader_with(THREE)
    assert not node.hear_answer(9, AppendPersisted(node.core.term, Index(1)))
