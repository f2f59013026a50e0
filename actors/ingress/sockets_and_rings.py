"""What ingress works with: its sockets, rings, clock and log, real ones or a simulator's.

Owns how the real ones are opened. Must not know what is sent through them. `Ports.close`, which the
actor calls once, closes all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from actors import topology
from actors.guard import (
    ConnectionGuard,
    CounterSlots,
    Guarded,
    guards_beside,
    memory_max_bytes,
)
from actors.host import Clock
from actors.messages import RingMessage
from actors.station import Station
from actors.topology import Counter
from logstore.config import Config
from logstore.format.entry import Row
from logstore.format.meta import LogStart
from logstore.format.raft_record import RaftRecord
from logstore.format.segment_header import SegmentHeader
from logstore.limits import (
    CONTROL_MESSAGE_MAX_BYTES,
    MESSAGE_MAX_BYTES,
    SUBSCRIPTION_MAX_BYTES,
)
from logstore.model import Index, Lsn
from logstore.settings import PortOffset
from logstore.storage.log_reader import LogReader
from transport import link
from transport.payload_ring import PayloadRingWriter
from transport.ports import Socket
from transport.socket_options import HIGH_WATER_MARK

# Messages queued for one subscriber of the ack feed: there is one Acks per producer and do_work, so
# a client may leave the feed unread for a second. It asks for what is dropped by SessionState (E9).
ACKS_HIGH_WATER_MARK = 1_024
# Connections to the control port beyond those that ingress takes: an operator who asks for the
# status of a crowded replica is answered.
CONTROL_SPARE = 32


class ToRaft(Protocol):
    """One of the two rings to raft (W7)."""

    def send(self, message: RingMessage) -> None: ...

    @property
    def is_congested(self) -> bool: ...

    def flush(self) -> None: ...


class FromRaft(Protocol):
    def receive(self) -> list[RingMessage]: ...


class Log(Protocol):
    """What a rebuild (E5) and a trim read. Raises CorruptData where the disk is damaged."""

    start: LogStart

    def refresh(self) -> bool: ...

    def pairs(self) -> Sequence[SegmentHeader]: ...

    def row(self, index: Index) -> Row: ...

    def record(self, index: Index) -> RaftRecord: ...

    def read_body(self, index: Index) -> bytes: ...

    def body_of(self, record: RaftRecord) -> bytes: ...

    def newest_of_kind(self, kind: int, last_index: Index) -> Index | None: ...

    def index_of_lsn(self, lsn: Lsn, last_index: Index) -> Index: ...

    def close(self) -> None: ...


class Ports(msgspec.Struct, frozen=True):
    """Everything outside of the actor. `open_log` opens the log's files as they are then;
    `produce`: None where the configuration has no such port."""

    control: Socket
    append: Socket
    produce: Socket | None
    acks: Socket
    peer_control: Socket
    peer_bulk: Socket
    ring: PayloadRingWriter
    from_raft: FromRaft
    to_raft: ToRaft
    to_raft_bulk: ToRaft
    clock: Clock
    random_u64: Callable[[], int]
    open_log: Callable[[], Log]

    def close(self) -> None:
        for socket in (self.control, self.append, self.acks, self.peer_control, self.peer_bulk):
            socket.close(linger=0)
        if self.produce is not None:
            self.produce.close(linger=0)
        self.ring.close()


def guard_of(ports: Ports, station: Station) -> ConnectionGuard:
    """The guard that bounds the connections to these ports."""
    limits = station.config.limits
    small = CONTROL_MESSAGE_MAX_BYTES
    queue = HIGH_WATER_MARK
    bulk = most_unread_bytes(station.config)
    large, whole = limits.message_max_bytes, MESSAGE_MAX_BYTES
    return ConnectionGuard(
        [
            Guarded("control", ports.control, small, queue * small, spare=CONTROL_SPARE),
            Guarded("append", ports.append, large, bulk + 2 * large),
            Guarded("produce", ports.produce, large, bulk + 2 * large),
            Guarded("acknowledgement", ports.acks, small, queue * small),
            Guarded("peers' control", ports.peer_control, small, queue * small, is_for_peers=True),
            Guarded("peers' bulk", ports.peer_bulk, whole + small, bulk + 2 * whole, True),
        ],
        station.slots,
        CounterSlots(
            open=Counter.INGRESS_CONNECTIONS,
            most=Counter.INGRESS_CONNECTIONS_MAX,
            refused=Counter.INGRESS_CONNECTIONS_REFUSED,
            ended=Counter.INGRESS_CONNECTIONS_ENDED,
        ),
        memory_max_bytes=memory_max_bytes(station),
        guards=guards_beside(station),
    )


def open_ports(station: Station) -> Ports:
    """Bind the sockets of `station`'s node and take its ends of the rings."""
    config, node, host = station.config, station.node, station.host

    def endpoint(offset: PortOffset) -> str:
        return config.endpoint(node, offset)

    def open_log() -> Log:
        return LogReader(host.disk, station.folder)

    message_max_bytes = config.limits.message_max_bytes
    insecure: dict[str, Any] = {"insecure": config.cluster.insecure}
    return Ports(
        control=host.links.router_bind(
            endpoint(PortOffset.CONTROL),
            lane=link.Lane.CONTROL,
            message_size_max=CONTROL_MESSAGE_MAX_BYTES,
            **insecure,
        ),
        append=host.links.pull_bind(
            endpoint(PortOffset.APPEND), message_size_max=message_max_bytes, **insecure
        ),
        produce=host.links.router_bind(
            endpoint(PortOffset.PRODUCE),
            lane=link.Lane.BULK,
            message_size_max=message_max_bytes,
            **insecure,
        )
        if config.produce_port(node)
        else None,
        acks=host.links.xpub_bind(
            endpoint(PortOffset.ACKS),
            message_size_max=SUBSCRIPTION_MAX_BYTES,
            high_water_mark=ACKS_HIGH_WATER_MARK,
            **insecure,
        ),
        peer_control=host.links.router_bind(
            endpoint(PortOffset.PEER_CONTROL),
            lane=link.Lane.CONTROL,
            message_size_max=CONTROL_MESSAGE_MAX_BYTES,
            **insecure,
        ),
        peer_bulk=host.links.router_bind(
            endpoint(PortOffset.PEER_BULK),
            lane=link.Lane.BULK,
            message_size_max=MESSAGE_MAX_BYTES,  # a peer may have other limits than this node
            **insecure,
        ),
        ring=station.payload_writer(),
        from_raft=station.inbox(topology.RAFT),
        to_raft=station.outbox(topology.RAFT, topology.CONTROL),
        to_raft_bulk=station.outbox(topology.RAFT, topology.BULK),
        clock=host.clock,
        random_u64=lambda: int.from_bytes(host.random_bytes(8), "little"),
        open_log=open_log,
    )


def most_unread_bytes(config: Config) -> int:
    """Of one connection that carries batches: a window that is sent again in another round may wait
    after its first copy."""
    limits = config.limits
    return 4 * max(limits.session_window_bytes, limits.bulk_window_bytes)
