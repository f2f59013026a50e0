"""A replica played by a thread: real sockets, scripted answers, for the tests of the client.

`FakeReplica` answers control and fetch requests from handlers, takes pushed batches into a queue,
and publishes what a test tells it to. By default it behaves: it leads, opens sessions, assigns LSNs
and acknowledges. A test replaces one behaviour at a time.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import threading
from collections.abc import Callable
from typing import Any

import zmq

from logstore.errors import ErrorCode, UnsupportedVersion
from logstore.format.batch import batch_payloads, encode_batch, read_batch_header
from logstore.format.client_messages import (
    ACK_ROW,
    APPEND_PREFIX,
    PIECE,
    SPAN,
    Acks,
    ErrorReply,
    FetchReply,
    FetchRequest,
    ImportRequest,
    MetadataReply,
    MetadataRequest,
    OpenSessionReply,
    OpenSessionRequest,
    SessionStateReply,
    SessionStateRequest,
    SpansReply,
    SpansRequest,
    StatusReply,
    StatusRequest,
    Tip,
    WatermarksReply,
    WatermarksRequest,
    Welcome,
    read_append_prefix,
)
from logstore.format.conditional_prefix import (
    CONDITIONAL_PREFIX,
    Expectation,
    read_conditional_prefix,
)
from logstore.format.message import decode_message, encode_message

CLUSTER = bytes(range(16))
Handler = Callable[[Any], Any]


def free_base_ports(count: int) -> list[int]:
    """Base ports whose next eight are free now: probed below the ephemeral range."""
    found: list[int] = []
    port = 20_000 + (os.getpid() * 131) % 10_000
    while len(found) < count:
        port += 8
        try:
            for offset in range(8):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port + offset))
        except OSError:
            continue
        found.append(port)
    return found


class Cluster:
    """What the fake replicas agree on: nodes, leader, term, and the log of (round, batch)."""

    def __init__(self, nodes: int = 1) -> None:
        ports = free_base_ports(nodes)
        self.ports = {node: ports[node - 1] for node in range(1, nodes + 1)}
        self.leader = 1
        self.term = 1
        self.cluster_id = CLUSTER
        self.limits: dict[str, int] = {}
        self.replicas: dict[int, FakeReplica] = {}

    def start(self, node: int) -> FakeReplica:
        replica = FakeReplica(self, node)
        self.replicas[node] = replica
        return replica

    def close(self) -> None:
        for replica in self.replicas.values():
            replica.stop()

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.ports[1]}"

    def __enter__(self) -> Cluster:
        for node in self.ports:
            self.start(node)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FakeReplica:
    """One node's five client ports, served by one thread."""

    def __init__(self, cluster: Cluster, node: int) -> None:
        self.cluster = cluster
        self.node = node
        self.pushed: queue.Queue[tuple[int, int, list[bytes]]] = queue.Queue()
        self.expectations: list[Expectation | None] = []  # of each pushed batch
        self.requests: queue.Queue[Any] = queue.Queue()
        self.on: dict[type, Handler] = {
            MetadataRequest: lambda _: self.metadata(),
            OpenSessionRequest: lambda _: OpenSessionReply(7, 1, 64, 1 << 22, 1 << 20, 0),
            SessionStateRequest: self.session_state,
            StatusRequest: lambda _: StatusReply(b'{"role":"leader","term":1}'),
            FetchRequest: self.fetch,
            SpansRequest: self.spans,
            WatermarksRequest: lambda _: WatermarksReply(self.log_start_lsn, self.visible_lsn),
        }
        self.on_import: Callable[[ImportRequest], None] = self.take_import
        self.on_push: Callable[[int, int, list[bytes]], None] = self.acknowledge
        self.committed: dict[int, tuple[int, int]] = {}  # sequence → first LSN, count
        self.next_lsn = 1
        self.next_sequence = 0
        self.rows: list[tuple[int, int, int, int, int]] | None = None
        self.log: list[bytes] = []  # encoded batches, in order
        self.starts: list[int] = []  # their first LSNs
        self.log_start_lsn = 1
        self.hidden = 0  # how many of the newest payloads are not visible
        self._calls: queue.Queue[Callable[[], None]] = queue.Queue()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)
        self._is_stopping = False
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"fake-{node}", daemon=True)
        self._thread.start()
        assert self._is_ready.wait(30)

    def answer_in_turn(self, request_type: type, *replies: Any) -> list[Any]:
        """Give these replies, one after another, the last one for ever; what was asked."""
        asked: list[Any] = []

        def answer(request: Any) -> Any:
            asked.append(request)
            return replies[min(len(asked), len(replies)) - 1]

        self.on[request_type] = answer
        return asked

    # --- behaviours ---

    def metadata(self) -> MetadataReply:
        nodes = [
            {"node": node, "host": "127.0.0.1", "port": port}
            for node, port in self.cluster.ports.items()
        ]
        document = {
            "cluster_id": self.cluster.cluster_id.hex(),
            "node": self.node,
            "leader": self.cluster.leader,
            "term": self.cluster.term,
            "nodes": nodes,
            "limits": self.cluster.limits,
        }
        return MetadataReply(json.dumps(document).encode())

    def session_state(self, request: SessionStateRequest) -> Any:
        if self.cluster.leader != self.node:
            return ErrorReply(ErrorCode.NOT_LEADER, self.cluster.leader, 0, 0, b"")
        rows = self.rows
        if rows is None:
            rows = [(s, lsn, n, 0, 0) for s, (lsn, n) in self.committed.items()]
        packed = b"".join(ACK_ROW.pack(*row) for row in rows)
        return SessionStateReply(request.producer_id, request.producer_epoch, self.next_sequence,
                                 packed)  # fmt: skip

    def commit(self, sequence: int, payloads: list[bytes]) -> int:
        """Put a batch into the log; its first LSN. A known sequence is a duplicate."""
        if sequence not in self.committed:
            self.committed[sequence] = (self.next_lsn, len(payloads))
            self.append_to_log(payloads, sequence=sequence)
            self.next_sequence = sequence + 1
        return self.committed[sequence][0]

    def append_to_log(self, payloads: list[bytes], *, sequence: int = 0) -> None:
        self.starts.append(self.next_lsn)
        self.log.append(
            encode_batch(
                payloads, producer_id=7, producer_epoch=1, sequence=sequence, timestamp_ns=5
            )
        )
        self.next_lsn += len(payloads)

    def trim(self, log_start_lsn: int) -> None:
        self.log_start_lsn = log_start_lsn

    def acknowledge(self, round_number: int, sequence: int, payloads: list[bytes]) -> None:
        first_lsn = self.commit(sequence, payloads)
        self.send_acks(round_number, [(sequence, first_lsn, len(payloads), 0, 0)])

    def take_import(self, request: ImportRequest) -> None:
        """Where the log ends, and only there."""
        if request.first_lsn != self.next_lsn:
            self.answer_import(request, ErrorCode.GAP, self.next_lsn)
            return
        self.starts.append(self.next_lsn)
        self.log.append(request.batch)
        self.next_lsn += read_batch_header(request.batch).count
        self.answer_import(request, ErrorCode.OK)

    def answer_import(self, request: ImportRequest, code: int, detail: int = 0) -> None:
        lsn, count = request.first_lsn, read_batch_header(request.batch).count
        row = ACK_ROW.pack(lsn, 0 if code else lsn, count, code, detail)
        self.publish_ack(Acks(request.importer, 0, 0, row), request.importer)

    def send_acks(self, round_number: int, rows: list[tuple[int, int, int, int, int]]) -> None:
        packed = b"".join(ACK_ROW.pack(*row) for row in rows)
        self.publish_ack(Acks(7, 1, round_number, packed))

    @property
    def visible_lsn(self) -> int:
        return self.next_lsn - 1 - self.hidden

    def piece(self, place: int) -> bytes:
        """The piece of the batch at this place of the log, as an entry of its own."""
        batch = self.log[place]
        count = read_batch_header(batch).count
        return (
            PIECE.pack(self.starts[place], place + 1, 1, 1_000 + place, count, len(batch)) + batch
        )

    def fetch(self, request: FetchRequest) -> Any:
        first, last = request.first_lsn, min(request.last_lsn, self.visible_lsn)
        if not self.log_start_lsn <= first <= self.visible_lsn + 1:
            return ErrorReply(
                ErrorCode.OUT_OF_RANGE, 0, self.log_start_lsn, self.visible_lsn, b"out of range"
            )
        pieces: list[bytes] = []
        next_lsn = first
        for place, start in enumerate(self.starts):
            count = read_batch_header(self.log[place]).count
            if start + count > first and start <= last and sum(map(len, pieces)) < 200_000:
                pieces.append(self.piece(place))
                next_lsn = start + count
        reply = FetchReply(self.log_start_lsn, self.visible_lsn, next_lsn, len(pieces))
        return reply, b"".join(pieces)

    def spans(self, request: SpansRequest) -> Any:
        """Each batch is an entry, stamped 1,000 + its place."""
        if request.first_lsn < self.log_start_lsn:
            bounds = self.log_start_lsn, self.visible_lsn
            return ErrorReply(ErrorCode.OUT_OF_RANGE, 0, *bounds, b"out of range")
        last_lsn = min(request.last_lsn, self.visible_lsn)
        rows: list[tuple[int, int, int]] = []
        stamp = size = 0
        for place, start in enumerate(self.starts):
            header = read_batch_header(self.log[place])
            end = min(start + header.count - 1, last_lsn)
            if end < request.first_lsn or start > last_lsn:
                continue
            stamp = stamp or 1_000 + place
            size += header.size
            if size >= request.step_bytes or end == last_lsn:
                rows.append((end, size, 1_000 + place))
                size = 0
        packed = b"".join(SPAN.pack(*row) for row in rows[: request.limit])
        return SpansReply(self.log_start_lsn, self.visible_lsn, stamp, packed)

    # --- what a test does from its own thread ---

    def call(self, action: Callable[[], None]) -> None:
        """Run something in the replica's thread, and wait until it has run."""
        done = threading.Event()

        def act() -> None:
            action()
            done.set()

        self._calls.put(act)
        os.eventfd_write(self._bell, 1)
        assert done.wait(30)

    def stop(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            os.eventfd_write(self._bell, 1)
            self._thread.join(30)
            os.close(self._bell)

    # --- in the replica's thread ---

    def publish_ack(self, message: Any, producer_id: int = 7) -> None:
        self._acks.send_multipart([producer_id.to_bytes(8, "little"), self._encode(message)])

    def publish_tail(self, message: Any, *more: bytes) -> None:
        self._tail.send_multipart([self._encode(message), *more])

    def _encode(self, message: Any, correlation: int = 0) -> bytes:
        return encode_message(
            message,
            cluster_id=self.cluster.cluster_id,
            sender_uuid=bytes(16),
            sender=self.node,
            target=0,
            correlation=correlation,
        )

    def _run(self) -> None:
        context = zmq.Context()
        base = self.cluster.ports[self.node]
        sockets = []
        for offset, kind in enumerate((zmq.ROUTER, zmq.PULL, zmq.XPUB, zmq.XPUB, zmq.ROUTER)):
            each = context.socket(kind)
            each.setsockopt(zmq.LINGER, 0)
            if kind == zmq.XPUB:
                each.setsockopt(zmq.XPUB_VERBOSE, 1)
            each.bind(f"tcp://127.0.0.1:{base + offset}")
            sockets.append(each)
        control, appends, self._acks, self._tail, fetch = sockets
        poller = zmq.Poller()
        for each in (*sockets, self._bell):
            poller.register(each, zmq.POLLIN)
        self._is_ready.set()
        while not self._is_stopping:
            ready = dict(poller.poll())
            if self._bell in ready:
                os.eventfd_read(self._bell)
                while not self._calls.empty():
                    self._calls.get()()
            for router in (control, fetch):
                if router in ready:
                    self._answer(router)
            if appends in ready:
                self._take(appends.recv())
            if self._acks in ready:
                subscription = self._acks.recv()
                topic = int.from_bytes(subscription[1:], "little")
                if subscription[:1] == b"\x01":
                    self.publish_ack(Welcome(0), topic)
            if self._tail in ready and self._tail.recv()[:1] == b"\x01":
                self._greet_tail()
        for each in sockets:
            each.close()
        context.term()

    def _greet_tail(self) -> None:
        self.publish_tail(Welcome(self.visible_lsn))
        self.publish_tail(Tip(self.visible_lsn))

    def _answer(self, router: zmq.Socket[bytes]) -> None:
        client, frame = router.recv_multipart()
        envelope, request = decode_message(frame)
        self.requests.put(request)
        answer = self.on[type(request)](request)
        if answer is not None:
            message, *more = answer if isinstance(answer, tuple) else (answer,)
            router.send_multipart([client, self._encode(message, envelope.correlation), *more])

    def _take(self, frame: bytes) -> None:
        if frame.startswith(b"LMSG"):
            self.on_import(decode_message(frame)[1])
            return
        round_number, expectation, batch = _read_push(frame)
        self.expectations.append(expectation)
        header = read_batch_header(batch)
        payloads = batch_payloads(batch, 0, header)
        self.pushed.put((round_number, header.sequence, payloads))
        self.on_push(round_number, header.sequence, payloads)


def _read_push(frame: bytes) -> tuple[int, Expectation | None, bytes]:
    """Round, expectation and batch of a pushed frame."""
    try:
        return read_append_prefix(frame), None, frame[APPEND_PREFIX.size :]
    except UnsupportedVersion:
        expectation = read_conditional_prefix(frame)
        return expectation.round, expectation, frame[CONDITIONAL_PREFIX.size :]
