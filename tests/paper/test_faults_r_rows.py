"""FAULTS section 1.4: the traps of the protocol, row by row. Each name begins with its row."""

from __future__ import annotations

import pytest

from logstore.errors import InvariantViolated
from logstore.format.peer_messages import (
    AppendAccepted,
    AppendPersisted,
    AppendReject,
    Heartbeat,
    HeartbeatReply,
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from logstore.limits import TERM_JUMP_MAX
from logstore.model import Index, NodeId, Role, Term
from logstore.raft.effects import (
    Admit,
    Committed,
    Log,
    Persist,
    ReadIndexAnswered,
    SaveMeta,
    Send,
    Settle,
    TransferAnswered,
    Truncate,
    Visible,
)
from logstore.raft.events import MetaPersisted, ReadIndexRequested, TransferRequested
from logstore.raft.log_view import Position
from tests.paper.one_node import OneNode, of_type, rows_of, sent
from tests.paper.virtual_cluster import VirtualCluster


def ask(term: int, *, last: int = 0, last_term: int = 0, is_transfer: bool = False) -> VoteRequest:
    return VoteRequest(Term(term), Index(last), Term(last_term), is_transfer)


def test_r1_an_old_term_entry_on_a_majority_is_not_committed_by_counting() -> None:
    """Figure 8: S1 is back as leader of term 4 and brings entry 2 of term 2 to a majority."""
    node = OneNode(voters=(1, 2, 3, 4, 5), rows=rows_of([1, 2]), term=3, commit_floor=1)
    node.lead()
    assert node.core.term == 4
    node.flush()
    for peer in (2, 3, 4):
        assert not of_type(node.hear_match(peer, 2), Committed)
    assert node.core.commit == 1
    node.hear_match(2, 3)
    assert of_type(node.hear_match(3, 3), Committed) == [Committed(Term(4), Index(3))]


def test_r2_a_vote_is_durable_before_it_is_told() -> None:
    node = OneNode()
    effects = node.hear(2, ask(1))
    assert not sent(effects, VoteReply)
    assert of_type(effects, SaveMeta) == [SaveMeta(1, Term(1), NodeId(2))]
    assert sent(node.flush_meta(), VoteReply) == [(2, VoteReply(Term(1), True))]


def test_r2_after_a_crash_the_durable_vote_binds() -> None:
    node = OneNode(term=1, vote=2)
    assert sent(node.hear(3, ask(1)), VoteReply) == [(3, VoteReply(Term(1), False))]
    assert sent(node.hear(2, ask(1)), VoteReply) == [(2, VoteReply(Term(1), True))]


def test_r2_a_candidate_asks_nobody_before_its_own_vote_is_durable() -> None:
    node = OneNode()
    assert not sent(node.campaign(), VoteRequest)
    assert len(sent(node.flush_meta(), VoteRequest)) == 2


def test_r2_an_earlier_save_does_not_make_the_candidates_vote_durable() -> None:
    node = OneNode()
    node.hear_heartbeat(2, term=4)
    node.tick(2_000)
    node.hear(2, PreVoteReply(Term(5), True))
    assert not sent(node.step(MetaPersisted(1)), VoteRequest)
    assert len(sent(node.step(MetaPersisted(2)), VoteRequest)) == 2


def test_r3_no_answer_tells_of_a_term_the_disk_could_forget() -> None:
    node = OneNode()
    row = rows_of([5])[0]
    early = node.hear_append(2, row, term=5) + node.hear_heartbeat(2, term=5)
    assert not of_type(early, Send)
    assert not sent(early, HeartbeatReply | AppendAccepted)
    late = node.flush_meta()
    assert sent(late, HeartbeatReply)
    assert sent(late, AppendAccepted)


def test_r4_stepping_down_in_the_same_term_keeps_the_vote() -> None:
    node = OneNode()
    node.lead()
    for _ in range(12):
        node.tick(50)
    assert node.core.role != Role.LEADER
    assert (node.core.term, node.core.vote) == (1, 1)
    assert sent(node.hear(2, ask(1, last=9, last_term=1)), VoteReply) == [
        (2, VoteReply(Term(1), False))
    ]


def test_r4_losing_to_another_leader_of_the_term_keeps_the_vote() -> None:
    node = OneNode()
    node.campaign()
    node.flush_meta()
    node.hear_heartbeat(2, term=1)
    assert (node.core.role, node.core.vote) == (Role.FOLLOWER, 1)


def test_r5_the_leaders_commit_is_clamped_to_what_it_verified_here() -> None:
    node = OneNode(rows=rows_of([1, 1, 1, 1]), term=2)
    node.follow(2, 2)
    node.hear_append(2, rows_of([1])[0], commit=4)
    assert (node.core.last_index, node.core.commit) == (4, 1)


def test_r6_an_answer_carries_the_verified_index_not_the_last_one() -> None:
    node = OneNode(rows=rows_of([1, 1, 1, 1]), term=2)
    node.follow(2, 2)
    effects = node.hear_append(2, rows_of([1, 1])[1])
    assert [each.index for _, each in sent(effects, AppendAccepted)] == [2]
    assert [each.index for _, each in sent(effects, AppendPersisted)] == [2]


def test_r7_a_matching_prefix_never_truncates_a_longer_log() -> None:
    rows = rows_of([1, 1, 1, 1])
    node = OneNode(rows=rows, term=1)
    node.follow(2, 1)
    effects = node.hear_append(2, rows[1], stream=7)
    assert not of_type(effects, Truncate)
    assert of_type(effects, Settle)
    assert node.core.last_index == 4


def test_r8_a_previous_index_below_the_log_start_matches() -> None:
    rows = rows_of([1, 1, 1, 1, 1])
    node = OneNode(rows=rows, term=1, start=Position.after(rows[2]), commit_floor=3)
    node.follow(2, 1)
    for row in rows[:3]:
        effects = node.hear_append(2, row)
        assert sent(effects, AppendAccepted)
        assert of_type(effects, Settle)
    assert not of_type(node.hear_append(2, rows[3]), Truncate | Persist)
    assert (node.core.last_index, node.core.verified) == (5, 4)


def test_r9_a_new_leader_shows_and_acknowledges_nothing_before_its_no_op_commits() -> None:
    node = OneNode(rows=rows_of([1, 1, 1]), term=1, commit_floor=1)
    node.lead()
    effects = node.flush() + node.hear_match(2, 3) + node.step(ReadIndexRequested(1))
    for kind in (Visible, Committed, ReadIndexAnswered):
        assert not of_type(effects, kind)
    effects = node.hear_match(2, 4)
    assert of_type(effects, Visible) == [Visible(3, Index(4))]
    assert of_type(effects, Committed)


def test_r10_after_a_pause_a_leader_answers_no_read_from_before_it() -> None:
    node = OneNode()
    node.lead_and_commit()
    before = sent(node.step(ReadIndexRequested(1)), Heartbeat)[0][1].round
    after = sent(node.tick(200), Heartbeat)[0][1].round
    assert not of_type(node.hear_reply(2, before), ReadIndexAnswered)
    assert of_type(node.hear_reply(2, after), ReadIndexAnswered)


def test_r10_a_leader_paused_beyond_the_election_timeout_leads_no_more() -> None:
    node = OneNode()
    node.lead_and_commit()
    node.step(ReadIndexRequested(1))
    effects = node.tick(5_000)
    assert of_type(effects, ReadIndexAnswered) == [ReadIndexAnswered(1, False, 0)]
    assert node.core.role != Role.LEADER


def test_r11_a_round_of_an_earlier_leadership_confirms_nothing() -> None:
    node = OneNode()
    node.lead_and_commit()
    old = HeartbeatReply(node.core.term, 900, Index(1), Index(0), Index(0))
    node.hear_heartbeat(2, term=2)
    node.flush_meta()
    node.lead_and_commit()
    node.step(ReadIndexRequested(1))
    assert not of_type(node.hear(2, old), ReadIndexAnswered)


def test_r17_a_transfer_to_a_silent_or_lagging_target_is_refused() -> None:
    node = OneNode(rows=rows_of([1] * 1_100), term=1)
    node.lead()
    (answer,) = of_type(node.step(TransferRequested(1, NodeId(2))), TransferAnswered)
    assert not answer.is_done
    for peer, what in ((9, "no voter"), (0, "behind")):
        (answer,) = of_type(node.step(TransferRequested(1, NodeId(peer))), TransferAnswered)
        assert what in answer.reason
    assert node.core.open_gen == 1


def test_r17_a_transfer_that_does_not_happen_times_out_and_the_leader_resumes() -> None:
    node = OneNode()
    node.lead_and_commit()
    assert sent(node.step(TransferRequested(1, NodeId(2))), TimeoutNow)
    assert node.core.open_gen is None
    effects = node.tick(250) + node.hear_reply(3, 1) + node.tick(260)
    assert [each.is_done for each in of_type(effects, TransferAnswered)] == [False]
    assert [each.gen for each in of_type(effects, Admit)] == [2]
    assert node.core.role == Role.LEADER


def test_r18_equal_timeouts_do_not_last_for_ever() -> None:
    """Timeouts are drawn anew for each attempt, and differ between nodes of different seeds."""
    node = OneNode(seed=1)
    waits = set()
    for _ in range(20):
        node.time_out()
        waits.add(node.core.deadline_ns - node.now_ns)
    timeout_ns = node.config.election_timeout_ns
    assert len(waits) == 20
    assert all(timeout_ns <= wait < 2 * timeout_ns for wait in waits)


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 6])
def test_r18_a_fresh_cluster_finds_a_leader(nodes: int) -> None:
    cluster = VirtualCluster(nodes, seed=nodes)
    cluster.heal_and_settle()
    assert cluster.leader is not None


