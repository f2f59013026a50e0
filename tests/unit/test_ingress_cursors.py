"""Cursors at the control port: proposed, answered at commit, read after a quorum's word (V5)."""

from __future__ import annotations

import pytest

from actors.messages import READS_OF_INGRESS
from actors.topology import Counter
from logstore import limits
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    CursorsReply,
    CursorsRequest,
    DoneReply,
    SetCursorRequest,
)
from logstore.format.cursor_entries import (
    ANY_LSN,
    Cursor,
    Hold,
    decode_cursor,
    decode_cursors,
    encode_cursor,
)
from logstore.format.session_snapshot import decode_session_part
from logstore.model import EntryKind
from logstore.raft.effects import AdmissionClosed, Admit, ReadIndexAnswered, TermEnded
from logstore.raft.events import ReadIndexRequested
from tests.unit.ingress_stage import Stage


@pytest.fixture
def stage():
    return leading()


def leading(**limits):
    stage = Stage(**limits)
    stage.lead()
    stage.commit()
    stage.heard()
    return stage


def set_request(name=b"a", lsn=7, expected=ANY_LSN, *, is_held=False):
    return SetCursorRequest(lsn, expected, is_held, name)


def keeping(lsn=7, expected=ANY_LSN, name=b"a"):
    return SetCursorRequest(lsn, expected, Hold.AS_IT_IS, name)


def asked_of_raft(stage):
    """The read index that ingress has asked for, and nothing else."""
    (asked,) = stage.heard()
    assert isinstance(asked, ReadIndexRequested)
    assert asked.request_id > READS_OF_INGRESS
    return asked.request_id


def confirm(stage, *, is_leader=True):
    stage.tell(ReadIndexAnswered(asked_of_raft(stage), is_leader, 0))


def set_cursor(stage, *arguments, **named):
    """A change from beginning to commit; what its client is told."""
    client = stage.client()
    client.ask(set_request(*arguments, **named))
    stage.accept_and_commit()
    return client.answer()


def listed(stage):
    client = stage.client()
    client.ask(CursorsRequest())
    confirm(stage)
    reply = client.answer()
    assert isinstance(reply, CursorsReply), reply
    return decode_cursors(reply.cursors)


# --- changes ---


def test_a_change_is_an_entry_and_answered_once_it_is_committed(stage):
    client = stage.client()
    client.ask(set_request(b"archive", 7, is_held=True))
    (header,) = stage.accept()
    assert header.kind == EntryKind.CURSOR
    assert decode_cursor(stage.entries[-1][1]) == Cursor(b"archive", 7, True)
    assert client.answer() is None, "accepted is not committed"
    stage.commit()
    assert client.answer() == DoneReply(0)
    assert set_cursor(stage, b"archive", 9) == DoneReply(7)
    assert listed(stage) == (Cursor(b"archive", 9, False),)
    assert set_cursor(stage, b"archive", 0) == DoneReply(9)
    assert set_cursor(stage, b"archive", 0) == DoneReply(0)
    assert listed(stage) == ()


@pytest.mark.parametrize("is_held", [False, True])
def test_a_change_that_keeps_the_hold_takes_it_from_the_stream_of_proposals(stage, is_held):
    """An operator changed the hold, not committed yet, and a consumer moves the cursor."""
    set_cursor(stage, lsn=100, is_held=not is_held)
    operator, consumer = stage.client(), stage.client()
    operator.ask(set_request(lsn=100, expected=100, is_held=is_held))
    consumer.ask(keeping(101, expected=100))
    stage.accept_and_commit()
    assert (operator.answer(), consumer.answer()) == (DoneReply(100), DoneReply(100))
    assert decode_cursor(stage.entries[-1][1]) == Cursor(b"a", 101, is_held)


def test_a_cursor_that_is_new_or_deleted_is_not_held_as_it_is(stage):
    for lsn in (7, 0):
        client = stage.client()
        client.ask(keeping(lsn))
        stage.accept_and_commit()
        assert isinstance(client.answer(), DoneReply)
        assert decode_cursor(stage.entries[-1][1]) == Cursor(b"a", lsn, False)


def test_changes_in_flight_are_compared_with_each_other(stage):
    first, second = stage.client(), stage.client()
    first.ask(set_request(lsn=7, expected=0))
    second.ask(set_request(lsn=9, expected=7))
    stage.accept_and_commit()
    assert (first.answer(), second.answer()) == (DoneReply(0), DoneReply(7))


