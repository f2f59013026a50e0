"""The core counts a majority of each set of the configuration in its log, committed or not."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.format.configuration_body import Configuration, Member
from logstore.format.peer_messages import HeartbeatReply, PreVoteReply, VoteReply
from logstore.model import Index, NodeId, Role, Term
from logstore.raft import space
from logstore.raft.configuration import founders
from logstore.raft.effects import Committed, ReadIndexAnswered
from logstore.raft.events import ReadIndexRequested
from logstore.raft.state import State
from tests.paper.one_node import OneNode, of_type, rows_of

SECOND_NS = 1_000_000_000
ROWS = rows_of([1, 1], noops=[1])


def replica(number: int) -> Member:
    return Member(NodeId(number), number.to_bytes(16, "big"), f"node-{number}", 7100)


A, B, C, D, E = map(replica, range(1, 6))
JOINT = Configuration(2, (A, B, C), (A, D, E))
SMALL = Configuration(2, (A, B, C), (), (D,))
WITHOUT_1 = Configuration(2, (B, C, D))


def node_of(configuration: Configuration, **changes: Any) -> OneNode:
    """Node 1 of the file's five, with `configuration` in its last entry, which is not committed."""
    held = ((Index(2), configuration),)
    state: dict[str, Any] = {"voters": range(1, 6), "rows": ROWS, "term": 1, "configurations": held}
    return OneNode(**(state | changes))


def state_of(node: OneNode) -> State:
    return node.core._state


def role_of(node: OneNode) -> Role:
    return node.core.role


def grant(node: OneNode, *voters: int) -> None:
    """Votes or pre-votes, whichever the node asks for."""
    for voter in voters:
        if node.core.role == Role.PRE_CANDIDATE:
            node.hear(voter, PreVoteReply(Term(node.core.term + 1), True))
        else:
            node.hear(voter, VoteReply(node.core.term, True))


def lead(node: OneNode, *voters: int) -> None:
    node.time_out()
    grant(node, *voters)
    assert role_of(node) == Role.CANDIDATE
    node.flush_meta()
    grant(node, *voters)
    assert role_of(node) == Role.LEADER


@pytest.mark.parametrize(
    ("configuration", "too_few", "enough"),
    [
        (JOINT, (2, 3), 4),
        (JOINT, (4, 5), 2),
        (SMALL, (4, 5), 3),  # a learner, and one that is no member
        (WITHOUT_1, (2, 5), 4),  # itself neither
        (founders(map(NodeId, range(1, 6))), (3,), 5),
    ],
)
def test_an_election_needs_a_majority_of_each_set(
    configuration: Configuration, too_few: tuple[int, ...], enough: int
) -> None:
    node = node_of(configuration)
    node.time_out()
    grant(node, *too_few)
    assert role_of(node) == Role.PRE_CANDIDATE
    grant(node, enough)
    assert role_of(node) == Role.CANDIDATE
    node.flush_meta()
    grant(node, *too_few)
    assert role_of(node) == Role.CANDIDATE
    grant(node, enough)
    assert role_of(node) == Role.LEADER


@pytest.mark.parametrize(
    ("configuration", "voters", "too_few", "enough"),
    [
        (JOINT, (2, 4), (2, 3), 4),
        (JOINT, (2, 4), (4, 5), 3),
        (SMALL, (2,), (4, 5), 2),
        (WITHOUT_1, (2, 4), (2, 5), 3),
    ],
)
def test_a_commit_needs_a_majority_of_each_set(
    configuration: Configuration,
    voters: tuple[int, ...],
    too_few: tuple[int, ...],
    enough: int,
) -> None:
    node = node_of(configuration)
    lead(node, *voters)
    node.flush()
    for peer in too_few:
        assert not of_type(node.hear_match(peer, 3), Committed)
    assert state_of(node).configurations.committed.id == 0
    assert [each.index for each in of_type(node.hear_match(enough, 3), Committed)] == [3]
    assert state_of(node).configurations.committed == configuration


