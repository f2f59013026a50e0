"""SAFETY V6: a leader whose entries reach no majority, though its heartbeats do."""

from __future__ import annotations

from collections.abc import Sequence

from logstore.format.peer_messages import Heartbeat, HeartbeatReply, TimeoutNow
from logstore.limits import STALL_ELECTION_TIMEOUTS
from logstore.model import NO_NODE, Index, NodeId, Role, Term
from logstore.raft.effects import AdmissionClosed, Effect, StopLeading, TransferAnswered
from logstore.raft.events import (
    ConnectionLost,
    DiskFullChanged,
    ReadIndexRequested,
    TransferRequested,
)
from tests.paper.one_node import OneNode, of_type, rows_of, sent

TIMEOUT_MS = 500
STALLED_MS = STALL_ELECTION_TIMEOUTS * TIMEOUT_MS
STEP_MS = 50


def leader(voters: Sequence[int] = (1, 2, 3)) -> OneNode:
    """Its no-op is committed, entry 2 is flushed here and nowhere else."""
    node = OneNode(voters=voters)
    node.lead_and_commit()
    node.propose(0)
    node.flush()
    return node


def answer_heartbeats(
    node: OneNode,
    milliseconds: int,
    *,
    last: int = 1,
    grows_every_ms: int = 0,
    full: Sequence[int] = (),
    silent: Sequence[int] = (),
) -> list[Effect]:
    """Every follower answers but the `silent`; node 2's log ends at `last`, and grows now and
    then."""
    effects: list[Effect] = []
    for passed_ms in range(0, milliseconds, STEP_MS):
        if grows_every_ms and passed_ms and passed_ms % grows_every_ms == 0:
            last += 1
        for peer in node.config.peers:
            if node.core.role == Role.LEADER and peer not in silent:
                end = Index(last if peer == 2 else 1)
                none, is_full = Index(0), peer in full
                reply = HeartbeatReply(node.core.term, 1, end, none, none, is_disk_full=is_full)
                effects += node.hear(peer, reply)
        effects += node.tick(STEP_MS)
    return effects


def test_v6_a_leader_whose_appends_are_lost_steps_down() -> None:
    node = leader()
    answer_heartbeats(node, STALLED_MS - 2 * STEP_MS)
    assert node.core.role == Role.LEADER
    effects = answer_heartbeats(node, 4 * STEP_MS)
    assert of_type(effects, StopLeading)
    assert node.core.deadline_ns - node.now_ns > 5 * node.config.election_timeout_ns


def test_v6_who_stepped_down_leaves_elections_to_others_also_when_its_leader_is_lost() -> None:
    node = leader()
    answer_heartbeats(node, STALLED_MS + 2 * STEP_MS)
    quiet_until_ns = node.core.deadline_ns
    node.follow(2, node.core.term + 1)
    node.tick(TIMEOUT_MS)
    node.hear_heartbeat(2, term=node.core.term, round=2)
    node.step(ConnectionLost(NodeId(2)))
    assert node.core.deadline_ns == quiet_until_ns > node.now_ns


def test_v6_a_new_leader_whose_no_op_is_lost_steps_down() -> None:
    node = OneNode()
    node.lead()
    node.flush()
    answer_heartbeats(node, STALLED_MS + 3 * STEP_MS, last=0)
    assert node.core.role == Role.FOLLOWER


