"""SAFETY sections 1 and 8: facts with their term, commit, visibility, reads. One test a rule at
least."""

from __future__ import annotations

import pytest

from logstore.errors import InvariantViolated
from logstore.format.peer_messages import (
    NO_ROUND,
    AppendAccepted,
    AppendPersisted,
    AppendReject,
    Heartbeat,
    HeartbeatReply,
    TimeoutNow,
)
from logstore.model import Index, Role, Term
from logstore.raft.effects import (
    AdmissionClosed,
    Admit,
    Committed,
    Describe,
    Effect,
    Persist,
    ReadIndexAnswered,
    Settle,
    StopLeading,
    Truncate,
    Visible,
)
from logstore.raft.events import IngressStalled, ReadIndexRequested
from tests.paper.one_node import OneNode, of_type, rows_of, sent
from tests.paper.virtual_node import MS

TIMEOUT_MS = 500


def test_u1_the_commit_sent_to_a_peer_is_in_the_message_of_raft_that_orders_the_send() -> None:
    node = OneNode()
    node.lead_and_commit()
    described = of_type(node.propose(0), Describe)
    assert [(each.term, each.commit) for each in described] == [(node.core.term, Index(1))]
    beats = sent(node.tick(50), Heartbeat)
    assert {(beat.term, beat.commit) for _, beat in beats} == {(node.core.term, Index(1))}


def test_u2_an_append_of_an_entry_term_above_its_own_is_dropped_and_settled() -> None:
    node = OneNode(term=3)
    effects = node.hear_append(2, rows_of([5])[0], term=4)
    assert of_type(effects, Settle) == effects
    assert (node.core.term, node.core.last_index, node.core.dropped) == (3, 0, 1)


def test_v1_a_no_op_without_lsn_opens_each_term() -> None:
    node = OneNode(rows=rows_of([1, 1]), term=1)
    (persist,) = of_type(node.lead(), Persist)
    assert (persist.header.count, persist.header.first_lsn, persist.header.next_lsn) == (0, 3, 3)


def test_v1_entries_of_earlier_terms_commit_only_with_one_of_the_current_term() -> None:
    node = OneNode(rows=rows_of([1, 1]), term=1)
    node.lead()
    node.flush()
    node.hear_match(2, 2)
    assert node.core.commit == 0
    node.hear_match(2, 3)
    assert node.core.commit == 3


@pytest.mark.parametrize(("voters", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4)])
def test_v1_a_majority_is_half_plus_one_for_odd_and_even_sizes(voters: int, needed: int) -> None:
    node = OneNode(voters=range(1, voters + 1))
    node.lead()
    node.flush()
    holders = 1
    for peer in range(2, voters + 1):
        if holders == needed:
            break
        assert node.core.commit == 0
        node.hear_match(peer, 1)
        holders += 1
    assert (node.core.commit, holders) == (1, needed)


def test_v2_a_follower_commits_to_the_index_this_leader_verified_not_to_its_last() -> None:
    node = OneNode(rows=rows_of([1, 1, 1]), term=2)
    node.follow(2, 2)
    node.hear_heartbeat(2, term=2, commit=3)
    assert node.core.commit == 0
    node.hear_append(2, rows_of([1, 1])[1], commit=3)
    assert node.core.commit == 2


def test_v2_the_verified_index_falls_back_to_commit_at_every_change_of_term() -> None:
    rows = rows_of([1, 1, 1])
    node = OneNode(rows=rows, term=1)
    node.follow(2, 1)
    node.hear_heartbeat(2, term=1, commit=1, prev=rows[2])
    assert (node.core.verified, node.core.commit) == (3, 1)
    node.hear_heartbeat(3, term=2)
    assert node.core.verified == 1


def test_v2_a_heartbeat_verifies_only_the_prev_tuple_it_carries() -> None:
    rows = rows_of([1, 1, 1])
    node = OneNode(rows=rows, term=1)
    node.hear_heartbeat(2, term=1, commit=3, prev=rows[1])
    assert (node.core.verified, node.core.commit) == (2, 2)
    node.hear_heartbeat(2, term=1, commit=3, prev=rows_of([1, 1, 1, 1])[3])
    assert node.core.verified == 2, "a tuple beyond our log verifies nothing"


