"""Where a simulated process stands: simulated rings, bells and counters, a simulated machine.

Owns the regions of one incarnation and each process' view of them. Must not know actors.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Protocol

from actors import messages, topology
from actors.simulation.world.full_ring import FullRing
from actors.simulation.world.process import Process
from actors.simulation.world.rings import (
    CommandRingReceiver,
    CommandRingSender,
    LaggingSlots,
    Memory,
    OwedBells,
    OwnTimeSlots,
    SharedSlots,
    SimulatedBell,
    SimulatedCommandRing,
    SimulatedRingFreer,
    SimulatedRingReader,
    SimulatedRingWriter,
)
from actors.station import DRAIN_MAX, Inbox, Outbox, Station
from logstore.config import Config
from logstore.limits import ReplicaLimits
from logstore.model import NodeId
from transport.layout import LINES, SLOTS_PER_LINE, RingKind, control_slots
from transport.payload_ring import (
    HEAD,
    format_payload_ring,
    payload_region_bytes,
)
from transport.shm import map_anonymous

# Cursors that only guide; HEAD is not among them: a message says that it may be read.
_GUIDES = frozenset(range(LINES * SLOTS_PER_LINE)) - {HEAD}
# What only people look at: no process would notice whether others see it late.
_METRICS = frozenset(
    each for each in topology.Counter if each >= topology.Counter.PAYLOAD_BYTES_ACKNOWLEDGED
) | {topology.Counter.IS_LEADER, topology.Counter.TERM, topology.Counter.LAST_INDEX}
# What says that the files have something must not say so before they have it.
_OF_FILES = frozenset((topology.Counter.WRITTEN, topology.Counter.MAP_GENERATION))

# Rings that carry whole reports: what recovery found, a status. So small that most go in pieces.
_REPORTS = (
    topology.ring_name(topology.WRITER, topology.RAFT),
    topology.ring_name(topology.RAFT, topology.INGRESS),
)


class SimulatedRegions:
    """Rings, payload ring and counters of one incarnation of a replica."""

    def __init__(
        self,
        node: NodeId,
        nodes: tuple[NodeId, ...],
        *,
        incarnation: int,
        command_ring_bytes: int,
        ring_bytes: int,
        is_lagging: bool,
    ) -> None:
        self.incarnation = incarnation
        self.is_lagging = is_lagging
        self.rings = {
            name: SimulatedCommandRing(
                command_ring_bytes // 2 if name in _REPORTS else command_ring_bytes
            )
            for name in topology.rings(node, nodes)
        }
        self.payload: mmap.mmap = map_anonymous(payload_region_bytes(ring_bytes))
        format_payload_ring(self.payload, incarnation=incarnation)
        page = control_slots(self.payload, kind=RingKind.PAYLOAD, incarnation=incarnation)
        self.page = SharedSlots(page)
        names = topology.counter_names(node, nodes)
        self.slot_of = {name: number for number, name in enumerate(names)}
        self.counters = SharedSlots([0] * len(names))

    def forget_after(self, process: str, at_ns: int) -> None:
        """`process` died at `at_ns`: what it would have said later was never said."""
        for name, ring in self.rings.items():
            if name.startswith(f"{process}>"):
                ring.forget_after(at_ns)


class RingWatch(Protocol):
    """Who hears what becomes of messages."""

    def ring_misused(self, text: str) -> None: ...

    def egress_watches(self, node: int, is_watching: bool) -> None: ...


class SimulatedStation(Station):
    """The place of `process`; `process_of` finds whom a bell wakes."""

    def __init__(
        self,
        process: Process,
        name: str,
        *,
        config: Config,
        folder: str,
        regions: SimulatedRegions,
        host: Any,
        limits: ReplicaLimits,
        process_of: Callable[[str], Process | None],
        random: Random,
        ring_delay_ns: int,
        watch: RingWatch,
    ) -> None:
        self.to_replicators: dict[str, CommandRingSender] = {}  # by the receiver's name
        self.owed = OwedBells()
        self._watch = watch
        self.process = name
        self.node = NodeId(process.node)
        self.config = config
        self.folder = folder
        self.host = host
        self.limits = limits
        self.nodes = tuple(NodeId(each.node) for each in config.nodes)
        self.peers = tuple(each for each in self.nodes if each != self.node)
        self.incarnation = regions.incarnation
        self._simulated = regions
        self._slot_of = regions.slot_of
        self._process = process
        self._process_of = process_of
        self.memory = Memory(process, random, ring_delay_ns)
        is_lagging = regions.is_lagging
        self.all_slots: Any = regions.counters.values  # as everybody will see them
        self.slots: Any = self.all_slots
        if is_lagging:
            lagging = frozenset(regions.slot_of.values()) - _METRICS
            self.slots = LaggingSlots(regions.counters, process, self.memory, lagging)
        elif name == topology.WRITER:
            self.slots = OwnTimeSlots(regions.counters.values, process, _OF_FILES)
        self.counters: Any = _Unread()
        self._page: Any = (
            LaggingSlots(regions.page, process, self.memory, _GUIDES) if is_lagging else None
        )

    def bell_of(self, process: str) -> Any:
        receiver = _Receiver(process, self._process_of)
        return SimulatedBell(receiver, self.memory, on_rung=self.owed.rung(process))

    def outbox(self, target: str, channel: str = "") -> Outbox:
        name = topology.ring_name(self.process, target, channel)
        full = FullRing(f"{self.node}.{name}", self._watch.ring_misused)
        ring = self._simulated.rings[name]
        sender: Any = CommandRingSender(
            ring, self.memory, full, on_offered=self.owed.offered(target)
        )
        if target.startswith(topology.REPLICATOR):
            self.to_replicators[target] = sender
        return Outbox(sender, self.bell_of(target))

    def inbox(self, source: str, channel: str = "") -> Inbox:
        ring = self._simulated.rings[topology.ring_name(source, self.process, channel)]
        receiver = CommandRingReceiver(ring, self._process)
        if (source, self.process) == (topology.EGRESS, topology.RAFT):
            return _EgressInbox(receiver, ring, partial(self._watch.egress_watches, self.node))
        return _SimulatedInbox(receiver, ring)

    def payload_writer(self) -> SimulatedRingWriter:
        return SimulatedRingWriter(
            self._simulated.payload, incarnation=self.incarnation, slots=self._page
        )

    def payload_reader(self) -> SimulatedRingReader:
        return SimulatedRingReader(
            self._simulated.payload, incarnation=self.incarnation, slots=self._page
        )

    def ring_freer(self) -> SimulatedRingFreer:
        return SimulatedRingFreer(
            self._simulated.payload, incarnation=self.incarnation, slots=self._page
        )


class _Unread:
    """Takes the named values that a process publishes for a scraper; nobody scrapes here."""

    def publish(self, values: Mapping[str, int]) -> None: ...


class _SimulatedInbox(Inbox):
    """Most are empty when they are looked at."""

    def __init__(self, receiver: Any, ring: SimulatedCommandRing) -> None:
        super().__init__(receiver)
        self._messages = ring.messages

    def receive(self, limit: int = DRAIN_MAX) -> list[messages.RingMessage]:
        return super().receive(limit) if self._messages else []


class _EgressInbox(_SimulatedInbox):
    """Egress' words to raft; whether it watches is told to `tell`."""

    def __init__(
        self, receiver: Any, ring: SimulatedCommandRing, tell: Callable[[bool], None]
    ) -> None:
        super().__init__(receiver, ring)
        self._tell = tell

    def receive(self, limit: int = DRAIN_MAX) -> list[messages.RingMessage]:
        received = super().receive(limit)
        for message in received:
            if isinstance(message, messages.ReadersWaiting):
                self._tell(message.are_waiting)
        return received


class _Receiver:
    """Whoever has the name now: a process that was started again hears the same bell."""

    def __init__(self, name: str, process_of: Callable[[str], Process | None]) -> None:
        self._name = name
        self._process_of = process_of

    def wake_at(self, at_ns: int) -> None:
        process = self._process_of(self._name)
        if process is not None:
            process.wake_at(at_ns)
