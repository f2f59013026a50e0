"""One load over the bare protocol, by PUSH and the ack feed or by a DEALER of the produce port; a
script.

Prints what it took as JSON. Both ways run the same loop in one thread, so what differs is the way.
`packed`: as fast as the batches under way let it; `one at a time`: the next batch, of one payload,
once the last one is acknowledged.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from logstore.errors import LogStoreError
from logstore.format.batch import encode_batch
from logstore.format.client_messages import (
    ACK_ROW,
    Acks,
    MetadataReply,
    MetadataRequest,
    OpenSessionReply,
    OpenSessionRequest,
    SessionStateReply,
    SessionStateRequest,
    Welcome,
    append_prefix,
)
from logstore.format.message import decode_message, encode_message
from logstore.model import NO_NODE, SequenceMode
from logstore.settings import PortOffset
from transport import link
from transport.poller import Poller

PAYLOADS_PACKED = 64
UNDER_WAY = 32  # batches: 2 MiB of packed ones
PATIENCE_S = 30.0
MESSAGE_MAX_BYTES = 8 << 20
ROUND = 1
_SIZE: dict[str, Any] = {"message_size_max": MESSAGE_MAX_BYTES}
_OK = 0


class Way:
    """Two sockets, or one twice: batches go out of `out`, answers come to `into`."""

    def __init__(self, out: Any, into: Any) -> None:
        self.out = out
        self.into = into
        self.poller = Poller()
        self.acknowledged = 0  # sequences below it

    def send(self, frame: bytes) -> None:
        """Raises LogStoreError: there is no room for PATIENCE_S."""
        end_s = time.perf_counter() + PATIENCE_S
        while not link.try_send(self.out, (frame,)):
            if time.perf_counter() > end_s:
                raise LogStoreError("a batch finds no room")
            self.poller.wait([self.into], 1)

    def wait_for(self, sequence: int) -> None:
        """Until everything up to `sequence` is acknowledged."""
        while self.acknowledged <= sequence:
            self._take(self.receive(Acks))

    def take_what_came(self) -> None:
        while (frames := link.try_receive(self.into)) is not None:
            self._take(decode_message(frames[-1])[1])

    def receive(self, kind: type[Any]) -> Any:
        """The next message of this kind. Raises LogStoreError: none comes within PATIENCE_S, or a
        refusal does."""
        end_s = time.perf_counter() + PATIENCE_S
        while time.perf_counter() < end_s:
            while (frames := link.try_receive(self.into)) is not None:
                message = decode_message(frames[-1])[1]
                if isinstance(message, kind):
                    return message
                if not isinstance(message, Welcome | Acks):
                    raise LogStoreError(f"answered with {message}")
            self.poller.wait([self.into], int(PATIENCE_S * 1e3))
        raise LogStoreError(f"no {kind.__name__}")

    def _take(self, acks: Acks) -> None:
        for sequence, _, _, code, _ in ACK_ROW.iter_unpack(acks.rows):
            if code != _OK:
                raise LogStoreError(f"sequence {sequence} is refused with {code}")
            self.acknowledged = max(self.acknowledged, sequence + 1)


def request(address: str, message: Any, reply: type[Any]) -> tuple[Any, Any]:
    """The reply and the socket, which has asked."""
    socket = link.dealer_connect(address, lane=link.Lane.BULK, **_SIZE)
    way = Way(socket, socket)
    way.send(encoded(message))
    return way.receive(reply), socket


def encoded(message: Any) -> bytes:
    return encode_message(
        message,
        cluster_id=bytes(16),
        sender_uuid=bytes(16),
        sender=NO_NODE,
        target=NO_NODE,
        correlation=1,
    )


def open_way(name: str, endpoint: str) -> tuple[Way, Any]:
    """The way, and the session that was opened at the leader of the node at `endpoint`."""
    metadata, socket = request(f"tcp://{endpoint}", MetadataRequest(), MetadataReply)
    socket.close(linger=0)
    document = json.loads(metadata.document)
    (node,) = [each for each in document["nodes"] if each["node"] == document["leader"]]
    host, port = f"tcp://{node['host']}", node["port"]
    opening = OpenSessionRequest(0, SequenceMode.DENSE, 1, 0, b"")
    if name == "dealer":
        session, socket = request(f"{host}:{node['produce_port']}", opening, OpenSessionReply)
        return Way(socket, socket), session
    session, control = request(f"{host}:{port}", opening, OpenSessionReply)
    feed = link.sub_connect(
        f"{host}:{port + PortOffset.ACKS}",
        topics=[session.producer_id.to_bytes(8, "little")],
        **_SIZE,
    )
    way = Way(link.push_connect(f"{host}:{port + PortOffset.APPEND}", **_SIZE), feed)
    way.receive(Welcome)
    asking = Way(control, control)
    asking.send(encoded(SessionStateRequest(session.producer_id, session.producer_epoch, ROUND)))
    asking.receive(SessionStateReply)
    control.close(linger=0)
    return way, session


def frame_of(session: Any, sequence: int, payloads: list[bytes]) -> bytes:
    return append_prefix(ROUND) + encode_batch(
        payloads,
        producer_id=session.producer_id,
        producer_epoch=session.producer_epoch,
        sequence=sequence,
        timestamp_ns=0,
    )


def packed(way: Way, session: Any, payload: bytes, count: int) -> dict[str, float]:
    payloads = [payload] * PAYLOADS_PACKED
    under_way = min(UNDER_WAY, session.window)
    started_s = time.perf_counter()
    for sequence in range(count):
        way.take_what_came()
        way.wait_for(sequence - under_way)
        way.send(frame_of(session, sequence, payloads))
    way.wait_for(count - 1)
    return {"payloads_per_s": count * PAYLOADS_PACKED / (time.perf_counter() - started_s)}


def one_at_a_time(way: Way, session: Any, payload: bytes, count: int) -> dict[str, float]:
    times = []
    for sequence in range(count):
        begun_s = time.perf_counter()
        way.send(frame_of(session, sequence, [payload]))
        way.wait_for(sequence)
        times.append(time.perf_counter() - begun_s)
    return {"p50_ms": median(times) * 1e3}


LOADS: dict[str, Callable[[Way, Any, bytes, int], dict[str, float]]] = {
    "packed": packed,
    "one at a time": one_at_a_time,
}


def main(arguments: list[str]) -> None:
    name, endpoint, load, payload_bytes, count = arguments
    way, session = open_way(name, endpoint)
    print(json.dumps(LOADS[load](way, session, bytes(int(payload_bytes)), int(count))))
    for socket in {way.out, way.into}:
        socket.close(linger=0)


if __name__ == "__main__":
    main(sys.argv[1:])