def test_r19_a_term_far_above_ours_is_dropped_and_alarmed_once() -> None:
    node = OneNode(term=7)
    far = Term(7 + TERM_JUMP_MAX + 1)
    effects = node.hear(2, VoteRequest(far, Index(9), Term(9), True))
    assert [type(each) for each in effects] == [Log]
    assert node.hear_heartbeat(2, term=2**63) == []
    assert of_type(node.hear_append(2, rows_of([1])[0], term=far), Settle)
    assert not node.hear_answer(2, AppendAccepted(far, 1, Index(1)))
    assert (node.core.term, node.core.dropped) == (7, 4)
    node.tick(600)
    assert of_type(node.hear_heartbeat(2, term=2**63), Log)


def test_r19_the_same_alarm_is_raised_again_once_a_minute() -> None:
    node = OneNode(term=7)
    said_ms = []
    for now_ms in range(0, 125_000, 100):
        said_ms += [now_ms for _ in of_type(node.hear_heartbeat(2, term=2**63), Log)]
        node.tick(100)
    assert said_ms == [0, 60_000, 120_000]


def test_r19_a_jump_within_the_bound_is_followed() -> None:
    node = OneNode(term=7)
    node.hear_heartbeat(2, term=7 + TERM_JUMP_MAX)
    assert node.core.term == 7 + TERM_JUMP_MAX


