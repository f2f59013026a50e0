"""A stage for the ingress actor: fake sockets, real rings, a hand-driven raft, clients and peers.

The raft here accepts and commits only when a test says so, and keeps the log it accepted, so that
the session table can be rebuilt from it.
"""

from __future__ import annotations

import itertools
import mmap
from types import SimpleNamespace

import zmq
from crc32c import crc32c

from actors import messages, topology
from actors.ingress import IngressActor
from actors.ingress.sockets_and_rings import Ports
from actors.messages import Identity
from actors.station import Inbox, Outbox
from actors.trace import Stamper, row_names
from logstore.config import parse_config
from logstore.config_layout import actor_names, layout_of
from logstore.errors import CorruptData
from logstore.format.batch import encode_batch
from logstore.format.client_messages import (
    ACK_ROW,
    APPEND_MAGIC,
    APPEND_PREFIX,
    APPEND_VERSION,
    Acks,
    OpenSessionRequest,
)
from logstore.format.entry import EntryHeader, Row
from logstore.format.level import TRIM_LEVEL
from logstore.format.message import decode_message, encode_message
from logstore.limits import MIB, ReplicaLimits
from logstore.model import EntryKind
from logstore.raft import effects, events
from logstore.storage.segment import header_after
from transport import link
from transport.inproc import FakeCommandRing, FakeDoorbell, FakeNetwork
from transport.payload_ring import (
    PayloadRingReader,
    PayloadRingWriter,
    RingFreer,
    format_payload_ring,
    payload_region_bytes,
)
from transport.stamp_table import StampTable, format_stamp_table, stamp_region_bytes

CLUSTER = b"c" * 16
OUR_UUID = b"u" * 16
NODE = 1
CONFIG = """
[cluster]
name = "stage"
[[nodes]]
node = 1
port = 7000
[[nodes]]
node = 2
port = 7100
[[nodes]]
node = 3
port = 7200
[limits]
batch_max = "64KiB"
group_max = "64KiB"
ring = "8MiB"
bulk_window = "64KiB"
groups_in_flight = 4
[process]
mode = "processes"
metrics = false
"""


def push_frame(batch, round_=1):
    return APPEND_PREFIX.pack(APPEND_MAGIC, APPEND_VERSION, round_) + batch


def make_batch(sequence, payloads=(b"a", b"bc"), *, producer_id, epoch=1):
    return encode_batch(
        list(payloads),
        producer_id=producer_id,
        producer_epoch=epoch,
        sequence=sequence,
        timestamp_ns=5,
    )


def ack_rows(acks):
    return list(ACK_ROW.iter_unpack(acks.rows))


class StageClock:
    def __init__(self):
        self.now_ns = 1_000_000_000
        self.step_ns = 0
        self.wall = 42

    def monotonic_ns(self):
        self.now_ns += self.step_ns
        return self.now_ns

    def wall_ns(self):
        return self.wall


class StageLog:
    """The log as the rebuild sees it."""

    def __init__(self, entries, damaged, first_indexes=()):
        self._newest_first_indexes = first_indexes  # of its segments
        self._first_indexes = list(first_indexes)  # as they were read last
        self.start = SimpleNamespace(index=0, next_lsn=1)
        self._entries = entries
        self._damaged = damaged
        self.reads = []
        self.refreshes = 0
        self.is_closed = False

    def refresh(self):
        self.refreshes += 1
        self._first_indexes = list(self._newest_first_indexes)
        return False

    def pairs(self):
        """As the writer opens segments, after the entry before."""
        return [
            header_after(
                Row(self._entries[first - 2][0], first), (), number=first, log_epoch=0, valid_end=0,
                ids=(bytes(16),) * 3,
            )
            for first in self._first_indexes
        ]  # fmt: skip

    def row(self, index):
        return Row(self._entries[index - 1][0], 0)

    def record(self, index):
        return self.row(index)

    def body_of(self, record):
        return self.read_body(record.header.index)

    def read_body(self, index):
        if index in self._damaged:
            raise CorruptData("00.data", 0, expected="a frame", got="rot")
        if index not in self.reads:
            self.reads.append(index)
        return self._entries[index - 1][1]

    def index_of_lsn(self, lsn, last_index):
        for header, _ in self._entries[:last_index]:
            if header.next_lsn > lsn:
                return header.index
        return last_index + 1

    def newest_of_kind(self, kind, last_index):
        if 0 in self._damaged:  # once: a segment went while it was searched
            self._damaged.discard(0)
            raise CorruptData("00.raft", 0, expected="a segment file", got="no file")
        found = [h.index for h, _ in self._entries[:last_index] if h.kind == kind]
        return found[-1] if found else None

    def close(self):
        self.is_closed = True


