"""SAFETY C1: a broken connection to the leader is a hint. It begins a pre-vote soon and lifts
stickiness towards that leader; the leader's next message takes it back."""

from __future__ import annotations

import pytest

from logstore.format.peer_messages import (
    HeartbeatReply,
    PreVoteReply,
    PreVoteRequest,
    VoteReply,
    VoteRequest,
)
from logstore.model import Index, NodeId, Role, Term
from logstore.raft.election import QUICK_ROUNDS, VOTE_TURNS
from logstore.raft.events import ConnectionLost, DiskFullChanged, EntryRotted
from tests.paper.one_node import OneNode, rows_of, sent
from tests.paper.virtual_node import MS

TURN_MS = OneNode().config.quick_round_ns / MS
ASKED = PreVoteRequest(Term(4), Index(9), Term(9))


def follower(node: int = 2, **state) -> OneNode:
    """Of node 1, which leads term 3."""
    made = OneNode(node=node, term=3, **state)
    made.follow(1, 3)
    return made


def lose(node: OneNode, peer: int = 1) -> None:
    assert not node.step(ConnectionLost(NodeId(peer)))


def wait_ms(node: OneNode) -> float:
    return (node.core.deadline_ns - node.now_ns) / MS


def test_a_follower_that_loses_its_leader_runs_a_pre_vote_soon_and_keeps_its_term() -> None:
    node = follower()
    lose(node)
    assert wait_ms(node) <= TURN_MS / 2
    asked = sent(node.time_out(), PreVoteRequest)
    assert asked == [(peer, PreVoteRequest(Term(4), Index(0), Term(0))) for peer in (1, 3)]
    assert (node.core.role, node.core.term, node.core.vote) == (Role.PRE_CANDIDATE, 3, 0)


@pytest.mark.parametrize("seed", range(8))
def test_followers_of_one_leader_take_turns(seed: int) -> None:
    waits = []
    for each in (2, 3):
        node = follower(each, seed=seed)
        lose(node)
        waits.append(wait_ms(node))
    first, second = waits
    assert TURN_MS / 4 <= first <= TURN_MS / 2
    assert second - first >= TURN_MS / 2


def test_only_the_leaders_connection_counts() -> None:
    node = follower()
    before_ns = node.core.deadline_ns
    lose(node, peer=3)
    assert node.core.deadline_ns == before_ns
    assert sent(node.hear(3, ASKED), PreVoteReply) == [(3, PreVoteReply(Term(3), False))]


def test_a_leader_and_a_replica_without_one_do_nothing() -> None:
    leader, alone = OneNode(), OneNode()
    leader.lead()
    for node in (leader, alone):
        before_ns = node.core.deadline_ns
        lose(node, peer=2)
        assert node.core.deadline_ns == before_ns
    assert leader.core.role == Role.LEADER


def test_a_replica_that_lost_its_leader_grants_a_pre_vote_and_a_vote() -> None:
    node = follower()
    lose(node)
    assert sent(node.hear(3, ASKED), PreVoteReply) == [(3, PreVoteReply(Term(4), True))]
    node.hear(3, VoteRequest(Term(4), Index(9), Term(9), False))
    assert sent(node.flush_meta(), VoteReply) == [(3, VoteReply(Term(4), True))]


def test_the_leaders_next_message_takes_the_hint_back() -> None:
    node = follower()
    lose(node)
    node.tick(1)
    node.hear_heartbeat(1, term=3, round=2)
    assert wait_ms(node) >= node.config.election_timeout_ns / MS
    assert sent(node.hear(3, ASKED), PreVoteReply) == [(3, PreVoteReply(Term(3), False))]


def test_a_live_leader_is_not_deposed_by_the_one_follower_that_lost_its_connection() -> None:
    hinted, other, leader = follower(2), follower(3), OneNode(node=1)
    leader.lead()
    lose(hinted)
    request = sent(hinted.time_out(), PreVoteRequest)[0][1]
    for node in (other, leader):
        node.tick(1)
        for _, reply in sent(node.hear(2, request), PreVoteReply):
            assert not reply.is_granted
            assert not hinted.hear(node.node, reply)
    assert (leader.core.role, other.core.term, hinted.core.term) == (Role.LEADER, 3, 3)
    replies = sent(hinted.hear_heartbeat(1, term=3, round=2), HeartbeatReply)
    assert [(peer, reply.term) for peer, reply in replies] == [(1, 3)]
    assert (hinted.core.role, hinted.core.leader) == (Role.FOLLOWER, 1)


