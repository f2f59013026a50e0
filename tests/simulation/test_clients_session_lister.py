"""A simulated operator against scripted replicas: the pages it asks for, and whose end."""

from __future__ import annotations

import pytest

from actors.simulation.checkers.client_facts import (
    SessionEnded,
    SessionsAsked,
    SessionsListed,
    SessionUnknown,
)
from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.clients.session_lister import SessionLister
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    DoneReply,
    EndSessionRequest,
    ErrorReply,
    SessionsReply,
    SessionsRequest,
)
from logstore.format.session_list import ListedSession, SessionState, encode_sessions
from tests.simulation.scripted_replica import PRODUCER, Asked, Stage

ROW = ListedSession(PRODUCER, 1, 1, SessionState.OPEN, 16, 1 << 20, 0, 5, b"name")


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.client = Inquirer(SessionLister(stage.host("session-lister-1"), ()))
    return stage


def next_question(stage: Stage) -> Asked:
    return stage.wait_asked(1, object, milliseconds=60_000)


def list_once(stage: Stage, *, next_after: int = 0) -> SessionsRequest:
    """Answers the next page, refusing ends until it is asked for; the request."""
    while not isinstance((asked := next_question(stage)).message, SessionsRequest):
        stage.replicas[1].reply(asked, ErrorReply(ErrorCode.OVERLOADED, 0, 0, 0, b""))
        stage.pass_ms(5)
    stage.replicas[1].reply(asked, SessionsReply(next_after, encode_sessions((ROW,))))
    stage.pass_ms(5)
    return asked.message


def next_end(stage: Stage) -> Asked:
    while not isinstance((asked := next_question(stage)).message, EndSessionRequest):
        stage.replicas[1].reply(asked, SessionsReply(0, encode_sessions((ROW,))))
        stage.pass_ms(5)
    return asked


def test_pages_are_asked_for_one_after_another_and_told(stage: Stage) -> None:
    assert list_once(stage, next_after=PRODUCER).after == 0
    assert list_once(stage).after == PRODUCER
    assert list_once(stage).after == 0
    told = [(each.rows, each.next_after, each.node) for each in stage.told(SessionsListed)]
    assert told[:2] == [((ROW,), PRODUCER, 1), ((ROW,), 0, 1)]
    assert stage.complaints == []


def test_a_session_that_was_listed_is_ended_and_told(stage: Stage) -> None:
    asked = next_end(stage)
    assert asked.message == EndSessionRequest(PRODUCER)
    question = stage.told(SessionsAsked)[-1]
    assert (question.page, question.producer_id) == (None, PRODUCER)
    stage.replicas[1].reply(asked, DoneReply(PRODUCER))
    stage.pass_ms(5)
    assert len(stage.told(SessionEnded)) == 1
    stage.replicas[1].reply(next_end(stage), ErrorReply(ErrorCode.UNKNOWN_PRODUCER, 0, 0, 0, b""))
    stage.pass_ms(5)
    assert stage.told(SessionUnknown)[-1].node == 1
    assert stage.complaints == []


def test_the_end_of_somebody_else_is_wrong(stage: Stage) -> None:
    stage.replicas[1].reply(next_end(stage), DoneReply(PRODUCER + 1))
    stage.pass_ms(5)
    assert [number for number, _ in stage.complaints] == ["I11"]


@pytest.mark.parametrize(
    ("code", "is_wrong"),
    [
        (ErrorCode.OUTCOME_UNKNOWN, False),
        (ErrorCode.TIMED_OUT, False),
        (ErrorCode.OVERLOADED, False),
        (ErrorCode.FENCED, True),
    ],
)
def test_it_asks_again_after_a_refusal(stage: Stage, code: ErrorCode, is_wrong: bool) -> None:
    stage.replicas[1].reply(next_end(stage), ErrorReply(code, 0, 0, 0, b"no"))
    stage.pass_ms(5)
    assert bool(stage.complaints) is is_wrong
    assert next_question(stage)


def test_in_haste_it_ends_the_session_that_it_heard_of_last() -> None:
    stage = Stage()
    lister = SessionLister(stage.host("session-lister-1"), (ROW.name,))
    lister.hurry()
    assert isinstance(lister.question()[0], SessionsRequest)  # it has heard of none
    lister.answered(1, SessionsReply(0, encode_sessions((ROW,))))
    assert lister.question()[0] == EndSessionRequest(PRODUCER)
