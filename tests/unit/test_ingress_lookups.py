"""What a session of a name has committed: told by the leader alone, changing nothing (V5)."""

from __future__ import annotations

import pytest

from actors.messages import READS_OF_INGRESS
from logstore.errors import ErrorCode
from logstore.format.client_messages import SessionLookupRequest, SessionStateReply
from logstore.model import SequenceMode
from logstore.raft.effects import ReadIndexAnswered, TermEnded
from logstore.raft.events import ReadIndexRequested
from tests.unit.ingress_stage import Stage, ack_rows


@pytest.fixture
def stage():
    stage = Stage()
    stage.lead()
    stage.commit()
    stage.heard()
    return stage


def ask(stage, name=b"query-1"):
    """The client that asked, and the read index that ingress wants confirmed."""
    client = stage.client()
    client.ask(SessionLookupRequest(name))
    (asked,) = stage.heard()
    assert isinstance(asked, ReadIndexRequested)
    return client, asked.request_id


def look_up(stage, name=b"query-1"):
    client, request_id = ask(stage, name)
    assert client.answer() is None, "nobody has confirmed yet"
    stage.tell(ReadIndexAnswered(request_id, True, 0))
    return client.answer()


def test_committed_batches_are_told_and_those_under_way_are_not(stage):
    producer = stage.producer(name=b"query-1", mode=SequenceMode.MONOTONE)
    producer.push(4)
    stage.accept_and_commit()
    producer.push(7)
    stage.accept()
    stage.heard()
    reply = look_up(stage)
    assert (reply.producer_id, reply.producer_epoch, reply.next_sequence) == (producer.id, 1, 8)
    committed, under_way = ack_rows(reply)
    assert committed[:4] == (4, 1, 2, ErrorCode.OK)
    assert under_way[:4] == (7, 0, 2, ErrorCode.OUTCOME_UNKNOWN)
    stage.commit()
    stage.heard()
    assert ack_rows(look_up(stage))[1][:4] == (7, 3, 2, ErrorCode.OK)


def test_looking_up_fences_nobody(stage):
    producer = stage.producer(name=b"query-1", mode=SequenceMode.MONOTONE)
    stage.heard()
    assert look_up(stage).next_sequence == 0
    producer.push(1)
    stage.accept_and_commit()
    assert [rows[0][3] for _, rows in producer.acks()] == [ErrorCode.OK]


def test_a_name_without_a_session_is_told_as_such(stage):
    assert look_up(stage, b"nobody") == SessionStateReply(0, 0, 0, b"")
    assert look_up(stage, b"") == SessionStateReply(0, 0, 0, b"")


def test_who_does_not_lead_or_no_longer_does_sends_elsewhere(stage):
    follower = Stage()
    follower.identify()
    client = follower.client()
    client.ask(SessionLookupRequest(b"query-1"))
    assert client.answer().code == ErrorCode.NOT_LEADER
    client, request_id = ask(stage)
    stage.tell(ReadIndexAnswered(request_id, False, 0))
    assert client.answer().code in (ErrorCode.NOT_LEADER, ErrorCode.NOT_READY)
    client, request_id = ask(stage)
    stage.tell(TermEnded(1))
    stage.tell(ReadIndexAnswered(request_id, True, 0))
    assert client.answer().code in (ErrorCode.NOT_LEADER, ErrorCode.NOT_READY)


def test_an_answer_that_comes_after_the_timeout_is_dropped(stage):
    client, request_id = ask(stage)
    assert request_id > READS_OF_INGRESS
    stage.clock.now_ns += 11_000_000_000
    stage.work()
    assert client.answer().code == ErrorCode.TIMED_OUT
    stage.tell(ReadIndexAnswered(request_id, True, 0))
    assert client.answer() is None