def test_v6_an_idle_leader_stays() -> None:
    node = OneNode()
    node.lead_and_commit()
    answer_heartbeats(node, 10 * STALLED_MS)
    assert node.core.role == Role.LEADER
    node.propose(0)
    node.flush()
    answer_heartbeats(node, STALLED_MS // 2)
    assert node.core.role == Role.LEADER, "the age of an entry begins with it"


def test_v6_a_slow_link_that_moves_is_left_alone() -> None:
    node = OneNode()
    node.lead_and_commit()
    for prop in range(40):
        node.propose(prop)
    node.flush()
    answer_heartbeats(node, 5 * STALLED_MS, grows_every_ms=2 * TIMEOUT_MS)
    assert node.core.role == Role.LEADER


def test_v6_a_slow_link_that_moves_below_the_no_op_is_left_alone() -> None:
    """Only an entry of this term is committed by counting (V1): what brings the no-op nearer
    counts, however far it is behind the commit index known."""
    node = OneNode(rows=rows_of([1] * 40), term=1)
    node.lead()
    node.flush()
    for match in range(1, 40):
        node.hear_match(2, match)
        answer_heartbeats(node, 2 * TIMEOUT_MS, last=match)
    assert node.core.role == Role.LEADER
    assert node.core.commit == 0


def test_v6_a_leader_that_is_read_from_all_the_time_is_judged_too() -> None:
    """Each read begins a round, and a round puts the next heartbeat off."""
    node = leader()
    for request_id in range(STALLED_MS // 20 + 20):
        if node.core.role != Role.LEADER:
            break
        for peer, beat in sent(node.step(ReadIndexRequested(request_id)), Heartbeat):
            reply = HeartbeatReply(node.core.term, beat.round, Index(1), Index(0), Index(0))
            node.hear(peer, reply)
        node.tick(20)
    assert node.core.role == Role.FOLLOWER


def test_v6_an_operator_who_asks_for_transfers_again_and_again_keeps_no_such_leader() -> None:
    """None of them can end, since nobody gets level; each begins as the one before ends."""
    node = leader()
    for request_id in range(2 * STALLED_MS // STEP_MS):
        if node.core.role != Role.LEADER:
            break
        node.step(TransferRequested(request_id, NodeId(2)))
        answer_heartbeats(node, STEP_MS)
    assert node.core.role == Role.FOLLOWER


def test_s9_a_full_leader_that_is_read_from_all_the_time_hands_over() -> None:
    """Whoever is whole is found at a later look, not at the news of the full disk."""
    node = OneNode()
    node.lead_and_commit()
    node.step(DiskFullChanged(True))
    told: list[tuple[int, TimeoutNow]] = []
    for request_id in range(50):
        effects = node.step(ReadIndexRequested(request_id))
        for peer, beat in sent(effects, Heartbeat):
            reply = HeartbeatReply(node.core.term, beat.round, Index(1), Index(0), Index(0))
            node.hear(peer, reply)
        told += sent(node.tick(20), TimeoutNow)
    assert told


def test_v6_a_follower_that_has_the_oldest_entry_already_brings_no_commit_nearer() -> None:
    node = leader(voters=(1, 2, 3, 4, 5))
    for prop in range(1, 20):
        node.propose(prop)
    node.flush()
    node.hear_match(2, 2)
    answer_heartbeats(node, STALLED_MS + 3 * STEP_MS, last=2, grows_every_ms=TIMEOUT_MS)
    assert node.core.role == Role.FOLLOWER


def test_v6_a_follower_that_has_everything_is_handed_the_term_first() -> None:
    node = leader(voters=(1, 2, 3, 4, 5))
    node.hear_match(2, 2)
    effects = answer_heartbeats(node, STALLED_MS + 3 * STEP_MS, last=2)
    assert {peer for peer, _ in sent(effects, TimeoutNow)} == {2}
    assert [each.reason for each in of_type(effects, AdmissionClosed)] == ["transfer"]
    answer_heartbeats(node, TIMEOUT_MS + 3 * STEP_MS, last=2)
    assert node.core.role == Role.FOLLOWER, "it did not take over"


def test_v6_a_leader_whose_own_flush_is_late_too_is_judged_by_that() -> None:
    node = OneNode()
    node.lead_and_commit()
    node.propose(0)
    answer_heartbeats(node, 4 * STALLED_MS)
    assert node.core.role == Role.LEADER


def test_v6_a_full_leader_that_nobody_can_take_over_from_steps_down() -> None:
    """Its handovers end without a level target, again and again, with admission closed."""
    node = leader()
    node.step(DiskFullChanged(True))
    effects = answer_heartbeats(node, STALLED_MS + TIMEOUT_MS + 3 * STEP_MS)
    assert of_type(effects, StopLeading)
    assert not sent(effects, TimeoutNow)


def test_s9_a_leader_whose_followers_are_full_stays() -> None:
    """Nothing is wrong with its paths, and nobody else would fare better."""
    node = leader()
    answer_heartbeats(node, 5 * STALLED_MS, full=(2, 3))
    assert node.core.role == Role.LEADER
    assert node.core.open_gen is not None


def test_s9_a_leader_stays_if_one_follower_is_full_and_the_other_is_gone() -> None:
    node = leader()
    answer_heartbeats(node, 5 * STALLED_MS, full=(2,), silent=(3,))
    assert node.core.role == Role.LEADER


def test_v6_one_full_follower_is_no_excuse_while_a_majority_has_space() -> None:
    node = leader()
    answer_heartbeats(node, STALLED_MS + 3 * STEP_MS, full=(2,))
    assert node.core.role == Role.FOLLOWER
    node = leader(voters=(1, 2, 3, 4, 5))
    answer_heartbeats(node, STALLED_MS + 3 * STEP_MS, full=(2, 3))
    assert node.core.role == Role.FOLLOWER


def test_v6_patience_begins_when_a_majority_has_space_again() -> None:
    node = leader()
    answer_heartbeats(node, 2 * STALLED_MS, full=(2, 3))
    answer_heartbeats(node, STALLED_MS - 2 * STEP_MS, full=(2,))
    assert node.core.role == Role.LEADER
    answer_heartbeats(node, 6 * STEP_MS, full=(2,))
    assert node.core.role == Role.FOLLOWER


def test_s9_a_follower_says_in_each_answer_whether_its_disk_is_full() -> None:
    node = OneNode()
    node.follow(2, 1)
    told = []
    for is_full in (True, False):
        node.step(DiskFullChanged(is_full))
        told += sent(node.hear_heartbeat(2, term=1), HeartbeatReply)
    assert [reply.is_disk_full for _, reply in told] == [True, False]
    node.step(DiskFullChanged(True))
    (stale,) = sent(node.hear_heartbeat(3, term=0), HeartbeatReply)
    assert stale[1].is_disk_full
    assert stale[1].term == Term(1)


def test_s9_a_full_leader_hands_over_to_one_with_space_only() -> None:
    """Node 2 is nearer, and would hand back two election timeouts later."""
    node = OneNode()
    node.lead_and_commit()
    node.propose(0)
    node.flush()
    node.hear_match(2, 2)
    node.step(DiskFullChanged(True))
    effects = answer_heartbeats(node, 2 * TIMEOUT_MS, last=2, full=(2, 3))
    assert not sent(effects, TimeoutNow)
    effects = answer_heartbeats(node, 4 * STEP_MS, last=2, full=(2,))
    node.hear_match(3, 2)
    effects += answer_heartbeats(node, 4 * STEP_MS, last=2, full=(2,))
    assert {peer for peer, _ in sent(effects, TimeoutNow)} == {3}


def test_s9_a_transfer_to_anybody_goes_to_one_with_space() -> None:
    node = OneNode()
    node.lead_and_commit()
    answer_heartbeats(node, STEP_MS, full=(2,))
    effects = node.step(TransferRequested(1, NO_NODE))
    assert {peer for peer, _ in sent(effects, TimeoutNow)} == {3}


def test_c2_a_transfer_that_ends_in_vain_names_the_full_disk() -> None:
    node = leader()
    answer_heartbeats(node, STEP_MS, full=(2,))
    node.step(TransferRequested(1, NodeId(2)))
    effects = answer_heartbeats(node, 2 * TIMEOUT_MS, full=(2,))
    (answer,) = of_type(effects, TransferAnswered)
    assert answer.reason.endswith("it lacks 1 entries and its disk is full")


def test_v6_a_cluster_of_one_has_nobody_to_step_down_for() -> None:
    node = OneNode(voters=(1,))
    node.campaign()
    node.flush_meta()
    answer_heartbeats(node, 4 * STALLED_MS)
    assert node.core.role == Role.LEADER


def test_v6_each_time_takes_twice_as_long_until_something_is_committed() -> None:
    node = leader()
    answer_heartbeats(node, STALLED_MS + 2 * STEP_MS)
    lead_again(node)
    answer_heartbeats(node, 2 * STALLED_MS - 2 * STEP_MS)
    assert node.core.role == Role.LEADER
    answer_heartbeats(node, 4 * STEP_MS)
    assert node.core.role == Role.FOLLOWER
    lead_again(node)
    node.hear_match(2, node.core.last_index)
    node.propose(0)
    node.flush()
    answer_heartbeats(node, STALLED_MS + 3 * STEP_MS, last=node.core.commit)
    assert node.core.role == Role.FOLLOWER


def lead_again(node: OneNode) -> None:
    node.lead()
    node.flush()