def test_what_is_no_cursor_is_refused_at_once(stage):
    client = stage.client()
    wrong_hold = SetCursorRequest(7, ANY_LSN, 3, b"a")
    for request in (
        set_request(b""), set_request(lsn=1 << 63), set_request(lsn=0, is_held=True), wrong_hold
    ):  # fmt: skip
        client.ask(request)
        assert client.answer().code == ErrorCode.INVALID_REQUEST
    assert stage.heard() == []


def test_who_does_not_lead_sends_changes_and_lists_elsewhere():
    stage = Stage()
    stage.identify()
    client = stage.client()
    for request in (set_request(), CursorsRequest()):
        client.ask(request)
        assert client.answer().code == ErrorCode.NOT_LEADER


def test_a_change_that_raft_did_not_take_is_refused_for_certain(stage):
    client = stage.client()
    client.ask(set_request())
    stage.take_proposals()
    stage.tell(AdmissionClosed(1, 0, "transfer"))
    assert client.answer().code == ErrorCode.NOT_READY


def test_the_outcome_of_a_change_is_unknown_when_the_term_ends_before_its_commit(stage):
    client, reader = stage.client(), stage.client()
    client.ask(set_request())
    stage.accept()
    reader.ask(CursorsRequest())
    confirm(stage)
    stage.tell(AdmissionClosed(1, 1, "step_down"), TermEnded(1))
    assert client.answer().code == ErrorCode.OUTCOME_UNKNOWN
    assert reader.answer().code == ErrorCode.NOT_READY, "it saw what may never be"


def test_a_change_of_an_earlier_gen_is_answered_when_its_term_commits_it(stage):
    client = stage.client()
    client.ask(set_request())
    stage.accept()
    stage.tell(AdmissionClosed(1, 1, "transfer"), Admit(1, 2, len(stage.entries), 1))
    stage.commit()
    assert client.answer() == DoneReply(0)
    assert listed(stage) == (Cursor(b"a", 7, False),)


def test_changes_wait_for_a_snapshot_that_is_due_and_count_towards_it():
    stage = leading(snapshot_every_batches=2)
    late = stage.client()
    for lsn in (7, 9):
        stage.client().ask(set_request(lsn=lsn))
    late.ask(set_request(lsn=11))
    assert late.answer().code == ErrorCode.OVERLOADED
    stage.accept()
    stage.work()
    stage.accept_and_commit()
    kind, body = stage.entries[-1][0].kind, stage.entries[-1][1]
    assert kind == EntryKind.SESSION
    assert decode_session_part(body).cursors == (Cursor(b"a", 9, False),)
    assert set_cursor(stage, lsn=11) == DoneReply(9)


# --- the next leader ---


@pytest.mark.parametrize("through_snapshot", [False, True])
def test_a_new_term_finds_the_cursors_in_the_log(through_snapshot):
    stage = leading(**({"snapshot_every_batches": 1} if through_snapshot else {}))
    set_cursor(stage, b"archive", 7, is_held=True)
    stage.work()
    stage.accept_and_commit()
    kinds = [header.kind for header, _ in stage.entries]
    assert (EntryKind.SESSION in kinds) == through_snapshot
    stage.tell(AdmissionClosed(1, len(stage.entries) - 1, "step_down"), TermEnded(1))
    stage.lead(term=2)
    stage.commit()
    stage.heard()
    assert listed(stage) == (Cursor(b"archive", 7, True),)
    assert set_cursor(stage, b"archive", 9, 7) == DoneReply(7)


def test_a_list_waits_until_what_the_table_was_rebuilt_from_is_committed():
    """A change in the uncommitted tail of an old term may still be truncated."""
    stage = Stage()
    stage.term = 1
    stage.append_entry(EntryKind.CURSOR, encode_cursor(Cursor(b"a", 7, False)), 0)
    stage.lead(term=2)
    stage.heard()
    client = stage.client()
    client.ask(CursorsRequest())
    confirm(stage)
    assert client.answer().code == ErrorCode.NOT_READY
    stage.commit()
    assert listed(stage) == (Cursor(b"a", 7, False),)


# --- lists, and refusals, which are reads ---


def test_a_list_waits_for_a_quorum(stage):
    client = stage.client()
    client.ask(CursorsRequest())
    assert client.answer() is None
    confirm(stage, is_leader=False)
    assert client.answer().code == ErrorCode.NOT_READY


def test_a_list_tells_no_change_that_is_not_committed(stage):
    set_cursor(stage, lsn=7)
    writer, reader = stage.client(), stage.client()
    writer.ask(set_request(lsn=9))
    reader.ask(CursorsRequest())
    confirm(stage)
    stage.accept()
    assert reader.answer() is None
    stage.commit()
    assert decode_cursors(reader.answer().cursors) == (Cursor(b"a", 9, False),)
    assert writer.answer() == DoneReply(7)


