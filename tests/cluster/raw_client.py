"""A client of the log from PROTOCOL.md alone: zmq, struct and a CRC32C library, nothing of ours.

Written the way somebody in another language would write it, on the bytes of `raw_messages`. One
thread, one request at a time; every wait has an end.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import zmq

from tests.cluster.raw_messages import (
    ACK_ROW,
    APPEND_PREFIX,
    Message,
    Refused,
    Row,
    decode_message,
    decode_pieces,
    encode_batch,
    encode_message,
    expecting_prefix,
)

NO_BOUND = (1 << 64) - 1
CONTROL, APPENDS, ACKS, TAIL, FETCH = range(5)  # port offsets
PATIENCE_S = 60.0
ACK_TIMEOUT_S = 1.0
# Section 7, "What to do on each refusal": after these the same bytes go out in a new round.
NEW_ROUND = frozenset({1, 2, 3, 4, 5, 6, 8, 19, 21})


class Fetched(NamedTuple):
    """What a fetch brought: the replica's bounds, where to go on, and (LSN, payload) pairs."""

    log_start_lsn: int
    visible_lsn: int
    next_lsn: int
    payloads: list[tuple[int, bytes]]


class RawClient:
    """Knows one endpoint, learns the rest. Use it as a context manager."""

    def __init__(self, endpoint: str) -> None:
        self._context = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []
        self.cluster_id = bytes(16)
        self._correlation = 0
        host, _, port = endpoint.rpartition(":")
        self._seed = (host, int(port))
        self.nodes: dict[int, tuple[str, int]] = {}
        self._term = 0

    def __enter__(self) -> RawClient:
        self.metadata()
        return self

    def __exit__(self, *_: object) -> None:
        for socket in self._sockets:
            socket.close(linger=0)
        self._context.term()

    def socket(self, kind: int, address: tuple[str, int], offset: int) -> zmq.Socket[bytes]:
        """A connected socket; SUB ones are to be subscribed."""
        socket = self._context.socket(kind)
        self._sockets = [each for each in self._sockets if not each.closed] + [socket]
        socket.linger = 0
        if kind != zmq.SUB:
            socket.immediate = 1
        socket.sndtimeo = socket.rcvtimeo = int(PATIENCE_S * 1_000)
        socket.connect(f"tcp://{address[0]}:{address[1] + offset}")
        return socket

    def ask(self, node: int, offset: int, type_: int, body: bytes = b"") -> Message:
        """One request to a node (0: the seed) and its reply.

        Raises:
          Refused: it answered with an ErrorReply.
        """
        socket = self.socket(zmq.DEALER, self.nodes.get(node, self._seed), offset)
        self._correlation += 1
        try:
            socket.send(
                encode_message(
                    type_, body, cluster_id=self.cluster_id, correlation=self._correlation
                )
            )
            reply = decode_message(socket.recv_multipart())
        finally:
            socket.close()
        assert reply.correlation == self._correlation
        if reply.type == 74:
            raise Refused(reply.body)
        self._learn(reply.cluster_id)
        return reply

    def _learn(self, cluster_id: bytes) -> None:
        if self.cluster_id == bytes(16):
            self.cluster_id = cluster_id
        assert cluster_id == self.cluster_id, "a reply of another cluster"

    def metadata(self, node: int = 0) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.ask(node, CONTROL, 64).body)
        self.nodes = {row["node"]: (row["host"], row["port"]) for row in document["nodes"]}
        return document

    def leader(self) -> int:
        """The node that says of itself that it leads, in the highest term and none below it."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            said = [self.metadata(node) for node in self.nodes]
            self._term = max(self._term, *(each["term"] for each in said))
            for each in said:
                if each["leader"] == each["node"] and each["term"] == self._term:
                    return int(each["node"])
        raise AssertionError("nobody leads")

    def open_session(
        self, *, name: bytes = b"", producer_id: int = 0, mode: int = 1, window: int = 0
    ) -> RawProducer:
        body = struct.pack("<QIII", producer_id, mode, 1, window) + name
        reply = self.ask(self.leader(), CONTROL, 66, body)
        assert reply.type == 67
        return RawProducer(self, *struct.unpack("<QIIQQQ", reply.body))

    def fetch(
        self,
        node: int,
        first_lsn: int,
        last_lsn: int = NO_BOUND,
        *,
        min_lsn: int = 0,
        max_bytes: int = 1 << 20,
        wait_ms: int = 10_000,
        is_linearizable: bool = False,
    ) -> Fetched:
        """One FetchRequest; payloads outside of what was asked for are dropped."""
        body = struct.pack(
            "<QQQIIB", first_lsn, last_lsn, min_lsn, max_bytes, wait_ms, is_linearizable
        )
        reply = self.ask(node, FETCH, 160, body)
        assert reply.type == 161
        log_start_lsn, visible_lsn, next_lsn, _ = struct.unpack("<QQQI", reply.body)
        payloads = [pair for pair in decode_pieces(reply.more) if first_lsn <= pair[0] <= last_lsn]
        return Fetched(log_start_lsn, visible_lsn, next_lsn, payloads)

    def read(self, node: int, first_lsn: int, last_lsn: int) -> list[bytes]:
        """All payloads of a range from one replica, waited for until it shows them."""
        payloads: list[bytes] = []
        lsn = first_lsn
        while lsn <= last_lsn:
            fetched = self.fetch(node, lsn, last_lsn, min_lsn=last_lsn)
            for got, payload in fetched.payloads:
                assert got == lsn
                payloads.append(payload)
                lsn += 1
        return payloads

    def tail(self, node: int) -> RawTail:
        return RawTail(self, node)


class RawProducer:
    """A dense session. `batches` keeps what is unresolved, for the next round."""

    def __init__(
        self,
        client: RawClient,
        producer_id: int,
        producer_epoch: int,
        window: int,
        window_bytes: int,
        batch_max_bytes: int,
        next_sequence: int,
    ) -> None:
        self.client = client
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.window = window
        self.window_bytes = window_bytes
        self.batch_max_bytes = batch_max_bytes
        self.next_sequence = next_sequence
        self.round = 0
        self.batches: dict[int, bytes] = {}
        self.acknowledged: dict[int, Row] = {}
        self.refused: list[Row] = []
        self._push: zmq.Socket[bytes] | None = None
        self._feed: zmq.Socket[bytes] | None = None
        self.connect(client.leader())

    def connect(self, node: int) -> None:
        """Section 5, "Appending, and a change of leader", steps 1 to 5."""
        self.close()
        client, topic = self.client, struct.pack("<Q", self.producer_id)
        self._feed = client.socket(zmq.SUB, client.nodes[node], ACKS)
        self._feed.subscribe(topic)
        while decode_message(self._feed.recv_multipart()[1:]).type != 129:
            pass  # an acknowledgement from before the Welcome: SessionState has it too
        self.round += 1
        body = struct.pack("<QII", self.producer_id, self.producer_epoch, self.round)
        reply = client.ask(node, CONTROL, 68, body)
        assert reply.type == 69
        _, _, next_sequence = struct.unpack_from("<QIQ", reply.body)
        in_log = set()
        for row in self._rows(reply.body[20:]):
            in_log.add(row.sequence)
            if row.code == 0:
                self._take(row)
        self._push = client.socket(zmq.PUSH, client.nodes[node], APPENDS)
        for sequence, batch in sorted(self.batches.items()):
            if sequence not in in_log:
                assert sequence >= next_sequence, "committed long ago, its LSNs are not known"
                self.push(batch)

    def append(self, payloads: list[bytes]) -> int:
        """Send the next batch; its sequence."""
        sequence = self.next_sequence
        self.next_sequence += 1
        self.batches[sequence] = self.encode(payloads, sequence)
        self.push(self.batches[sequence])
        return sequence

    def encode(self, payloads: list[bytes], sequence: int) -> bytes:
        return encode_batch(
            payloads,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            sequence=sequence,
        )

    def push(self, batch: bytes, *, version: int = 1) -> None:
        """These bytes, under the current round."""
        assert self._push is not None
        self._push.send(APPEND_PREFIX.pack(b"LA", version, self.round) + batch)

    def push_expecting(self, batch: bytes, lsn: int, *, attempt: int) -> None:
        """These bytes, to be stored at this LSN or nowhere."""
        assert self._push is not None
        self._push.send(expecting_prefix(self.round, lsn, attempt) + batch)

    def next_rows(self) -> list[Row]:
        """The next message of the ack feed; acknowledged batches are resolved."""
        assert self._feed is not None
        while True:
            message = decode_message(self._feed.recv_multipart()[1:])
            if message.type == 129:  # somebody else's welcome
                continue
            assert message.type == 128
            _, producer_epoch, round_ = struct.unpack_from("<QII", message.body)
            rows = [
                row
                for row in self._rows(message.body[16:])
                if producer_epoch == self.producer_epoch and (not row.code or round_ == self.round)
            ]
            for row in rows:
                if row.code == 0:
                    self._take(row)
                else:
                    self.refused.append(row)
            if rows:
                return rows

    def wait_acknowledged(self, sequence: int) -> Row:
        """The row of a batch that is committed, in as many rounds as it takes."""
        end = time.monotonic() + PATIENCE_S
        while sequence not in self.acknowledged:
            assert time.monotonic() < end, "no acknowledgement in any round"
            codes = self._codes_within(ACK_TIMEOUT_S)
            assert codes <= NEW_ROUND | {0}, "the session is over"
            if codes != {0}:  # refused, or no news: what became of it?
                self._begin_round()
        return self.acknowledged[sequence]

    def _codes_within(self, seconds: float) -> set[int]:
        """Of the next message of the ack feed; none: it said nothing for so long."""
        assert self._feed is not None
        if not self._feed.poll(int(seconds * 1_000)):
            return set()
        return {row.code for row in self.next_rows()}

    def _begin_round(self) -> None:
        """At whoever leads, again until a leader is ready."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.connect(self.client.leader())
                return
            except Refused as refused:
                assert refused.code in NEW_ROUND
                assert time.monotonic() < end, "no leader is ready"

    def close(self) -> None:
        for socket in (self._push, self._feed):
            if socket is not None:
                socket.close()

    def _take(self, row: Row) -> None:
        self.acknowledged[row.sequence] = row
        self.batches.pop(row.sequence, None)

    @staticmethod
    def _rows(rows: bytes) -> list[Row]:
        return [Row(*values) for values in ACK_ROW.iter_unpack(rows)]


