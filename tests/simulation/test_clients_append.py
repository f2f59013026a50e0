"""Simulated producers against scripted replicas: E9 step by step, their facts, the violations they
report, and what they do wrong on purpose."""

from __future__ import annotations

from random import Random

import pytest

from actors.simulation.checkers.client_facts import (
    AppendAcknowledged,
    AppendInvoked,
    AppendRefused,
    SessionOpened,
)
from actors.simulation.clients.mischief import Mischief, commit_mischief
from actors.simulation.clients.open_request import open_request
from actors.simulation.clients.payloads import draw_payloads
from logstore.errors import ErrorCode
from logstore.format.batch import batch_size, batch_sizes
from logstore.format.client_messages import (
    ErrorReply,
    OpenSessionRequest,
    SessionStateRequest,
    WatermarksReply,
    WatermarksRequest,
)
from logstore.model import Lsn, SequenceMode
from tests.simulation.producer_stage import (
    make_stage,
    open_session,
    serving_stage,
    session_of,
    tell_state,
    wait_pushed,
)
from tests.simulation.scripted_replica import PRODUCER, Stage, row

# --- the steps of E9 ---


FENCED = ErrorReply(ErrorCode.FENCED, 0, 2, 0, b"epoch 2 is open")


def confirm_and_tell(stage: Stage, denial: ErrorReply) -> None:
    """A majority confirms node 1, which answers again that the session is over."""
    marks = WatermarksReply(Lsn(1), Lsn(0))
    stage.replicas[1].reply(stage.wait_asked(1, WatermarksRequest), marks)
    stage.replicas[1].reply(stage.wait_asked(1, SessionStateRequest), denial)


def acknowledged(stage: Stage) -> list[tuple[int, int]]:
    """First LSN and count of each acknowledgement in the ledger."""
    return [(each.first_lsn, each.count) for each in stage.told(AppendAcknowledged)]


def test_a_producer_opens_its_session_at_the_leader_and_asks_for_its_state_before_it_pushes() -> (
    None
):
    stage = make_stage()
    asked = stage.wait_asked(1, OpenSessionRequest)
    assert asked.message == OpenSessionRequest(0, SequenceMode.DENSE, 1, 16, b"")
    stage.replicas[1].reply_open(asked)
    asked = stage.wait_asked(1, SessionStateRequest)
    assert asked.message == SessionStateRequest(PRODUCER, 1, 1)
    (opened,) = stage.told(SessionOpened)
    assert (opened.producer_id, opened.producer_epoch) == (PRODUCER, 1)
    assert opened.mode is SequenceMode.DENSE
    stage.pass_ms(100)
    assert stage.replicas[1].frames() == []
    stage.replicas[1].reply_state(asked, 0)
    pushed = wait_pushed(stage, 3)
    assert [each.round for each in pushed[:3]] == [1, 1, 1]
    assert [each.header.sequence for each in pushed[:3]] == [0, 1, 2]
    assert stage.complaints == []


def test_no_state_is_asked_for_before_the_welcome() -> None:
    stage = make_stage()
    asked = stage.wait_asked(1, OpenSessionRequest)
    welcome = stage.replicas[1].welcome
    stage.replicas[1].welcome = lambda *_: None  # type: ignore[method-assign]
    stage.replicas[1].reply_open(asked)
    stage.pass_ms(400)
    assert not any(isinstance(each.message, SessionStateRequest) for each in stage.inbox[1])
    stage.replicas[1].welcome = welcome  # type: ignore[method-assign]
    stage.wait_asked(1, SessionStateRequest)


def test_an_append_is_in_the_ledger_before_it_is_sent_and_acknowledged_with_its_lsns() -> None:
    stage = serving_stage()
    pushed = wait_pushed(stage, 1)[0]
    call = stage.told(AppendInvoked)[0]
    count = len(call.payloads)
    assert (call.producer_epoch, call.sequence, count) == (1, 0, pushed.header.count)
    stage.replicas[1].tell(1, row(0, first_lsn=5, count=count))
    stage.pass_ms(1)
    (told,) = stage.told(AppendAcknowledged)
    assert (told.operation, told.first_lsn, told.count) == (call.operation, 5, count)
    assert stage.complaints == []


