"""Sessions at the control port: listed a page at a time after a quorum's word (V5), ended by an
EXPIRE that is answered at its commit (E8)."""

from __future__ import annotations

import pytest

from actors.ingress.session_requests import page_of
from actors.messages import READS_OF_INGRESS
from logstore import limits
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    DoneReply,
    EndSessionRequest,
    SessionsReply,
    SessionsRequest,
    SessionStateRequest,
)
from logstore.format.session_entries import ExpireEntry, OpenEntry, decode_expire
from logstore.format.session_list import SessionState, decode_sessions
from logstore.limits import SESSIONS_PAGE_MAX
from logstore.model import EntryKind, SequenceMode
from logstore.raft.effects import AdmissionClosed, ReadIndexAnswered, TermEnded
from logstore.raft.events import ReadIndexRequested
from logstore.session.grants import SessionLimits
from logstore.session.table import SessionTable
from tests.unit.ingress_stage import Stage, open_request


@pytest.fixture
def stage():
    stage = Stage()
    stage.lead()
    stage.commit()
    stage.heard()
    return stage


def asked_of_raft(stage):
    (asked,) = [each for each in stage.heard() if isinstance(each, ReadIndexRequested)]
    assert asked.request_id > READS_OF_INGRESS
    return asked.request_id


def confirm(stage, *, is_leader=True):
    stage.tell(ReadIndexAnswered(asked_of_raft(stage), is_leader, 0))


def ask(stage, request):
    client = stage.client()
    client.ask(request)
    return client


def page(stage, after=0, limit=0):
    client = ask(stage, SessionsRequest(after, limit))
    confirm(stage)
    reply = client.answer()
    assert isinstance(reply, SessionsReply), reply
    return reply.next_after, decode_sessions(reply.sessions)


def listed(stage):
    rows, after = [], 0
    while True:
        after, found = page(stage, after)
        rows.extend(found)
        if not after:
            return rows


def end(stage, producer_id):
    """An end from beginning to commit; what its client is told."""
    client = ask(stage, EndSessionRequest(producer_id))
    stage.accept_and_commit()
    return client.answer()


# --- lists ---


def test_a_session_is_listed_with_what_an_operator_wants_to_know(stage):
    nameless = stage.producer()
    named = stage.producer(name=b"query", mode=SequenceMode.MONOTONE)
    named.push(41)
    stage.accept_and_commit()
    rows = {row.producer_id: row for row in listed(stage)}
    assert rows.keys() == {nameless.id, named.id}
    row = rows[named.id]
    assert (row.name, row.mode, row.state) == (b"query", SequenceMode.MONOTONE, SessionState.OPEN)
    assert (row.producer_epoch, row.next_sequence) == (1, 42)
    assert (row.window, row.window_bytes) == (named.session.window, named.session.window_bytes)
    assert rows[nameless.id].name == b""


def test_a_list_comes_in_pages_that_leave_nobody_out_and_name_nobody_twice(stage):
    ids = sorted(stage.producer().id for _ in range(7))
    found, after = [], 0
    for _ in range(3):
        after, rows = page(stage, after, 3)
        found += [row.producer_id for row in rows]
    assert (after, found) == (0, ids)
    assert page(stage, ids[-1]) == (0, ())
    assert [row.producer_id for row in page(stage, ids[2], 1)[1]] == [ids[3]]


def test_a_page_is_bounded_whatever_is_asked_for(stage):
    table = stage.ingress.admission.table
    for number in range(1, SESSIONS_PAGE_MAX + 3):
        name = b"n" * 247 + b"%08d" % number
        table.apply_open(OpenEntry(number, 1, SequenceMode.DENSE, 1, 16, 1 << 22, name))
    for limit in (0, (1 << 32) - 1):
        client = ask(stage, SessionsRequest(0, limit))
        confirm(stage)
        reply = client.answer()
        assert len(reply.sessions) == SESSIONS_PAGE_MAX * (48 + 256)
        assert reply.next_after == SESSIONS_PAGE_MAX
    assert len(listed(stage)) == SESSIONS_PAGE_MAX + 2


def test_a_list_waits_for_a_quorum(stage):
    client = ask(stage, SessionsRequest(0, 0))
    assert client.answer() is None
    confirm(stage, is_leader=False)
    assert client.answer().code == ErrorCode.NOT_READY


def test_a_list_tells_nothing_that_is_not_committed(stage):
    opened = ask(stage, open_request())
    reader = ask(stage, SessionsRequest(0, 0))
    confirm(stage)
    stage.accept()
    assert reader.answer() is None
    stage.commit()
    (row,) = decode_sessions(reader.answer().sessions)
    assert row.producer_id == opened.answer().producer_id


def test_a_list_that_saw_what_was_forgotten_is_asked_for_elsewhere(stage):
    ask(stage, open_request())
    reader = ask(stage, SessionsRequest(0, 0))
    confirm(stage)
    stage.take_proposals()
    stage.tell(AdmissionClosed(1, 0, "transfer"))
    assert reader.answer().code == ErrorCode.NOT_READY


def test_ten_thousand_sessions_are_forty_pages():
    table = SessionTable(SessionLimits())
    ids = [number * 7_919 for number in range(1, 10_001)]
    for producer_id in reversed(ids):
        name = b"session %d" % producer_id
        table.apply_open(OpenEntry(producer_id, 1, SequenceMode.DENSE, 1, 16, 1 << 22, name))
    found, pages, after = [], 0, 0
    while True:
        reply = page_of(table, SessionsRequest(after, 0))
        found += [row.producer_id for row in decode_sessions(reply.sessions)]
        pages, after = pages + 1, reply.next_after
        if not after:
            break
    assert (pages, found) == (40, ids)


# --- ends ---


