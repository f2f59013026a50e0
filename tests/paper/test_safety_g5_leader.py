"""SAFETY G5, G7: a leader sends its log start to who lacks it, and the log start waits for them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from logstore.format.peer_messages import (
    AppendAccepted,
    AppendPersisted,
    AppendReject,
    Heartbeat,
    HeartbeatReply,
    TimeoutNow,
)
from logstore.limits import INSTALL_HOLD_ELECTION_TIMEOUTS
from logstore.model import Index, Term
from logstore.raft.effects import HoldLogStart, Lead, Log, Rewind
from logstore.raft.events import DiskFullChanged, ReplicatorGone
from logstore.raft.stream import FollowerStream, SendInstall
from tests.paper.one_node import OneNode, of_type, rows_of, sent, streams
from tests.paper.virtual_node import MS, whole_start

ROWS = rows_of([1, 1, 1, 2, 2, 3, 3, 3])
STREAM = 1 << 32


def leader(start: int = 5) -> OneNode:
    node = OneNode(rows=ROWS, trimmed_to=start, term=3, commit_floor=start)
    node.lead()
    return node


def rejected(node: OneNode, stream: int, *, prev: int = 5) -> list[Any]:
    reject = AppendReject(node.core.term, stream, Index(prev), Index(2), Term(1), Index(1))
    return node.hear_answer(3, reject)


def test_g5_a_follower_that_rejects_the_log_start_gets_it() -> None:
    node = leader()
    first = node.core._state.lead_count << 32
    (rewind,) = of_type(rejected(node, first, prev=8), Rewind)
    assert rewind.next_index == 6
    effects = rejected(node, first + 1)
    (lead,) = of_type(effects, Lead)
    assert lead.stream > first + 1
    assert (lead.peer, lead.next_index, lead.install) == (3, 6, whole_start(ROWS[4]))
    assert "node 3 ends at entry 2 and lacks entry 5" in of_type(effects, Log)[0].text
    assert node.core.catching_up == [3]
    # heartbeats go on, and it has caught up once it has what there was
    assert {peer for peer, _ in sent(node.time_out(), Heartbeat)} == {2, 3}
    for index, left in ((5, [3]), (8, [3]), (9, [])):
        node.hear_match(3, index)
        assert node.core.catching_up == left


def test_g5_so_does_one_whose_stream_the_log_start_passes() -> None:
    node = OneNode(rows=ROWS, term=3, commit_floor=8)
    node.lead()
    node.flush()
    node.hear_match(2, 9)
    lead = streams(node.move_start(6))[3]
    assert (lead.next_index, lead.install) == (7, None)  # it may have the entry there
    again = of_type(rejected(node, lead.stream, prev=6), Lead)[0]
    assert again.install == whole_start(ROWS[5])


def test_g5_the_log_start_goes_again_to_a_new_replicator_and_to_a_peer_that_restarted() -> None:
    node = leader()
    rejected(node, streams(node.step(ReplicatorGone(3)))[3].stream)
    for effects in (
        node.step(ReplicatorGone(3)),
        node.hear_answer(3, AppendPersisted(node.core.term, Index(0)), boot=1)
        + node.hear_answer(3, AppendPersisted(node.core.term, Index(0)), boot=2),
    ):
        lead = streams(effects)[3]
        assert lead.next_index == 6
        assert of_type(rejected(node, lead.stream), Lead)[0].install is not None


def test_g5_a_leader_that_cannot_read_its_first_entry_has_nothing_to_send() -> None:
    node = leader()
    node.files.unreadable.add(6)
    stream = streams(node.step(ReplicatorGone(3)))[3].stream
    effects = rejected(node, stream)
    assert not of_type(effects, Lead)
    assert of_type(effects, Log)


@pytest.mark.parametrize("known_ns", [0, 5, 500])
def test_g5_the_bytes_come_from_the_first_entry_and_the_stamp_is_not_after_its(
    known_ns: int,
) -> None:
    """Damage may hide the entry at log start from the leader's recovery."""
    node = OneNode(rows=ROWS, trimmed_to=5, term=3, commit_floor=5)
    log = node.core._state.log
    log.start_bytes, log.start_timestamp_ns = 0, known_ns
    whole = log.whole_start()
    assert whole is not None
    assert whole.cumulative_bytes == ROWS[4].header.cumulative_bytes
    assert whole.timestamp_ns == min(known_ns, ROWS[5].header.timestamp_ns)


# --- a follower whose disk is full ---


def told_full(node: OneNode, *, last: int = 8, is_full: bool = True, boot: int = 1) -> list[Any]:
    reply = HeartbeatReply(node.core.term, 1, Index(last), Index(0), Index(0))
    return node.hear(3, replace(reply, is_disk_full=is_full), boot=boot)