def test_after_a_change_of_leader_the_state_decides_what_is_sent_again_and_in_which_order() -> None:
    stage = serving_stage()
    first = wait_pushed(stage, 5)[:5]
    stage.leader = 2
    stage.replicas[1].tell(1, row(4, code=ErrorCode.NOT_LEADER, detail=2))
    counts = [each.header.count for each in first]
    rows = [
        row(0, first_lsn=1, count=counts[0]),
        row(1, count=counts[1], code=ErrorCode.OUTCOME_UNKNOWN),
    ]
    request = tell_state(stage, 2, 2, *rows)
    assert request.round >= 2
    again = wait_pushed(stage, 3, node=2)
    assert [each.batch for each in again[:3]] == [each.batch for each in first[2:5]]
    assert {each.round for each in again} == {request.round}
    assert acknowledged(stage) == [(1, counts[0])]
    stage.replicas[2].tell(request.round, row(1, first_lsn=1 + counts[0], count=counts[1]))
    stage.pass_ms(1)
    assert acknowledged(stage)[1:] == [(1 + counts[0], counts[1])]
    assert stage.replicas[1].frames() == []  # the old PUSH is closed
    assert stage.complaints == []


def test_without_answers_it_asks_for_the_state_again() -> None:
    stage = serving_stage()
    pushed = wait_pushed(stage, 1)[0]
    request = tell_state(stage, 1, 0)
    assert request.round == 2
    again = wait_pushed(stage, 1)[0]
    assert (again.round, again.batch) == (2, pushed.batch)
    assert stage.workload.witness.counts["rounds"] == 2


def test_refusals_of_an_older_round_are_ignored_and_acknowledgements_are_final_in_any() -> None:
    stage = serving_stage()
    count = wait_pushed(stage, 1)[0].header.count
    tell_state(stage, 1, 0)  # after a silence, round 2
    wait_pushed(stage, 1)
    stage.replicas[1].tell(1, row(0, code=ErrorCode.GAP, detail=0))
    stage.pass_ms(5)
    assert session_of(stage).is_serving
    stage.replicas[1].tell(1, row(0, first_lsn=1, count=count))
    stage.pass_ms(5)
    assert len(acknowledged(stage)) == 1


def test_a_gap_is_closed_in_order_under_the_next_round() -> None:
    stage = serving_stage()
    wait_pushed(stage, 1)
    session = session_of(stage)
    first = session.next_sequence
    commit_mischief(session, Mischief.SKIP, [b"one"], Random(1), stage.now_ns)
    stage.work()
    pushed = [each.header.sequence for each in stage.replicas[1].pushed()]
    assert first not in pushed
    assert pushed[-1] == first + 1
    stage.replicas[1].tell(1, row(first + 1, code=ErrorCode.GAP, detail=first))
    request = tell_state(stage, 1, first)
    sent = [each.header.sequence for each in wait_pushed(stage, 2)]
    assert (request.round, sent[:2]) == (2, [first, first + 1])
    assert stage.complaints == []


def test_what_left_the_window_is_committed_with_unknown_lsns() -> None:
    stage = serving_stage()
    wait_pushed(stage, 2)
    tell_state(stage, 1, 1)  # no row for sequence 0, and it is below
    wait_pushed(stage, 1)
    (refused,) = stage.told(AppendRefused)
    assert refused.operation == stage.told(AppendInvoked)[0].operation
    assert refused.code is ErrorCode.COMMITTED_LSN_UNKNOWN


def test_an_old_leader_that_knows_less_than_was_acknowledged_gets_no_batches() -> None:
    stage = serving_stage()
    count = wait_pushed(stage, 1)[0].header.count
    stage.replicas[1].tell(1, row(0, first_lsn=1, count=count))
    stage.pass_ms(1)
    stage.replicas[1].tell(1, row(1, code=ErrorCode.NOT_LEADER, detail=2))
    stage.leader = 2
    tell_state(stage, 2, 0)
    stage.pass_ms(5)
    assert stage.replicas[2].frames() == []
    assert not session_of(stage).is_serving
    assert stage.complaints == []


