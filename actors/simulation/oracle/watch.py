"""Who looks on: tells the ledger what replicas do.

Owns the points at which the real actors are observed: what they show their observer (a core that
tells its steps, first of all), what their disks and rings see, a look at what they keep for
themselves. Must not change what happens.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

from actors.ingress.actor import IngressActor
from actors.observer import AdmissionOpened, Seen
from actors.simulation.checkers import facts
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.oracle.bounds import holdings
from actors.simulation.oracle.durability import DiskDurability
from actors.simulation.oracle.ledger import Ledger
from actors.simulation.world.process import Process
from actors.simulation.world.rings import SharedSlots
from actors.simulation.world.station import SimulatedRegions, SimulatedStation
from actors.simulation.world.world import World
from actors.topology import EGRESS, Counter
from actors.writer.actor import WriterActor
from logstore.format.raft_record import RECORD_SIZE
from logstore.format.segment_header import SEGMENT_HEADER_SIZE
from logstore.limits import SECTOR_BYTES
from logstore.model import Role
from logstore.raft.core import RaftCore
from logstore.raft.effects import Effect, Truncate, Visible
from logstore.raft.events import Event, Tick
from logstore.raft.log_view import RecoveredLog
from logstore.raft.raft_config import RaftConfig
from transport.link import Lane
from transport.payload_ring import PayloadRingReader

_NO_RECORD = bytes(RECORD_SIZE)

CoreType = Callable[..., RaftCore]


class Watch:
    """One run's observer. Facts go to the ledger; `errors` has (time, text) of what no operating
    condition explains."""

    def __init__(self, world: World, ledger: Ledger, durability: DiskDurability) -> None:
        self.errors: list[tuple[int, str]] = []
        self.born: dict[int, None] = {}  # replicas that are or were voters
        self.cores: dict[int, RaftCore] = {}  # of running replicas that have recovered
        self._world = world
        self.tell = ledger.tell
        (self._on_step,) = ledger.table[facts.Stepped]  # hot, and nobody else reads it
        self._durability = durability
        self._rings: dict[int, PayloadRingReader] = {}
        self._slots: dict[int, Any] = {}
        self._counters: dict[int, SharedSlots] = {}
        self._batch_left: dict[int, object] = {}  # the oldest of each leader, as it was told last
        self._written: dict[int, int] = {}  # WRITTEN as it was seen last
        self._watching: dict[int, None] = {}  # nodes whose egress waits for what becomes visible
        self.on_news: Callable[[int], None] = _nobody  # there is some for the egress of a node

    def started(self, node: int, incarnation: int, regions: SimulatedRegions) -> None:
        self._rings[node] = PayloadRingReader(regions.payload, incarnation=incarnation)
        self.tell_counters(node)
        self._slots[node] = regions.counters.values
        self._counters[node] = regions.counters
        self._written[node] = 0
        self._durability.started(node)
        self.tell(facts.Started(node, incarnation))

    def died(self, node: int, process: str, incarnation: int) -> None:
        if not process:
            self.cores.pop(node, None)
        if process in ("", EGRESS):
            self._watching.pop(node, None)
        self.tell(facts.ProcessDied(node, process, incarnation))

    def look_at(self, process: str, actor: Any) -> None:
        """What its bounded things hold now."""
        for what, length, bound in holdings(actor):
            self.tell(facts.QueueSeen(f"{process}/{what}", length, bound))
        if isinstance(actor, WriterActor) and actor.delay:
            node = int(process.partition(".")[0])
            if node in self.born and not self._durability.is_excused(node):
                self.out_for_space(process, actor.delay)

    def liveness_lost(self, text: str) -> None:
        self._complain(Invariant.I13, text)

    def ring_misused(self, text: str) -> None:
        self._complain(Invariant.I14, text)

    def overslept(self, process: str, late_ns: int) -> None:
        """It found what others had published long before, and nobody had rung (SAFETY M7)."""
        text = f"{process} slept for {late_ns / 1e6:.1f} ms while there was news for it"
        self._complain(Invariant.I13, text)

    def worked(self, process: Process, station: SimulatedStation) -> None:
        """Hot. A do_work of it is over."""
        owed = station.owed
        if owed:
            self.tell(facts.BellsOwed(process.node, station.process, tuple(owed)))
            owed.clear()
        if type(process.actor) is IngressActor:
            self._look_at_turns(process.node, process.actor)
        if process.unread and process.actor is not None:
            for socket in process.actor.wait_on():
                if socket.lane is Lane.CONTROL and socket.oldest is not None:
                    self.tell(facts.LaneLeft(process.name, socket.endpoint, socket.oldest))

    def _look_at_turns(self, node: int, ingress: IngressActor) -> None:
        """Hot. A leader that has closed admission reads no batch, and takes no request either."""
        oldest = None if ingress.admission.table is None else ingress._ports.append.oldest  # type: ignore[attr-defined]
        if oldest is not None or self._batch_left.get(node) is not None:
            self._batch_left[node] = oldest
            self.tell(facts.BatchLeft(node, oldest))

    def on_readers_waiting(self, node: int, is_watching: bool) -> None:
        """Raft has heard from egress whether it waits for what becomes visible."""
        if is_watching:
            self._watching[node] = None
        else:
            self._watching.pop(node, None)

    def _complain(self, invariant: Invariant, text: str) -> None:
        self._world.note(text)
        self.tell(facts.PromiseBroken(invariant, text))

    def wrote(self, process: Process, path: str, offset: int, size: int, before: bytes) -> None:
        """Hot. A write of `size` bytes; `before` are those that it replaces."""
        node = process.node
        self.tell(facts.DiskWritten(node, path, offset, size))
        if not path.endswith(".data"):
            if not offset and path.endswith(".raft"):
                self._opens_segment(process, path)
            return
        if offset >= SEGMENT_HEADER_SIZE and before.strip(b"\0"):
            self._misplaced(node, f"writes {path} at byte {offset}, over other bytes")
        elif inside := offset % SECTOR_BYTES:
            if self._durability.has_bytes(node, path, offset - inside, inside):
                how = f"writes {path} at byte {offset}, in a sector with flushed frames"
                self._misplaced(node, how)

    def _opens_segment(self, process: Process, path: str) -> None:
        """A roll or a truncation begins with this header (SAFETY F6)."""
        for flushed in self._durability.flushed_after(process.node, process.local_now_ns):
            how = f"writes the header of {path} while {flushed} is being flushed"
            self._misplaced(process.node, how)

    def _misplaced(self, node: int, how: str) -> None:
        self.tell(facts.Misplaced(node, how))

    def replicator_read(self, process: Process, path: str, offset: int, data: bytes) -> None:
        """Hot. A replicator has looked into a file; of interest is a record that is not there."""
        if data == _NO_RECORD and path.endswith(".raft") and process.actor is not None:
            term = process.actor._stream.term  # type: ignore[attr-defined]
            place = f"{path} at byte {offset}"
            self.tell(facts.LookedAhead(process.node, term, place))

    def disk_changed(self, node: int) -> None:
        self._durability.disk_changed(node)

    def out_for_space(self, process: str, error: str) -> None:
        """It ended of a full disk, or cannot begin on one that has lost nothing."""
        self._world.note(f"{process}: {error}")
        self.tell(facts.OutForSpace(process, error))

    def broken(self, process: str, error: BaseException) -> None:
        """An error that no operating condition explains."""
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{process}: {type(error).__name__}: {error} ({where.name}:{where.lineno})"
        self.failed(text)

    def failed(self, text: str) -> None:
        """Something went wrong that is no violation of a rule, and must not happen either."""
        self._world.note(text)
        self.errors.append((self._world.now_ns, text))

    def read_ring(self, node: int, ring_start: int, ring_end: int) -> bytes | None:
        """The record's look at bytes that an entry is made of."""
        ring = self._rings.get(node)
        return ring.copy_out(ring_start, ring_end) if ring is not None else None

    @property
    def leader(self) -> int:
        """Who leads in the highest term; 0: nobody."""
        leaders = [
            (core.term, node) for node, core in self.cores.items() if core.role is Role.LEADER
        ]
        return max(leaders, default=(0, 0))[1]

    def counters(self, node: int) -> Any:
        return self._slots[node]

    def core_made(self, node: int, core: RaftCore, log: RecoveredLog) -> None:
        """A raft actor has a core now, whose steps are told."""
        self.tell(facts.CoreMade(node, log))
        last = log.start.index if log.last is None else log.last.header.index
        self._durability.truncated(node, last + 1)
        self.born[node] = None
        self.cores[node] = core

    def stepped(
        self, node: int, incarnation: int, core: RaftCore, event: Event, effects: list[Effect]
    ) -> None:
        """Hot: half of all steps are a Tick that gives nothing."""
        for effect in effects:
            if type(effect) is Truncate:
                self._durability.truncated(node, effect.first_index)
            elif type(effect) is Visible and node in self._watching:
                self.on_news(node)
        self._on_step(facts.Stepped(node, incarnation, core, event, effects))
        if effects or type(event) is not Tick:
            seq = self._counters[node].seen(Counter.WRITTEN, self._world.now_ns)
            if seq != self._written[node]:
                self._written[node] = seq
                self.tell(facts.WrittenShown(node, seq))

    def tell_counters(self, node: int) -> None:
        """What the counters of an incarnation say is told once, when nothing comes after it."""
        slots = self._slots.pop(node, None)
        if slots is not None:
            for _ in range(slots[Counter.RING_OVERWRITTEN]):
                self.tell(facts.RingOverwritten())


