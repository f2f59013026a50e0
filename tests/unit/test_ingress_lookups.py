"""What a session of a name has committed: told by the leader alone, changing nothing (V5)."""

from __future__ import annotations

import pytest

from actors import messages
from actors.messages import READS_OF_INGRESS
from logstore import limits
from logstore.errors import ErrorCode
from logstore.format.client_messages import SessionLookupRequest, SessionStateReply
from logstore.model import SequenceMode
from logstore.raft.effects import AdmissionClosed, Committed, ReadIndexAnswered, TermEnded
from logstore.raft.events import ReadIndexRequested
from tests.unit.ingress_stage import Stage, ack_rows, open_request
from tests.unit.test_ingress_snapshots import lead_again

OK = ErrorCode.OK


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


@pytest.mark.parametrize("is_accepted", [False, True])
def test_what_is_under_way_is_told_once_it_is_committed(stage, is_accepted):
    producer = stage.producer(name=b"query-1", mode=SequenceMode.MONOTONE)
    producer.push(4)
    stage.accept_and_commit()
    producer.push(7)
    stage.heard()
    if is_accepted:
        stage.accept()
    client, request_id = ask(stage)
    stage.tell(ReadIndexAnswered(request_id, True, 0))
    assert client.answer() is None, "it is not committed yet"
    producer.push(9)  # too late for this answer
    if not is_accepted:
        stage.accept()
    stage.commit()
    reply = client.answer()
    assert (reply.producer_id, reply.producer_epoch, reply.next_sequence) == (producer.id, 1, 8)
    assert [row[:4] for row in ack_rows(reply)] == [
        (4, 1, 2, ErrorCode.OK),
        (7, 3, 2, ErrorCode.OK),
    ]


def test_an_opening_is_told_once_it_is_committed(stage):
    client = stage.client()
    client.ask(open_request(name=b"query-1"))
    stage.heard()
    reader, request_id = ask(stage)
    stage.tell(ReadIndexAnswered(request_id, True, 0))
    assert reader.answer() is None, "a leader that is lost takes the session along"
    stage.accept_and_commit()
    assert reader.answer().producer_id == client.answer().producer_id


@pytest.mark.parametrize("end", [TermEnded(1), AdmissionClosed(1, 1, "transfer")])
def test_what_was_not_committed_in_time_is_asked_for_elsewhere(stage, end):
    producer = stage.producer(name=b"query-1", mode=SequenceMode.MONOTONE)
    producer.push(4)
    stage.heard()
    client, request_id = ask(stage)
    stage.tell(ReadIndexAnswered(request_id, True, 0))
    stage.tell(end)
    assert client.answer().code in (ErrorCode.NOT_LEADER, ErrorCode.NOT_READY)


def test_more_answers_than_can_be_held_are_asked_for_later(stage, monkeypatch):
    monkeypatch.setattr(limits, "HELD_ANSWERS_MAX", 1)
    stage.producer(name=b"query-1", mode=SequenceMode.MONOTONE).push(4)
    stage.heard()
    (held, first), (refused, second) = ask(stage), ask(stage)
    stage.tell(ReadIndexAnswered(first, True, 0), ReadIndexAnswered(second, True, 0))
    assert held.answer() is None
    assert refused.answer().code == ErrorCode.NOT_READY
    stage.accept_and_commit()
    assert held.answer().next_sequence == 5


def test_an_answer_that_is_too_late_keeps_no_place_from_others(stage, monkeypatch):
    monkeypatch.setattr(limits, "HELD_ANSWERS_MAX", 1)
    producer = stage.producer(name=b"query-1", mode=SequenceMode.MONOTONE)
    producer.push(4)
    stage.heard()
    for _ in range(2):
        client, request_id = ask(stage)
        stage.tell(ReadIndexAnswered(request_id, True, 0))
        assert client.answer() is None, "it has a place"
        stage.clock.now_ns += limits.REQUEST_TIMEOUT_NS
        stage.work()
        assert client.answer().code == ErrorCode.TIMED_OUT


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


def ask_many(stage, count):
    """So many clients, and what raft is to confirm for them."""
    clients = [stage.client() for _ in range(count)]
    for client in clients:
        client.ask(SessionLookupRequest(b"query-1"))
    return clients, [each.request_id for each in stage.heard()]


def told_in_a_turn(stage, clients, *news):
    """How many clients are told something in the do_work that hears this news; there is no rest
    before the next one."""
    for each in news:
        assert stage.raft_ring.offer(messages.encode(each))
    assert stage.ingress.do_work(stage.clock.now_ns) >= stage.ingress.full_turn
    told = [client.answer() for client in clients]
    return [each for each in told if each is not None]


def test_v6_a_turn_answers_some_of_many_requests(stage):
    """A window of 4,096 rows takes 4 ms, and a client may have a thousand requests for it wait: in
    one turn a leader that shares ingress' thread lost its office."""
    stage.producer(name=b"query-1")
    stage.heard()
    clients, asked = ask_many(stage, 40)
    told = told_in_a_turn(stage, clients, *(ReadIndexAnswered(each, True, 0) for each in asked))
    assert len(told) == 16
    stage.work()
    told += [client.answer() for client in clients]
    assert [each.producer_id for each in told if each is not None] == [1001] * 40


def test_v6_a_turn_answers_some_of_many_requests_that_wait_for_a_commit(stage):
    producer = stage.producer(name=b"query-1")
    producer.push(0)
    stage.accept()
    stage.heard()
    clients, asked = ask_many(stage, 40)
    stage.tell(*(ReadIndexAnswered(each, True, 0) for each in asked))
    assert not [each for each in clients if each.answer() is not None]
    news = Committed(stage.term, len(stage.entries), stage.level)
    assert len(told_in_a_turn(stage, clients, news)) == 16
    stage.work()
    assert sum(each.answer() is not None for each in clients) == 24


def test_v5_all_that_wait_are_sent_on_when_the_gen_ends_whatever_follows(stage):
    """The answers were of its table."""
    producer = stage.producer(name=b"query-1")
    producer.push(0)
    stage.accept()
    stage.heard()
    clients, asked = ask_many(stage, 40)
    stage.tell(*(ReadIndexAnswered(each, True, 0) for each in asked))
    lead_again(stage, accepted=2)
    assert {each.answer().code for each in clients} == {ErrorCode.NOT_READY}