def test_quick_rounds_find_a_voter_that_notices_later_and_they_end() -> None:
    node = follower()
    lose(node)
    for _ in range(QUICK_ROUNDS):
        assert wait_ms(node) <= 2 * TURN_MS
        assert len(sent(node.time_out(), PreVoteRequest)) == 2
    assert wait_ms(node) >= node.config.election_timeout_ns / MS
    assert node.core.term == 3


def test_who_grants_a_pre_vote_leaves_the_sender_time_to_campaign() -> None:
    node = follower(3)
    lose(node)
    due_ms = wait_ms(node)
    node.tick(int(due_ms) - 1)
    node.hear(2, ASKED)
    assert TURN_MS <= wait_ms(node) <= 2 * TURN_MS


def test_who_votes_waits_a_whole_election_timeout() -> None:
    node = follower(3)
    lose(node)
    node.hear(2, VoteRequest(Term(4), Index(9), Term(9), False))
    node.flush_meta()
    assert wait_ms(node) >= node.config.election_timeout_ns / MS


def test_damaged_and_full_replicas_let_others_campaign_first_but_vote() -> None:
    damaged = follower(rows=rows_of([1, 1]), faulty=((2, 2),))
    full = follower()
    full.step(DiskFullChanged(True))
    for node in (damaged, full):
        before_ns = node.core.deadline_ns
        lose(node)
        assert node.core.deadline_ns == before_ns
        assert sent(node.hear(3, ASKED), PreVoteReply) == [(3, PreVoteReply(Term(4), True))]


def test_a_leader_is_not_given_up_in_its_first_election_timeout() -> None:
    """FAULTS N8: connections that break all the time cost no term each."""
    node = OneNode(node=2, term=3)
    node.follow(1, 4)
    timeout_ms = node.config.election_timeout_ns // MS
    node.tick(timeout_ms - 2)
    node.hear_heartbeat(1, term=4, round=2)
    for _ in range(2):  # its next try to connect is refused
        lose(node)
        assert 2 <= wait_ms(node) <= 2 + TURN_MS / 2
        refused = sent(node.hear(3, PreVoteRequest(Term(5), Index(9), Term(9))), PreVoteReply)
        assert refused == [(3, PreVoteReply(Term(4), False))]
    node.tick(2)
    granted = sent(node.hear(3, PreVoteRequest(Term(5), Index(9), Term(9))), PreVoteReply)
    assert granted == [(3, PreVoteReply(Term(5), True))]


def test_a_message_in_its_first_election_timeout_takes_the_hint_back() -> None:
    node = OneNode(node=2, term=3)
    node.follow(1, 4)
    timeout_ms = node.config.election_timeout_ns // MS
    lose(node)
    node.tick(timeout_ms - 1)
    node.hear_heartbeat(1, term=4, round=2)
    node.tick(2)
    assert wait_ms(node) >= timeout_ms - 2
    refused = sent(node.hear(3, PreVoteRequest(Term(5), Index(9), Term(9))), PreVoteReply)
    assert refused == [(3, PreVoteReply(Term(4), False))]


def test_a_hint_of_one_term_says_nothing_of_the_next_leader() -> None:
    node = OneNode(node=2, term=3)
    node.follow(1, 4)
    lose(node)
    node.follow(3, 5)
    timeout_ms = node.config.election_timeout_ns // MS
    node.tick(timeout_ms - 1)
    refused = sent(node.hear(1, PreVoteRequest(Term(6), Index(9), Term(9))), PreVoteReply)
    assert refused == [(1, PreVoteReply(Term(5), False))]


def campaigning(node: OneNode) -> None:
    """It lost its leader, has node 3's pre-vote, and asks for votes."""
    lose(node)
    node.time_out()
    node.hear(3, PreVoteReply(Term(node.core.term + 1), True))
    assert sent(node.flush_meta(), VoteRequest)
    assert node.core.role == Role.CANDIDATE


