"""SAFETY section 11, and what of sections 2, 3 and 7 the core keeps: C, S, F, M9, G3."""

from __future__ import annotations

import pytest

from logstore.errors import InvariantViolated
from logstore.format.entry import Row
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
from logstore.limits import ROWS_KEPT
from logstore.model import Index, NodeId, Role, Term
from logstore.raft import transfer
from logstore.raft.effects import (
    AdmissionClosed,
    Admit,
    Persist,
    SaveMeta,
    Settle,
    TransferAnswered,
)
from logstore.raft.events import (
    DiskFullChanged,
    MetaPersisted,
    Persisted,
    Tick,
    TransferRequested,
)
from logstore.raft.log_view import Position
from tests.paper.one_node import OneNode, of_type, rows_of, sent
from tests.paper.virtual_node import MS


def ask(term: int, last: int, last_term: int, *, is_transfer: bool = False) -> VoteRequest:
    return VoteRequest(Term(term), Index(last), Term(last_term), is_transfer)


# --- C1 ---


def test_c1_a_node_that_was_cut_off_disturbs_nobody() -> None:
    node = OneNode(term=3)
    node.follow(2, 3)
    assert sent(node.hear(3, PreVoteRequest(Term(4), Index(9), Term(9))), PreVoteReply) == [
        (3, PreVoteReply(Term(3), False))
    ]
    assert not node.hear(3, ask(4, 9, 9))
    assert node.core.term == 3
    leader = OneNode()
    leader.lead()
    assert not leader.hear(3, ask(2, 9, 9))
    assert leader.core.role == Role.LEADER


