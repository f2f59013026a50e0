"""SAFETY sections 9 and 10, as far as the core keeps them: replication (W) and proposals (E3,
E4)."""

from __future__ import annotations

import pytest

from logstore.errors import InvariantViolated
from logstore.format.peer_messages import (
    NO_STREAM,
    Append,
    AppendAccepted,
    AppendPersisted,
    AppendReject,
    Heartbeat,
    HeartbeatReply,
)
from logstore.limits import DEFERRED_EVENTS_MAX
from logstore.model import EntryKind, Index, NodeId, Role, Term
from logstore.raft.effects import (
    Accepted,
    AdmissionClosed,
    Admit,
    Answer,
    Committed,
    Describe,
    Lead,
    Persist,
    Rewind,
    Settle,
    StopLeading,
    StreamAccepted,
    TermEnded,
    Truncate,
)
from logstore.raft.events import (
    AppendReceived,
    DiskFullChanged,
    IngressStalled,
    Proposed,
    ReplicatorGone,
    TransferRequested,
)
from tests.paper.one_node import OneNode, of_type, rows_of, sent, streams


def reject(term: int, stream: int, prev: int, last: int, hint: tuple[int, int]) -> AppendReject:
    return AppendReject(Term(term), stream, Index(prev), Index(last), Term(hint[0]), Index(hint[1]))


def test_w1_a_follower_answers_accepted_at_once_and_persisted_after_the_flush() -> None:
    node = OneNode(term=1)
    node.follow(2, 1)
    effects = node.hear_append(2, rows_of([1])[0], stream=5)
    assert sent(effects, AppendAccepted) == [(2, AppendAccepted(Term(1), 5, Index(1)))]
    assert not sent(effects, AppendPersisted)
    assert sent(node.flush(), AppendPersisted) == [(2, AppendPersisted(Term(1), Index(1)))]


def test_w1_a_stream_is_rejected_once_and_the_rest_of_it_dropped_in_silence() -> None:
    node = OneNode(term=1)
    node.follow(2, 1)
    rows = rows_of([1, 1, 1])
    first = node.hear_append(2, rows[1], stream=5)
    assert len(sent(first, AppendReject)) == 1
    assert of_type(first, StreamAccepted) == [StreamAccepted(Term(1), 5, Index(0), True)]
    assert [type(each) for each in node.hear_append(2, rows[0], stream=5)] == [Settle]
    assert sent(node.hear_append(2, rows[2], stream=6), AppendReject)
    for row in rows[:2]:
        assert sent(node.hear_append(2, row, stream=7), AppendAccepted)


def test_w1_appends_of_an_older_stream_are_dropped_in_silence() -> None:
    node = OneNode(term=1)
    node.follow(2, 1)
    rows = rows_of([1, 1])
    node.hear_append(2, rows[0], stream=9)
    assert [type(each) for each in node.hear_append(2, rows[1], stream=8)] == [Settle]
    assert node.core.last_index == 1


def test_w1_a_new_stream_hears_the_match_again() -> None:
    node = OneNode(term=1)
    node.follow(2, 1)
    row = rows_of([1])[0]
    node.hear_append(2, row, stream=1)
    node.flush()
    assert sent(node.hear_append(2, row, stream=2), AppendPersisted)


def test_w1_an_append_of_an_older_term_is_rejected_in_the_name_of_no_stream() -> None:
    """Its leader may lead the term of the answer, too, in another incarnation, whose streams have
    the same ids."""
    node = OneNode(rows=rows_of([4, 5, 5]), term=6)
    effects = node.hear_append(2, rows_of([4, 5, 5, 5])[3], term=5, stream=1 << 32)
    assert sent(effects, AppendReject) == [(2, reject(6, NO_STREAM, 3, 3, (6, 4)))]


def test_w1_a_leader_takes_a_reject_of_no_stream_for_none_of_its_own() -> None:
    """Its replicator passes it on if that has not heard yet that the term has begun."""
    node = OneNode(rows=rows_of([4]), term=5)
    node.lead()
    for last in (0, 1, 6):
        assert not node.hear_answer(2, reject(6, NO_STREAM, last, last, (6, last + 1)))


def test_w1_a_restarted_peer_gets_a_new_stream_after_its_match() -> None:
    node = OneNode()
    effects = node.lead()
    old = streams(effects)[2].stream
    node.hear_match(2, 1)
    alive = HeartbeatReply(node.core.term, 1, Index(1), Index(0), Index(0))
    assert not of_type(node.hear(2, alive, boot=1), Lead)
    (lead,) = of_type(node.hear(2, alive, boot=2), Lead)
    assert (lead.peer, lead.next_index, lead.stream > old) == (2, 2, True)
    assert not of_type(node.hear(2, alive, boot=1), Lead), "an older word is only late"


