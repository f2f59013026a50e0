"""Egress on a real log in a temporary folder; the test is raft, and every client."""

from __future__ import annotations

import itertools
from pathlib import Path

import zmq

from actors import topology
from actors.egress import EgressActor
from actors.messages import Identity, ReadersWaiting
from actors.topology import Counter
from logstore.format.batch import encode_batch
from logstore.format.client_messages import FetchRequest
from logstore.format.message import decode_message, encode_message
from logstore.model import ReplicaState
from logstore.settings import PortOffset
from logstore.storage.disk import RealDisk
from tests.unit.actor_stage import CLUSTER, NODE, OUR_UUID, receive_all
from tests.unit.writer_stage import WriterStage
from transport import link


def batch(size: int) -> bytes:
    """One payload."""
    return encode_batch([bytes(size)], producer_id=1, producer_epoch=1, sequence=0, timestamp_ns=1)


class EgressStage:
    def __init__(self, folder: Path, monkeypatch) -> None:
        self.log = WriterStage(folder, disk=RealDisk())
        self.stage = self.log.stage
        self.slots = self.stage.slots
        self.stage.use_fake_sockets(monkeypatch)
        self.fetch_at, self.tail_at = (
            self.stage.config.endpoint(NODE, port) for port in (PortOffset.FETCH, PortOffset.TAIL)
        )
        self.log.bear()
        self.restart()

    def restart(self) -> None:
        self.egress = EgressActor(self.stage.station(topology.EGRESS))
        self.egress.on_start()
        self.tell_identity()

    def tell_identity(self, cluster: bytes = CLUSTER) -> None:
        self.stage.send(
            topology.RAFT, topology.EGRESS, Identity(cluster, OUR_UUID, 1, ReplicaState.VOTER)
        )
        self.work()

    def append(self, *sizes: int) -> None:
        """Batches of one payload each, an entry each, on disk but not yet visible."""
        self.log.persist_bodies([batch(size) if size else b"" for size in sizes])
        self.log.settle()

    def append_group(self, *sizes: int) -> None:
        """Batches of one payload each, in one entry."""
        body = b"".join(batch(size) for size in sizes)
        self.log.persist_bodies([body], count=len(sizes))
        self.log.settle()

    def show(self, index: int | None = None) -> None:
        """raft moves the visible LSN, and egress does what there is to do."""
        self.reveal(index)
        self.work()

    def reveal(self, index: int | None = None) -> None:
        """raft moves the visible LSN."""
        row = self.log.rows[len(self.log.rows) - 1 if index is None else index]
        self.slots[Counter.LOG_START_LSN] = 1
        self.slots[Counter.VISIBLE_INDEX] = row.header.index
        self.slots[Counter.VISIBLE] = row.header.next_lsn

    def work(self) -> None:
        self.stage.work(self.egress)

    def client(self) -> FetchClient:
        return FetchClient(self)

    def subscribe(self):
        socket = self.stage.network.connect(zmq.SUB, self.tail_at, topics=[b""])
        self.work()
        return socket

    def heard(self) -> list:
        """What raft heard, but for who watches."""
        heard = self.stage.heard(topology.EGRESS, topology.RAFT)
        return [message for message in heard if not isinstance(message, ReadersWaiting)]

    def close(self) -> None:
        self.egress.on_close()
        self.log.close()


class FetchClient:
    def __init__(self, stage: EgressStage) -> None:
        self.stage = stage
        self.socket = stage.stage.network.connect(zmq.DEALER, stage.fetch_at)
        self.numbers = itertools.count(1)

    def send(self, request, *, cluster: bytes = CLUSTER) -> None:
        frame = encode_message(
            request, cluster_id=cluster, sender_uuid=bytes(16), sender=0, target=0,
            correlation=next(self.numbers),
        )  # fmt: skip
        assert link.try_send(self.socket, [frame])

    def ask(self, request, **options):
        """The answer to `request`, with what followed it; None: none yet."""
        self.send(request, **options)
        self.stage.work()
        answers = self.answers()
        return answers[0] if answers else None

    def answers(self) -> list:
        return [(decode_message(frames[0])[1], *frames[1:]) for frames in receive_all(self.socket)]


def fetch(first: int, last: int = 1 << 40, **changes) -> FetchRequest:
    values = {"max_bytes": 1 << 20, "min_lsn": 0, "wait_ms": 0, "is_linearizable": False}
    return FetchRequest(first_lsn=first, last_lsn=last, **{**values, **changes})


def messages_of(socket) -> list:
    return [decode_message(frames[0])[1] for frames in receive_all(socket)]
