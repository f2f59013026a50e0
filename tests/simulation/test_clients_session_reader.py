"""A simulated reader of sessions against scripted replicas: its requests and facts."""

from __future__ import annotations

import pytest

from actors.simulation.checkers.client_facts import SessionAsked, SessionTold
from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.clients.session_reader import SessionReader
from logstore.errors import ErrorCode
from logstore.format.client_messages import ErrorReply, SessionLookupRequest, SessionStateReply
from tests.simulation.scripted_replica import PRODUCER, Asked, Stage, row

NAMES = ("one", "another")


class ReaderStage(Stage):
    def __init__(self) -> None:
        super().__init__()
        host = self.host("session-reader-1")
        self.inquirer = Inquirer(host, lambda inquirer: SessionReader(inquirer, NAMES))
        self.client = self.inquirer.client


@pytest.fixture
def stage() -> ReaderStage:
    return ReaderStage()


def next_lookup(stage: ReaderStage) -> Asked:
    return stage.wait_asked(1, SessionLookupRequest, milliseconds=60_000)


def test_each_name_is_asked_for_and_every_answer_is_a_fact(stage: ReaderStage) -> None:
    found = []
    for answer in 5 * (SessionStateReply(PRODUCER, 1, 2, row(1)), SessionStateReply(0, 0, 0, b"")):
        asked = next_lookup(stage)
        question = stage.told(SessionAsked)[-1]
        assert question.name == asked.message.name
        found.append(question.name)
        stage.replicas[1].reply(asked, answer)
        stage.pass_ms(5)
        told = stage.told(SessionTold)[-1]
        assert (told.number, told.reply, told.node) == (question.number, answer, 1)
    assert set(found) == {each.encode() for each in NAMES}
    counts = stage.inquirer.witness.counts
    assert (counts["looked-up"], counts["nobody"]) == (5, 5)
    assert stage.complaints == []


@pytest.mark.parametrize(
    ("code", "is_wrong"), [(ErrorCode.TIMED_OUT, False), (ErrorCode.UNKNOWN_PRODUCER, True)]
)
def test_it_asks_again_after_a_refusal(stage: ReaderStage, code: ErrorCode, is_wrong: bool) -> None:
    stage.replicas[1].reply(next_lookup(stage), ErrorReply(code, 0, 0, 0, b"no"))
    stage.pass_ms(5)
    assert [number for number, _ in stage.complaints] == (["I11"] if is_wrong else [])
    assert stage.told(SessionTold) == []
    assert next_lookup(stage)