def test_w1_a_new_replicator_gets_a_stream_above_every_id_the_old_one_used() -> None:
    node = OneNode()
    assert not node.step(ReplicatorGone(NodeId(2)))
    used = streams(node.lead())
    (lead,) = of_type(node.step(ReplicatorGone(NodeId(2))), Lead)
    assert lead.stream > max(each.stream for each in used.values()) + 2**31
    assert (lead.next_index, lead.last_index, lead.persist_seq) == (1, 1, 1)


def test_w2_match_never_falls_within_a_term() -> None:
    node = OneNode(rows=rows_of([1, 1, 1]), term=1)
    node.lead()
    node.hear_match(2, 3)
    node.hear_match(2, 1)
    assert node.core.match[NodeId(2)] == 3


def test_w2_a_reject_leads_to_match_plus_one_at_least_by_term_hints() -> None:
    node = OneNode(rows=rows_of([1, 1, 2, 2, 5, 5]), term=6)
    node.lead()
    cases = {  # (last, hint term, hint index): where to go on
        (2, 1, 1): 3,  # a short log
        (6, 3, 4): 5,  # ours has 5 at index 6, theirs 3 from 4 on: our last at most 3 is 4
        (6, 6, 2): 2,  # a stale tail of a higher term from index 2 on
        (6, 2, 3): 5,
        (0, 0, 0): 1,
    }
    for (last, term, first), expected in cases.items():
        answer = reject(7, 1, 6, last, (term, first))
        (rewind,) = of_type(node.hear_answer(2, answer), Rewind)
        assert rewind.next_index == expected, answer
    node.hear_match(2, 4)
    (rewind,) = of_type(node.hear_answer(2, reject(7, 1, 6, 6, (6, 2))), Rewind)
    assert rewind.next_index == 5
    (rewind,) = of_type(node.hear_answer(2, reject(7, 1, 3, 6, (6, 2))), Rewind)
    assert rewind.next_index == 5


def test_w2_a_follower_that_lost_acknowledged_entries_raises_an_alarm_and_no_busy_loop() -> None:
    node = OneNode()
    node.lead_and_commit()
    effects = node.hear_answer(2, reject(1, 1, 1, 0, (0, 0)))
    assert not of_type(effects, Rewind)
    assert "lost data" in effects[0].text


def test_w2_claims_beyond_the_log_stop_the_leader() -> None:
    node = OneNode()
    node.lead()
    with pytest.raises(InvariantViolated):
        node.hear_match(2, 2)
    with pytest.raises(InvariantViolated):
        node.hear_answer(2, reject(1, 1, 9, 0, (0, 0)))


def test_w3_only_a_real_conflict_inside_the_received_range_truncates() -> None:
    node = OneNode(rows=rows_of([1, 2, 2, 2]), term=3)
    node.follow(2, 3)
    mine = rows_of([1, 2, 2, 2, 3])
    for row in mine[1:3]:
        assert not of_type(node.hear_append(2, row), Truncate)
    assert of_type(node.hear_append(2, rows_of([1, 2, 2, 3])[3]), Truncate)


def test_w4_streams_and_descriptors_say_from_when_on_the_files_hold_an_entry() -> None:
    node = OneNode(rows=rows_of([1, 1]), term=1)
    effects = node.lead()
    lead = streams(effects)[2]
    assert (lead.next_index, lead.last_index, lead.persist_seq) == (3, 2, 0)
    (persist,), (described,) = of_type(effects, Persist), of_type(effects, Describe)
    assert (described.header.index, described.persist_seq) == (3, persist.seq)


def test_w4_the_end_of_leadership_stops_every_stream_once() -> None:
    node = OneNode()
    node.lead()
    assert of_type(node.hear_heartbeat(2, term=5), StopLeading) == [StopLeading(Term(1))]
    assert not of_type(node.hear_heartbeat(2, term=6), StopLeading)


def test_w5_an_entry_that_does_not_add_up_stops_the_follower() -> None:
    node = OneNode(rows=rows_of([1]), term=1)
    node.follow(2, 1)
    with pytest.raises(InvariantViolated, match="add up"):
        node.hear_append(2, rows_of([1, 1], size=11)[1])
    other = OneNode(term=1)
    other.follow(2, 1)
    append = Append(Term(1), 1, Index(0), rows_of([1])[0].header)
    with pytest.raises(InvariantViolated, match="3 bytes"):
        other.core.step(AppendReceived(NodeId(2), 1, append, ring_start=0, ring_end=3))


def test_w8_raft_orders_one_heartbeat_a_peer_and_interval() -> None:
    node = OneNode()
    node.lead_and_commit()
    for _ in range(4):
        beats = sent(node.tick(25), Heartbeat) + sent(node.tick(25), Heartbeat)
        assert [peer for peer, _ in beats] == [2, 3]
        node.hear_reply(2, 1)


