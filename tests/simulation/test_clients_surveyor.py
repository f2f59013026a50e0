"""A simulated surveyor against scripted replicas: its requests and facts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from actors.simulation.checkers.client_facts import DamageNamed, SpansTold, SurveyAsked, TimeTold
from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.clients.surveyor import Surveyor
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    LSN_MAX,
    SPAN,
    ErrorReply,
    SpansReply,
    SpansRequest,
    StatusReply,
    StatusRequest,
    TimeLookupReply,
    TimeLookupRequest,
)
from logstore.limits import POSITION_MAX
from logstore.model import Lsn
from logstore.settings import PortOffset
from tests.simulation.scripted_replica import Asked, Stage

STAMPS = (1_000, 2_000)
VISIBLE_LSN = 9


def spans(request: SpansRequest) -> SpansReply:
    """One span, as far as the log goes."""
    last_lsn = min(request.last_lsn, VISIBLE_LSN)
    if request.first_lsn > last_lsn:
        return SpansReply(Lsn(1), Lsn(VISIBLE_LSN), 0, b"")
    row = SPAN.pack(last_lsn, 100, STAMPS[1])
    return SpansReply(Lsn(1), Lsn(VISIBLE_LSN), STAMPS[0], row)


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.client = Inquirer(stage.host("surveyor-1"), Surveyor).client
    return stage


def next_question(stage: Stage) -> tuple[int, Asked]:
    """The next request at any replica, except for its status: the node, and the request."""
    while True:
        node, asked = next_request(stage)
        if not isinstance(asked.message, StatusRequest):
            return node, asked
        answer(stage, node, asked, StatusReply(b'{"role":"follower"}'))


def next_request(stage: Stage) -> tuple[int, Asked]:
    stage.pass_ms(60_000, until=lambda: any(stage.inbox.values()))
    return next((node, inbox.pop(0)) for node, inbox in stage.inbox.items() if inbox)


def answer(stage: Stage, node: int, asked: Asked, message: Any) -> None:
    stage.replicas[node].reply(asked, message)
    stage.pass_ms(5)


def test_every_replica_is_asked_for_both_and_each_answer_is_a_fact(stage: Stage) -> None:
    nodes, kinds = set(), set()
    for _ in range(40):
        node, asked = next_question(stage)
        assert asked.offset is PortOffset.FETCH
        assert stage.facts[-1] == SurveyAsked()
        nodes.add(node)
        kinds.add(type(asked.message))
        if isinstance(asked.message, SpansRequest):
            reply = spans(asked.message)
            answer(stage, node, asked, reply)
            told = stage.told(SpansTold)[-1]
            assert (told.node, told.request, told.reply) == (node, asked.message, reply)
        else:
            answer(stage, node, asked, TimeLookupReply(Lsn(7)))
            time = stage.told(TimeTold)[-1]
            assert (time.node, time.timestamp_ns, time.lsn) == (node, asked.message.timestamp_ns, 7)
    assert (nodes, kinds) == (set(stage.replicas), {SpansRequest, TimeLookupRequest})
    assert stage.complaints == []


def test_ranges_begin_within_what_was_shown_and_times_are_close_to_those_of_answers(
    stage: Stage,
) -> None:
    firsts, times = set(), set()
    for _ in range(400):
        node, asked = next_question(stage)
        if isinstance(asked.message, SpansRequest):
            firsts.add(asked.message.first_lsn)
            assert asked.message.last_lsn >= asked.message.first_lsn
            answer(stage, node, asked, spans(asked.message))
        else:
            times.add(asked.message.timestamp_ns)
            answer(stage, node, asked, TimeLookupReply(Lsn(7)))
    assert firsts == set(range(1, VISIBLE_LSN + 2))
    about = {stamp + step for stamp in STAMPS for step in (-1, 0, 1)}
    assert times == {0, 1 << 62, *about}


def test_lags_are_told_as_the_spans_that_they_must_equal(stage: Stage) -> None:
    behind = {"next_lsn": 1, "payloads": 6, "bytes": 60, "since_ns": STAMPS[0]}
    at_the_end = {"next_lsn": 10, "payloads": 0, "bytes": 0, "since_ns": 0}
    unknown = {"next_lsn": None, "payloads": None, "bytes": None, "since_ns": None}
    lag = {
        "log_start_lsn": 4,
        "visible_lsn": VISIBLE_LSN,
        "newest_ns": STAMPS[1],
        "followers": [{"node": 8} | unknown, {"node": 9} | at_the_end],
        "cursors": [behind],
    }
    told: list[SpansTold] = []
    leader = 0
    while len(told) < 2:
        node, asked = next_request(stage)
        if isinstance(asked.message, StatusRequest):
            leader = node
            document = {"role": "leader", "lag": lag}
            answer(stage, node, asked, StatusReply(msgspec.json.encode(document)))
        elif isinstance(asked.message, SpansRequest):
            answer(stage, node, asked, spans(asked.message))
        else:
            answer(stage, node, asked, TimeLookupReply(Lsn(7)))
        told = [each for each in stage.told(SpansTold) if each.request.step_bytes == POSITION_MAX]
    first, second = told
    assert (first.node, first.request.first_lsn, first.request.last_lsn) == (leader, 10, LSN_MAX)
    assert first.reply == SpansReply(Lsn(4), Lsn(VISIBLE_LSN), 0, b"")
    assert second.request.first_lsn == 4, "what is below the log start cannot be read"
    row = SPAN.pack(VISIBLE_LSN, 60, STAMPS[1])
    assert second.reply == SpansReply(Lsn(4), Lsn(VISIBLE_LSN), STAMPS[0], row)


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        (ErrorCode.NOT_READY, []),
        (ErrorCode.CORRUPT_DATA, []),
        (ErrorCode.OUT_OF_RANGE, ["I5"]),
        (ErrorCode.UNKNOWN_PRODUCER, ["I11"]),
    ],
)
def test_it_asks_again_after_a_refusal(stage: Stage, code: ErrorCode, complaint: list[str]) -> None:
    node, asked = next_question(stage)
    answer(stage, node, asked, ErrorReply(code, 0, 1, 9, b"no"))
    assert [number for number, _ in stage.complaints] == complaint
    is_damaged = code is ErrorCode.CORRUPT_DATA
    named = [(each.node, each.lsns) for each in stage.told(DamageNamed)]
    assert named == ([(node, (1, 9))] if is_damaged else [])
    assert next_question(stage)


def test_a_replica_that_shows_less_may_refuse(stage: Stage) -> None:
    node, asked = next_question(stage)
    assert isinstance(asked.message, SpansRequest)
    answer(stage, node, asked, spans(asked.message))
    while not isinstance(asked.message, SpansRequest) or asked.message.first_lsn <= 2:
        node, asked = next_question(stage)
        if not isinstance(asked.message, SpansRequest) or asked.message.first_lsn <= 2:
            answer(stage, node, asked, ErrorReply(ErrorCode.NOT_READY, 0, 0, 0, b"later"))
    answer(stage, node, asked, ErrorReply(ErrorCode.OUT_OF_RANGE, 0, 1, 1, b"not here"))
    assert stage.complaints == []