def test_a_candidate_whose_votes_do_not_come_asks_for_them_again_in_the_same_term() -> None:
    """Of 156 leaders that were killed, four were replaced after more than 1.4 s, 1.2 to 1.4 s of it
    an election timeout. A vote that is on its way still counts: with 150 ms a save of META, a new
    term for each round made 322 ms 547 to 1,032."""
    node = follower()
    campaigning(node)
    assert 4 * TURN_MS <= wait_ms(node) < 8 * TURN_MS
    asked = VoteRequest(Term(4), Index(0), Term(0), False)
    assert sent(node.time_out(), VoteRequest) == [(peer, asked) for peer in (1, 3)]
    assert (node.core.role, node.core.term) == (Role.CANDIDATE, 4)
    node.hear(3, VoteReply(Term(4), True))
    assert node.core.role == Role.LEADER


def test_a_candidate_waits_for_its_own_vote_and_leaves_the_voters_as_long() -> None:
    node = follower()
    lose(node)
    node.time_out()
    node.hear(3, PreVoteReply(Term(4), True))
    assert wait_ms(node) >= node.config.election_timeout_ns / MS
    node.tick(100)
    assert sent(node.flush_meta(), VoteRequest)
    assert 200 <= wait_ms(node) < 400


def test_who_becomes_damaged_or_full_after_the_hint_lets_the_others_campaign_first() -> None:
    """Q3. A hint about a new leader counts up to a second later."""
    damaged = OneNode(node=2, term=3, rows=rows_of([1, 1]))
    full, candidate = OneNode(node=2, term=3), follower()
    for node in (damaged, full):
        node.follow(1, 4)
        lose(node)
    campaigning(candidate)
    damaged.step(EntryRotted(Index(2)))
    for node in (full, candidate):
        node.step(DiskFullChanged(True))
    for node in (damaged, full, candidate):
        assert not node.time_out()
        assert wait_ms(node) >= 4 * node.config.election_timeout_ns / MS


def test_ten_thousand_hints_are_as_one() -> None:
    node = OneNode(node=2, term=3)
    node.follow(1, 4)
    for _ in range(10_000):
        lose(node)
    assert wait_ms(node) <= node.config.election_timeout_ns / MS + TURN_MS / 2
    node.hear_heartbeat(1, term=4, round=2)
    assert wait_ms(node) >= node.config.election_timeout_ns / MS


def test_after_a_split_vote_a_candidate_tries_again_soon_in_another_term() -> None:
    node = follower()
    campaigning(node)
    assert not node.hear(3, VoteReply(Term(4), False))
    assert wait_ms(node) < 2 * VOTE_TURNS * TURN_MS
    asked = sent(node.time_out(), PreVoteRequest)
    assert asked == [(peer, PreVoteRequest(Term(5), Index(0), Term(0))) for peer in (1, 3)]
    assert (node.core.role, node.core.term) == (Role.PRE_CANDIDATE, 4)
    node.hear(3, PreVoteReply(Term(5), True))
    assert sent(node.flush_meta(), VoteRequest)
    assert len(sent(node.time_out(), VoteRequest)) == 2


def test_a_candidate_does_not_ask_again_for_ever() -> None:
    node = follower()
    campaigning(node)
    for _ in range(QUICK_ROUNDS - 2):
        assert len(sent(node.time_out(), VoteRequest)) == 2
    assert len(sent(node.time_out(), PreVoteRequest)) == 2
    assert (node.core.role, node.core.term) == (Role.PRE_CANDIDATE, 4)
    assert wait_ms(node) >= node.config.election_timeout_ns / MS


def test_candidates_of_split_votes_do_not_try_again_soon_for_ever() -> None:
    node = follower()
    campaigning(node)
    for _ in range(QUICK_ROUNDS - 2):
        node.hear(3, VoteReply(node.core.term, False))
        assert len(sent(node.time_out(), PreVoteRequest)) == 2
        node.hear(3, PreVoteReply(Term(node.core.term + 1), True))
        assert sent(node.flush_meta(), VoteRequest)
    node.hear(3, VoteReply(node.core.term, False))
    assert len(sent(node.time_out(), PreVoteRequest)) == 2
    assert wait_ms(node) >= node.config.election_timeout_ns / MS


def test_another_candidates_term_ends_the_quick_rounds() -> None:
    node = follower()
    campaigning(node)
    node.hear(3, VoteRequest(Term(5), Index(9), Term(9), False))
    node.flush_meta()
    for _ in range(2):
        assert wait_ms(node) >= node.config.election_timeout_ns / MS
        node.time_out()
