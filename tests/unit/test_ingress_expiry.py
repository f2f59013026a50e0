"""Sessions that end for their age, by committed time, and what their producers are told (E8)."""

from __future__ import annotations

import pytest

from actors.topology import Counter
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    ErrorReply,
    SessionLookupRequest,
    SessionStateReply,
    SessionStateRequest,
)
from logstore.format.session_entries import decode_expire
from logstore.limits import SESSION_IDLE_MIN_NS
from logstore.model import EntryKind, SequenceMode
from logstore.raft import effects
from tests.unit.ingress_stage import Stage, open_request

DAY_NS = 86_400_000_000_000
MONOTONE = SequenceMode.MONOTONE


@pytest.fixture
def stage():
    return leading()


def leading(**limits):
    stage = Stage(**limits)
    stage.clock.wall = 10**18
    stage.lead()
    stage.commit()
    return stage


def settle(stage):
    """Accept and commit until nothing is proposed; the kinds of the entries."""
    kinds = []
    while headers := stage.accept_and_commit():
        kinds += [header.kind for header in headers]
    return kinds


def used_by(stage, producer, *, days):
    """So many days of committed time pass, and `producer` appends."""
    stage.clock.wall += days * DAY_NS
    stage.clock.now_ns += SESSION_IDLE_MIN_NS
    producer.push(stage.ingress.admission.table.get(producer.id).next_sequence)
    return settle(stage)


def test_a_session_ends_after_seven_days_of_committed_time_and_goes_on_when_opened(stage):
    busy = stage.producer()
    idle = stage.producer(mode=MONOTONE, name=b"query")
    idle.push(41)
    settle(stage)
    stage.clock.wall += 30 * DAY_NS  # nothing is committed meanwhile: no time has passed
    stage.work()
    assert settle(stage) == []
    stage.clock.wall -= 30 * DAY_NS
    assert used_by(stage, busy, days=6) == [EntryKind.DATA]
    assert used_by(stage, busy, days=1) == [EntryKind.DATA, EntryKind.EXPIRE]
    assert decode_expire(stage.entries[-1][1]).is_kept
    idle.push(42)
    assert [row[3] for _, rows in idle.acks() for row in rows][-1] == ErrorCode.UNKNOWN_PRODUCER
    again = stage.producer(mode=MONOTONE, name=b"query")
    assert (again.id, again.epoch, again.session.next_sequence) == (idle.id, 2, 42)


def test_a_new_leader_counts_the_age_from_the_log(stage):
    busy = stage.producer()
    idle = stage.producer(name=b"idle")
    used_by(stage, busy, days=6)
    accepted = len(stage.entries) - 1
    stage.tell(effects.AdmissionClosed(1, accepted, "step_down"), effects.TermEnded(1))
    stage.lead(term=2, gen=2)
    stage.commit()
    assert stage.ingress.admission.table.get(idle.id) is not None
    assert used_by(stage, busy, days=2) == [EntryKind.DATA, EntryKind.EXPIRE]
    assert stage.ingress.admission.table.get(idle.id) is None


def test_a_session_whose_producer_asks_for_it_is_not_idle(stage):
    """The simulator found it (seed 226): a full disk had kept its batch from being committed, and
    when it was, it was old. The producer had nothing to send again and only asked."""
    busy = stage.producer()
    waiting = stage.producer(name=b"waiting")
    waiting.push(0)
    stage.accept()
    stage.tell(effects.AdmissionClosed(1, len(stage.entries) - 1, "disk_full"))
    stage.clock.wall += 8 * DAY_NS
    stage.clock.now_ns += 8 * DAY_NS
    stage.tell(effects.Admit(1, 2, len(stage.entries), 1))
    stage.commit()
    busy.push(0)
    assert settle(stage) == [EntryKind.DATA]
    client = stage.client()
    for _ in range(3):
        stage.clock.now_ns += SESSION_IDLE_MIN_NS - 1
        client.ask(SessionStateRequest(waiting.id, waiting.epoch, 2))
        assert isinstance(client.answer(), SessionStateReply)
        assert used_by(stage, busy, days=0) == [EntryKind.DATA]
    stage.clock.wall += 8 * DAY_NS
    assert used_by(stage, busy, days=8) == [EntryKind.DATA, EntryKind.EXPIRE]


@pytest.mark.parametrize("sequence", [100, 0], ids=["in its window", "below it"])
def test_a_session_whose_producer_sends_what_is_known_is_not_idle(stage, sequence):
    """A query that runs again sends what it had sent before, for as long as that takes."""
    busy = stage.producer()
    again = stage.producer(mode=MONOTONE, name=b"query")
    again.push(100)
    settle(stage)
    for number in range(8):
        stage.clock.wall += DAY_NS
        stage.clock.now_ns += SESSION_IDLE_MIN_NS
        again.push(sequence)
        busy.push(number)
        assert settle(stage) == [EntryKind.DATA]
    assert used_by(stage, busy, days=1) == [EntryKind.DATA, EntryKind.EXPIRE]