@pytest.mark.parametrize(("voters", "needed"), [(2, 2), (4, 3), (6, 4)])
def test_r22_half_of_an_even_cluster_elects_and_commits_nothing(voters: int, needed: int) -> None:
    node = OneNode(voters=range(1, voters + 1))
    node.time_out()
    for peer in range(2, needed):
        node.hear(peer, PreVoteReply(Term(1), True))
        assert node.core.role == Role.PRE_CANDIDATE
    node.hear(needed, PreVoteReply(Term(1), True))
    node.flush_meta()
    for peer in range(2, needed):
        node.hear(peer, VoteReply(Term(1), True))
        assert node.core.role == Role.CANDIDATE
    node.hear(needed, VoteReply(Term(1), True))
    node.flush()
    for peer in range(2, needed):
        assert not of_type(node.hear_match(peer, 1), Committed)
    assert of_type(node.hear_match(needed, 1), Committed)


def test_r23_the_leader_counts_itself_only_for_what_its_own_flush_covers() -> None:
    node = OneNode()
    node.lead()
    assert not of_type(node.hear_match(2, 1), Committed)
    assert of_type(node.flush(), Committed)
    node.propose(0)
    node.propose(1)
    node.hear_match(2, 3)
    assert of_type(node.flush(2), Committed) == [Committed(Term(1), Index(2))]