def test_a_moved_cursor_is_told_once_a_quorum_has_confirmed_it(stage):
    set_cursor(stage, lsn=7)
    client = stage.client()
    client.ask(set_request(lsn=9, expected=5))
    assert client.answer() is None, "an old leader would not know better"
    confirm(stage)
    reply = client.answer()
    assert (reply.code, reply.first) == (ErrorCode.CURSOR_MOVED, 7)
    assert b"LSN 7" in reply.text


def test_a_refusal_waits_for_the_change_it_is_due_to(stage):
    first, second = stage.client(), stage.client()
    first.ask(set_request(lsn=7, expected=0))
    second.ask(set_request(lsn=9, expected=0))
    confirm(stage)
    stage.accept()
    assert second.answer() is None
    stage.commit()
    assert (first.answer(), second.answer().code) == (DoneReply(0), ErrorCode.CURSOR_MOVED)


def test_a_change_refused_at_first_is_made_if_it_fits_once_that_is_confirmed(stage):
    client = stage.client()
    client.ask(set_request(lsn=9, expected=7))
    asked = asked_of_raft(stage)
    set_cursor(stage, lsn=7)
    stage.tell(ReadIndexAnswered(asked, True, 0))
    stage.accept_and_commit()
    assert client.answer() == DoneReply(7)


def test_a_full_table_says_what_to_do(stage):
    for number in range(limits.CURSORS_MAX):
        set_cursor(stage, b"%d" % number)
    client = stage.client()
    client.ask(set_request(b"one more"))
    confirm(stage)
    reply = client.answer()
    assert reply.code == ErrorCode.TOO_MANY_CURSORS
    assert b"delete one first" in reply.text
    assert len(listed(stage)) == limits.CURSORS_MAX


# --- bounds ---


def test_who_is_not_answered_in_time_is_told_so_and_nobody_later(stage):
    writer, waiter, reader = stage.client(), stage.client(), stage.client()
    writer.ask(set_request())
    waiter.ask(CursorsRequest())
    confirm(stage)
    reader.ask(CursorsRequest())
    asked = asked_of_raft(stage)
    stage.clock.now_ns += limits.REQUEST_TIMEOUT_NS
    stage.work()
    for client in (writer, waiter, reader):
        assert client.answer().code == ErrorCode.TIMED_OUT
    stage.tell(ReadIndexAnswered(asked, True, 0))
    stage.accept_and_commit()
    assert [client.answer() for client in (writer, waiter, reader)] == [None, None, None]
    assert listed(stage) == (Cursor(b"a", 7, False),), "its outcome was unknown, and is this"


def test_lists_that_nobody_waits_for_any_more_are_let_go_though_nothing_is_committed(stage):
    """Two followers' disks are full: for as long, a leader confirms reads and commits nothing."""
    stage.client().ask(set_request())
    stage.accept()
    group = stage.ingress.admission.proposals.newest_pending(EntryKind.CURSOR)
    for _ in range(3):
        client = stage.client()
        client.ask(CursorsRequest())
        confirm(stage)
        assert len(group.readers) == 1
        stage.clock.now_ns += limits.REQUEST_TIMEOUT_NS
        stage.work()
        assert client.answer().code == ErrorCode.TIMED_OUT
    assert not group.readers


def test_a_change_that_was_answered_by_its_timeout_is_not_begun_any_more(stage):
    """It was refused at first, and would fit by the time that raft confirms it."""
    client = stage.client()
    client.ask(set_request(lsn=9, expected=7))
    asked = asked_of_raft(stage)
    stage.clock.now_ns += limits.REQUEST_TIMEOUT_NS
    stage.work()
    assert client.answer().code == ErrorCode.TIMED_OUT
    set_cursor(stage, lsn=7)
    stage.tell(ReadIndexAnswered(asked, True, 0))
    stage.accept_and_commit()
    assert listed(stage) == (Cursor(b"a", 7, False),)


def test_too_many_waiting_requests_are_refused(stage, monkeypatch):
    monkeypatch.setattr("actors.ingress.pending_requests.REQUESTS_PENDING_MAX", 1)
    stage.client().ask(CursorsRequest())
    for request in (CursorsRequest(), set_request()):
        client = stage.client()
        client.ask(request)
        assert client.answer().code == ErrorCode.OVERLOADED
    assert stage.counter(Counter.SENDS_DROPPED) == 0
