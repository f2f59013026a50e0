"""Replicas that join: a place that is reserved, a lost replica's place, and what a learner was
added for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from logstore.errors import ErrorCode, InvariantViolated
from logstore.format.configuration_body import NO_UUID, Configuration, Member
from logstore.format.entry import Row
from logstore.format.level import FIRST_LEVEL
from logstore.format.peer_messages import (
    AppendAccepted,
    AppendPersisted,
    AppendReject,
    PreVoteReply,
    PreVoteRequest,
    VoteReply,
    VoteRequest,
)
from logstore.model import Index, Lsn, NodeId, Role, Term
from logstore.raft.core import RaftCore
from logstore.raft.effects import (
    ChangeAnswered,
    Effect,
    InstallLog,
    Lead,
    MembersChanged,
    Persist,
    ProposeConfiguration,
    SaveLevel,
    StopLeading,
)
from logstore.raft.events import ChangeKind, ControlReceived, Tick
from logstore.raft.joins import LOST_AFTER_TIMEOUTS
from logstore.raft.log_view import WholeLogStart
from tests.paper.member_cluster import replica
from tests.paper.one_node import OneNode, of_type, rows_of, sent
from tests.paper.test_changes_of_members import (
    ROWS,
    THREE,
    WITH_D,
    A,
    B,
    C,
    all_have,
    answers,
    append,
    ask,
    joined,
    leader_with,
    node_with,
    offered,
    refusal,
)
from tests.paper.virtual_node import START, recovered

D, E = replica(4), replica(5)
PLACE = replace(D, uuid=NO_UUID)
RESERVED = Configuration(2, (A, B, C), (), (PLACE,))
PLACE_OF_C = replace(C, uuid=NO_UUID, labels=("promote=auto",))
NEW_C = replace(C, uuid=b"another replica!")
RECOVERED = recovered(list(ROWS), term=1, commit_floor=4, configurations=((Index(4), THREE),))


def join(node: OneNode, member: Member) -> list[Effect]:
    return ask(node, ChangeKind.JOIN, members=(member,))


def pass_timeouts(node: OneNode, *heard: int, timeouts: int = LOST_AFTER_TIMEOUTS + 1) -> None:
    until_ns = node.now_ns + timeouts * node.config.election_timeout_ns
    while node.now_ns < until_ns:
        for peer in heard:
            node.hear_reply(peer, 1)
        node.tick(40)


def test_a_place_is_reserved_for_a_replica_that_then_joins() -> None:
    node = leader_with(THREE)
    assert offered(ask(node, ChangeKind.ADD, members=(PLACE,))) == RESERVED
    effects = append(node, RESERVED)
    assert not of_type(effects, Lead), "there is no replica yet"
    assert answers(all_have(node, 2)) == [(ErrorCode.OK, "")]
    assert "not joined" in refusal(ask(node, ChangeKind.PROMOTE, 4))
    learning = Configuration(3, (A, B, C), (), (D,))
    assert offered(join(node, D)) == learning
    [lead] = of_type(append(node, learning, prop=1), Lead)
    assert lead.peer == 4
    all_have(node, 2)
    assert answers(join(node, D)) == [(ErrorCode.OK, "")]


def test_before_the_first_config_there_is_nothing_to_join_or_to_change_yet() -> None:
    node = leader_with(None)
    for effects in (join(node, D), ask(node, ChangeKind.REMOVE, 3)):
        assert [code for code, _ in answers(effects)] == [ErrorCode.NOT_READY]


def test_a_replica_joins_where_a_place_is_reserved_for_it_only() -> None:
    node = leader_with(RESERVED)
    assert "member add 5 node-5:7100" in refusal(join(node, E))
    assert "node-4:7100" in refusal(join(node, replace(D, host="elsewhere")))
    assert "is that of node 1" in refusal(join(node, replace(D, uuid=A.uuid)))


def test_a_second_replica_takes_the_place_of_a_learner_only_once_that_is_lost() -> None:
    node = leader_with(Configuration(2, (A, B, C), (), (D,)))
    other = replace(D, uuid=E.uuid)
    joined(node, 4)
    assert "one of the two must stop" in refusal(join(node, other))
    pass_timeouts(node, 2, 3)
    taken = offered(join(node, other))
    assert taken == Configuration(3, (A, B, C), (), (other,))
    effects = append(node, taken)
    kinds = [
        type(each) for each in effects if isinstance(each, MembersChanged | StopLeading | Lead)
    ]
    assert kinds == [MembersChanged, StopLeading, Lead]
    assert node.core.match[NodeId(4)] == 0


def test_a_lost_voter_leaves_and_its_place_is_reserved() -> None:
    node = leader_with(THREE)
    assert "one of the two must stop" in refusal(join(node, NEW_C))
    pass_timeouts(node, 2)
    joint = offered(join(node, NEW_C))
    assert joint == Configuration(2, (A, B, C), (A, B), (PLACE_OF_C,))
    append(node, joint)
    reserved = Configuration(3, (A, B), (), (PLACE_OF_C,))
    assert offered(all_have(node, 2)) == reserved
    append(node, reserved, prop=1)
    all_have(node, 2)
    assert "moment ago" in refusal(join(node, NEW_C)), "the lost one still gets the log"
    pass_timeouts(node, 2, timeouts=2)
    learning = offered(join(node, NEW_C))
    (learner,) = learning.learners
    assert (learner.number, learner.uuid) == (3, NEW_C.uuid)
    append(node, learning, prop=2)
    all_have(node, 2)
    assert not of_type(node.tick(60), ProposeConfiguration)
    joined(node, 3)
    effects: list[Effect] = []
    for _ in range(3):
        effects += node.tick(60)
    assert offered(effects).incoming == (A, B, learner)


def test_without_replace_lost_an_operator_decides() -> None:
    node = leader_with(THREE)
    node.core._state.config = replace(node.config, replaces_lost=False)
    pass_timeouts(node, 2)
    assert "member replace 3" in refusal(join(node, NEW_C))
    assert offered(ask(node, ChangeKind.REPLACE, 3)).incoming == (A, B)


def test_a_voter_that_answers_is_not_replaced_in_its_place_unless_it_is_forced() -> None:
    node = leader_with(THREE)
    assert "stop it first" in refusal(ask(node, ChangeKind.REPLACE, 3))
    assert "node 1 leads" in refusal(ask(node, ChangeKind.REPLACE, 1, is_forced=True))
    assert offered(ask(node, ChangeKind.REPLACE, 3, is_forced=True)).incoming == (A, B)


def test_a_replica_at_another_address_replaces_a_voter_once_it_has_caught_up() -> None:
    node = leader_with(THREE)
    place = Member(NodeId(0), NO_UUID, "elsewhere", 9_000)
    reserved = offered(ask(node, ChangeKind.REPLACE, 2, members=(place,)))
    assert reserved.learners == (Member(NodeId(4), NO_UUID, "elsewhere", 9_000, ("replaces=2",)),)
    append(node, reserved)
    all_have(node, 3)
    arrived = Member(NodeId(4), D.uuid, "elsewhere", 9_000)
    append(node, offered(join(node, arrived)), prop=1)
    all_have(node, 3)
    joined(node, 4)
    effects: list[Effect] = []
    for _ in range(3):
        for peer in (2, 3):
            node.hear_reply(peer, 1)
        effects += node.tick(60)
    assert [member.number for member in offered(effects).incoming] == [1, 3, 4]


def leader_that_replaces_c_elsewhere() -> tuple[OneNode, Member]:
    """And the place, in which no replica is yet."""
    node = leader_with(THREE)
    place = Member(NodeId(0), NO_UUID, "elsewhere", 9_000)
    reserved = offered(ask(node, ChangeKind.REPLACE, 3, members=(place,)))
    append(node, reserved)
    all_have(node, 2, 3)
    return node, reserved.learners[0]


def test_a_lost_voter_that_another_replica_is_to_replace_gets_no_second_one() -> None:
    """Both became voters: four where three were."""
    node, place = leader_that_replaces_c_elsewhere()
    learner = replace(place, uuid=D.uuid)
    append(node, offered(join(node, replace(learner, labels=()))), prop=1)
    all_have(node, 2)
    pass_timeouts(node, 2)
    assert "node 4 at elsewhere:9000 is to replace node 3" in refusal(join(node, NEW_C))
    assert "remove that one first" in refusal(ask(node, ChangeKind.REPLACE, 3, is_forced=True))


def test_a_lost_voter_whose_successor_has_not_come_is_replaced_in_its_place_instead() -> None:
    node, _ = leader_that_replaces_c_elsewhere()
    pass_timeouts(node, 2)
    joint = offered(join(node, NEW_C))
    assert (joint.incoming, joint.learners) == ((A, B), (PLACE_OF_C,))


def test_the_same_members_once_more_for_a_trim() -> None:
    node = leader_with(RESERVED)
    assert offered(ask(node, ChangeKind.RENEW)) == replace(RESERVED, id=3)


def test_what_a_leader_acts_on_is_no_label_of_an_operator() -> None:
    node = leader_with(THREE)
    for label in ("promote=auto", "replaces=2", "promote=never"):
        added = replace(PLACE, labels=(label,))
        assert "choose another name" in refusal(ask(node, ChangeKind.ADD, members=(added,)))


def test_what_is_asked_of_a_replica_does_not_hit_the_one_that_has_its_number_by_now() -> None:
    node = leader_with(Configuration(3, (A, B), (), (NEW_C,)))
    for kind in (ChangeKind.REMOVE, ChangeKind.REPLACE):
        asked = ask(node, kind, 3, uuid=C.uuid, is_forced=True)
        assert "another replica by now" in refusal(asked)
    assert offered(ask(node, ChangeKind.REMOVE, 3, uuid=NEW_C.uuid)).learners == ()


# --- whose vote, and who counts ---


def vote_of(node: OneNode, uuid: bytes, term: int) -> list[bool]:
    request = VoteRequest(Term(term), Index(9), Term(1), False)
    effects = node.step(ControlReceived(NodeId(3), 1, request, uuid)) + node.flush_meta()
    return [reply.is_granted for _, reply in sent(effects, VoteReply)]


def test_a_vote_is_one_replicas_not_its_numbers() -> None:
    node = node_with(THREE)
    node.time_out()
    assert vote_of(node, C.uuid, 5) == [True]
    assert vote_of(node, C.uuid, 5) == [True]
    assert vote_of(node, NEW_C.uuid, 5) == [False]


def test_a_vote_that_was_kept_as_a_number_is_spent() -> None:
    """SAFETY C5a."""
    node = node_with(THREE, term=5, vote=3)
    assert vote_of(node, C.uuid, 5) == [False]
    node = node_with(None, term=5, vote=3)
    assert vote_of(node, C.uuid, 5) == [True], "the founders are who they are"
    node = node_with(None, term=5, vote=3, has_config=True, level=4)
    assert vote_of(node, NEW_C.uuid, 5) == [False], "its log was dropped, or damage hides it"


def test_a_replica_that_joined_votes_once_its_log_has_a_configuration() -> None:
    """Founders 1 to 5; 5 is cut off before the first CONFIG. 2 and 3 leave, one after the other,
    and empty replicas get their places: the voters are 1, 4 and 5, of which 1 and 4 commit. Then 5
    is cut off with these two. Its log has no CONFIG: with their votes it would have three of five
    founders, and lead beside 1."""
    node = OneNode(node=2)
    config = replace(node.config, voters=(), has_joined=True, replica_uuid=B.uuid)
    asks = (
        VoteRequest(Term(9), Index(3), Term(1), False),
        PreVoteRequest(Term(9), Index(3), Term(1)),
    )
    for found, has_config, votes in (
        ((), False, False),
        (((Index(1), THREE),), False, True),
        ((), True, True),  # its log was dropped, it is no new replica
    ):
        rows = rows_of([1], noops=[1]) if found else []
        level = 4 if has_config else 1
        fields: dict[str, Any] = {"term": 1, "configurations": found, "has_config": has_config}
        for request in asks:
            state = recovered(rows, level=level, **fields)
            node.core = RaftCore(config, state, node.files, node.core._state.random)
            node.meta_seq = 0
            node.step(Tick(node.now_ns, 0))
            effects = node.step(ControlReceived(NodeId(5), 1, request, E.uuid))
            effects += node.flush_meta()
            granted = [reply.is_granted for _, reply in sent(effects, VoteReply)]
            granted += [reply.is_granted for _, reply in sent(effects, PreVoteReply)]
            assert granted == [votes]


def test_a_replica_whose_number_is_anothers_does_not_campaign() -> None:
    for uuid, role in ((A.uuid, Role.PRE_CANDIDATE), (E.uuid, Role.FOLLOWER)):
        node = node_with(THREE)
        config = replace(node.config, replica_uuid=uuid)
        core = RaftCore(config, RECOVERED, node.files, node.core._state.random)
        node.core = core
        node.tick(1)
        node.time_out()
        assert core.role == role


# --- what META and the driver hear ---


def test_the_driver_hears_of_the_members_and_meta_that_there_is_a_config() -> None:
    node = leader_with(None)
    ask(node, ChangeKind.FOUND, members=(A, B, C))
    effects = append(node, THREE)
    index = node.core.last_index
    assert of_type(effects, MembersChanged) == [MembersChanged(index, False, THREE)]
    assert not of_type(effects, SaveLevel)
    effects = all_have(node, 2)
    assert of_type(effects, MembersChanged) == [MembersChanged(index, True, THREE)]
    assert of_type(effects, SaveLevel) == [SaveLevel(4, True)]
    assert [each.code for each in of_type(effects, ChangeAnswered)] == [ErrorCode.OK]


def test_a_start_over_a_config_says_so() -> None:
    node = node_with(THREE)
    assert of_type(node.started, MembersChanged) == [MembersChanged(Index(4), True, THREE)]
    assert SaveLevel(4, True) in node.started
    node = node_with(THREE, has_config=True, level=4)
    assert not of_type(node.started, SaveLevel)


def test_founders_do_not_campaign_where_meta_knows_of_a_config() -> None:
    node = node_with(None, has_config=True, level=4)
    node.time_out()
    assert node.core.role == Role.FOLLOWER


def test_a_join_for_which_there_is_no_room_ends_no_leader() -> None:
    """A replica asks every leader again: one that ended for it would be followed by the next."""
    places = tuple(replace(replica(number), uuid=NO_UUID) for number in range(10, 19))
    labels = tuple(f"{each}=x" for each in "abcdefgh")
    labelled = replace(C, labels=labels)
    for before, why in (
        (Configuration(1, (A, B, C), (), places), "9 learners already"),
        (Configuration(1, (A, B, labelled)), "9 labels"),
    ):
        node = leader_with(before)
        pass_timeouts(node, 2)
        assert why in refusal(join(node, NEW_C))
        assert why in refusal(ask(node, ChangeKind.REPLACE, 3))


def test_a_label_is_left_for_what_a_member_is_to_become() -> None:
    node = leader_with(THREE)
    labels = tuple(f"{each}=x" for each in "abcdefgh")
    assert "at most 7 labels" in refusal(
        ask(node, ChangeKind.ADD, members=(replace(PLACE, labels=labels),))
    )
    fewer = replace(PLACE, labels=labels[1:])
    assert offered(ask(node, ChangeKind.ADD, members=(fewer,))).learners == (fewer,)


@pytest.mark.parametrize("label", ["promote-by=rita", "replaces.with=ssd"])
def test_a_label_that_begins_like_one_of_a_leaders_own_keeps_no_voter_in_its_place(
    label: str,
) -> None:
    node = leader_with(Configuration(1, (A, B, replace(C, labels=(label,)))))
    pass_timeouts(node, 2)
    (reserved,) = offered(join(node, NEW_C)).learners
    assert set(reserved.labels) == {label, "promote=auto"}
    node = leader_with(Configuration(1, (A, B, replace(C, labels=(label,)))))
    (reserved,) = offered(
        ask(node, ChangeKind.REPLACE, 3, members=(replace(D, port=7200),))
    ).learners
    assert set(reserved.labels) == {label, "replaces=3"}


# --- what comes late ---


def test_a_heartbeat_for_the_lost_replica_of_a_number_says_nothing_of_the_next_one() -> None:
    """It would never go on: META keeps that it has forgotten something (SAFETY L7)."""
    for uuid, has_lost in ((NEW_C.uuid, False), (C.uuid, True)):
        node = node_with(THREE, node=3)
        config = replace(node.config, voters=(), has_joined=True, replica_uuid=uuid)
        core = RaftCore(config, RECOVERED, node.files, node.core._state.random)
        node.core = core
        node.tick(1)
        later = rows_of([1, 1, 1, 1, 1, 1])[-1]
        node.hear_heartbeat(2, term=1, prev=later)
        assert (core.lost is not None) == has_lost
    empty = recovered([], term=1)
    core = RaftCore(config, empty, node.files, node.core._state.random)
    node.core = core
    node.tick(1)
    node.hear_heartbeat(2, term=1, prev=later)
    assert core.lost is None


def learner_of(first_lsn: int) -> OneNode:
    """An empty replica that joined, and heard of a log that begins there."""
    node = OneNode(node=2)
    config = replace(node.config, voters=(), has_joined=True, replica_uuid=B.uuid)
    state = replace(recovered([]), start=replace(START, next_lsn=Lsn(first_lsn)))
    node.core = RaftCore(config, state, node.files, node.core._state.random)
    node.meta_seq = 0
    node.step(Tick(node.now_ns, 0))
    node.follow(1, 1)
    return node


def test_a_replica_that_joined_begins_its_log_where_its_leaders_begins() -> None:
    """SAFETY L4: it heard from replicas that had trimmed theirs, its leader had not. It ended with
    InvariantViolated, started again, and so on."""
    first, second = rows_of([1, 1])
    node = learner_of(5)
    effects = node.hear_append(1, first, term=1)
    [install] = of_type(effects, InstallLog)
    assert install.start == WholeLogStart(START, 0, 0, FIRST_LEVEL)
    assert not sent(effects, AppendAccepted) + sent(effects, AppendReject)
    assert node.core.is_installing
    assert not of_type(node.hear_append(1, first, term=1), Persist)
    assert node.core.persisted == 0
    node.flush()
    assert not node.core.is_installing
    effects = node.hear_append(1, first, term=1) + node.hear_append(1, second, term=1)
    assert [each.header for each in of_type(effects, Persist)] == [first.header, second.header]
    effects = node.flush()
    assert sent(effects, AppendPersisted) == [(1, AppendPersisted(Term(1), Index(2)))]


def test_c8_a_learner_without_the_newest_config_becomes_no_voter() -> None:
    """It is within a bulk window of the end, but would not vote: its log has no CONFIG (seed 1314).
    A leader that ended in the joint configuration, beside a lost voter, had no successor."""
    node = leader_with(WITH_D)
    node.hear_reply(4, 1)
    node.hear_match(4, 3)
    reason = refusal(ask(node, ChangeKind.PROMOTE, 4))
    assert "the newest configuration is not in its log yet" in reason
    node.hear_match(4, 4)
    assert of_type(ask(node, ChangeKind.PROMOTE, 4), ProposeConfiguration)


@pytest.mark.parametrize("has_joined", [True, False])
def test_a_log_that_is_not_empty_or_of_a_founder_begins_nowhere_else(has_joined: bool) -> None:
    """SAFETY S3: two founders have one first LSN, and so has a log with entries."""
    first = rows_of([1])[0]
    elsewhere = Row.of(replace(first.header, first_lsn=Lsn(5)))
    node = learner_of(START.next_lsn) if has_joined else OneNode(node=2)
    if has_joined:
        node.hear_append(1, first, term=1)
        node.flush()
    else:
        node.follow(1, 1)
    with pytest.raises(InvariantViolated, match="same entry, different log"):
        node.hear_append(1, elsewhere, term=1)
