"""A simulated opener: one name, an epoch after the other, and the violations it reports."""

from __future__ import annotations

import pytest

from actors.simulation.checkers.client_facts import SessionOpened
from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.clients.openers import Opener
from logstore.errors import ErrorCode
from logstore.format.client_messages import ErrorReply, OpenSessionRequest
from tests.simulation.scripted_replica import PRODUCER, Stage


def opener_stage(name: bytes = b"its own") -> tuple[Stage, Inquirer]:
    stage = Stage()
    opener = Inquirer(stage.host("opener-1"), lambda inquirer: Opener(inquirer, name))
    stage.client = opener.client
    return stage, opener


def answer(stage: Stage, *, epoch: int) -> OpenSessionRequest:
    """Answer the next request that reaches the leader."""
    asked = stage.wait_asked(1, OpenSessionRequest)
    stage.replicas[1].reply_open(asked, epoch=epoch)
    stage.pass_ms(2)
    message: OpenSessionRequest = asked.message
    return message


def test_it_opens_the_same_name_again_and_again() -> None:
    stage, opener = opener_stage()
    names = [answer(stage, epoch=epoch).name for epoch in (1, 2, 5)]
    assert len(set(names)) == 1
    opened = stage.told(SessionOpened)
    assert [(each.producer_id, each.producer_epoch) for each in opened] == [
        (PRODUCER, 1), (PRODUCER, 2), (PRODUCER, 5)
    ]  # fmt: skip
    assert (stage.complaints, opener.witness.counts["answered-OpenSessionRequest"]) == ([], 3)


def test_without_a_name_it_is_a_new_producer_each_time() -> None:
    stage, opener = opener_stage(b"")
    assert [answer(stage, epoch=1).name for _ in range(3)] == [b""] * 3
    assert (stage.complaints, opener.witness.counts["answered-OpenSessionRequest"]) == ([], 3)


def test_an_epoch_that_is_not_new_is_wrong() -> None:
    stage, _ = opener_stage()
    answer(stage, epoch=2)
    answer(stage, epoch=2)
    assert "epoch 2 is told as new after epoch 2" in stage.complaints[0][1]


@pytest.mark.parametrize(
    ("code", "is_wrong"), [(ErrorCode.NOT_LEADER, False), (ErrorCode.GAP, True)]
)
def test_it_asks_again_after_a_refusal(code: ErrorCode, is_wrong: bool) -> None:
    stage, opener = opener_stage()
    asked = stage.wait_asked(1, OpenSessionRequest)
    stage.replicas[1].reply(asked, ErrorReply(code, 0, 0, 0, b"no"))
    stage.pass_ms(2)
    assert bool(stage.complaints) is is_wrong
    answer(stage, epoch=1)
    assert opener.witness.counts["answered-OpenSessionRequest"] == 1


def test_once_stopped_it_waits_for_its_answer_and_asks_no_more() -> None:
    stage, opener = opener_stage()
    asked = stage.wait_asked(1, OpenSessionRequest)
    opener.stop()
    assert opener.is_asking
    stage.replicas[1].reply_open(asked)
    stage.pass_ms(2)
    assert not opener.is_asking
    stage.pass_ms(3_000)
    assert stage.inbox[1] == []