def test_w8_commit_news_goes_out_at_once_to_a_peer_that_has_everything() -> None:
    node = OneNode()
    node.lead_and_commit()
    node.propose(0)
    node.flush()
    news = sent(node.hear_match(2, 2), Heartbeat)
    assert [(peer, beat.commit, beat.prev_index) for peer, beat in news] == [(2, 2, 2)]
    assert [peer for peer, _ in sent(node.hear_match(3, 2), Heartbeat)] == [3]
    node.propose(1)
    node.propose(2)
    node.flush()
    assert not sent(node.hear_match(2, 3), Heartbeat), "an append will carry it"


def test_w8_heartbeats_carry_the_prev_tuple_at_the_peers_match() -> None:
    rows = rows_of([1, 1, 1])
    node = OneNode(rows=rows, term=1)
    node.lead()
    node.hear_match(2, 3)
    beats = dict(sent(node.tick(50), Heartbeat))
    assert (beats[2].prev_index, beats[2].prev_chain) == (3, rows[2].chain)
    assert beats[3].prev_index == 0


def test_a_heartbeat_that_shows_an_unknown_match_is_answered_with_it() -> None:
    """The answer after the flush may be lost, and nothing more may come to be answered."""
    rows = rows_of([1, 1])
    node = OneNode(rows=rows, term=1)
    node.follow(2, 1)
    node.hear_heartbeat(2, term=1, prev=rows[1])
    again = sent(node.hear_heartbeat(2, term=1, prev=rows[0]), AppendPersisted)
    assert [each.index for _, each in again] == [2]
    assert not sent(node.hear_heartbeat(2, term=1, prev=rows[1]), AppendPersisted)


def test_a_leader_of_an_older_term_is_told_once_a_stream() -> None:
    node = OneNode(term=5)
    row = rows_of([1])[0]
    (told,) = sent(node.hear_append(2, row, term=4, stream=3), AppendReject)
    assert (told[0], told[1].term) == (2, 5)
    assert not sent(node.hear_append(2, row, term=4, stream=3), AppendReject)
    assert sent(node.hear_append(2, row, term=4, stream=4), AppendReject)
    assert sent(node.hear_heartbeat(2, term=4), HeartbeatReply)[0][1].term == 5
    leader = OneNode()
    leader.lead()
    assert of_type(leader.hear_answer(2, told[1]), TermEnded)
    assert leader.core.term == 5


def test_appends_of_a_term_not_yet_durable_wait_in_a_bounded_list() -> None:
    node = OneNode()
    rows = rows_of([1] * (DEFERRED_EVENTS_MAX + 3))
    effects = []
    for row in rows:
        effects += node.hear_append(2, row, term=1)
    assert len(of_type(effects, Settle)) == 3
    assert node.core.last_index == 0
    assert len(of_type(node.flush_meta(), Persist)) == DEFERRED_EVENTS_MAX
    assert node.core.dropped == 3


def test_a_deferred_append_of_a_term_that_passed_meanwhile_is_dropped() -> None:
    node = OneNode()
    node.hear_append(2, rows_of([1])[0], term=1)
    node.hear_heartbeat(3, term=2)
    effects = node.flush_meta()
    assert of_type(effects, Settle)
    assert not of_type(effects, Persist)


# --- E ---


def test_e3_only_the_open_gen_and_the_next_prop_are_accepted() -> None:
    node = OneNode()
    (admit,) = of_type(node.lead(), Admit)
    assert (admit.term, admit.gen, admit.last_index, admit.persist_seq) == (1, 1, 1, 1)
    (accepted,) = of_type(node.propose(0, count=3), Accepted)
    assert accepted == Accepted(Term(1), 1, 0, Index(2), 1)
    (accepted,) = of_type(node.propose(1), Accepted)
    assert (accepted.index, accepted.first_lsn) == (3, 4)
    assert [type(each) for each in node.propose(2, gen=0)] == [Settle]
    with pytest.raises(InvariantViolated, match="prop 5 came instead of 2"):
        node.propose(5)


def test_e3_after_admission_closed_every_later_prop_of_the_gen_is_dropped_and_settled() -> None:
    node = OneNode()
    node.lead()
    node.propose(0)
    assert of_type(node.step(DiskFullChanged(True)), AdmissionClosed) == [
        AdmissionClosed(1, 1, "disk_full")
    ]
    for prop in (1, 2):
        assert [type(each) for each in node.propose(prop, gen=1)] == [Settle]
    (admit,) = of_type(node.step(DiskFullChanged(False)), Admit)
    assert (admit.gen, admit.last_index, admit.persist_seq) == (2, 2, 2)
    assert [type(each) for each in node.propose(3, gen=1)] == [Settle]
    assert of_type(node.propose(0, gen=2), Accepted)


