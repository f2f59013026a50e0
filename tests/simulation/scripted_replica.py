"""A replica of which only the client ports exist, played by a test; and what a client tells.

Owns the sockets of one node on a fake network. Knows no rules: whoever scripts it says what it
answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

import msgspec
import zmq

from actors.simulation.checkers.facts import Fact, PromiseBroken
from actors.simulation.world.client_host import MS_NS, ClientHost
from logstore.errors import ErrorCode
from logstore.format.batch import BatchHeader, encode_batch, read_batch_header
from logstore.format.client_messages import (
    ACK_ROW,
    APPEND_PREFIX,
    PIECE,
    Acks,
    ErrorReply,
    MetadataReply,
    MetadataRequest,
    OpenSessionReply,
    SessionStateReply,
    Welcome,
    read_append_prefix,
)
from logstore.format.message import decode_message, encode_message
from logstore.model import Lsn, NodeId
from logstore.settings import PortOffset
from transport import link
from transport.inproc import FakeNetwork, FakeSocket
from transport.socket_options import HIGH_WATER_MARK

NODES = (1, 2, 3)
HOST, BASE_PORT = "127.0.0.1", 7_000
CLUSTER = b"a simulated clst"
UUID = b"a simulated repl"
PRODUCER = 77

F = TypeVar("F", bound=Fact)


class FakeLinks:
    """A client's port to the fake network."""

    def __init__(self, network: FakeNetwork) -> None:
        self._network = network

    def dealer_connect(self, endpoint: str, *, lane: Any, message_size_max: int) -> FakeSocket:
        return self._network.connect(zmq.DEALER, endpoint)

    def push_connect(self, endpoint: str, *, message_size_max: int) -> FakeSocket:
        return self._network.connect(zmq.PUSH, endpoint)

    def sub_connect(
        self,
        endpoint: str,
        *,
        topics: Sequence[bytes],
        message_size_max: int,
        high_water_mark: int = HIGH_WATER_MARK,
    ) -> FakeSocket:
        return self._network.connect(zmq.SUB, endpoint, topics=topics)


class Asked(msgspec.Struct):
    """A request of a client: the sender, the port, the correlation number, the message."""

    offset: PortOffset
    client: bytes
    correlation: int
    message: Any


class Pushed(msgspec.Struct):
    """A decoded frame on the append port."""

    round: int
    header: BatchHeader
    batch: bytes


class ScriptedReplica:
    """The client ports of one node."""

    def __init__(self, network: FakeNetwork, node: int) -> None:
        self.node = node

        def bind(kind: int, offset: PortOffset) -> FakeSocket:
            return network.bind(kind, endpoint(node, offset))

        self._routers = {
            offset: bind(zmq.ROUTER, offset) for offset in (PortOffset.CONTROL, PortOffset.FETCH)
        }
        self._feeds = {offset: bind(zmq.XPUB, offset) for offset in (PortOffset.ACKS,)}
        self._feeds[PortOffset.TAIL] = bind(zmq.XPUB, PortOffset.TAIL)
        self._appends = bind(zmq.PULL, PortOffset.APPEND)

    # --- receiving ---

    def asked(self) -> list[Asked]:
        """Every request since the last call."""
        found = []
        for offset, router in self._routers.items():
            while (frames := link.try_receive(router)) is not None:
                envelope, message = decode_message(frames[1])
                found.append(Asked(offset, frames[0], envelope.correlation, message))
        return found

    def subscriptions(self, offset: PortOffset) -> list[bytes]:
        """Topics subscribed to since the last call."""
        found = []
        while (frames := link.try_receive(self._feeds[offset])) is not None:
            if frames[0][:1] == b"\1":
                found.append(frames[0][1:])
        return found

    def frames(self) -> list[bytes]:
        """Every frame pushed since the last call, as it came."""
        found = []
        while (frames := link.try_receive(self._appends)) is not None:
            found.append(frames[0])
        return found

    def pushed(self) -> list[Pushed]:
        """Every batch pushed since the last call."""
        return [
            Pushed(
                read_append_prefix(frame),
                read_batch_header(frame, APPEND_PREFIX.size),
                frame[APPEND_PREFIX.size :],
            )
            for frame in self.frames()
        ]

    # --- answering ---

    def reply(self, asked: Asked, message: Any, *more: bytes) -> None:
        frame = self._encode(message, asked.correlation)
        assert link.try_send(self._routers[asked.offset], [asked.client, frame, *more])

    def reply_leader(self, asked: Asked, leader: int) -> None:
        nodes = [{"node": each, "host": HOST, "port": BASE_PORT + 100 * each} for each in NODES]
        document = {
            "cluster_id": CLUSTER.hex(), "node": self.node, "leader": leader, "term": 1,
            "nodes": nodes, "limits": {},
        }  # fmt: skip
        self.reply(asked, MetadataReply(msgspec.json.encode(document)))

    def reply_open(
        self, asked: Asked, *, epoch: int = 1, window: int = 16, next_sequence: int = 0
    ) -> None:
        self.reply(asked, OpenSessionReply(PRODUCER, epoch, window, 1 << 16, 4_096, next_sequence))

    def reply_state(self, asked: Asked, next_sequence: int, *rows: bytes, epoch: int = 1) -> None:
        self.reply(asked, SessionStateReply(PRODUCER, epoch, next_sequence, b"".join(rows)))

    def welcome(self, offset: PortOffset, topic: bytes, visible_lsn: int = 0) -> None:
        self.publish(offset, Welcome(Lsn(visible_lsn)), topic=topic)

    def tell(self, round_number: int, *rows: bytes, epoch: int = 1) -> None:
        """Rows on the ack feed."""
        topic = PRODUCER.to_bytes(8, "little")
        acks = Acks(PRODUCER, epoch, round_number, b"".join(rows))
        self.publish(PortOffset.ACKS, acks, topic=topic)

    def publish(
        self, offset: PortOffset, message: Any, *more: bytes, topic: bytes | None = None
    ) -> None:
        frames = [self._encode(message, 0), *more]
        if topic:
            frames.insert(0, topic)
        assert link.try_send(self._feeds[offset], frames)

    def _encode(self, message: Any, correlation: int) -> bytes:
        return encode_message(
            message,
            cluster_id=CLUSTER,
            sender_uuid=UUID,
            sender=NodeId(self.node),
            target=NodeId(0),
            correlation=correlation,
        )