def test_g5_a_follower_whose_disk_is_full_gets_the_log_start_once() -> None:
    """The TRIM may lie beyond what it has room for."""
    node = leader()
    lead = streams(told_full(node))[3]
    assert (lead.next_index, lead.install) == (6, whole_start(ROWS[4]))
    assert node.core.catching_up == []  # it has that entry
    assert not streams(told_full(node))
    assert not streams(told_full(node, is_full=False))
    assert streams(told_full(node))[3].install is not None


def test_g5_and_each_log_start_from_then_on() -> None:
    node = OneNode(rows=ROWS, term=3, commit_floor=8)
    node.lead_and_commit()
    assert not streams(told_full(node))  # the log was never trimmed
    leads = streams(node.move_start(6))
    assert {peer: (lead.next_index, lead.install) for peer, lead in leads.items()} == {
        3: (10, whole_start(ROWS[5]))
    }
    told_full(node, is_full=False)
    assert not streams(node.move_start(7))


def test_g5_so_does_a_new_replicator_and_a_full_follower_that_restarts() -> None:
    """It may have answered, and crashed before META had it."""
    node = leader()
    told_full(node)
    assert streams(node.step(ReplicatorGone(3)))[3].install == whole_start(ROWS[4])
    assert streams(told_full(node, boot=2))[3].install == whole_start(ROWS[4])


def test_g5_a_full_follower_that_ends_below_is_seen_to_catch_up() -> None:
    """It takes no append that it could reject; it drops its log, which makes space."""
    node = leader()
    assert streams(told_full(node, last=3))[3].install == whole_start(ROWS[4])
    assert node.core.catching_up == [3]


def test_g5_a_leader_that_cannot_read_its_first_entry_streams_to_a_full_follower_as_ever() -> None:
    node = leader()
    node.files.unreadable.add(6)
    lead = streams(told_full(node, last=3))[3]
    assert (lead.next_index, lead.install, node.core.catching_up) == (6, None, [])


def test_q3_a_leader_that_finds_its_first_entry_damaged_says_so_and_hands_over() -> None:
    """The follower could begin nowhere, and its leader would not know why."""
    node = leader()
    node.flush()
    node.hear_match(2, 9)
    node.hear_reply(2, 1)
    node.files.unreadable.add(6)
    effects = rejected(node, streams(node.step(ReplicatorGone(3)))[3].stream)
    texts = [each.text for each in of_type(effects, Log)]
    assert "entry 6 cannot be read here, and without it" in texts[0]
    assert "node 1: entry 6 is damaged on disk" in texts
    assert (node.core.faulty, of_type(effects, Lead)) == (((6, 6),), [])
    assert sent(effects, TimeoutNow) == [(2, TimeoutNow(node.core.term))]


def test_g5_a_log_start_that_is_about_to_move_is_no_damage() -> None:
    """META is ahead of raft: what follows raft's log start is gone already."""
    node = leader()
    node.files.start = Index(6)
    effects = rejected(node, streams(node.step(ReplicatorGone(3)))[3].stream)
    assert (node.core.faulty, of_type(effects, Lead)) == ((), [])


# --- how long the log start waits for it ---


def holds(effects: list[Any]) -> list[Index | None]:
    return [hold.index for hold in of_type(effects, HoldLogStart)]


def test_g7_the_log_start_waits_for_what_the_follower_needs_next_until_it_has_caught_up() -> None:
    node = leader()
    assert not holds(node.time_out())
    effects = rejected(node, streams(node.step(ReplicatorGone(3)))[3].stream)
    assert holds(effects) == [5]
    assert not holds(node.time_out())
    node.hear_match(2, 9)
    node.hear_match(3, 7)
    assert holds(node.time_out()) == [7]
    node.hear_match(3, 9)
    assert holds(node.time_out()) == [None]
    assert not holds(node.time_out())


@pytest.mark.parametrize("full", [1, 2, 3])
def test_g7_never_on_a_full_disk(full: int) -> None:
    """A TRIM is the way out of it, on whichever replica it is."""
    node = leader()
    rejected(node, streams(node.step(ReplicatorGone(3)))[3].stream)
    if full == 1:
        node.step(DiskFullChanged(True))
    else:
        node.hear(full, replace(full_reply(node), is_disk_full=True))
    assert holds(node.time_out()) == [None]