class RawTail:
    """Section 6, "Tail": every payload from `expected` on, in order, none twice."""

    def __init__(self, client: RawClient, node: int) -> None:
        self.client = client
        self._node = node
        self._socket = client.socket(zmq.SUB, client.nodes[node], TAIL)
        self._socket.subscribe(b"")
        while (welcome := decode_message(self._socket.recv_multipart())).type != 129:
            pass  # a group from before the Welcome, which counts it
        self.welcome_lsn: int = struct.unpack("<Q", welcome.body)[0]
        self.expected = self.welcome_lsn + 1
        self.from_feed = self.from_fetch = 0

    def follow(self, last_lsn: int) -> Iterator[bytes]:
        """Payloads up to `last_lsn`, as they come."""
        while self.expected <= last_lsn:
            message = decode_message(self._socket.recv_multipart())
            shown = struct.unpack_from("<Q", message.body)[0]
            if message.type == 192:
                pairs = list(decode_pieces(message.more))
                if pairs[0][0] <= self.expected:
                    before = self.expected
                    yield from self._splice(pairs)
                    self.from_feed += self.expected - before
                    continue
            elif message.type == 193:
                shown = struct.unpack("<QQ", message.body)[1]
            while self.expected <= min(shown, last_lsn):
                fetched = self.client.fetch(self._node, self.expected, shown).payloads
                self.from_fetch += len(fetched)
                yield from self._splice(fetched)

    def _splice(self, pairs: list[tuple[int, bytes]]) -> Iterator[bytes]:
        for lsn, payload in pairs:
            if lsn == self.expected:
                self.expected += 1
                yield payload