def _nobody(_node: int) -> None:
    """Nobody is to be woken."""


class ProcessObserver:
    """Looks on at one process, for the watch."""

    def __init__(self, watch: Watch, node: int, incarnation: int) -> None:
        self._watch = watch
        self._node = node
        self._incarnation = incarnation

    def core_type(self, _real: CoreType) -> CoreType:
        return partial(_WatchedCore, self._watch, self._node, self._incarnation)

    def saw(self, seen: Seen) -> None:
        tell = self._watch.tell
        if not isinstance(seen, AdmissionOpened):
            tell(seen)
            return
        table = seen.table
        parts = (table.sessions(), table.cursors.rows(), table.kept())
        snapshot = (seen.snapshot_parts, seen.passed_over)
        tell(facts.TableRebuilt(self._node, seen.gen, parts, *snapshot))


class _WatchedCore(RaftCore):
    """The real core; each step is told."""

    __slots__ = ("_incarnation", "_node", "_watch")

    def __init__(
        self,
        watch: Watch,
        node: int,
        incarnation: int,
        config: RaftConfig,
        log: RecoveredLog,
        *parts: Any,
    ) -> None:
        super().__init__(config, log, *parts)
        self._watch = watch
        self._node = node
        self._incarnation = incarnation
        watch.core_made(node, self, log)

    def step(self, event: Event) -> list[Effect]:
        effects = RaftCore.step(self, event)  # cheaper than `super()`, once a step
        self._watch.stepped(self._node, self._incarnation, self, event, effects)
        return effects
