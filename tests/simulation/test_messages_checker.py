"""Messages of replicas to the client's core: a checker sees every message first."""

from __future__ import annotations

from typing import Any

from actors.simulation.checkers.messages.message_checker import MessageChecker, Received
from actors.simulation.checkers.messages.witness import Witness
from actors.simulation.network.core_links import SimulatedLink, SimulatedLinks
from logstore.format.client_messages import (
    Acks,
    ErrorReply,
    MetadataRequest,
    StatusReply,
    StatusRequest,
    TimeLookupReply,
    TimeLookupRequest,
)
from logstore.format.message import encode_message
from logstore.model import Lsn
from logstore.settings import PortOffset
from tests.simulation.scripted_replica import CLUSTER, PRODUCER, Stage, endpoint

TOPIC = PRODUCER.to_bytes(8, "little")


class Wired:
    """Links of one client on the stage, and what its judge got."""

    def __init__(self, judged: type[Any]) -> None:
        self.stage = Stage()
        self.received: list[Received] = []
        witness = Witness(self.stage.host())
        self.links = SimulatedLinks(
            self.stage.links, MessageChecker(witness, {judged: self.received.append})
        )

    def ask(self, port: PortOffset, request: Any, *, number: int = 1) -> SimulatedLink:
        requester = self.links.requester(endpoint(1, port))
        assert requester.try_send(encoded(request, number))
        return requester

    def answer(self, message: Any, *more: bytes) -> None:
        (asked,) = self.stage.replicas[1].asked()
        self.stage.replicas[1].reply(asked, message, *more)


def encoded(message: Any, correlation: int, *, cluster_id: bytes = CLUSTER) -> bytes:
    return encode_message(
        message, cluster_id=cluster_id, sender_uuid=bytes(16), sender=1, target=0,
        correlation=correlation,
    )  # fmt: skip


def test_a_judge_gets_the_request_and_both_frames() -> None:
    wired = Wired(TimeLookupReply)
    requester = wired.ask(PortOffset.FETCH, TimeLookupRequest(7))
    wired.answer(TimeLookupReply(Lsn(3)), b"more")
    assert requester.try_receive() is not None
    reply = TimeLookupReply(Lsn(3))
    (received,) = wired.received
    assert (received.node, received.request, received.message) == (1, TimeLookupRequest(7), reply)
    assert received.more == b"more"
    assert not wired.stage.complaints


def test_a_refusal_is_judged_with_its_request() -> None:
    wired = Wired(ErrorReply)
    requester = wired.ask(PortOffset.FETCH, TimeLookupRequest(7))
    wired.answer(ErrorReply(4, 0, 0, 0, b"no"))
    requester.try_receive()
    assert [each.request for each in wired.received] == [TimeLookupRequest(7)]
    assert not wired.stage.complaints


def test_an_answer_to_another_question_is_a_violation() -> None:
    wired = Wired(StatusReply)
    requester = wired.ask(PortOffset.CONTROL, MetadataRequest())
    wired.answer(StatusReply(b"{}"))
    requester.try_receive()
    assert [number for number, _ in wired.stage.complaints] == ["I11"]
    assert not wired.received


def test_an_answer_after_the_link_was_closed_is_ignored() -> None:
    wired = Wired(StatusReply)
    requester = wired.ask(PortOffset.CONTROL, StatusRequest())
    requester.close()
    assert not wired.received


def test_what_is_no_message_is_a_violation() -> None:
    wired = Wired(StatusReply)
    requester = wired.ask(PortOffset.CONTROL, StatusRequest())
    checker = MessageChecker(Witness(wired.stage.host()))
    checker.received(requester, [b"no message"])
    assert [number for number, _ in wired.stage.complaints] == ["I11"]


def test_a_replica_of_another_cluster_is_a_violation() -> None:
    wired = Wired(StatusReply)
    requester = wired.ask(PortOffset.CONTROL, StatusRequest())
    checker = MessageChecker(Witness(wired.stage.host()))
    for cluster_id in (CLUSTER, bytes(range(16))):
        checker.received(requester, [encoded(StatusReply(b"{}"), 1, cluster_id=cluster_id)])
    assert [number for number, _ in wired.stage.complaints] == ["I8"]


def test_a_feed_carries_what_belongs_to_it_and_of_its_topic() -> None:
    wired = Wired(Acks)
    feed = wired.links.feed(endpoint(1, PortOffset.ACKS), TOPIC, queue_max=8)
    checker = MessageChecker(Witness(wired.stage.host()))
    acks = encoded(Acks(PRODUCER, 1, 1, b""), 0)
    checker.received(feed, [TOPIC, acks])
    assert not wired.stage.complaints
    checker.received(feed, [b"another", acks])
    checker.received(feed, [TOPIC, encoded(StatusReply(b"{}"), 0)])
    assert [number for number, _ in wired.stage.complaints] == ["I11", "I11"]
