"""What one actor of a replica is attached to: its ends of the rings, bells, counters, settings.

The regions are created by the supervisor. A station knows the topology and the layout, not what
messages mean.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Iterator, Mapping

import msgspec

from actors import messages, topology
from actors.host import Host, RealHost
from actors.trace import Stamper, TracePoint, row_name, row_names
from logstore.config import Config
from logstore.config_layout import layout_of, process_of
from logstore.errors import InvariantViolated
from logstore.format.level import NEW_LOG_LEVEL, NEWEST_LEVEL
from logstore.limits import ReplicaLimits
from logstore.model import NodeId
from transport.command_ring import CommandRingReader, CommandRingWriter
from transport.counters import CountersPage
from transport.doorbell import Doorbell
from transport.payload_ring import PayloadRingReader, PayloadRingWriter, RingFreer
from transport.stamp_table import StampTable

SPILL_MAX = 65_536  # messages that wait for a slow reader; credit keeps it far below (M8)
# How soon what found no room in a ring is offered again: no bell rings when there is some.
RING_RETRY_NS = 1_000_000
NEVER_NS = 1 << 62
DRAIN_MAX = 256  # messages received per ring and do_work: about 1 ms of a receiver's time
# A message above a ring's bound is sent in pieces of a quarter of that bound, which is an eighth of
# the ring, so that some are sent while others are read. 200,000 term runs are 120 pieces of 32 KiB.
PIECE_SHARE = 4
PART_MARGIN_BYTES = 24  # of an encoded Part, besides its piece


class Outbox:
    """The sending end of a command ring. `send` never waits: a message that finds no room is kept,
    and offered again by `flush`. The actor calls `flush` at the end of each do_work; it rings the
    bell once (M7)."""

    def __init__(self, ring: CommandRingWriter, bell: Doorbell) -> None:
        self._ring = ring
        self._bell = bell
        self._spill: deque[bytes] = deque()
        self._must_ring = False

    def send(self, message: messages.RingMessage) -> None:
        self.send_encoded(messages.encode(message))

    def send_encoded(self, encoded: bytes) -> None:
        if len(encoded) > self._ring.message_bytes_max:
            for part in _parts(encoded, self._ring.message_bytes_max):
                self._send_whole(part)
        else:
            self._send_whole(encoded)

    def _send_whole(self, encoded: bytes) -> None:
        if self._spill or not self._ring.offer(encoded):
            if len(self._spill) >= SPILL_MAX:
                raise InvariantViolated("a command ring's reader is 65,536 messages behind (M8)")
            self._spill.append(encoded)
        self._must_ring = True

    def try_send_encoded(self, encoded: bytes) -> bool:
        """False if there is no room now; the message is not kept."""
        if self._spill or not self._ring.offer(encoded):
            return False
        self._must_ring = True
        return True

    @property
    def is_congested(self) -> bool:
        return bool(self._spill)

    def retry_ns(self, now_ns: int) -> int:
        """When `flush` must be called again at the latest."""
        return now_ns + RING_RETRY_NS if self._spill else NEVER_NS

    def drop_unsent(self) -> None:
        """Drop messages that found no room yet, because their receiver died."""
        self._spill.clear()

    def flush(self) -> None:
        """Offer what found no room, then ring the bell once if there is anything new. Hot."""
        if not self._must_ring and not self._spill:
            return
        while self._spill and self._ring.offer(self._spill[0]):
            self._spill.popleft()
            self._must_ring = True
        if self._must_ring:
            self._bell.ring()
            self._must_ring = bool(self._spill)


class Inbox:
    """The receiving end of a command ring."""

    def __init__(self, ring: CommandRingReader) -> None:
        self._ring = ring
        self._pieces: list[bytes] = []  # pieces of a message that is not complete yet

    def receive(self, limit: int = DRAIN_MAX) -> list[messages.RingMessage]:
        drained = self._ring.drain(limit)
        if not drained:
            return []
        received = [messages.decode(encoded) for encoded in drained]
        return self._joined(received) if messages.Part in map(type, received) else received

    def _joined(self, received: list[messages.RingMessage]) -> list[messages.RingMessage]:
        """Join pieces to their message. If a sender dies amid a message, its successor begins with
        a whole message or with piece 0: the rest of the old message is dropped."""
        joined: list[messages.RingMessage] = []
        for message in received:
            if not isinstance(message, messages.Part):
                joined.append(message)
                continue
            if message.number == 0:
                self._pieces = []
            if message.number != len(self._pieces):
                continue
            self._pieces.append(message.piece)
            if message.is_last:
                joined.append(messages.decode(b"".join(self._pieces)))
                self._pieces = []
        return joined


def _parts(encoded: bytes, message_bytes_max: int) -> Iterator[bytes]:
    step = max(1, message_bytes_max // PIECE_SHARE - PART_MARGIN_BYTES)
    for number, start in enumerate(range(0, len(encoded), step)):
        end = start + step
        yield messages.encode(messages.Part(number, end >= len(encoded), encoded[start:end]))


class Regions(msgspec.Struct, frozen=True):
    """Shared memory and bells of one incarnation of a replica, as one process has mapped them."""

    rings: Mapping[str, mmap.mmap]
    payload: mmap.mmap
    counters: CountersPage
    stamps: mmap.mmap
    bells: Mapping[str, Doorbell]
    incarnation: int


class Station:
    """What `actor` of replica `node` is attached to. `folder`: the replica's data folder; `host`:
    what it runs on, by default this machine; `limits`: by default the real ones. `process`: which
    one runs it, by the layout of `config`. `damage`: why this replica must not go on, as an earlier
    incarnation found out; empty if it may (SAFETY L6)."""

    def __init__(
        self,
        actor: str,
        *,
        node: NodeId,
        config: Config,
        folder: str,
        regions: Regions,
        host: Host | None = None,
        limits: ReplicaLimits | None = None,
        damage: str = "",
    ) -> None:
        self.actor = actor
        self.damage = damage
        self.layout = layout_of(config, node)
        self.process = process_of(self.layout, actor)
        self.node = node
        self.config = config
        self.folder = folder
        self.host: Host = RealHost() if host is None else host
        self.limits = ReplicaLimits() if limits is None else limits
        self.newest_level = NEWEST_LEVEL  # the newest format level that this version reads (S11)
        self.new_log_level = NEW_LOG_LEVEL  # a new log is raised to it, if all voters read it (S11)
        self.nodes = tuple(NodeId(each.node) for each in config.nodes)
        self.peers = tuple(each for each in self.nodes if each != node)
        self.counters = regions.counters
        self.slots = regions.counters.slots
        self.incarnation = regions.incarnation
        self._regions = regions
        names = topology.counter_names(self.layout, self.nodes)
        self._slot_of = {name: number for number, name in enumerate(names)}
        self._stamps = StampTable(regions.stamps, incarnation=regions.incarnation)

    @property
    def bell(self) -> Doorbell:
        return self.bell_of(self.actor)

    def bell_of(self, actor: str) -> Doorbell:
        return self._regions.bells[actor]

    def slot(self, name: str) -> int:
        """The number of the counter `name`, for use with `slots`."""
        return self._slot_of[name]

    def loops_slot(self, actor: str) -> int:
        """The counter of the loops of the process that runs `actor`."""
        return self.slot(f"{process_of(self.layout, actor)}.loops")

    def stamper(self, point: TracePoint) -> Stamper:
        """What stamps the entries that pass `point`, which is one of this actor alone."""
        _, _, peer = self.actor.partition("-")
        is_spare = self.actor in topology.SPARE_NAMES
        name = row_name(point, self.actor if is_spare else NodeId(int(peer)) if peer else None)
        row = row_names(self.node, self.nodes).index(name)
        return Stamper(self._stamps.row(row), self.host.clock)

    def read_stamps(self) -> dict[str, dict[int, int]]:
        """Every stamp of this replica: row name to index to time on the monotonic clock, in ns. The
        rows of a spare replicator have the number that it serves; those of an idle one are left
        out."""
        found = {}
        for number, name in enumerate(row_names(self.node, self.nodes)):
            point, _, peer = name.partition(".")
            if peer in topology.SPARE_NAMES:
                peer = str(self.slots[self.slot(topology.served_slot(peer))] or "")
                if not peer:
                    continue
                name = f"{point}.{peer}"
            found[name] = self._stamps.row(number).read()
        return found

    def outbox(self, target: str, channel: str = "") -> Outbox:
        region = self._regions.rings[topology.ring_name(self.actor, target, channel)]
        ring = CommandRingWriter(region, incarnation=self.incarnation)
        return Outbox(ring, self.bell_of(target))

    def inbox(self, source: str, channel: str = "") -> Inbox:
        region = self._regions.rings[topology.ring_name(source, self.actor, channel)]
        return Inbox(CommandRingReader(region, incarnation=self.incarnation))

    def payload_writer(self) -> PayloadRingWriter:
        return PayloadRingWriter(self._regions.payload, incarnation=self.incarnation)

    def payload_reader(self) -> PayloadRingReader:
        return PayloadRingReader(self._regions.payload, incarnation=self.incarnation)

    def ring_freer(self) -> RingFreer:
        return RingFreer(self._regions.payload, incarnation=self.incarnation)

    @property
    def replicators(self) -> tuple[str, ...]:
        """Every replicator of this replica, spares included."""
        return topology.replicators(self.node, self.nodes)

    def hold_slot(self, replicator: str) -> int:
        """The HOLD slot of that actor in the payload ring."""
        return self.replicators.index(replicator)
