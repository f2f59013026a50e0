"""A stage for one actor: a station on memory of this process, and the far ends of all its rings.

The test plays every other process. Sockets are those of a fake network, the disk is whichever the
test brings; the actor under test is the shipped one.
"""

from __future__ import annotations

import mmap
from pathlib import Path

import msgspec
import zmq

from actors import topology
from actors.host import Host
from actors.station import Regions, Station
from actors.trace import row_names
from logstore.config import parse_config
from logstore.config_layout import actor_names, layout_of
from logstore.format.message import encode_message
from logstore.settings import ProcessSettings
from transport import link
from transport.command_ring import command_region_bytes, format_command_ring
from transport.counters import create_counters
from transport.inproc import FakeDoorbell, FakeNetwork, FakeWatch
from transport.payload_ring import (
    PayloadRingWriter,
    RingFreer,
    format_payload_ring,
    payload_region_bytes,
)
from transport.socket_options import HIGH_WATER_MARK
from transport.stamp_table import format_stamp_table, stamp_region_bytes

NODE = 1
NODES = (1, 2, 3)
CLUSTER = b"c" * 16
OUR_UUID = b"u" * 16
PEER_UUID = b"p" * 16
RING_BYTES = 1 << 20
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
[storage]
segment = "256KiB"
segment_records = 256
[process]
mode = "processes"
"""


class ActorStage:
    """The replica `NODE` of three; `station` and the rings of any process, by its name."""

    def __init__(
        self, folder: Path, *, command_ring_bytes: int = 1 << 18, groups: dict | None = None
    ) -> None:
        self.folder = folder
        self.config = parse_config(CONFIG)
        if groups:
            process = ProcessSettings(mode="custom", groups=groups)
            self.config = msgspec.structs.replace(self.config, process=process)
        layout = layout_of(self.config, NODE)
        rings = {}
        for name in topology.rings(NODE, NODES):
            rings[name] = mmap.mmap(-1, command_region_bytes(command_ring_bytes))
            format_command_ring(rings[name], incarnation=1)
        payload = mmap.mmap(-1, payload_region_bytes(RING_BYTES))
        format_payload_ring(payload, incarnation=1)
        stamps = mmap.mmap(-1, stamp_region_bytes(len(row_names(NODE, NODES))))
        format_stamp_table(stamps, incarnation=1)
        self.bells = {
            name: FakeDoorbell()
            for name in (topology.SUPERVISOR, *actor_names(NODE, NODES), *topology.SPARE_NAMES)
        }
        counters = folder / "stage-counters"
        self.regions = Regions(
            rings=rings,
            payload=payload,
            counters=create_counters(counters, topology.counter_names(layout, NODES), 1),
            stamps=stamps,
            bells=self.bells,
            incarnation=1,
        )
        counters.unlink()
        self.slots = self.regions.counters.slots
        self.ring = PayloadRingWriter(payload, incarnation=1)
        self.freer = RingFreer(payload, incarnation=1)
        self.network = FakeNetwork()
        self.now_ns = 1_000_000_000_000
        self.damage = ""  # why this replica must not go on
        self._ends = {}

    def station(self, process: str, host: Host | None = None) -> Station:
        return Station(
            process,
            node=NODE,
            config=self.config,
            folder=str(self.folder / "data"),
            regions=self.regions,
            host=host,
            damage=self.damage,
        )

    def send(self, source: str, target: str, *messages, channel: str = "") -> None:
        """Say something in the name of `source`."""
        key = (source, target, channel)
        if key not in self._ends:
            self._ends[key] = self.station(source).outbox(target, channel)
        for message in messages:
            self._ends[key].send(message)
        self._ends[key].flush()

    def heard(self, source: str, target: str, channel: str = "") -> list:
        """What `target` gets from `source` now."""
        key = ("inbox", source, target, channel)
        if key not in self._ends:
            self._ends[key] = self.station(target).inbox(source, channel)
        return self._ends[key].receive()

    def work(self, actor, rounds: int = 200) -> int:
        """Run `actor` until it is idle, as the runner does; returns the rounds it took."""
        for number in range(rounds):
            if not actor.do_work(self.now_ns):
                return number
        raise AssertionError("the actor never becomes idle")

    def is_busy_loop(self, actor) -> bool:
        """Idle, but wants to be called again at once: the runner would spin."""
        return actor.do_work(self.now_ns) == 0 and actor.next_timer_ns() <= self.now_ns

    def write_body(self, body: bytes) -> tuple[int, int]:
        place = self.ring.try_write([body])
        assert place is not None
        return place

    def use_fake_sockets(self, monkeypatch) -> None:
        """Sockets that the actor makes from here on belong to `network`, by their endpoints."""
        network = self.network

        def connect(at, *, high_water_mark=HIGH_WATER_MARK, **_):
            return network.connect(zmq.DEALER, at, high_water_mark=high_water_mark)

        def binder(kind):
            def bind(at, *, high_water_mark=HIGH_WATER_MARK, **_):
                return network.bind(kind, at, high_water_mark=high_water_mark)

            return bind

        monkeypatch.setattr(link, "dealer_connect", connect)
        monkeypatch.setattr(link, "watch_connection", FakeWatch)
        monkeypatch.setattr(link, "router_bind", binder(zmq.ROUTER))
        monkeypatch.setattr(link, "xpub_bind", binder(zmq.XPUB))


def receive_all(socket) -> list:
    found = []
    while (frames := link.try_receive(socket)) is not None:
        found.append(frames)
    return found


def envelope(message, *, node=2, uuid=PEER_UUID, cluster=CLUSTER, boot=1, target=NODE) -> bytes:
    """A message as `node` would send it to us."""
    return encode_message(
        message, cluster_id=cluster, sender_uuid=uuid, sender=node, target=target, correlation=boot
    )
