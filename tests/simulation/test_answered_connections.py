"""What may come over a connection of the produce port: answers to what went there (SAFETY E9)."""

from __future__ import annotations

import pytest

from actors.simulation.checkers.client_facts import AnsweredThere
from actors.simulation.checkers.facts import Fact, PromiseBroken
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.messages.answered_connections import AnsweredConnections
from actors.simulation.checkers.messages.witness import Witness
from logstore.errors import ErrorCode
from logstore.format.batch import encode_batch
from logstore.format.client_messages import ACK_ROW, Acks, SessionStateReply, append_prefix
from tests.simulation.scripted_replica import Stage

LINK, OTHER = object(), object()
NODE, PRODUCER, EPOCH = 2, 1001, 1


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def connections(stage: Stage) -> AnsweredConnections:
    return AnsweredConnections(Witness(stage.host()))


def push(sequence: int, *, epoch: int = EPOCH) -> bytes:
    return append_prefix(0) + encode_batch(
        [b"a"], producer_id=PRODUCER, producer_epoch=epoch, sequence=sequence, timestamp_ns=0
    )


def acks(*sequences: int, code: ErrorCode = ErrorCode.OK, epoch: int = EPOCH) -> Acks:
    rows = b"".join(ACK_ROW.pack(each, 1, 1, code, 0) for each in sequences)
    return Acks(PRODUCER, epoch, 0, rows)


def broken(told: list[Fact]) -> list[Invariant]:
    return [each.invariant for each in told if isinstance(each, PromiseBroken)]


def test_what_was_sent_over_a_connection_is_answered_on_it(
    stage: Stage, connections: AnsweredConnections
) -> None:
    for sequence in (0, 1):
        assert connections.is_batch(push(sequence))
        connections.sent(LINK, push(sequence))
    assert connections.on_acks(LINK, NODE, acks(0, 1))
    assert connections.on_acks(LINK, NODE, acks(1, code=ErrorCode.GAP))
    assert stage.facts == [AnsweredThere(False), AnsweredThere(False)]


@pytest.mark.parametrize("wrong", [acks(0, 1), acks(0, epoch=2), acks(1, code=ErrorCode.GAP)])
def test_an_answer_to_what_was_not_sent_over_a_connection_is_a_violation(
    stage: Stage, connections: AnsweredConnections, wrong: Acks
) -> None:
    connections.sent(LINK, push(0))
    connections.sent(OTHER, push(1))
    assert not connections.on_acks(LINK, NODE, wrong)
    assert broken(stage.facts) == [Invariant.I11]


def test_what_session_state_says_is_in_the_log_is_answered_on_its_connection(
    stage: Stage, connections: AnsweredConnections
) -> None:
    row = ACK_ROW.pack(5, 0, 1, ErrorCode.OUTCOME_UNKNOWN, 0)
    settled = ACK_ROW.pack(4, 9, 1, ErrorCode.OK, 0)
    connections.on_state(LINK, SessionStateReply(PRODUCER, EPOCH, 6, settled + row))
    assert connections.on_acks(LINK, NODE, acks(5))
    assert stage.facts == [AnsweredThere(True)]
    assert not connections.on_acks(LINK, NODE, acks(4))
    assert broken(stage.facts) == [Invariant.I11]


def test_bytes_that_are_no_batch_are_no_reason_for_an_answer(
    stage: Stage, connections: AnsweredConnections
) -> None:
    connections.sent(LINK, b"LA")
    connections.sent(LINK, push(0)[:20])
    assert not connections.on_acks(LINK, NODE, acks(0))
    connections.sent(LINK, push(0))
    connections.closed(LINK)
    assert not connections.on_acks(LINK, NODE, acks(0))
