"""A simulated bungler: the wrong requests it sends, the right refusals, and what must not be
answered."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import zmq

from actors.simulation.checkers.messages.blunders import Blunder
from actors.simulation.clients.bungler import Bungler, sealed, spoiled
from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.world.client_host import MS_NS
from logstore.errors import ErrorCode
from logstore.format.client_messages import ErrorReply, MetadataReply, MetadataRequest
from logstore.format.client_request import BadRequest, RequestPort, Silence, read_request
from logstore.format.message import encode_message
from logstore.settings import PortOffset
from tests.simulation.scripted_replica import CLUSTER, NODES, Stage, endpoint
from transport import link
from transport.inproc import FakeNetwork

PORTS = {PortOffset.CONTROL: RequestPort.CONTROL, PortOffset.FETCH: RequestPort.FETCH}
SILENT = (Blunder.DAMAGED, Blunder.ANSWER)


def honest_frame() -> bytes:
    return encode_message(
        MetadataRequest(), cluster_id=bytes(16), sender_uuid=bytes(16), sender=0, target=0,
        correlation=9,
    )  # fmt: skip


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("blunder", Blunder)
def test_a_blunder_is_what_its_name_says(blunder: Blunder, port: PortOffset) -> None:
    for seed in range(50):
        frames = spoiled(blunder, port, honest_frame(), Random(seed))
        found = read_request(list(frames), PORTS[port])
        if blunder in SILENT:
            assert isinstance(found, Silence)
        else:
            assert isinstance(found, BadRequest)
            assert found.envelope.correlation == 9
            is_newer = found.code is ErrorCode.UNSUPPORTED_VERSION
            assert is_newer == (blunder is Blunder.NEWER)
        assert sum(map(len, frames)) < 4_096


class Routers:
    """The request ports of three nodes; `reply` says what each message is answered with."""

    def __init__(
        self, network: FakeNetwork, reply: Callable[[list[bytes], PortOffset], Any]
    ) -> None:
        self.reply = reply
        self._routers = {
            (node, offset): network.bind(zmq.ROUTER, endpoint(node, offset))
            for node in NODES
            for offset in PORTS
        }

    def work(self) -> None:
        for (node, offset), router in self._routers.items():
            while (frames := link.try_receive(router)) is not None:
                message = self.reply(frames[1:], offset)
                if message is not None:
                    correlation = int.from_bytes(frames[-1][56:64], "little")
                    frame = encode_message(
                        message, cluster_id=CLUSTER, sender_uuid=bytes(16), sender=node, target=0,
                        correlation=correlation,
                    )  # fmt: skip
                    assert link.try_send(router, [frames[0], frame])


def rightly(frames: list[bytes], offset: PortOffset) -> Any:
    """What a replica answers."""
    found = read_request(frames, PORTS[offset])
    if isinstance(found, Silence):
        return None
    if isinstance(found, BadRequest):
        return ErrorReply(found.code, 0, 0, 0, found.text.encode())
    return MetadataReply(b"{}")


def bungle(
    reply: Callable[[list[bytes], PortOffset], Any], *, seconds: int = 200
) -> tuple[Inquirer, Stage]:
    """A bungler among routers that reply like this, after it ran for so long."""
    stage = Stage()
    network = FakeNetwork()
    stage.links._network = network
    routers = Routers(network, reply)
    bungler = Inquirer(stage.host("bungler-1"), Bungler)
    now_ns = 0
    for _ in range(seconds * 20):
        bungler.client.do_work(now_ns)
        routers.work()
        now_ns += 50 * MS_NS
    return bungler, stage


def test_every_blunder_is_refused_or_ignored() -> None:
    bungler, stage = bungle(rightly)
    assert stage.complaints == []
    wanted = {f"silence-{each}" if each in SILENT else f"told-{each}" for each in Blunder}
    assert set(bungler.witness.counts) == wanted


def test_without_an_answer_it_goes_on_asking_after_it_was_stopped() -> None:
    bungler, stage = bungle(lambda frames, offset: None, seconds=20)
    bungler.stop()
    bungler.client.do_work(30_000 * MS_NS)
    assert bungler.is_asking
    assert bungler.witness.counts["late"] > 3
    assert stage.complaints == []


@pytest.mark.parametrize(
    ("code", "text", "complaint"),
    [
        (ErrorCode.NOT_LEADER, b"why", "is answered ErrorReply"),
        (ErrorCode.INVALID_REQUEST, b"", "without a reason"),
    ],
)
def test_another_answer_is_wrong(code: ErrorCode, text: bytes, complaint: str) -> None:
    def reply(frames: list[bytes], offset: PortOffset) -> Any:
        answer = rightly(frames, offset)
        return ErrorReply(code, 0, 0, 0, text) if isinstance(answer, ErrorReply) else answer

    _, stage = bungle(reply)
    assert any(complaint in text for _, text in stage.complaints)


@pytest.mark.parametrize("blunder", SILENT)
def test_an_answer_to_what_must_not_be_answered_is_wrong(blunder: Blunder) -> None:
    silence = Silence.DAMAGED if blunder is Blunder.DAMAGED else Silence.ANSWER

    def reply(frames: list[bytes], offset: PortOffset) -> Any:
        if read_request(frames, PORTS[offset]) is silence:
            return ErrorReply(ErrorCode.INVALID_REQUEST, 0, 0, 0, b"no")
        return rightly(frames, offset)

    _, stage = bungle(reply)
    assert any(f"{blunder} at CONTROL" in text for _, text in stage.complaints)


def test_a_sealed_frame_is_whole() -> None:
    assert sealed(honest_frame()) == honest_frame()