def test_c1_a_replica_that_has_started_asks_after_a_heartbeat_or_two_and_disturbs_no_leader() -> (
    None
):
    node = OneNode(rows=rows_of([1]), term=1)
    heartbeat_ns = node.config.heartbeat_ns
    assert heartbeat_ns <= node.core.deadline_ns - node.now_ns < 2 * heartbeat_ns
    requests = sent(node.tick(2 * heartbeat_ns // MS), PreVoteRequest)
    assert [peer for peer, _ in requests] == [2, 3]
    assert node.core.term == 1
    assert node.core.deadline_ns - node.now_ns >= node.config.election_timeout_ns
    hearing = OneNode(rows=rows_of([1]), term=1)
    hearing.follow(2, 1)
    for _, request in requests:
        assert sent(hearing.hear(3, request), PreVoteReply) == [(3, PreVoteReply(Term(1), False))]


def test_c1_stickiness_ends_with_an_election_timeout_of_silence() -> None:
    node = OneNode(term=3)
    node.follow(2, 3)
    node.tick(499)
    assert not sent(node.hear(3, ask(4, 0, 0)), VoteReply)
    node.tick(1)
    node.hear(3, ask(4, 0, 0))
    assert sent(node.flush_meta(), VoteReply) == [(3, VoteReply(Term(4), True))]


def test_c1_a_candidate_needs_a_log_at_least_as_new() -> None:
    for last, last_term, is_granted in ((2, 2, False), (3, 1, False), (3, 2, True), (1, 3, True)):
        node = OneNode(rows=rows_of([1, 1, 2]), term=3)
        pre = node.hear(2, PreVoteRequest(Term(4), Index(last), Term(last_term)))
        assert sent(pre, PreVoteReply)[0][1].is_granted == is_granted
        node.hear(2, ask(4, last, last_term))
        assert sent(node.flush_meta(), VoteReply) == [(2, VoteReply(Term(4), is_granted))]


def test_c1_one_save_makes_term_and_vote_of_a_step_durable() -> None:
    node = OneNode()
    assert of_type(node.hear(2, ask(5, 0, 0)), SaveMeta) == [SaveMeta(1, Term(5), NodeId(2))]


def test_c1_a_granted_vote_in_an_older_term_is_still_told_when_durable() -> None:
    node = OneNode()
    node.hear(2, ask(5, 0, 0))
    node.hear(3, ask(6, 0, 0))
    first = node.step(MetaPersisted(1))
    assert sent(first, VoteReply) == [(2, VoteReply(Term(5), True))]
    assert sent(node.step(MetaPersisted(2)), VoteReply) == [(3, VoteReply(Term(6), True))]


def test_c1_a_refused_pre_vote_with_a_newer_term_is_followed() -> None:
    node = OneNode(term=1)
    node.time_out()
    node.hear(2, PreVoteReply(Term(5), False))
    assert (node.core.role, node.core.term) == (Role.FOLLOWER, 5)


def test_c1_replies_that_nobody_waits_for_do_nothing() -> None:
    node = OneNode(term=1)
    assert not node.hear(2, PreVoteReply(Term(2), True))
    assert not node.hear(2, VoteReply(Term(1), True))
    assert not node.hear(2, HeartbeatReply(Term(1), 1, Index(0), Index(0), Index(0)))
    assert not node.hear_answer(2, AppendPersisted(Term(1), Index(0)))
    assert sent(node.hear(2, ask(0, 0, 0)), VoteReply) == [(2, VoteReply(Term(1), False))]


def test_c1_a_pre_candidate_that_votes_for_another_stops_its_own_attempt() -> None:
    node = OneNode(term=1)
    node.time_out()
    node.hear(2, ask(1, 0, 0))
    node.flush_meta()
    node.hear(3, PreVoteReply(Term(2), True))
    assert (node.core.role, node.core.vote) == (Role.FOLLOWER, 2)


def test_c1_a_campaign_overtaken_by_a_newer_term_asks_for_no_votes() -> None:
    node = OneNode()
    node.campaign()
    node.hear(2, ask(9, 9, 9))
    assert not sent(node.flush_meta(), VoteRequest)


# --- C2 ---


def test_c2_timeout_now_makes_the_follower_of_its_leader_campaign_at_once() -> None:
    node = OneNode(term=3)
    assert not node.hear(2, TimeoutNow(Term(3))), "nobody leads"
    node.follow(2, 3)
    assert not node.hear(3, TimeoutNow(Term(3))), "it does not lead"
    assert not node.hear(2, TimeoutNow(Term(2))), "an older term"
    node.hear(2, TimeoutNow(Term(3)))
    assert (node.core.role, node.core.term) == (Role.CANDIDATE, 4)
    assert {request.is_transfer for _, request in sent(node.flush_meta(), VoteRequest)} == {True}


def test_c2_timeout_now_waits_until_the_targets_match_is_the_last_entry() -> None:
    node = OneNode()
    node.lead_and_commit()
    node.propose(0)
    assert not sent(node.step(TransferRequested(1, NodeId(3))), TimeoutNow)
    assert node.core.deadline_ns <= node.now_ns + 50 * MS
    assert not sent(node.hear_match(2, 2), TimeoutNow)
    assert [peer for peer, _ in sent(node.hear_match(3, 2), TimeoutNow)] == [3]


def test_c2_with_no_target_named_the_nearest_voter_takes_over() -> None:
    node = OneNode(voters=(1, 2, 3, 4))
    node.lead()
    node.hear_match(4, 1)
    node.hear_match(3, 1)
    effects = node.step(TransferRequested(1, NodeId(0)))
    assert [peer for peer, _ in sent(effects, TimeoutNow)] == [3]


def test_c2_answers_say_what_became_of_the_transfer() -> None:
    node = OneNode(voters=(1, 2, 3))
    follower = node.step(TransferRequested(1, NodeId(2)))
    node.lead_and_commit()
    itself = node.step(TransferRequested(2, NodeId(1)))
    node.step(TransferRequested(3, NodeId(2)))
    elsewhere = node.hear_heartbeat(3, term=9)
    answers = of_type([*follower, *itself, *elsewhere], TransferAnswered)
    assert [(each.request_id, each.is_done) for each in answers] == [
        (1, False), (2, True), (3, False),
    ]  # fmt: skip


def test_c2_a_refused_transfer_says_what_keeps_each_voter_from_taking_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transfer, "TRANSFER_LAG_MAX", 0)
    node = OneNode(voters=(1, 2, 3))
    node.lead_and_commit()
    node.propose(0)
    for number in range(2, 60):
        node.hear_reply(3, number)
        node.tick(10)
    silent = "node 2 has not answered within an election timeout"
    lags = "node 3 is 1 entries behind, and a transfer waits for 0 at most"
    for target, reason in [(2, silent), (3, lags), (0, f"{silent}; {lags}")]:
        (answer,) = of_type(node.step(TransferRequested(1, NodeId(target))), TransferAnswered)
        assert (answer.is_done, answer.reason) == (False, reason)


@pytest.mark.parametrize(
    ("has_entry", "faulty", "what"),
    [(True, 0, ": it lacks 1 entries"), (False, 1, ": entries of its log are damaged")],
)
def test_c2_a_transfer_that_ran_out_of_time_says_what_the_target_lacks(
    has_entry: bool, faulty: int, what: str
) -> None:
    node = OneNode()
    node.lead_and_commit()
    if has_entry:
        node.propose(0)
    node.hear_reply(2, 2, faulty=faulty)
    node.step(TransferRequested(1, NodeId(2)))
    (answer,) = of_type(node.tick(500), TransferAnswered)
    assert answer.reason == f"node 2 did not take over within an election timeout{what}"


def test_c2_leadership_lost_before_timeout_now_or_for_long_is_a_failed_transfer() -> None:
    node = OneNode()
    node.lead_and_commit()
    node.propose(0)
    node.step(TransferRequested(1, NodeId(2)))
    assert not of_type(node.hear_heartbeat(3, term=2), TransferAnswered)[0].is_done
    again = OneNode()
    again.lead_and_commit()
    again.step(TransferRequested(1, NodeId(2)))
    again.hear(2, ask(2, 9, 9, is_transfer=True))
    assert again.core.deadline_ns <= again.now_ns + again.config.election_timeout_ns
    assert not of_type(again.tick(500), TransferAnswered)[0].is_done


# --- C4 is in FAULTS R10 and in the transcript of reads; the clock itself: ---


def test_c4_a_monotonic_clock_that_goes_back_stops_the_process() -> None:
    node = OneNode()
    with pytest.raises(InvariantViolated, match="went back"):
        node.step(Tick(node.now_ns - 1))


# --- S9 ---


def test_s9_a_full_leader_closes_admission_and_hands_over() -> None:
    node = OneNode()
    node.lead_and_commit()
    node.hear_reply(3, 1)
    effects = node.step(DiskFullChanged(True))
    assert of_type(effects, AdmissionClosed)[0].reason == "disk_full"
    assert [peer for peer, _ in sent(effects, TimeoutNow)] == [3]
    effects = node.tick(250) + node.hear_reply(2, 1) + node.tick(260)
    assert not of_type(effects, Admit), "the transfer failed, the disk is still full"
    assert of_type(node.step(DiskFullChanged(False)), Admit)


def test_s9_a_full_follower_takes_no_new_entry_but_votes_and_answers() -> None:
    rows = rows_of([1, 1])
    node = OneNode(rows=rows[:1], term=1)
    node.follow(2, 1)
    node.step(DiskFullChanged(True))
    assert [type(each) for each in node.hear_append(2, rows[1])] == [Settle]
    assert sent(node.hear_append(2, rows[0]), AppendAccepted)
    assert sent(node.hear_heartbeat(2, term=1), HeartbeatReply)
    node.step(DiskFullChanged(False))
    assert of_type(node.hear_append(2, rows[1]), Persist)


# --- S3, S4, F4, F8, M9, G3 ---


def test_s3_the_same_entry_with_another_chain_or_lsn_stops_the_follower() -> None:
    for other in (rows_of([1, 1], noops=[1]), rows_of([1, 1], size=11)):
        node = OneNode(rows=rows_of([1, 1]), term=1)
        node.follow(2, 1)
        changed = Position.after(other[1])
        ours = Position.after(rows_of([1, 1])[1])
        if changed != ours:
            with pytest.raises(InvariantViolated, match="different log"):
                node.hear_heartbeat(2, term=1, prev=other[1])
    node = OneNode(rows=rows_of([1, 1]), term=1)
    node.follow(2, 1)
    with pytest.raises(InvariantViolated, match="different log"):
        node.hear_append(2, rows_of([1, 1], noops=[2])[1])


def test_s3_a_committed_entry_of_another_term_stops_the_follower() -> None:
    node = OneNode(rows=rows_of([1, 1, 1]), term=3, commit_floor=3)
    node.follow(2, 3)
    with pytest.raises(InvariantViolated, match="committed in term 1"):
        node.hear_append(2, rows_of([1, 2, 3])[2])


def test_s4_followers_take_the_leaders_lsns_as_they_are() -> None:
    node = OneNode(term=1)
    node.follow(2, 1)
    for row in rows_of([1, 1, 1], noops=[2]):
        (persist,) = of_type(node.hear_append(2, row), Persist)
        assert (persist.header, persist.chain) == (row.header, row.chain)


def test_f4_answers_of_requests_never_made_stop_the_core() -> None:
    node = OneNode()
    with pytest.raises(InvariantViolated):
        node.step(Persisted(1))
    with pytest.raises(InvariantViolated):
        node.step(MetaPersisted(1))


def test_f4_match_is_the_lower_of_persisted_and_verified() -> None:
    node = OneNode(rows=rows_of([1, 1, 1]), term=2)
    node.follow(2, 2)
    effects = node.hear_append(2, rows_of([1, 1])[1])
    assert [each.index for _, each in sent(effects, AppendPersisted)] == [2]


def test_m9_only_the_newest_rows_stay_in_memory_and_older_ones_come_from_the_files() -> None:
    node = OneNode(voters=(1,))
    effects = node.lead()
    for prop in range(ROWS_KEPT + 1_100):
        effects += node.propose(prop)
    node.files.rows = [Row(each.header, each.chain) for each in of_type(effects, Persist)]
    node.flush()
    in_memory = len(node.core._state.log._rows)
    assert ROWS_KEPT <= in_memory < ROWS_KEPT + 1_024
    for index in (1, 2, node.core.last_index - in_memory, node.core.last_index):
        assert node.core.row(Index(index)) == node.files.rows[index - 1]


def test_g3_a_reject_never_leads_below_the_log_start() -> None:
    rows = rows_of([1, 1, 1, 2])
    node = OneNode(rows=rows, term=2, start=Position.after(rows[1]), commit_floor=2)
    node.lead()
    for last, hint in ((0, 0), (4, 9)):
        answer = AppendReject(node.core.term, 1, Index(4), Index(last), Term(hint), Index(1))
        (rewind,) = node.hear_answer(2, answer)
        assert rewind.next_index == 3
    # of a peer that said nothing, nothing is presumed: it may end below the log start
    assert dict(sent(node.tick(50), Heartbeat))[2].prev_index == 0