def test_r24_an_entry_rewritten_while_its_flush_was_under_way_is_not_claimed() -> None:
    node = OneNode(term=1)
    node.follow(2, 1)
    node.hear_append(2, rows_of([1])[0])
    node.follow(3, 2)
    node.hear_append(3, rows_of([2])[0])
    assert not sent(node.flush(1), AppendPersisted)
    assert node.core.persisted == 0
    node.follow(2, 3)
    node.hear_append(2, rows_of([3])[0])
    assert not sent(node.flush(3), AppendPersisted)
    assert [each.index for _, each in sent(node.flush(5), AppendPersisted)] == [1]


def test_r25_a_truncation_at_an_entry_without_lsns_leaves_the_numbering_whole() -> None:
    """Entry 2 is a no-op here and data there: both begin at LSN 2, and no LSN is skipped."""
    node = OneNode(rows=rows_of([1, 2, 2], noops=[2]), term=3)
    node.follow(2, 3)
    rows = rows_of([1, 3, 3])
    (persist,) = of_type(node.hear_append(2, rows[1]), Persist)
    assert (persist.header.first_lsn, persist.header.next_lsn) == (2, 3)
    (persist,) = of_type(node.hear_append(2, rows[2]), Persist)
    assert persist.header.first_lsn == 3
    back = OneNode(rows=rows_of([1, 2, 2]), term=3)
    back.follow(2, 3)
    (persist,) = of_type(back.hear_append(2, rows_of([1, 3], noops=[2])[1]), Persist)
    assert (persist.header.first_lsn, persist.header.next_lsn) == (2, 2)


def test_n14_and_n15_late_appends_and_rejects_move_nothing_back() -> None:
    node = OneNode()
    node.lead_and_commit()
    late = AppendReject(node.core.term, 1 << 32, Index(0), Index(1), Term(0), Index(0))
    node.hear_answer(2, late)
    node.hear_match(2, 0)
    assert node.core.match[NodeId(2)] == 1


def test_n16_a_vote_of_an_earlier_term_does_not_count() -> None:
    node = OneNode()
    node.campaign()
    node.flush_meta()
    node.time_out()
    node.hear(2, PreVoteReply(Term(2), True))
    node.flush_meta()
    assert (node.core.term, node.core.role) == (2, Role.CANDIDATE)
    node.hear(3, VoteReply(Term(1), True))
    assert node.core.role == Role.CANDIDATE


def test_two_leaders_in_one_term_stop_whoever_sees_them() -> None:
    node = OneNode()
    node.follow(2, 3)
    with pytest.raises(InvariantViolated, match="two leaders"):
        node.hear_heartbeat(3, term=3)


def test_n3_a_pre_vote_moves_no_term() -> None:
    node = OneNode(term=2)
    effects = node.hear(2, PreVoteRequest(Term(3), Index(0), Term(0)))
    assert sent(effects, PreVoteReply) == [(2, PreVoteReply(Term(3), True))]
    assert (node.core.term, node.core.vote) == (2, 0)