def test_v3_visible_is_the_lower_of_commit_and_own_disk_and_moves_forward_only() -> None:
    node = OneNode(term=1)
    node.follow(2, 1)
    rows = rows_of([1, 1, 1])
    for row in rows:
        node.hear_append(2, row, commit=3)
    assert node.core.commit == 3
    assert node.core.visible_lsn == 0
    assert of_type(node.flush(2), Visible) == [Visible(2, Index(2))]
    assert of_type(node.flush(3), Visible) == [Visible(3, Index(3))]
    assert not of_type(node.hear_heartbeat(2, term=1, commit=1), Visible)


def test_v4_nothing_is_visible_after_a_restart_until_a_leader_was_heard() -> None:
    rows = rows_of([1, 1])
    node = OneNode(rows=rows, term=1, commit_floor=2)
    node.tick(100)
    assert node.core.visible_lsn is None
    node.hear_heartbeat(2, term=1, commit=2)
    assert node.core.visible_lsn == 2


def test_v4_a_new_leader_is_ready_only_when_an_entry_of_its_term_committed() -> None:
    node = OneNode(rows=rows_of([1, 1]), term=1, commit_floor=1)
    node.lead()
    node.flush()
    assert node.core.visible_lsn is None
    node.hear_match(3, 3)
    assert node.core.visible_lsn == 2


def test_v5_a_read_is_answered_by_a_round_that_began_after_it_and_after_the_no_op() -> None:
    node = OneNode()
    node.lead()
    assert not node.step(ReadIndexRequested(1))
    node.flush()
    ((_, beat), *_) = sent(node.hear_match(2, 1), Heartbeat)[1:]
    assert not of_type(node.hear_reply(2, beat.round - 1), ReadIndexAnswered)
    assert of_type(node.hear_reply(2, beat.round), ReadIndexAnswered)


def test_v5_every_retry_gets_a_round_of_its_own() -> None:
    node = OneNode()
    node.lead_and_commit()
    first = sent(node.step(ReadIndexRequested(1)), Heartbeat)[0][1].round
    node.hear_reply(2, first)
    again = sent(node.step(ReadIndexRequested(1)), Heartbeat)[0][1].round
    assert again > first
    assert not of_type(node.hear_reply(3, first), ReadIndexAnswered)
    (answer,) = of_type(node.hear_reply(3, again), ReadIndexAnswered)
    assert (answer.request_id, answer.is_leader) == (1, True)


def test_v5_the_answer_to_a_heartbeat_of_an_older_term_is_of_no_round() -> None:
    """A leader of term 5 may lead term 7, too, and a late round of term 5 reach a voter of 7."""
    node = OneNode(term=7)
    ((peer, reply),) = sent(node.hear_heartbeat(2, term=5, round=1_000), HeartbeatReply)
    assert (peer, reply.term, reply.round) == (2, 7, NO_ROUND)


def test_v5_a_round_above_the_leaders_own_is_of_another_term_and_confirms_nothing() -> None:
    """A follower of an earlier version answers a heartbeat of an older term with its round."""
    node = OneNode()
    node.lead_and_commit()
    begun = sent(node.step(ReadIndexRequested(1)), Heartbeat)[0][1].round
    assert not of_type(node.hear_reply(2, begun + 1_000), ReadIndexAnswered)
    assert of_type(node.hear_reply(2, begun), ReadIndexAnswered)


def test_v5_reads_beyond_the_bound_and_on_followers_are_sent_elsewhere() -> None:
    node = OneNode()
    refused = [ReadIndexAnswered(1, False, 0)]
    assert node.step(ReadIndexRequested(1)) == refused
    node.lead()
    for request in range(1_024):
        node.step(ReadIndexRequested(request))
    assert node.step(ReadIndexRequested(1)) == refused


def test_v6_a_leader_that_no_majority_answers_steps_down() -> None:
    node = OneNode()
    node.lead_and_commit()
    for _ in range(9):
        node.tick(50)
    node.hear_reply(3, 1)
    for _ in range(9):
        node.tick(50)
        assert node.core.role == Role.LEADER
    for _ in range(2):
        effects = node.tick(50)
    assert node.core.role == Role.FOLLOWER
    assert of_type(effects, StopLeading)