def test_a_read_waits_for_a_round_of_a_majority_of_each_set() -> None:
    node = node_of(JOINT)
    lead(node, 2, 4)
    node.flush()
    for peer in (2, 4):
        node.hear_match(peer, 3)
    node.step(ReadIndexRequested(7))
    round_ = state_of(node).leading.round  # type: ignore[union-attr]
    for peer in (2, 3):
        assert not of_type(node.hear_reply(peer, round_), ReadIndexAnswered)
    answers = of_type(node.hear_reply(5, round_), ReadIndexAnswered)
    assert [(each.request_id, each.is_leader) for each in answers] == [(7, True)]


@pytest.mark.parametrize(
    ("heard", "still_leads"), [((2, 3), False), ((4, 5), False), ((3, 5), True)]
)
def test_a_leader_steps_down_unless_it_hears_a_majority_of_each_set(
    heard: tuple[int, ...], still_leads: bool
) -> None:
    node = node_of(JOINT)
    lead(node, 2, 4)
    for _ in range(100):
        node.tick()
        for peer in heard:
            if node.core.role == Role.LEADER:
                node.hear_reply(peer, 1)
    assert (role_of(node) == Role.LEADER) == still_leads


@pytest.mark.parametrize(("right", "stamp_ns"), [((2, 3), 0), ((4, 5), 0), ((2, 5), 5 * SECOND_NS)])
def test_stamps_follow_the_clocks_of_a_majority_of_each_set(
    right: tuple[int, ...], stamp_ns: int
) -> None:
    """The previous entry's stamp holds as long as there is no such majority."""
    node = node_of(JOINT)
    lead(node, 2, 4)
    node.flush()
    for peer in (2, 4):
        node.hear_match(peer, 3)
    for peer in right:
        reply = HeartbeatReply(
            node.core.term, 1, node.core.last_index, Index(0), Index(0), 5 * SECOND_NS
        )
        node.hear(peer, reply)
    node.propose(0, wall_ns=5 * SECOND_NS)
    header = state_of(node).log.last_header
    assert header is not None
    assert header.timestamp_ns == max(stamp_ns, ROWS[-1].header.timestamp_ns)


@pytest.mark.parametrize(("full", "is_lacking"), [((2, 4), False), ((2, 3), True), ((4, 5), True)])
def test_a_leader_takes_batches_while_a_majority_of_each_set_has_space(
    full: tuple[int, ...], is_lacking: bool
) -> None:
    node = node_of(JOINT)
    lead(node, 2, 4)
    for peer in range(2, 6):
        reply = HeartbeatReply(
            node.core.term, 1, node.core.last_index, Index(0), Index(0), is_disk_full=peer in full
        )
        node.hear(peer, reply)
    state = state_of(node)
    assert state.leading is not None
    assert space.lacks_space(state, state.leading) == is_lacking
    assert (space.room_for_changes(state) == 0) == is_lacking


def test_a_truncated_configuration_is_in_force_no_more() -> None:
    node = node_of(JOINT)
    other = rows_of([1, 2], noops=[1])
    node.hear_append(2, other[1], term=2)
    node.flush_meta()
    state = state_of(node)
    assert node.core.last_index == 2
    assert state.configurations.in_force == founders(map(NodeId, range(1, 6)))
    assert state.voters.voters == (1, 2, 3, 4, 5)
    node.time_out()
    grant(node, 2)
    assert role_of(node) == Role.PRE_CANDIDATE
    grant(node, 3)
    assert role_of(node) == Role.CANDIDATE


def test_a_start_knows_which_configurations_are_committed() -> None:
    held = ((Index(1), SMALL), (Index(2), JOINT))
    state = state_of(node_of(JOINT, configurations=held, commit_floor=1))
    assert state.configurations.committed == SMALL
    assert state.configurations.in_force == JOINT
    assert state.voters.incoming == (1, 4, 5)


def test_an_installed_log_start_drops_what_was_not_committed() -> None:
    held = ((Index(1), SMALL), (Index(2), JOINT))
    node = node_of(JOINT, configurations=held, commit_floor=1)
    node.follow(2, 3)
    node.hear_install(2, rows_of([1, 3, 3, 3])[-1], term=3)
    state = state_of(node)
    assert state.log.start.index == 4
    assert state.configurations.in_force == SMALL
    assert state.voters.incoming == ()