class Stage:
    """`ring_bytes` small makes rings full, `config` adds tables, `limits` differ from the real
    ones; `work` runs the actor until it is idle."""

    def __init__(self, ring_bytes=2 * MIB, config="", **limits):
        self.network = FakeNetwork()
        self.config = parse_config(CONFIG + config)
        self.clock = StageClock()
        region = mmap.mmap(-1, payload_region_bytes(ring_bytes))
        format_payload_ring(region, incarnation=1)
        self.reader = PayloadRingReader(region, incarnation=1)
        self.freer = RingFreer(region, incarnation=1)
        self.writer = PayloadRingWriter(region, incarnation=1)
        self.control_ring = FakeCommandRing(1 << 16)
        self.bulk_ring = FakeCommandRing(1 << 16)
        self.raft_ring = FakeCommandRing(1 << 20)
        nodes = (1, 2, 3)
        count = len(topology.counter_names(actor_names(NODE, nodes), nodes))
        self.slots = memoryview(bytearray(8 * count)).cast("Q")
        self.station = SimpleNamespace(
            node=NODE, nodes=nodes, peers=(2, 3), config=self.config, slots=self.slots,
            actor="ingress", process="ingress", layout=layout_of(self.config, NODE),
            limits=ReplicaLimits(**limits), host=SimpleNamespace(observer=self),
            stamper=self._stamper, read_stamps=self.read_stamps,
        )  # fmt: skip
        stamps = mmap.mmap(-1, stamp_region_bytes(len(row_names(NODE, nodes))))
        format_stamp_table(stamps, incarnation=1)
        self._stamps = StampTable(stamps, incarnation=1)
        self.entries = []  # (EntryHeader, body): what raft has accepted
        self.damaged = set()
        self.level = TRIM_LEVEL  # of the committed log
        self.first_indexes = []  # of the segments after the first
        self.logs = []
        self.seen = []
        self.ids = itertools.count(1001)
        self.next_lsn = 1
        self.term = 0
        self.ingress = IngressActor(self.station, self._open_ports)
        self.ingress.on_start()
        self.peer_sockets = {}
        self._clients = itertools.count(1)

    def _stamper(self, point):
        return Stamper(self._stamps.row(row_names(NODE, (1, 2, 3)).index(point)), self.clock)

    def read_stamps(self):
        rows = row_names(NODE, (1, 2, 3))
        return {name: self._stamps.row(number).read() for number, name in enumerate(rows)}

    def saw(self, seen):
        """It looks on as well."""
        self.seen.append(seen)

    def _open_ports(self, station):
        bind = self.network.bind
        return Ports(
            control=bind(zmq.ROUTER, "control"),
            append=bind(zmq.PULL, "append"),
            produce=bind(zmq.ROUTER, "produce"),
            acks=bind(zmq.XPUB, "acks"),
            peer_control=bind(zmq.ROUTER, "peer_control"),
            peer_bulk=bind(zmq.ROUTER, "peer_bulk"),
            ring=self.writer,
            from_raft=Inbox(self.raft_ring),
            to_raft=Outbox(self.control_ring, FakeDoorbell()),
            to_raft_bulk=Outbox(self.bulk_ring, FakeDoorbell()),
            clock=self.clock,
            random_u64=lambda: next(self.ids),
            open_log=self._open_log,
        )

    def _open_log(self):
        self.logs.append(StageLog(self.entries, self.damaged, self.first_indexes))
        return self.logs[-1]

    def roll(self, *first_indexes):
        """Segments begin at these entries, after the first one."""
        self.first_indexes[:] = first_indexes
        self.slots[topology.Counter.MAP_GENERATION] += 1

    def work(self, rounds=50):
        for _ in range(rounds):
            if not self.ingress.do_work(self.clock.now_ns):
                return
        raise AssertionError("the actor never becomes idle")

    def counter(self, counter):
        return self.slots[counter]

    # --- raft ---

    def tell(self, *messages_):
        for message in messages_:
            assert self.raft_ring.offer(messages.encode(message))
        self.work()

    def heard(self, *, bulk=False):
        ring = self.bulk_ring if bulk else self.control_ring
        return [messages.decode(each) for each in ring.drain(1_000)]

    def identify(self):
        self.tell(Identity(CLUSTER, OUR_UUID, 7, 3))

    def lead(self, term=1, gen=1):
        """Win the term: its no-op is accepted, admission opens."""
        self.identify()
        self.term = term
        self.gen = gen
        self.append_entry(EntryKind.NOOP, b"", 0)
        self.slots[topology.Counter.WRITTEN] = 1
        self.tell(
            effects.LeaderChanged(term, NODE),
            effects.Admit(term, gen, len(self.entries), 1),
        )

    def append_entry(self, kind, body, count):
        index = len(self.entries) + 1
        header = EntryHeader(
            kind=kind, count=count, term=self.term, index=index, prev_term=0,
            first_lsn=self.next_lsn, timestamp_ns=self.clock.wall,
            cumulative_bytes=sum(len(each) for _, each in self.entries) + len(body), prev_chain=0,
            body_size=len(body), body_crc=crc32c(body),
        )  # fmt: skip
        self.entries.append((header, body))
        self.next_lsn += count
        return header

    def take_proposals(self):
        """Proposals that arrived, as (Proposed, body)."""
        found = []
        for message in self.heard(bulk=True):
            assert isinstance(message, events.Proposed)
            views = self.reader.views(message.ring_start, message.ring_end)
            body = b"".join(views)
            for view in views:
                view.release()
            assert crc32c(body) == message.body_crc
            found.append((message, body))
        return found

    def accept(self, most=None):
        """Accept everything proposed, or the first `most` and forget the rest; returns the
        entries' headers."""
        headers = []
        for proposed, body in itertools.islice(self.take_proposals(), most):
            header = self.append_entry(proposed.kind, body, proposed.count)
            self.freer.set_free(proposed.ring_end)
            headers.append(header)
            self.tell(
                effects.Accepted(
                    proposed.term,
                    proposed.gen,
                    proposed.prop,
                    header.index,
                    header.first_lsn,
                    header.timestamp_ns,
                )
            )
        return headers

    def commit(self, index=None):
        """A majority has the log up to `index`, and so have this replica's files."""
        index = index or len(self.entries)
        self.show(index)
        self.tell(effects.Committed(self.term, index, self.level))

    def show(self, index):
        self.slots[topology.Counter.VISIBLE_INDEX] = index
        self.slots[topology.Counter.VISIBLE] = self.entries[index - 1][0].next_lsn

    def accept_and_commit(self):
        headers = self.accept()
        self.commit()
        return headers

    # --- clients ---

    def client(self):
        return StageClient(self)

    def connection(self):
        """A connection to the produce port."""
        return StageConnection(self)

    def subscribe(self, producer_id):
        topic = producer_id.to_bytes(8, "little")
        socket = self.network.connect(zmq.SUB, "acks", topics=[topic])
        self.work()
        return StageFeed(socket, topic)

    def producer(self, **changes):
        """An open session with its push socket and feed; everything before it is committed."""
        client = self.client()
        client.ask(open_request(**changes))
        self.accept_and_commit()
        return StageProducer(self, client.answer())

    # --- peers ---

    def peer_send(self, lane, message, *body, node=2, **envelope):
        fields = {
            "cluster_id": CLUSTER,
            "sender_uuid": bytes([node]) * 16,
            "sender": node,
            "target": NODE,
            "correlation": 3,
        }
        frame = encode_message(message, **{**fields, **envelope})
        socket = self.peer_socket(lane, node)
        assert link.try_send(socket, [frame, *body])
        self.work()

    def peer_socket(self, lane, node=2):
        key = (lane, node)
        if key not in self.peer_sockets:
            self.peer_sockets[key] = self.network.connect(zmq.DEALER, lane)
        return self.peer_sockets[key]

    def peer_receive(self, lane, node=2):
        frames = link.try_receive(self.peer_socket(lane, node))
        return None if frames is None else decode_message(frames[0])


