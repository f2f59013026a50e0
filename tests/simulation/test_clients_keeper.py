"""Simulated keepers of cursors against scripted replicas: their requests and facts."""

from __future__ import annotations

import pytest

from actors.simulation.checkers.client_facts import (
    CursorAsked,
    CursorChanged,
    CursorMoved,
    CursorsListed,
)
from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.clients.keeper import Keeper
from actors.simulation.world.client_host import NEVER_NS
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    CursorsReply,
    CursorsRequest,
    DoneReply,
    ErrorReply,
    SetCursorRequest,
)
from logstore.format.cursor_entries import Cursor, encode_cursors
from logstore.model import Lsn
from tests.simulation.scripted_replica import Asked, Stage

LONG_MS = 200_000


class KeeperStage(Stage):
    def __init__(self) -> None:
        super().__init__()
        self.keeper = Inquirer(self.host("keeper-1"), Keeper)
        self.client = self.keeper.client


@pytest.fixture
def stage() -> KeeperStage:
    return KeeperStage()


def refusal(code: ErrorCode, first: int = 0) -> ErrorReply:
    return ErrorReply(code, 0, first, 0, b"")


def next_change(stage: KeeperStage) -> Asked:
    """The next change at the leader; lists before it get no answer."""
    return stage.wait_asked(1, SetCursorRequest, milliseconds=LONG_MS)


def test_each_change_has_an_lsn_of_its_own_and_is_a_fact(stage: KeeperStage) -> None:
    lsns = []
    for _ in range(12):
        asked = next_change(stage)
        request = asked.message
        question = stage.told(CursorAsked)[-1]
        assert question.change == Cursor(request.name, request.lsn, bool(request.hold))
        assert question.expected_lsn == request.expected_lsn
        lsns += [request.lsn] if request.lsn else []
        stage.replicas[1].reply(asked, DoneReply(5))
        stage.pass_ms(5)
        answer = stage.told(CursorChanged)[-1]
        assert (answer.number, answer.previous_lsn) == (question.number, 5)
    assert len(set(lsns)) == len(lsns) > 3
    assert stage.complaints == []


def test_a_list_is_a_fact_and_later_changes_expect_it(stage: KeeperStage) -> None:
    cursors = (Cursor(b"a", Lsn(70), True), Cursor(b"cursor-3", Lsn(71), False))
    expected = set()
    for _ in range(30):
        asked = stage.wait_asked(1, CursorsRequest, milliseconds=LONG_MS)
        stage.replicas[1].reply(asked, CursorsReply(encode_cursors(cursors)))
        stage.pass_ms(5)
        answer = stage.told(CursorsListed)[-1]
        assert (answer.cursors, answer.node) == (cursors, 1)
        expected |= {each.expected_lsn for each in stage.told(CursorAsked)[-3:]}
    assert {70, 71} <= expected
    assert stage.complaints == []


def test_a_moved_cursor_is_a_fact_and_no_other_refusal_is(stage: KeeperStage) -> None:
    asked = next_change(stage)
    stage.replicas[1].reply(asked, refusal(ErrorCode.CURSOR_MOVED, 70))
    stage.pass_ms(5)
    assert [(each.lsn, each.node) for each in stage.told(CursorMoved)] == [(70, 1)]
    for code in (ErrorCode.NOT_READY, ErrorCode.OUTCOME_UNKNOWN, ErrorCode.TIMED_OUT):
        stage.replicas[1].reply(next_change(stage), refusal(code))
        stage.pass_ms(5)
    assert stage.keeper.witness.counts["refused-outcome_unknown"] == 1
    assert stage.complaints == []


@pytest.mark.parametrize(
    "answer", [refusal(ErrorCode.TOO_MANY_CURSORS), refusal(ErrorCode.INVALID_REQUEST)]
)
def test_an_answer_that_cannot_be_is_a_violation(stage: KeeperStage, answer: ErrorReply) -> None:
    stage.replicas[1].reply(next_change(stage), answer)
    stage.pass_ms(5)
    assert {number for number, _ in stage.complaints} == {"I11"}


def test_a_list_that_does_not_decode_is_a_violation(stage: KeeperStage) -> None:
    asked = stage.wait_asked(1, CursorsRequest, milliseconds=LONG_MS)
    stage.replicas[1].reply(asked, CursorsReply(bytes(16)))
    stage.pass_ms(5)
    assert {number for number, _ in stage.complaints} == {"I11"}


def test_one_that_is_stopped_drops_its_question_and_asks_no_other(stage: KeeperStage) -> None:
    next_change(stage)
    keeper = stage.keeper
    keeper.stop()
    assert keeper.is_asking
    stage.pass_ms(20_000)
    assert not keeper.is_asking
    assert keeper.witness.counts["failed-outcome_unknown"] >= 1
    assert stage.client.next_timer_ns() == NEVER_NS
    asked = len(stage.told(CursorAsked))
    stage.pass_ms(20_000)
    assert len(stage.told(CursorAsked)) == asked
