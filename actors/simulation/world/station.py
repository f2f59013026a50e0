"""What one simulated actor is attached to: its ends of simulated rings, bells and counters.

Plays `actors.station.Station`. Owns the memory of one incarnation and each process' view of it,
which the actors of a group share. Must not know actors.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Protocol, TypeVar

from actors import messages, topology
from actors.simulation.world.process import Process
from actors.simulation.world.refused_messages import RefusedMessages
from actors.simulation.world.rings import (
    CommandRingReceiver,
    CommandRingSender,
    LaggingSlots,
    OwedBells,
    OwnTimeSlots,
    SharedSlots,
    SimulatedBell,
    SimulatedCommandRing,
    StoreBuffer,
)
from actors.station import DRAIN_MAX, Inbox, Outbox, Station
from actors.trace import row_names
from logstore.config import Config
from logstore.config_layout import Layout, kind_of, layout_of, process_of
from logstore.limits import ReplicaLimits
from logstore.model import NodeId
from transport.layout import LINES, SLOTS_PER_LINE, RingKind, control_slots
from transport.payload_ring import (
    HEAD,
    PayloadRingReader,
    PayloadRingWriter,
    RingFreer,
    format_payload_ring,
    payload_region_bytes,
)
from transport.shm import map_anonymous
from transport.stamp_table import StampTable, format_stamp_table, stamp_region_bytes

_End = TypeVar("_End", PayloadRingWriter, PayloadRingReader, RingFreer)
# Cursors that only guide. HEAD is not one: it must be right as soon as a message refers to it.
_GUIDING_SLOTS = frozenset(range(LINES * SLOTS_PER_LINE)) - {HEAD}
# No process reads these counters, so it makes no difference when they become visible.
_METRICS = frozenset(
    each for each in topology.Counter if each >= topology.Counter.PAYLOAD_BYTES_ACKNOWLEDGED
) | {topology.Counter.IS_LEADER, topology.Counter.TERM, topology.Counter.LAST_INDEX}
# These report what is in the files, so they must not become visible before it is.
_FILE_SLOTS = frozenset((topology.Counter.WRITTEN, topology.Counter.MAP_GENERATION))
# Rings that carry reports (recovery, status). They are so small that most reports go in pieces.
_REPORT_RINGS = (
    topology.ring_name(topology.WRITER, topology.RAFT),
    topology.ring_name(topology.RAFT, topology.INGRESS),
)


class SimulatedRegions:
    """Rings, payload ring and counters of one incarnation of a replica."""

    def __init__(
        self,
        node: NodeId,
        nodes: tuple[NodeId, ...],
        layout: Layout,
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
                command_ring_bytes // 2 if name in _REPORT_RINGS else command_ring_bytes
            )
            for name in topology.rings(node, nodes)
        }
        self.payload: mmap.mmap = map_anonymous(payload_region_bytes(ring_bytes))
        format_payload_ring(self.payload, incarnation=incarnation)
        page = control_slots(self.payload, kind=RingKind.PAYLOAD, incarnation=incarnation)
        self.page = SharedSlots(page)
        names = topology.counter_names(layout, nodes)
        self.slot_of = {name: number for number, name in enumerate(names)}
        self.counters = SharedSlots([0] * len(names))
        stamps = map_anonymous(stamp_region_bytes(len(row_names(node, nodes))))
        format_stamp_table(stamps, incarnation=incarnation)
        self.stamps = StampTable(stamps, incarnation=incarnation)

    def drop_after(self, actor: str, at_ns: int) -> None:
        """`actor` died at `at_ns`: drop what it would have sent later."""
        for name, ring in self.rings.items():
            if name.startswith(f"{actor}>"):
                ring.drop_after(at_ns)


class Rung(Protocol):
    """What the bell of an actor wakes."""

    def ring(self, actor: str, at_ns: int) -> None: ...


class RingObserver(Protocol):
    def ring_misused(self, text: str) -> None: ...

    def on_readers_waiting(self, node: int, are_waiting: bool) -> None: ...


class ProcessMemory:
    """The memory of one incarnation as the actors of `process` see it: what one of them stores, the
    others see at once."""

    def __init__(
        self,
        process: Process,
        regions: SimulatedRegions,
        *,
        writes_files: bool,
        random: Random,
        ring_delay_ns: int,
    ) -> None:
        self.process = process
        self.regions = regions
        self.stores = StoreBuffer(process, random, ring_delay_ns)
        self.own_stores = StoreBuffer(process, random, 0)  # what another actor of it reads
        self.raw_slots: Any = regions.counters.values  # stores to these are visible at once
        self.slots: Any = self.raw_slots
        self.page: Any = None
        if regions.is_lagging:
            lagging = frozenset(regions.slot_of.values()) - _METRICS
            self.slots = LaggingSlots(regions.counters, process, self.stores, lagging, _FILE_SLOTS)
            self.page = LaggingSlots(regions.page, process, self.stores, _GUIDING_SLOTS)
        elif writes_files:
            self.slots = OwnTimeSlots(regions.counters.values, process, _FILE_SLOTS)


class SimulatedStation(Station):
    """The station of `actor`. `process_running` finds what its bell wakes now."""

    def __init__(
        self,
        actor: str,
        memory: ProcessMemory,
        *,
        config: Config,
        folder: str,
        host: Any,
        limits: ReplicaLimits,
        newest_level: int,
        new_log_level: int,
        process_running: Callable[[str], Rung | None],
        observer: RingObserver,
        damage: str = "",
    ) -> None:
        self.damage = damage
        self.to_replicators: dict[str, CommandRingSender] = {}  # by the receiver's name
        self.owed = OwedBells()
        self._observer = observer
        process, regions = memory.process, memory.regions
        self.actor = actor
        self.node = NodeId(process.node)
        self.layout = layout_of(config, self.node)
        self.process = process_of(self.layout, actor)
        self.config = config
        self.folder = folder
        self.host = host
        self.limits = limits
        self.newest_level = newest_level
        self.new_log_level = new_log_level
        self.nodes = tuple(NodeId(each.node) for each in config.nodes)
        self.peers = tuple(each for each in self.nodes if each != self.node)
        self.incarnation = regions.incarnation
        self._simulated = regions
        self._slot_of = regions.slot_of
        self._stamps = regions.stamps  # no process reads them, so they need not become visible late
        self._process = process
        self._process_running = process_running
        self._memory = memory
        self.stores = memory.stores
        self.slots = memory.slots
        self.counters: Any = _Unread()
        self._page = memory.page

    def bell_of(self, actor: str) -> Any:
        receiver = _Receiver(actor, self._process_running)
        return SimulatedBell(receiver, self.stores, on_rung=self.owed.mark_rung(actor))

    def outbox(self, target: str, channel: str = "") -> Outbox:
        name = topology.ring_name(self.actor, target, channel)
        refused = RefusedMessages(f"{self.node}.{name}", self._observer.ring_misused)
        ring = self._simulated.rings[name]
        is_own = process_of(self.layout, target) == self.process
        stores = self._memory.own_stores if is_own else self.stores
        sender: Any = CommandRingSender(
            ring, stores, refused, on_offered=self.owed.mark_owed(target)
        )
        if kind_of(target) == topology.REPLICATOR:
            self.to_replicators[target] = sender
        return Outbox(sender, self.bell_of(target))

    def inbox(self, source: str, channel: str = "") -> Inbox:
        ring = self._simulated.rings[topology.ring_name(source, self.actor, channel)]
        receiver = CommandRingReceiver(ring, self._process)
        if (source, self.actor) == (topology.EGRESS, topology.RAFT):
            return _EgressInbox(
                receiver, ring, partial(self._observer.on_readers_waiting, self.node)
            )
        return _SimulatedInbox(receiver, ring)

    def payload_writer(self) -> PayloadRingWriter:
        return self._payload_end(PayloadRingWriter)

    def payload_reader(self) -> PayloadRingReader:
        return self._payload_end(PayloadRingReader)

    def ring_freer(self) -> RingFreer:
        return self._payload_end(RingFreer)

    def _payload_end(self, end_type: type[_End]) -> _End:
        """An end of the payload ring, with the cursors as this process sees them."""
        end = end_type(self._simulated.payload, incarnation=self.incarnation)
        if self._page is not None:
            end._slots = self._page
        return end


class _Unread:
    """Takes the named values that a process publishes for a scraper; nobody scrapes here."""

    def publish(self, values: Mapping[str, int]) -> None: ...


class _SimulatedInbox(Inbox):
    """Decodes nothing while its ring is empty, which it mostly is."""

    def __init__(self, receiver: Any, ring: SimulatedCommandRing) -> None:
        super().__init__(receiver)
        self._messages = ring.messages

    def receive(self, limit: int = DRAIN_MAX) -> list[messages.RingMessage]:
        return super().receive(limit) if self._messages else []


class _EgressInbox(_SimulatedInbox):
    """Messages of egress to raft; `on_waiting` learns whether readers wait."""

    def __init__(
        self, receiver: Any, ring: SimulatedCommandRing, on_waiting: Callable[[bool], None]
    ) -> None:
        super().__init__(receiver, ring)
        self._on_waiting = on_waiting

    def receive(self, limit: int = DRAIN_MAX) -> list[messages.RingMessage]:
        received = super().receive(limit)
        for message in received:
            if isinstance(message, messages.ReadersWaiting):
                self._on_waiting(message.are_waiting)
        return received


class _Receiver:
    """The process that runs the actor now: a restarted process is woken by the same bell."""

    def __init__(self, actor: str, process_running: Callable[[str], Rung | None]) -> None:
        self._actor = actor
        self._process_running = process_running

    def wake_at(self, at_ns: int) -> None:
        process = self._process_running(self._actor)
        if process is not None:
            process.ring(self._actor, at_ns)