def open_request(producer_id=0, mode=1, ack_level=1, window=64, name=b""):
    return OpenSessionRequest(producer_id, mode, ack_level, window, name)


class StageClient:
    """A control connection, or one to another port that takes requests."""

    def __init__(self, stage, port="control"):
        self.stage = stage
        self.socket = stage.network.connect(zmq.DEALER, port)
        self.number = 0

    def ask(self, message, *, cluster_id=bytes(16)):
        self.number += 1
        frame = encode_message(
            message, cluster_id=cluster_id, sender_uuid=bytes(16), sender=0, target=0,
            correlation=self.number,
        )  # fmt: skip
        self.send(frame)

    def send(self, frame):
        assert link.try_send(self.socket, [frame])
        self.stage.work()

    def answer(self):
        """The next reply, None if there is none; its number must be the last request's."""
        frames = link.try_receive(self.socket)
        if frames is None:
            return None
        envelope, message = decode_message(frames[0])
        assert envelope.correlation == self.number
        return message


class StageConnection(StageClient):
    """A connection to the produce port: requests and batches, and the answers to both."""

    def __init__(self, stage):
        super().__init__(stage, "produce")

    def queue(self, batch):
        assert link.try_send(self.socket, [push_frame(batch, 0)])

    def push(self, batch):
        self.queue(batch)
        self.stage.work()

    def rows(self):
        """The rows of the next message, which must be Acks; [] if there is none."""
        frames = link.try_receive(self.socket)
        if frames is None:
            return []
        (frame,) = frames
        acks = decode_message(frame)[1]
        assert isinstance(acks, Acks)
        assert acks.round == 0
        return ack_rows(acks)


class StageFeed:
    def __init__(self, socket, topic):
        self.socket = socket
        self.topic = topic

    def read(self):
        found = []
        while (frames := link.try_receive(self.socket)) is not None:
            assert frames[0] == self.topic
            found.append(decode_message(frames[1])[1])
        return found


class StageProducer:
    def __init__(self, stage, session):
        self.stage = stage
        self.session = session
        self.id = session.producer_id
        self.epoch = session.producer_epoch
        self.feed = stage.subscribe(self.id)
        self.feed.read()
        self.push_socket = stage.network.connect(zmq.PUSH, "append")

    def batch(self, sequence, payloads=(b"a", b"bc")):
        return make_batch(sequence, payloads, producer_id=self.id, epoch=self.epoch)

    def queue(self, sequence, payloads=(b"a", b"bc"), round_=1):
        assert link.try_send(self.push_socket, [push_frame(self.batch(sequence, payloads), round_)])

    def push(self, sequence, payloads=(b"a", b"bc"), round_=1):
        self.queue(sequence, payloads, round_)
        self.stage.work()

    def acks(self):
        """(round, rows) of what came since."""
        found = [each for each in self.feed.read() if isinstance(each, Acks)]
        return [(each.round, ack_rows(each)) for each in found]
