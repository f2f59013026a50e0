"""Which answers to a client are wrong by themselves, and the facts of the others."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from actors.simulation.checkers.client_facts import EndTold
from actors.simulation.checkers.messages.message_checker import MessageChecker
from actors.simulation.checkers.messages.witness import Witness
from actors.simulation.network.core_links import SimulatedLink
from logstore.errors import ErrorCode, FormatError, InvalidRequest, LogStoreError, NotReady
from logstore.format.client_messages import (
    ErrorReply,
    InitializeRequest,
    OpenSessionReply,
    OpenSessionRequest,
    SessionStateReply,
    SessionStateRequest,
    StatusReply,
    StatusRequest,
    TailNotice,
    Tip,
    TransferRequest,
    WatermarksReply,
    WatermarksRequest,
)
from logstore.format.first_lsn import pack_first_lsn
from logstore.format.message import encode_message
from logstore.model import AckLevel, Lsn, SequenceMode
from logstore.settings import PortOffset
from tests.simulation.scripted_replica import CLUSTER, PRODUCER, Stage, endpoint

MARKS = WatermarksRequest(Lsn(0), 0, False)
FIRST = pack_first_lsn(Lsn(1))


class _Link:
    """The part of a link that a checker reads."""

    def __init__(self, address: str) -> None:
        self.address = address


class AnswerStage:
    """A link of a client to a port of node 2."""

    def __init__(self, offset: PortOffset = PortOffset.CONTROL) -> None:
        self.stage = Stage()
        self.witness = Witness(self.stage.host("client-1"))
        self.observer = MessageChecker(self.witness)
        self.link = cast(SimulatedLink, _Link(endpoint(2, offset)))
        self._correlation = 0

    def ask(self, message: Any) -> None:
        self._correlation += 1
        self.observer.sent(self.link, self._frame(message, bytes(16)))

    def tell(self, message: Any, *more: bytes, cluster_id: bytes = CLUSTER) -> list[str]:
        """The node answers the last request; returns the invariants of all violations so far."""
        self.observer.received(self.link, [self._frame(message, cluster_id), *more])
        return [number for number, _ in self.stage.complaints]

    def _frame(self, message: Any, cluster_id: bytes) -> bytes:
        return encode_message(
            message, cluster_id=cluster_id, sender_uuid=bytes(16), sender=2, target=0,
            correlation=self._correlation,
        )  # fmt: skip


def test_an_answer_that_comes_twice_is_one_fact() -> None:
    stage = AnswerStage(PortOffset.FETCH)
    stage.ask(MARKS)
    for _ in range(2):
        assert stage.tell(WatermarksReply(Lsn(1), Lsn(7))) == []
    (told,) = stage.stage.told(EndTold)
    assert (told.node, told.end_lsn, told.is_linearizable) == (2, 7, False)


def test_answers_over_a_link_that_was_closed_are_ignored() -> None:
    stage = AnswerStage(PortOffset.FETCH)
    stage.ask(MARKS)
    stage.observer.closed(stage.link)
    assert stage.tell(WatermarksReply(Lsn(1), Lsn(7))) == []
    assert stage.stage.told(EndTold) == []


@pytest.mark.parametrize(
    ("request_", "reply", "number"),
    [
        (StatusRequest(), StatusReply(b'{"role": '), "I11"),
        (StatusRequest(), WatermarksReply(Lsn(1), Lsn(7)), "I11"),
        (StatusRequest(), ErrorReply(ErrorCode.FENCED, 0, 0, 0, b""), "I11"),
        (TransferRequest(0), ErrorReply(ErrorCode.INVALID_REQUEST, 0, 0, 0, b""), "I11"),
        (InitializeRequest(FIRST), ErrorReply(ErrorCode.NOT_LEADER, 1, 0, 0, b""), "I11"),
        (StatusRequest(), StatusReply(b'{"role": "leader"}'), ""),
        (TransferRequest(0), ErrorReply(ErrorCode.TRANSFER_FAILED, 0, 0, 0, b""), ""),
        (InitializeRequest(FIRST), ErrorReply(ErrorCode.NOT_READY, 0, 0, 0, b""), ""),
    ],
)
def test_an_answer_must_be_one_to_what_was_asked(request_: Any, reply: Any, number: str) -> None:
    stage = AnswerStage()
    stage.ask(request_)
    assert stage.tell(reply) == ([number] if number else [])


OPEN = OpenSessionRequest(PRODUCER, SequenceMode.DENSE, AckLevel.QUORUM, 16, b"")
OPEN_NEW = msgspec.structs.replace(OPEN, producer_id=0)
OPENED = OpenSessionReply(PRODUCER, 2, 16, 4_096, 1_024, 0)
STATE = SessionStateRequest(PRODUCER, 2, 1)
UNKNOWN = ErrorReply(ErrorCode.UNKNOWN_PRODUCER, 0, 0, 0, b"")


@pytest.mark.parametrize(
    ("request_", "reply", "number"),
    [
        (OPEN, OPENED, ""),
        (OPEN, msgspec.structs.replace(OPENED, producer_id=PRODUCER + 1), "I17"),
        (OPEN_NEW, msgspec.structs.replace(OPENED, producer_id=0), "I17"),
        (OPEN, msgspec.structs.replace(OPENED, producer_epoch=0), "I17"),
        (OPEN, msgspec.structs.replace(OPENED, window=1), "I17"),
        (OPEN, msgspec.structs.replace(OPENED, next_sequence=1), "I17"),
        (OPEN, UNKNOWN, ""),
        (OPEN_NEW, UNKNOWN, "I17"),
        (STATE, SessionStateReply(PRODUCER, 2, 0, b""), ""),
        (STATE, SessionStateReply(PRODUCER, 3, 0, b""), "I7"),
        (STATE, UNKNOWN, ""),
        (STATE, ErrorReply(ErrorCode.INVALID_REQUEST, 0, 0, 0, b""), "I11"),
    ],
)
def test_a_session_is_opened_as_asked_for(request_: Any, reply: Any, number: str) -> None:
    stage = AnswerStage()
    stage.ask(request_)
    assert stage.tell(reply) == ([number] if number else [])


def test_a_message_that_does_not_belong_on_the_tail_is_a_violation() -> None:
    stage = AnswerStage(PortOffset.TAIL)
    assert stage.tell(Tip(Lsn(3))) == []
    assert stage.tell(TailNotice(Lsn(1), Lsn(2))) == []
    assert stage.tell(WatermarksReply(Lsn(1), Lsn(7))) == ["I11"]


@pytest.mark.parametrize(
    ("error", "is_wrong"),
    [
        (NotReady("later"), False),
        (FormatError("it came where it is not due"), True),
        (InvalidRequest("nothing"), True),
        (LogStoreError("error 99 of a newer version"), True),
    ],
)
def test_a_call_may_fail_as_users_must_expect(error: LogStoreError, is_wrong: bool) -> None:
    stage = AnswerStage()
    stage.witness.call_failed(error)
    assert bool(stage.stage.complaints) is is_wrong


@pytest.mark.parametrize("may_leave", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "no node 1; the cluster has [2, 3]",
        "node 2 is no such member of this cluster: see `logstore status`",
    ],
)
def test_a_call_may_be_of_a_member_that_left_where_members_leave(
    text: str, *, may_leave: bool
) -> None:
    stage = AnswerStage()
    host = msgspec.structs.replace(stage.stage.host("client-1"), has_lost_disks=may_leave)
    Witness(host).call_failed(InvalidRequest(text))
    assert bool(stage.stage.complaints) is not may_leave


@pytest.mark.parametrize("may_leave", [False, True])
def test_a_transfer_may_be_to_a_member_that_left_where_members_leave(*, may_leave: bool) -> None:
    stage = AnswerStage()
    host = msgspec.structs.replace(stage.stage.host("client-1"), has_lost_disks=may_leave)
    stage.observer = MessageChecker(Witness(host))
    stage.ask(TransferRequest(2))
    told = stage.tell(ErrorReply(ErrorCode.INVALID_REQUEST, 0, 0, 0, b"no node 2 in this cluster"))
    assert bool(told) is not may_leave