def test_e3_gens_grow_across_terms_and_reasons_are_named() -> None:
    node = OneNode(voters=(1,))
    node.lead()
    assert of_type(node.step(IngressStalled()), AdmissionClosed)[0].reason == "step_down"
    assert of_type(node.lead(), Admit)[0].gen == 2
    peers = OneNode()
    peers.lead_and_commit()
    effects = peers.step(TransferRequested(1, NodeId(2)))
    assert of_type(effects, AdmissionClosed)[0].reason == "transfer"


def test_e3_a_group_that_cannot_be_stops_the_leader() -> None:
    node = OneNode(voters=(1,))
    node.lead()
    impossible = ((EntryKind.DATA, 0, 9), (EntryKind.OPEN, 1, 9), (EntryKind.DATA, 1, 0))
    for kind, count, end in impossible:
        with pytest.raises(InvariantViolated, match="cannot be"):
            node.core.step(Proposed(Term(1), 1, 0, kind, count, 0, 0, end, 0))


def test_e3_entries_without_lsns_take_an_index_only() -> None:
    node = OneNode(voters=(1,))
    node.lead()
    effects = node.core.step(Proposed(Term(1), 1, 0, EntryKind.OPEN, 0, 0, 0, 9, 0))
    (persist,) = of_type(effects, Persist)
    assert (persist.header.index, persist.header.next_lsn) == (2, 1)


def test_e4_neither_accepted_nor_committed_follows_the_end_of_a_term() -> None:
    node = OneNode()
    node.lead()
    node.propose(0)
    effects = node.hear_heartbeat(2, term=2)
    assert of_type(effects, TermEnded) == [TermEnded(Term(1))]
    assert of_type(effects, AdmissionClosed) == [AdmissionClosed(1, 1, "step_down")]
    later = node.flush_meta() + node.flush()
    later += node.hear_answer(3, AppendPersisted(Term(1), Index(2))) + node.propose(1, gen=1)
    assert not of_type(later, Accepted)
    assert not of_type(later, Committed)


def test_e4_committed_names_the_term_and_is_cumulative() -> None:
    node = OneNode(voters=(1,))
    node.lead()
    node.propose(0)
    node.propose(1)
    assert of_type(node.flush(), Committed) == [Committed(Term(1), Index(3))]


def test_g2_timestamps_never_go_back_and_sizes_add_up() -> None:
    node = OneNode(rows=rows_of([1, 1]), term=1)
    (noop,) = of_type(node.lead(), Persist)
    headers = [noop.header]
    node.hear(2, HeartbeatReply(Term(2), 1, Index(2), Index(0), Index(0), 60))
    for prop, wall in enumerate((50, 40, 60)):
        (persist,) = of_type(node.propose(prop, wall_ns=wall, size=7), Persist)
        headers.append(persist.header)
    assert [each.timestamp_ns for each in headers] == [2, 50, 50, 60]
    assert [each.cumulative_bytes for each in headers] == [20, 27, 34, 41]
    assert [each.body_size for each in headers] == [0, 7, 7, 7]


def test_every_range_of_a_leader_is_settled_when_its_flush_is_answered() -> None:
    node = OneNode()
    node.lead()
    for prop in range(3):
        node.propose(prop)
    node.hear_heartbeat(2, term=9)
    assert len(node.unsettled) == 3
    assert len(of_type(node.flush(), Settle)) == 3
    assert not node.unsettled
    assert node.core.role == Role.FOLLOWER


def test_messages_under_this_replicas_own_number_are_dropped_and_settled() -> None:
    node = OneNode()
    assert [type(each) for each in node.hear_append(1, rows_of([1])[0], term=1)] == [Settle]
    assert not node.hear_heartbeat(1, term=4)
    assert not of_type(node.hear_answer(1, AppendAccepted(Term(0), 1, Index(0))), Answer)
    assert (node.core.term, node.core.dropped) == (0, 3)


def test_a_leader_that_is_no_member_as_far_as_this_replica_knows_is_followed() -> None:
    """This replica may be the one that is behind."""
    node = OneNode()
    node.hear_heartbeat(9, term=4)
    assert (node.core.term, node.core.leader, node.core.dropped) == (4, 9, 0)


def test_answers_of_a_replica_that_is_no_member_count_for_nothing() -> None:
    node = OneNode(voters=(1, 2, 3))
    node.lead()
    node.flush()
    node.hear_match(9, 1)
    node.hear_reply(9, 1)
    assert node.core.commit == 0
    assert set(node.core.match) == {2, 3}