def test_an_end_is_an_entry_and_answered_once_it_is_committed(stage):
    producer = stage.producer(name=b"query", mode=SequenceMode.MONOTONE)
    producer.push(41)
    stage.accept_and_commit()
    client = ask(stage, EndSessionRequest(producer.id))
    (header,) = stage.accept()
    assert header.kind == EntryKind.EXPIRE
    assert decode_expire(stage.entries[-1][1]) == ExpireEntry(producer.id, 1)
    assert client.answer() is None, "accepted is not committed"
    stage.commit()
    assert client.answer() == DoneReply(producer.id)
    assert listed(stage) == []
    producer.acks()
    producer.push(42)
    ((_, rows),) = producer.acks()
    assert rows[0][3] == ErrorCode.UNKNOWN_PRODUCER
    again = stage.producer(name=b"query", mode=SequenceMode.MONOTONE)
    assert again.id != producer.id
    assert again.session.next_sequence == 0


def test_a_session_with_batches_under_way_is_not_ended(stage):
    producer = stage.producer()
    producer.push(0)
    client = ask(stage, EndSessionRequest(producer.id))
    reply = client.answer()
    assert reply.code == ErrorCode.OVERLOADED
    assert b"stop its producer" in reply.text
    stage.accept_and_commit()
    assert end(stage, producer.id) == DoneReply(producer.id)


def test_of_two_ends_the_second_is_told_that_there_is_no_session_once_the_first_is_committed(stage):
    producer = stage.producer()
    stage.heard()
    first = ask(stage, EndSessionRequest(producer.id))
    second = ask(stage, EndSessionRequest(producer.id))
    confirm(stage)
    stage.accept()
    assert second.answer() is None, "the first may yet be forgotten"
    stage.commit()
    assert first.answer() == DoneReply(producer.id)
    assert second.answer().code == ErrorCode.UNKNOWN_PRODUCER


def test_that_there_is_no_session_waits_for_a_quorum(stage):
    client = ask(stage, EndSessionRequest(7))
    assert client.answer() is None, "an old leader would not know better"
    confirm(stage)
    reply = client.answer()
    assert reply.code == ErrorCode.UNKNOWN_PRODUCER
    assert b"producer 7" in reply.text


def test_an_end_that_raft_did_not_take_is_refused_for_certain(stage):
    producer = stage.producer()
    client = ask(stage, EndSessionRequest(producer.id))
    stage.take_proposals()
    stage.tell(AdmissionClosed(1, 1, "transfer"))
    assert client.answer().code == ErrorCode.NOT_READY


def test_the_outcome_of_an_end_is_unknown_when_the_term_ends_before_its_commit(stage):
    producer = stage.producer()
    client = ask(stage, EndSessionRequest(producer.id))
    stage.accept()
    stage.tell(AdmissionClosed(1, 2, "step_down"), TermEnded(1))
    assert client.answer().code == ErrorCode.OUTCOME_UNKNOWN


def test_an_opening_that_raft_did_not_take_is_refused_for_certain(stage):
    client = ask(stage, open_request(name=b"name"))
    stage.take_proposals()
    stage.tell(AdmissionClosed(1, 0, "transfer"))
    assert client.answer().code == ErrorCode.NOT_READY


def test_the_outcome_of_an_opening_is_unknown_when_the_term_ends_before_its_commit(stage):
    """The next leader may commit it: then an epoch has begun that its producer does not know."""
    client = ask(stage, open_request(name=b"name"))
    stage.accept()
    stage.tell(AdmissionClosed(1, 1, "step_down"), TermEnded(1))
    reply = client.answer()
    assert reply.code == ErrorCode.OUTCOME_UNKNOWN
    assert b"ask again" in reply.text


def test_denials_that_wait_for_a_commit_leave_room_for_other_requests(stage):
    """While nothing is committed, each of many producers asks again every two seconds."""
    producer = stage.producer()
    ask(stage, EndSessionRequest(producer.id))
    stage.accept()
    question = SessionStateRequest(producer.id, producer.epoch, 2)
    waiting = [ask(stage, question) for _ in range(limits.HELD_ANSWERS_MAX)]
    assert ask(stage, question).answer().code == ErrorCode.NOT_READY
    assert {client.answer() for client in waiting} == {None}
    stage.commit()
    assert {client.answer().code for client in waiting} == {ErrorCode.UNKNOWN_PRODUCER}
    assert ask(stage, question).answer().code == ErrorCode.UNKNOWN_PRODUCER


def test_an_end_waits_for_a_snapshot_that_is_due(stage):
    producer = stage.producer()
    stage.ingress.admission._snapshots._every_batches = 0
    assert ask(stage, EndSessionRequest(producer.id)).answer().code == ErrorCode.OVERLOADED


def test_who_does_not_lead_sends_lists_and_ends_elsewhere():
    stage = Stage()
    stage.identify()
    for request in (SessionsRequest(0, 0), EndSessionRequest(7)):
        assert ask(stage, request).answer().code == ErrorCode.NOT_LEADER


def test_who_is_not_answered_in_time_is_told_so_and_nobody_later(stage):
    producer = stage.producer()
    stage.heard()
    ender = ask(stage, EndSessionRequest(producer.id))
    reader = ask(stage, SessionsRequest(0, 0))
    asked = asked_of_raft(stage)
    stage.clock.now_ns += limits.REQUEST_TIMEOUT_NS
    stage.work()
    assert [each.answer().code for each in (ender, reader)] == [ErrorCode.TIMED_OUT] * 2
    stage.tell(ReadIndexAnswered(asked, True, 0))
    stage.accept_and_commit()
    assert [each.answer() for each in (ender, reader)] == [None, None]
    assert listed(stage) == [], "its outcome was unknown, and is this"