def test_a_producer_is_told_that_its_session_is_over_once_the_end_is_committed(stage):
    """Before that, the next leader may know the session (SAFETY E9)."""
    busy = stage.producer()
    idle = stage.producer(name=b"idle")
    stage.clock.wall += 8 * DAY_NS
    stage.clock.now_ns += SESSION_IDLE_MIN_NS
    busy.push(0)
    stage.accept_and_commit()
    assert [header.kind for header in stage.accept()] == [EntryKind.EXPIRE]
    client = stage.client()
    client.ask(SessionStateRequest(idle.id, idle.epoch, 2))
    assert client.answer() is None
    stage.commit()
    assert client.answer().code == ErrorCode.UNKNOWN_PRODUCER


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_producer_is_fenced_once_the_opening_is_committed(stage, is_committed):
    old = stage.producer(name=b"name")
    opener, client = stage.client(), stage.client()
    opener.ask(open_request(name=b"name"))
    stage.accept()
    client.ask(SessionStateRequest(old.id, old.epoch, 2))
    assert client.answer() is None
    if is_committed:
        stage.commit()
    else:
        stage.tell(effects.AdmissionClosed(1, 2, "step_down"), effects.TermEnded(1))
    answer = client.answer()
    assert isinstance(answer, ErrorReply)
    assert (answer.code == ErrorCode.FENCED) == is_committed


def test_many_sessions_that_are_due_leave_appends_their_turn(stage):
    busy = stage.producer()
    for number in range(30):
        stage.producer(name=b"idle %d" % number)
    kinds = used_by(stage, busy, days=8)
    assert kinds.count(EntryKind.EXPIRE) == 30
    assert len(stage.ingress.admission.table) == 1


def test_a_session_that_is_being_opened_again_is_not_given_up(stage):
    """The simulator found it: its last use is long ago until the OPEN is accepted."""
    busy = stage.producer()
    stage.producer(mode=MONOTONE, name=b"query")
    stage.clock.wall += 8 * DAY_NS
    stage.clock.now_ns += SESSION_IDLE_MIN_NS
    busy.push(0)
    client = stage.client()
    client.ask(open_request(mode=MONOTONE, name=b"query"))
    assert EntryKind.EXPIRE not in settle(stage)
    assert client.answer().producer_epoch == 2


def test_no_more_names_are_kept_than_may_be():
    stage = leading(kept_names_max=2)
    busy = stage.producer()
    for number in range(6):
        stage.producer(mode=MONOTONE, name=b"idle %d" % number)
    assert used_by(stage, busy, days=8).count(EntryKind.EXPIRE) == 2
    assert stage.ingress.admission.table.kept_count == 2


def test_openings_that_are_refused_do_not_look_at_every_session_each(monkeypatch):
    """At 12,288 sessions a look takes milliseconds, and 64 requests are answered in a row."""
    stage = leading(sessions_max=3)
    for number in range(3):
        stage.producer(name=b"named %d" % number)
    table = stage.ingress.admission.table
    looks = []
    sessions = table.sessions
    monkeypatch.setattr(table, "sessions", lambda: looks.append(1) or sessions())
    client = stage.client()
    for _ in range(50):
        client.ask(open_request())
        assert client.answer().code == ErrorCode.OVERLOADED
    assert len(looks) <= 2


def test_what_is_kept_of_a_name_is_told_to_who_looks_it_up(stage):
    busy = stage.producer()
    idle = stage.producer(mode=MONOTONE, name=b"query")
    idle.push(7)
    settle(stage)
    used_by(stage, busy, days=8)
    client = stage.client()
    client.ask(SessionLookupRequest(b"query"))
    (asked,) = [each for each in stage.heard() if hasattr(each, "request_id")]
    stage.tell(effects.ReadIndexAnswered(asked.request_id, True, len(stage.entries)))
    reply = client.answer()
    assert (reply.producer_id, reply.next_sequence, reply.rows) == (idle.id, 8, b"")


def test_sessions_kept_names_and_lent_bytes_are_counted(stage):
    busy = stage.producer()
    stage.producer(mode=MONOTONE, name=b"query")
    used_by(stage, busy, days=8)
    stage.work()
    assert (stage.counter(Counter.SESSIONS), stage.counter(Counter.SESSION_NAMES_KEPT)) == (1, 1)
    busy.push(1)
    assert stage.counter(Counter.CLIENT_BYTES_LENT) == len(busy.batch(1))
    settle(stage)
    assert stage.counter(Counter.CLIENT_BYTES_LENT) == 0
    stage.tell(effects.AdmissionClosed(1, len(stage.entries) - 1, "transfer"))
    assert stage.counter(Counter.SESSIONS) == 0


def test_batches_beyond_the_memory_of_clients_wait_and_none_is_lost(stage):
    """SAFETY W6: nothing is refused; at least one batch at a time goes on."""
    proposals = stage.ingress.admission.proposals
    producer = stage.producer()
    size = len(producer.batch(0))
    proposals._lend_max_bytes = 2 * size  # what may be lent before another batch is read
    most = 0
    for sequence in range(12):
        producer.queue(sequence)
    for _ in range(12):
        stage.work()
        most = max(most, proposals.lent_bytes)
        stage.accept_and_commit()
    assert size < most <= 3 * size
    assert proposals.lent_bytes == 0
    acks = [row[:4] for _, rows in producer.acks() for row in rows]
    assert [each[0] for each in acks] == list(range(12))
    assert {each[3] for each in acks} == {ErrorCode.OK}
