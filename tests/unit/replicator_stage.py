"""The replicator to node 2 over a real log; the test is raft, ingress, and the peer."""

from __future__ import annotations

from pathlib import Path

import zmq

from actors import topology
from actors.messages import Identity
from actors.replicator import ReplicatorActor
from logstore.format.message import decode_message
from logstore.format.peer_messages import AppendFrame
from logstore.model import ReplicaState
from logstore.raft.effects import Describe, Lead, Persist
from logstore.settings import PortOffset
from logstore.storage.disk import RealDisk
from tests.unit.actor_stage import CLUSTER, OUR_UUID, RING_BYTES, envelope, receive_all
from tests.unit.writer_stage import WriterStage
from transport import link

PEER = 2
NAME = topology.replicator(PEER)
STREAM = 1 << 32


class ReplicatorStage:
    def __init__(self, folder: Path, monkeypatch, *, is_peer_up: bool = True) -> None:
        self.log = WriterStage(folder, disk=RealDisk())
        self.stage = self.log.stage
        self.slots = self.stage.slots
        self.stage.use_fake_sockets(monkeypatch)
        self.ports = {}
        if is_peer_up:
            self.start_peer()
        self.log.bear()
        self.restart()

    def start_peer(self) -> None:
        for port in (PortOffset.PEER_CONTROL, PortOffset.PEER_BULK):
            at = self.stage.config.endpoint(PEER, port)
            self.ports[port] = self.stage.network.bind(zmq.ROUTER, at)

    def restart(self) -> None:
        self.replicator = ReplicatorActor(self.stage.station(NAME))
        self.replicator.on_start()

    def tell(self, *orders) -> None:
        self.stage.send(topology.RAFT, NAME, *orders)
        self.work()

    def identify(self, cluster: bytes = CLUSTER) -> None:
        self.tell(Identity(cluster, OUR_UUID, 1, ReplicaState.VOTER))

    def lead(self, *, next_index=1, stream=STREAM, term=1, commit=0, install=None) -> None:
        last = len(self.log.rows) - 1
        self.tell(Lead(PEER, term, stream, next_index, last, self.log.seq, commit, install))

    def append(self, *sizes: int, is_described: bool = True, commit: int = 0) -> list[Persist]:
        """New entries: ordered from the writer, and described to the replicator."""
        orders = self.log.persist(*sizes)
        if is_described:
            self.describe(*orders, commit=commit)
        return orders

    def describe(self, *orders: Persist, commit: int = 0) -> None:
        self.tell(
            *(
                Describe(1, each.header, each.ring_start, each.ring_end, each.seq, commit)
                for each in orders
            )
        )

    def write(self) -> None:
        """The writer carries out what it was ordered."""
        self.log.settle()
        self.work()

    def overwrite_ring(self) -> None:
        """The payload ring goes round, and every range is given back."""
        for _ in range(3):
            self.stage.freer.set_free(self.stage.ring.head)
            self.stage.write_body(bytes(RING_BYTES // 2))

    def work(self) -> None:
        self.stage.work(self.replicator)

    def appends(self) -> list[tuple[int, int, bytes]]:
        """(stream, index, body) of the appends the peer got."""
        found = []
        for _, first, *body in receive_all(self.ports[PortOffset.PEER_BULK]):
            envelope_, frame = decode_message(first)
            assert (envelope_.cluster_id, envelope_.sender_uuid) == (CLUSTER, OUR_UUID)
            assert isinstance(frame, AppendFrame)
            append = frame.append()
            assert len(b"".join(body)) == append.header.body_size
            found.append((append.stream, append.header.index, b"".join(body)))
        return found

    def indexes(self) -> list[int]:
        return [index for _, index, _ in self.appends()]

    def controls(self) -> list:
        found = receive_all(self.ports[PortOffset.PEER_CONTROL])
        return [decode_message(frames[1])[1] for frames in found]

    def answer(self, message, *, is_bulk: bool = True, more: tuple = (), **fields) -> None:
        """What the peer says on one of our lanes."""
        port = self.ports[PortOffset.PEER_BULK if is_bulk else PortOffset.PEER_CONTROL]
        [pipe] = port.pipes
        assert link.try_send(port, [pipe.connecting.name, envelope(message, **fields), *more])
        self.work()

    def heard(self) -> list:
        return self.stage.heard(NAME, topology.RAFT)

    def close(self) -> None:
        self.replicator.on_close()
        self.log.close()