def test_g7_not_for_a_follower_that_is_gone() -> None:
    node = leader()
    assert holds(rejected(node, streams(node.step(ReplicatorGone(3)))[3].stream)) == [5]
    timeout_ns = node.core._state.config.election_timeout_ns
    silent_ns = INSTALL_HOLD_ELECTION_TIMEOUTS * timeout_ns
    silent_since_ns = node.now_ns
    while node.now_ns <= silent_since_ns + silent_ns - timeout_ns:
        node.hear_match(2, 9)
        assert not holds(node.time_out())
    found = []
    while node.now_ns <= silent_since_ns + silent_ns:
        node.hear_match(2, 9)
        found += holds(node.time_out())
    assert found == [None]
    node.hear_match(3, 7)
    assert holds(node.time_out()) == [7]


def full_reply(node: OneNode) -> HeartbeatReply:
    return HeartbeatReply(node.core.term, 1, Index(2), Index(0), Index(0))


# --- its stream ---


def stream_to(node: int = 3) -> FollowerStream:
    stream = FollowerStream(
        node, mode="streaming", window_bytes=1_000, window_entries=8, resend_timeout_ns=300 * MS
    )
    start = whole_start(ROWS[4])
    stream.on_lead(Lead(node, Term(4), STREAM, Index(6), Index(8), 3, Index(8), start))
    return stream


def test_g5_a_stream_sends_the_log_start_and_waits_for_its_answer() -> None:
    stream = stream_to()
    step = stream.next_send(3, 0)
    assert isinstance(step, SendInstall)
    assert (step.install.stream, step.install.start_index) == (STREAM, 5)
    assert stream.next_send(3, 0) is None
    assert stream.deadline_ns == 300 * MS
    answer = AppendPersisted(Term(4), Index(5))
    assert stream.on_answer(1, answer, MS) == [answer]
    step = stream.next_send(3, MS)
    assert not isinstance(step, SendInstall)
    assert step is not None
    assert step.index == 6


@pytest.mark.parametrize("index", [5, 7])
def test_g5_a_peer_that_has_the_entry_accepts_it_and_what_it_has(index: int) -> None:
    stream = stream_to()
    stream.next_send(3, 0)
    stream.on_answer(1, AppendAccepted(Term(4), STREAM, Index(index)), MS)
    step = stream.next_send(3, MS)
    assert not isinstance(step, SendInstall)
    assert step is not None
    assert step.index == index + 1


def test_g5_a_peer_that_is_known_to_have_more_goes_on_after_that() -> None:
    """A full one, whose match the leader knows. Its match says nothing of the log start, also where
    what was sent before is flushed only now."""
    stream = stream_to()
    stream.next_send(3, 0)
    stream.on_answer(1, AppendPersisted(Term(4), Index(6)), MS)
    stream.on_lead(
        Lead(3, Term(4), STREAM + 9, Index(8), Index(8), 3, Index(8), whole_start(ROWS[4]))
    )
    assert isinstance(stream.next_send(3, MS), SendInstall)
    stream.on_answer(1, AppendPersisted(Term(4), Index(7)), MS)
    assert stream.next_send(3, MS) is None
    stream.on_answer(1, AppendAccepted(Term(4), STREAM + 9, Index(7)), MS)
    step = stream.next_send(3, MS)
    assert not isinstance(step, SendInstall)
    assert step is not None
    assert step.index == 8


def test_g5_an_answer_below_the_log_start_does_not_end_the_wait() -> None:
    stream = stream_to()
    stream.next_send(3, 0)
    stream.on_answer(1, AppendAccepted(Term(4), STREAM, Index(4)), MS)
    stream.on_answer(1, AppendPersisted(Term(4), Index(4)), MS)
    assert stream.next_send(3, MS) is None


def test_m5_a_log_start_that_was_lost_is_sent_again_in_a_new_stream() -> None:
    stream = stream_to()
    stream.next_send(3, 0)
    stream.on_tick(300 * MS)
    step = stream.next_send(3, 300 * MS)
    assert isinstance(step, SendInstall)
    assert step.install.stream == STREAM + 1
    stream.on_answer(1, AppendAccepted(Term(4), STREAM + 1, Index(3)), 301 * MS)
    stream.on_answer(2, AppendAccepted(Term(4), STREAM + 1, Index(3)), 302 * MS)  # it restarted
    step = stream.next_send(3, 303 * MS)
    assert isinstance(step, SendInstall)
    assert step.install.stream == STREAM + 2


def test_g5_a_new_order_to_lead_may_come_without_a_log_start() -> None:
    stream = stream_to()
    stream.next_send(3, 0)
    stream.on_lead(Lead(3, Term(4), STREAM + 9, Index(6), Index(8), 3, Index(8)))
    assert not isinstance(stream.next_send(3, 0), SendInstall)