def test_no_more_batches_wait_for_an_answer_than_the_window_has() -> None:
    stage = serving_stage()
    stage.pass_ms(450)
    assert len(stage.replicas[1].frames()) == 16
    assert len(session_of(stage).checker.waiting) == 16


def test_a_monotone_session_has_one_batch_under_way() -> None:
    stage = serving_stage(opening=open_request(SequenceMode.MONOTONE, b"a name", window=16))
    stage.pass_ms(300)
    pushed = stage.replicas[1].pushed()
    assert len(pushed) == 1
    header = pushed[0].header
    stage.replicas[1].tell(1, row(header.sequence, first_lsn=1, count=header.count))
    assert wait_pushed(stage, 1)[0].header.sequence > header.sequence
    assert stage.complaints == []


# --- ends of a session ---


def test_a_producer_that_a_confirmed_leader_does_not_know_opens_another_session() -> None:
    stage = serving_stage()
    wait_pushed(stage, 1)
    unknown = ErrorReply(ErrorCode.UNKNOWN_PRODUCER, 0, 0, 0, b"expired")
    stage.replicas[1].reply(stage.wait_asked(1, SessionStateRequest), unknown)
    confirm_and_tell(stage, unknown)
    assert stage.wait_asked(1, OpenSessionRequest).message.name == b""
    assert stage.complaints == []


def test_a_fenced_producer_stops_and_opens_its_name_again() -> None:
    stage = serving_stage(opening=open_request(SequenceMode.DENSE, b"a name", window=16))
    wait_pushed(stage, 1)
    stage.replicas[1].tell(1, row(0, code=ErrorCode.FENCED, detail=2))
    confirm_and_tell(stage, FENCED)
    asked = stage.wait_asked(1, OpenSessionRequest)
    assert asked.message.name == b"a name"
    assert stage.workload.witness.counts["ended-fenced"] == 1
    assert stage.told(AppendRefused) == []
    assert stage.complaints == []


def test_a_session_that_was_taken_over_appends_until_it_is_fenced() -> None:
    stage = serving_stage()
    wait_pushed(stage, 1)
    zombie, producer = session_of(stage), stage.workload
    producer._zombies.append((zombie, stage.now_ns + 10**10))
    producer._session = None
    open_session(stage, epoch=2)
    tell_state(stage, 1, 0, epoch=2)
    stage.pass_ms(200)
    epochs = {each.header.producer_epoch for each in stage.replicas[1].pushed()}
    assert epochs == {1, 2}
    stage.replicas[1].tell(zombie.checker.round, row(0, code=ErrorCode.FENCED, detail=2))
    confirm_and_tell(stage, FENCED)
    stage.pass_ms(200)
    stage.replicas[1].frames()
    stage.pass_ms(200)
    assert {each.header.producer_epoch for each in stage.replicas[1].pushed()} <= {2}
    assert stage.workload.witness.counts["ended-fenced"] == 1


def test_a_probe_is_acknowledged_also_when_another_session_has_to_send_it() -> None:
    stage = serving_stage()
    stage.workload.stop_appending()
    stage.pass_ms(10)
    stage.replicas[1].frames()
    probe = stage.workload.append_probe()
    sent = wait_pushed(stage, 1)[0]
    assert not probe.is_acknowledged
    stage.replicas[1].tell(1, row(sent.header.sequence, code=ErrorCode.FENCED, detail=2))
    confirm_and_tell(stage, FENCED)
    open_session(stage, epoch=3)
    tell_state(stage, 1, 0, epoch=3)
    sent = wait_pushed(stage, 1)[0]
    assert (sent.header.producer_epoch, sent.header.sequence) == (3, 0)
    stage.replicas[1].tell(1, row(0, first_lsn=9, count=sent.header.count), epoch=3)
    stage.pass_ms(5)
    assert probe.is_acknowledged
    assert not stage.workload.has_unresolved


# --- answers that break a promise ---


@pytest.mark.parametrize(
    ("told", "invariant"),
    [
        (row(900, first_lsn=1, count=1), "I7"),  # never sent
        (row(0, code=ErrorCode.SEQUENCE_REUSED), "I7"),
        (row(0, code=ErrorCode.INVALID_BATCH), "I7"),
        (row(0, code=ErrorCode.FENCED, detail=1), "I7"),  # by itself
        (row(0, first_lsn=1, count=99), "I4"),
    ],
)
def test_an_answer_that_breaks_a_promise_is_a_violation(told: bytes, invariant: str) -> None:
    stage = serving_stage()
    wait_pushed(stage, 1)
    assert stage.complaints == []
    stage.replicas[1].tell(1, told)
    stage.pass_ms(1)
    assert [number for number, _ in stage.complaints] == [invariant]