class Stage:
    """Three scripted replicas, one client, and a clock that moves when it is told to.

    Who leads, and that others do not, the replicas tell by themselves; everything asked of the
    leader, and every fetch, is kept in `inbox` for the test to answer.
    """

    def __init__(self) -> None:
        network = FakeNetwork()
        self.links = FakeLinks(network)
        self.facts: list[Fact] = []
        self.replicas = {node: ScriptedReplica(network, node) for node in NODES}
        self.leader = 1
        self.inbox: dict[int, list[Asked]] = {node: [] for node in NODES}
        self.now_ns = MS_NS
        self.client: Any = None  # the process
        self.workload: Any = None  # what runs in it, if that is something else

    def host(self, name: str = "client-1", *, seed: int = 1) -> ClientHost:
        return ClientHost(
            number=1,
            name=name,
            links=self.links,
            endpoint=endpoint,
            nodes=NODES,
            random=Random(seed),
            tell=self.facts.append,
            world_now=lambda: self.now_ns,
        )

    @property
    def complaints(self) -> list[tuple[str, str]]:
        """The violations that the client reported: invariant and text."""
        return [(each.invariant, each.text) for each in self.told(PromiseBroken)]

    def told(self, kind: type[F]) -> list[F]:
        """The client's facts of this kind so far."""
        return [each for each in self.facts if type(each) is kind]

    def work(self) -> None:
        """The client runs once, then the replicas answer what they answer by themselves."""
        self.client.do_work(self.now_ns)
        for replica in self.replicas.values():
            self._serve(replica)

    def pass_ms(self, milliseconds: int, *, until: Callable[[], bool] | None = None) -> None:
        """Run the client at each of its timers for so long, or until something is so."""
        end_ns = self.now_ns + milliseconds * MS_NS
        while True:
            self.work()
            if self.now_ns == end_ns or (until is not None and until()):
                return
            timer_ns = self.client.next_timer_ns()
            if any(socket.is_readable for socket in self.client.wait_on()):
                timer_ns = self.now_ns
            self.now_ns = min(end_ns, max(self.now_ns + 10_000, timer_ns))

    def wait_asked(self, node: int, kind: type[Any], *, milliseconds: int = 10_000) -> Asked:
        """The next request of this kind to the node; those before it are dropped."""
        inbox = self.inbox[node]

        def is_there() -> bool:
            while inbox and not isinstance(inbox[0].message, kind):
                del inbox[0]
            return bool(inbox)

        self.pass_ms(milliseconds, until=is_there)
        assert inbox, f"node {node} was asked no {kind.__name__}"
        return inbox.pop(0)

    def _serve(self, replica: ScriptedReplica) -> None:
        for asked in replica.asked():
            if isinstance(asked.message, MetadataRequest):
                replica.reply_leader(asked, self.leader)
            elif asked.offset is PortOffset.FETCH or replica.node == self.leader:
                self.inbox[replica.node].append(asked)
            else:
                code = ErrorCode.NOT_LEADER
                replica.reply(asked, ErrorReply(code, self.leader, 0, 0, b"somebody else leads"))
        for topic in replica.subscriptions(PortOffset.ACKS):
            replica.welcome(PortOffset.ACKS, topic)


def endpoint(node: int, offset: PortOffset) -> str:
    return f"tcp://{HOST}:{BASE_PORT + 100 * node + offset}"


def row(
    sequence: int, *, first_lsn: int = 0, count: int = 0, code: int = 0, detail: int = 0
) -> bytes:
    """A row of Acks or of a SessionStateReply."""
    return ACK_ROW.pack(sequence, first_lsn, count, code, detail)


def batch_of(sequence: int, *payloads: bytes) -> bytes:
    return encode_batch(
        payloads, producer_id=9, producer_epoch=1, sequence=sequence, timestamp_ns=0
    )


def piece_of(first_lsn: int, *batches: bytes) -> bytes:
    """One piece of a fetch reply or tail group."""
    count = sum(read_batch_header(batch).count for batch in batches)
    body = b"".join(batches)
    return PIECE.pack(first_lsn, first_lsn, 1, 0, count, len(body)) + body
