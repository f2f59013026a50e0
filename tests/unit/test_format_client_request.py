"""What a port makes of what arrives: which bytes are answered, with what, and which are not."""

from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c

from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    Acks,
    ErrorReply,
    FetchReply,
    FetchRequest,
    ImportRequest,
    MetadataReply,
    MetadataRequest,
    SessionStateRequest,
    StatusRequest,
    Tip,
)
from logstore.format.client_request import BadRequest, RequestPort, Silence, read_request
from logstore.format.message import PEER_TYPES_END, encode_message, message_types
from logstore.format.peer_messages import TimeoutNow

CORRELATION = 77
CLUSTER = b"c" * 16


def encoded(message: Any = None, *, sender: int = 0) -> bytes:
    return encode_message(
        message or MetadataRequest(), cluster_id=CLUSTER, sender_uuid=bytes(16), sender=sender,
        target=0, correlation=CORRELATION,
    )  # fmt: skip


def changed(position: int, data: bytes, message: Any = None) -> bytes:
    """The frame with other bytes at `position`, as a sender makes it that means them."""
    frame = bytearray(encoded(message))
    frame[position : position + len(data)] = data
    return sealed(frame)


def sealed(frame: bytes | bytearray) -> bytes:
    crc = crc32c(bytes(frame[16:]), crc32c(bytes(frame[:12])))
    return bytes(frame[:12]) + crc.to_bytes(4, "little") + bytes(frame[16:])


def lengthened(tail: bytes, message: Any = None) -> bytes:
    """A body that is longer, and says so."""
    frame = encoded(message) + tail
    return sealed(frame[:8] + (len(frame) - 64).to_bytes(4, "little") + frame[12:])


def cut(message: Any, size: int) -> bytes:
    frame = encoded(message)[:size]
    return sealed(frame[:8] + (len(frame) - 64).to_bytes(4, "little") + frame[12:])


REFUSED = {
    "a length that is not the frame's": (sealed(encoded() + b"!"), "says 0 body bytes, has 1"),
    "a type that nobody knows": (changed(6, (127).to_bytes(2, "little")), "unknown message type"),
    "a type of the other port": (encoded(FetchRequest(1, 2, 0, 1, 0, False)), "no request of the"),
    "a type of the append port": (encoded(ImportRequest(1, 1, b"")), "no request of the"),
    "a type of replicas": (encoded(TimeoutNow(1)), "no request of the"),
    "a node id that no node has": (changed(48, b"\0\0\1\0"), "node ids 65536"),
    "a body that is too short": (cut(SessionStateRequest(1, 2, 3), 79), "body of 15 bytes"),
    "a body that is too long": (lengthened(b"!", StatusRequest()), "body of 1 bytes"),
    "a fact that is 2": (
        changed(64 + 32, b"\2", FetchRequest(1, 2, 0, 1, 0, True)),
        "neither 0 nor 1",
    ),
}


@pytest.mark.parametrize(("frame", "text"), REFUSED.values(), ids=REFUSED)
def test_a_whole_request_that_is_wrong_is_refused_with_what_is_wrong(
    frame: bytes, text: str
) -> None:
    found = read_request([frame], RequestPort.CONTROL)
    assert isinstance(found, BadRequest)
    assert (found.code, found.envelope.correlation) == (ErrorCode.INVALID_REQUEST, CORRELATION)
    assert found.envelope.cluster_id == CLUSTER  # WRONG_CLUSTER stays its own refusal
    assert text in found.text


@pytest.mark.parametrize("version", [0, 2, 65535])
def test_a_newer_version_is_refused_as_such_and_its_cluster_is_not_believed(version: int) -> None:
    found = read_request([changed(4, version.to_bytes(2, "little"))], RequestPort.FETCH)
    assert isinstance(found, BadRequest)
    assert (found.code, found.envelope.correlation) == (
        ErrorCode.UNSUPPORTED_VERSION, CORRELATION,
    )  # fmt: skip
    assert found.envelope.cluster_id == bytes(16)


@pytest.mark.parametrize(
    "frames", [[b"", encoded()], [encoded(), b""], [encoded(), encoded()], [b"x", b"y", encoded()]]
)
def test_a_request_of_several_frames_is_told_that_it_is_one(frames: list[bytes]) -> None:
    """The first mistake of a client that sends what a REQ socket would send."""
    found = read_request(frames, RequestPort.CONTROL)
    assert isinstance(found, BadRequest)
    assert found.envelope.correlation == CORRELATION
    assert found.text == f"a request is one frame, the message: these are {len(frames)}"


@pytest.mark.parametrize("position", [5, 12, 20, 56, 63])
def test_a_flipped_bit_makes_the_correlation_unbelievable(position: int) -> None:
    frame = bytearray(encoded())
    frame[position] ^= 1
    assert read_request([bytes(frame)], RequestPort.CONTROL) is Silence.DAMAGED


@pytest.mark.parametrize(
    "frames", [[], [b""], [b"x" * 64], [b"HTTP" + bytes(60)], [b"a", b"b"], [bytes(64)],
               [encoded()[1:]], [encoded()[:63]],
               [encoded() + b"!"], [changed(0, b"LMSH")]],
)  # fmt: skip
def test_what_is_no_message_is_silence(frames: list[bytes]) -> None:
    assert read_request(frames, RequestPort.CONTROL) is Silence.NO_MESSAGE


@pytest.mark.parametrize("port", RequestPort)
@pytest.mark.parametrize(
    "answer",
    [
        ErrorReply(ErrorCode.INVALID_REQUEST, 0, 0, 0, b"no"),
        MetadataReply(b"{}"),
        FetchReply(1, 1, 1, 0),
        Acks(1, 1, 1, b""),
        Tip(1),
    ],
)
def test_an_answer_is_never_answered(port: RequestPort, answer: Any) -> None:
    """Not even one that is wrong: two ports would answer each other for ever through a proxy."""
    frame = encoded(answer, sender=2)
    assert read_request([frame], port) is Silence.ANSWER
    assert read_request([frame, b"pieces"], port) is Silence.ANSWER
    assert read_request([b"\1" * 8, frame], port) is Silence.ANSWER
    assert read_request([changed(4, b"\2", answer)], port) is Silence.ANSWER
    assert read_request([lengthened(b"!", answer)], port) is Silence.ANSWER


def test_a_producer_asks_the_produce_port_what_it_may_ask_the_control_port() -> None:
    assert RequestPort.PRODUCE.value < RequestPort.CONTROL.value
    request = MetadataRequest()
    found = read_request([encoded(request)], RequestPort.PRODUCE)
    assert isinstance(found, tuple)
    assert found[1] == request
    refused = read_request([encoded(StatusRequest())], RequestPort.PRODUCE)
    assert isinstance(refused, BadRequest)
    assert refused.text.endswith("the produce port but of the control port: check the endpoint")


def test_every_client_message_is_a_request_of_one_port_or_an_answer() -> None:
    clients = {cls for number, cls in message_types().items() if number >= PEER_TYPES_END}
    requests = RequestPort.CONTROL.value | RequestPort.FETCH.value
    named = {cls for cls in clients if cls.__name__.endswith("Request")}
    assert not RequestPort.CONTROL.value & RequestPort.FETCH.value
    assert named == requests | {ImportRequest}


def test_who_asks_the_wrong_port_of_a_node_is_told_the_right_one() -> None:
    found = read_request([encoded(MetadataRequest())], RequestPort.FETCH)
    assert isinstance(found, BadRequest)
    assert found.text.endswith("the fetch port but of the control port: check the endpoint")
