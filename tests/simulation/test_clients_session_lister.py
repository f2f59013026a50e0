"""A simulated operator against scripted replicas: the pages it asks for, the sessions it ends."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
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
    SessionLookupRequest,
    SessionsReply,
    SessionsRequest,
    SessionStateReply,
)
from logstore.format.session_list import ListedSession, SessionState, encode_sessions
from tests.simulation.scripted_replica import PRODUCER, Asked, Stage

ROW = ListedSession(PRODUCER, 1, 1, SessionState.OPEN, 16, 1 << 20, 0, 5, b"name")


class ListerStage(Stage):
    def __init__(self, appenders: Collection[str] = ()) -> None:
        super().__init__()

        def make(inquirer: Inquirer) -> SessionLister:
            self.lister = SessionLister(inquirer, appenders)
            return self.lister

        self.client = Inquirer(self.host("session-lister-1"), make).client


@pytest.fixture
def stage() -> ListerStage:
    return ListerStage()


def next_question(stage: ListerStage) -> Asked:
    return stage.wait_asked(1, object, milliseconds=60_000)


def pass_over(stage: ListerStage, asked: Asked) -> None:
    """Answer requests that the test does not look at."""
    reply: Any = ErrorReply(ErrorCode.OVERLOADED, 0, 0, 0, b"")
    if isinstance(asked.message, SessionsRequest):
        reply = SessionsReply(0, encode_sessions((ROW,)))
    elif isinstance(asked.message, SessionLookupRequest):
        reply = SessionStateReply(PRODUCER, 1, 0, b"")
    stage.replicas[1].reply(asked, reply)
    stage.pass_ms(5)


def list_once(stage: ListerStage, *, next_after: int = 0) -> SessionsRequest:
    """Answer the next request for a page, and refuse ends before it; returns the request."""
    while not isinstance((asked := next_question(stage)).message, SessionsRequest):
        pass_over(stage, asked)
    stage.replicas[1].reply(asked, SessionsReply(next_after, encode_sessions((ROW,))))
    stage.pass_ms(5)
    return asked.message


def next_end(stage: ListerStage) -> Asked:
    while not isinstance((asked := next_question(stage)).message, EndSessionRequest):
        pass_over(stage, asked)
    return asked


def test_pages_are_asked_for_one_after_another_and_are_facts(stage: ListerStage) -> None:
    assert list_once(stage, next_after=PRODUCER).after == 0
    assert list_once(stage).after == PRODUCER
    assert list_once(stage).after == 0
    told = [(each.rows, each.next_after, each.node) for each in stage.told(SessionsListed)]
    assert told[:2] == [((ROW,), PRODUCER, 1), ((ROW,), 0, 1)]
    assert stage.complaints == []


def test_a_session_that_was_listed_is_ended_which_is_a_fact(stage: ListerStage) -> None:
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


def test_the_end_of_another_session_is_wrong(stage: ListerStage) -> None:
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
def test_it_asks_again_after_a_refusal(stage: ListerStage, code: ErrorCode, is_wrong: bool) -> None:
    stage.replicas[1].reply(next_end(stage), ErrorReply(code, 0, 0, 0, b"no"))
    stage.pass_ms(5)
    assert bool(stage.complaints) is is_wrong
    assert next_question(stage)


def test_in_haste_it_ends_the_session_of_the_last_opening_at_once() -> None:
    """At the node that answered last, without a search for the leader; not before a session was
    opened. Every time that it is asked to."""
    stage = ListerStage((ROW.name.decode(),))
    stage.lister.hurry()
    assert isinstance(next_question(stage).message, SessionsRequest)
    stage = ListerStage((ROW.name.decode(),))
    list_once(stage)
    for _ in range(2):
        stage.lister.hurry()
        asked = stage.wait_asked(1, object, milliseconds=2)
        assert asked.message == EndSessionRequest(PRODUCER)


def test_in_haste_it_ends_several_sessions_without_appends() -> None:
    stage = ListerStage(("name",))
    rows = [
        ROW,
        *(msgspec.structs.replace(ROW, producer_id=PRODUCER + n, name=b"") for n in (1, 2)),
    ]
    while not isinstance((asked := next_question(stage)).message, SessionsRequest):
        pass_over(stage, asked)
    stage.replicas[1].reply(asked, SessionsReply(0, encode_sessions(tuple(rows))))
    stage.pass_ms(5)
    stage.lister.hurry()
    ended = [stage.wait_asked(1, EndSessionRequest, milliseconds=2).message for _ in range(2)]
    assert ended == [EndSessionRequest(PRODUCER + 2), EndSessionRequest(PRODUCER + 1)]