def test_v6_stream_answers_count_as_contact() -> None:
    node = OneNode()
    node.lead_and_commit()
    for _ in range(40):
        node.tick(50)
        node.hear_answer(2, AppendAccepted(node.core.term, 1 << 32, Index(1)))
    assert node.core.role == Role.LEADER


def test_v6_a_leader_whose_ingress_stands_still_steps_down() -> None:
    node = OneNode()
    assert not node.step(IngressStalled())
    node.lead_and_commit()
    node.step(IngressStalled())
    assert node.core.role == Role.FOLLOWER


def stall(node: OneNode, *, moving: int | None) -> list[TimeoutNow]:
    """Leave a flush unanswered for over two election timeouts; node `moving`'s match advances."""
    sent_now: list[TimeoutNow] = []
    node.propose(0)
    for step in range(30):
        effects = node.tick(40)
        for peer in (2, 3):
            effects += node.hear_reply(peer, 1)
        if moving is not None and step == 5:
            effects += node.hear_match(moving, 2)
        sent_now += [message for _, message in sent(effects, TimeoutNow)]
    return sent_now


def test_v6_a_stalled_disk_hands_over_to_a_voter_whose_disk_moved_meanwhile() -> None:
    """FAULTS P22."""
    node = OneNode()
    node.lead_and_commit()
    assert stall(node, moving=3)
    assert node.core.open_gen is None


def test_v6_with_no_such_voter_the_leader_stays() -> None:
    node = OneNode()
    node.lead_and_commit()
    assert not stall(node, moving=None)
    assert node.core.role == Role.LEADER
    assert node.core.open_gen == 1


def test_v6_a_handover_that_fails_is_not_tried_again_at_once() -> None:
    node = OneNode()
    node.lead_and_commit()
    stall(node, moving=3)
    closed = admitted = 0
    for _ in range(25):  # a second: the transfer ends after half of it, the next begins after one
        effects = node.tick(40) + node.hear_reply(2, 1) + node.hear_reply(3, 1)
        closed += len(of_type(effects, AdmissionClosed))
        admitted += len(of_type(effects, Admit))
    assert admitted == 1
    assert closed <= 1


def test_f9_a_follower_majority_commits_before_the_leaders_own_flush() -> None:
    node = OneNode(voters=(1, 2, 3))
    node.lead()
    node.hear_match(2, 1)
    assert node.core.commit == 0, "one of three"
    effects = node.hear_match(3, 1)
    assert of_type(effects, Committed)
    assert of_type(effects, Visible) == [Visible(0, Index(0))], "our own disk does not have it"
    assert of_type(node.flush(), Visible) == [Visible(0, Index(1))]


def test_f8_a_conflict_at_or_below_the_commit_index_stops_the_replica() -> None:
    node = OneNode(rows=rows_of([1, 1, 1]), term=2, commit_floor=2)
    node.follow(2, 2)
    with pytest.raises(InvariantViolated):
        node.hear_append(2, rows_of([1, 2])[1])
    other = OneNode(rows=rows_of([1, 1, 1]), term=2, commit_floor=2)
    other.follow(2, 2)
    with pytest.raises(InvariantViolated):
        other.hear_append(2, rows_of([2, 2, 2])[2])


def test_f6_nothing_is_truncated_before_the_term_that_asks_is_durable() -> None:
    node = OneNode(rows=rows_of([1, 1]), term=1)
    assert not writes(node.hear_append(2, rows_of([1, 2])[1], term=2))
    assert [type(each) for each in writes(node.flush_meta())] == [Truncate, Persist]


def writes(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, Truncate | Persist)]


def test_r_answers_of_an_older_term_do_not_count() -> None:
    node = OneNode(term=4)
    node.lead()
    node.hear_answer(2, AppendPersisted(Term(4), Index(1)))
    node.hear(2, HeartbeatReply(Term(4), 1, Index(1), Index(0), Index(0)))
    node.hear_answer(2, AppendReject(Term(4), 1, Index(1), Index(0), Term(0), Index(0)))
    assert set(node.core.match.values()) == {0}
    assert node.core.deadline_ns <= node.now_ns + 50 * MS