def test_other_lsns_for_a_batch_that_was_acknowledged_are_a_violation() -> None:
    stage = serving_stage()
    count = wait_pushed(stage, 1)[0].header.count
    for first_lsn in (1, 1, 2):
        assert stage.complaints == []
        stage.replicas[1].tell(1, row(0, first_lsn=first_lsn, count=count))
        stage.pass_ms(1)
    assert [number for number, _ in stage.complaints] == ["I7"]


def test_a_log_that_has_a_batch_which_was_never_sent_is_a_violation() -> None:
    stage = make_stage()
    open_session(stage)
    tell_state(stage, 1, 3)
    stage.pass_ms(1)
    assert {number for number, _ in stage.complaints} == {"I7"}


def test_a_batch_stored_past_a_gap_is_a_violation() -> None:
    stage = serving_stage()
    wait_pushed(stage, 1)
    session = session_of(stage)
    commit_mischief(session, Mischief.SKIP, [b"one"], Random(1), stage.now_ns)
    stage.work()
    stored = session.next_sequence - 1
    stage.replicas[1].tell(1, row(stored, first_lsn=1, count=1))
    stage.pass_ms(1)
    assert [number for number, _ in stage.complaints] == ["I7"]


# --- chance ---


def test_payloads_fit_into_a_batch_and_differ() -> None:
    """FAULTS D36: zeros and images of batches are among them."""
    random, seen = Random(3), set()
    for sequence in range(300):
        payloads = draw_payloads(
            random,
            client=1,
            producer_id=7,
            producer_epoch=1,
            sequence=sequence,
            count_max=8,
            payload_max_bytes=2_000,
            batch_max_bytes=4_096,
        )
        assert batch_size(len(payloads), sum(map(len, payloads))) <= 4_096
        seen.update(payload for payload in payloads if len(payload) >= 24)
        assert 1 <= len(payloads) <= 8
    assert len(seen) > 400


def test_the_same_seed_sends_the_same() -> None:
    def run(seed: int) -> list[bytes]:
        stage = serving_stage(seed=seed, mischief=500)
        stage.pass_ms(150)
        return stage.replicas[1].frames()

    first = run(5)
    assert len(first) > 3
    assert first == run(5)
    assert first != run(6)


def test_a_request_that_is_refused_is_asked_again_later() -> None:
    stage = make_stage()
    asked = stage.wait_asked(1, OpenSessionRequest)
    stage.replicas[1].reply(asked, ErrorReply(ErrorCode.NOT_READY, 0, 0, 0, b"not yet"))
    open_session(stage)
    tell_state(stage, 1, 0)
    wait_pushed(stage, 1)
    assert stage.complaints == []


def test_a_flood_is_as_many_large_batches_as_may_be_under_way() -> None:
    stage = serving_stage(flood=1_000)
    pushed = wait_pushed(stage, 12)
    session = session_of(stage)
    found = [batch_sizes(each.batch, 0, each.header) for each in pushed]
    sizes = [batch_size(each.count, each.plain_bytes) for each in found]
    assert max(sizes) <= session.numbers.batch_max_bytes
    assert sum(size > session.numbers.batch_max_bytes // 2 for size in sizes) > len(sizes) // 2
    assert not session.appends.has_room(session.numbers.batch_max_bytes)


def test_a_batch_that_is_sent_after_a_lower_one_was_given_up_is_a_violation() -> None:
    stage = serving_stage(opening=open_request(SequenceMode.MONOTONE, b"a name", window=16))
    first = wait_pushed(stage, 1)[0].header
    assert stage.complaints == []
    session_of(stage).checker.give_up(first.sequence)
    stage.replicas[1].tell(1, row(first.sequence, first_lsn=1, count=first.count))
    wait_pushed(stage, 1)
    assert [number for number, _ in stage.complaints] == ["I7"]
