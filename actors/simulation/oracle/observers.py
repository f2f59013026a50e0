"""Observes replicas and tells the ledger what they do.

Owns the points at which real actors are observed: what they show their `actors.observer.Observer`
(the steps of a core above all), what disks and rings see, and some private state. Must not change
what happens.
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
from logstore.raft.effects import Effect, InstallLog, Truncate, Visible
from logstore.raft.events import Event, LogStartMoved, Tick
from logstore.raft.log_view import RecoveredLog
from logstore.raft.raft_config import RaftConfig
from transport.link import Lane
from transport.payload_ring import PayloadRingReader

_NO_RECORD = bytes(RECORD_SIZE)

CoreType = Callable[..., RaftCore]


class ClusterObserver:
    """Observes all replicas of a run. `errors`: (time, text) of errors that are neither operating
    errors nor violations."""

    def __init__(self, world: World, ledger: Ledger, durability: DiskDurability) -> None:
        self.errors: list[tuple[int, str]] = []
        self.voters: dict[int, None] = {}  # replicas that are or were voters
        self.cores: dict[int, RaftCore] = {}  # of running replicas, after recovery
        self._world = world
        self.tell = ledger.tell
        self._record = ledger.record
        (self._on_step,) = ledger.table[facts.Stepped]  # called directly: hot
        self._durability = durability
        self._rings: dict[int, PayloadRingReader] = {}
        self._slots: dict[int, Any] = {}
        self._counters: dict[int, SharedSlots] = {}
        self._batch_left: dict[int, object] = {}  # each leader's oldest unread batch, as told last
        self._written: dict[int, int] = {}  # WRITTEN as it was seen last
        self._readers_waiting: dict[int, None] = {}  # nodes whose egress has waiting readers
        # Something has become visible that the egress of a node waits for.
        self.on_visible_news: Callable[[int], None] = lambda _node: None

    def started(self, node: int, incarnation: int, regions: SimulatedRegions) -> None:
        self._rings[node] = PayloadRingReader(regions.payload, incarnation=incarnation)
        self.report_counters(node)
        self._slots[node] = regions.counters.values
        self._counters[node] = regions.counters
        self._written[node] = 0
        self._durability.started(node)
        self.tell(facts.Started(node, incarnation))

    def died(self, node: int, process: str, incarnation: int) -> None:
        if not process:
            self.cores.pop(node, None)
        if process in ("", EGRESS):
            self._readers_waiting.pop(node, None)
        self.tell(facts.ProcessDied(node, process, incarnation))

    def report_holdings(self, process: str, actor: Any) -> None:
        """Report what its bounded collections hold now."""
        for what, length, bound in holdings(actor):
            self.tell(facts.QueueSeen(f"{process}/{what}", length, bound))
        if isinstance(actor, WriterActor) and actor.delay:
            node = int(process.partition(".")[0])
            if self._is_voter(node) and not self._durability.is_excused(node):
                self.out_for_space(process, actor.delay)

    def _is_voter(self, node: int) -> bool:
        """A replica on a new disk is none before it has a uuid, for which there must be space."""
        replica = self._record.replicas[node]
        return node in self.voters and (bool(replica.uuid) or not replica.disk)

    def report_liveness_violation(self, text: str) -> None:
        self._report_violation(Invariant.I13, text)

    def ring_misused(self, text: str) -> None:
        self._report_violation(Invariant.I14, text)

    def overslept(self, process: str, late_ns: int) -> None:
        """It read what was published `late_ns` before, and no bell had woken it (SAFETY M7)."""
        text = f"{process} slept for {late_ns / 1e6:.1f} ms while there was news for it"
        self._report_violation(Invariant.I13, text)

    def on_work_done(self, process: Process, station: SimulatedStation, actor: Any) -> None:
        """Hot. A do_work of this actor is over."""
        owed = station.owed
        if owed:
            self.tell(facts.BellsNotRung(process.node, station.actor, tuple(owed)))
            owed.clear()
        if type(actor) is IngressActor:
            self._report_batch_left(process.node, actor)
        if process.unread:
            for socket in actor.wait_on():
                if socket.lane is Lane.CONTROL and socket.oldest is not None:
                    self.tell(facts.ControlLaneUnread(process.name, socket.endpoint, socket.oldest))

    def _report_batch_left(self, node: int, ingress: IngressActor) -> None:
        """Hot. A leader that closed admission reads no batches, and takes no requests either."""
        oldest = None if ingress.admission.table is None else ingress._ports.append.oldest  # type: ignore[attr-defined]
        if oldest is not None or self._batch_left.get(node) is not None:
            self._batch_left[node] = oldest
            self.tell(facts.BatchUnread(node, oldest))

    def on_readers_waiting(self, node: int, are_waiting: bool) -> None:
        """Egress has told raft whether readers wait for what becomes visible."""
        if are_waiting:
            self._readers_waiting[node] = None
        else:
            self._readers_waiting.pop(node, None)

    def _report_violation(self, invariant: Invariant, text: str) -> None:
        self._world.note(text)
        self.tell(facts.PromiseBroken(invariant, text))

    def on_write(self, process: Process, path: str, offset: int, size: int, before: bytes) -> None:
        """Hot. A write of `size` bytes; `before`: those that it replaces."""
        node = process.node
        self.tell(facts.DiskWritten(node, path, offset, size))
        if not path.endswith(".data"):
            if not offset and path.endswith(".raft"):
                self._check_segment_opening(process, path)
            return
        if offset >= SEGMENT_HEADER_SIZE and before.strip(b"\0"):
            self._report_misplaced(node, f"writes {path} at byte {offset}, over other bytes")
        elif inside := offset % SECTOR_BYTES:
            if self._durability.has_bytes(node, path, offset - inside, inside):
                how = f"writes {path} at byte {offset}, in a sector with flushed frames"
                self._report_misplaced(node, how)

    def _check_segment_opening(self, process: Process, path: str) -> None:
        """A roll or a truncation begins with this header, once every earlier flush has ended
        (SAFETY F6). A start, which has no core yet, also writes damaged headers anew."""
        if process.node not in self.cores:
            return
        for flushed in self._durability.flushed_after(process.node, process.local_now_ns):
            how = f"writes the header of {path} while {flushed} is being flushed"
            self._report_misplaced(process.node, how)

    def _report_misplaced(self, node: int, how: str) -> None:
        self.tell(facts.ForbiddenWrite(node, how))

    def on_replicator_read(
        self, node: int, replicator: Any, path: str, offset: int, data: bytes
    ) -> None:
        """Hot. A replicator read a file; only a record that is not there matters."""
        if data == _NO_RECORD and path.endswith(".raft"):
            place = f"{path} at byte {offset}"
            self.tell(facts.ReadAheadOfWriter(node, replicator._stream.term, place))

    def disk_changed(self, node: int) -> None:
        self._durability.disk_changed(node)

    def out_for_space(self, process: str, error: str) -> None:
        """A full disk ended it, or keeps it from starting."""
        self._world.note(f"{process}: {error}")
        self.tell(facts.EndedByFullDisk(process, error))

    def unexpected_error(self, process: str, error: BaseException) -> None:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{process}: {type(error).__name__}: {error} ({where.name}:{where.lineno})"
        self.add_error(text)

    def add_error(self, text: str) -> None:
        """Record an error that breaks no rule of SAFETY, and must not happen either."""
        self._world.note(text)
        self.errors.append((self._world.now_ns, text))

    def read_ring(self, node: int, ring_start: int, ring_end: int) -> bytes | None:
        """Bytes of the payload ring, for checkers."""
        ring = self._rings.get(node)
        return ring.copy_out(ring_start, ring_end) if ring is not None else None

    @property
    def leader(self) -> int:
        """The leader of the highest term; 0: there is none."""
        leaders = [
            (core.term, node) for node, core in self.cores.items() if core.role is Role.LEADER
        ]
        return max(leaders, default=(0, 0))[1]

    def counters(self, node: int) -> Any:
        return self._slots[node]

    def core_made(self, node: int, core: RaftCore, log: RecoveredLog) -> None:
        """A raft actor made its core."""
        self.tell(facts.CoreMade(node, log, self._durability.uuid_of(node)))
        last = log.start.index if log.last is None else log.last.header.index
        self._durability.log_made(node)
        self._durability.truncated(node, last + 1)
        self._durability.begins_after(node, log.start.index)
        self.voters[node] = None
        self.cores[node] = core

    def stepped(
        self, node: int, incarnation: int, core: RaftCore, event: Event, effects: list[Effect]
    ) -> None:
        """Hot: half of all steps are a Tick without effects."""
        if type(event) is LogStartMoved:
            self._durability.begins_after(node, event.start.position.index)
        for effect in effects:
            if type(effect) is Truncate:
                self._durability.truncated(node, effect.first_index)
            elif type(effect) is InstallLog:
                self._durability.truncated(node, 0)
                self._durability.begins_after(node, effect.start.position.index)
            elif type(effect) is Visible and node in self._readers_waiting:
                self.on_visible_news(node)
        self._on_step(facts.Stepped(node, incarnation, core, event, effects))
        if effects or type(event) is not Tick:
            seq = self._counters[node].seen(Counter.WRITTEN, self._world.now_ns)
            if seq != self._written[node]:
                self._written[node] = seq
                self.tell(facts.WrittenPublished(node, seq))

    def report_counters(self, node: int) -> None:
        """Tell once, at the end of an incarnation, what its counters have."""
        slots = self._slots.pop(node, None)
        if slots is not None:
            for _ in range(slots[Counter.RING_OVERWRITTEN]):
                self.tell(facts.RingOverwritten())


class ProcessObserver:
    """What one process shows, for the cluster's observer."""

    def __init__(self, observer: ClusterObserver, node: int, incarnation: int) -> None:
        self._observer = observer
        self._node = node
        self._incarnation = incarnation

    def core_type(self, _real: CoreType) -> CoreType:
        return partial(_ObservedCore, self._observer, self._node, self._incarnation)

    def saw(self, seen: Seen) -> None:
        tell = self._observer.tell
        if not isinstance(seen, AdmissionOpened):
            tell(seen)
            return
        table = seen.table
        parts = (table.sessions(), table.cursors.rows(), table.kept())
        snapshot = (seen.snapshot_parts, seen.passed_over)
        tell(facts.TableRebuilt(self._node, seen.gen, parts, *snapshot))


class _ObservedCore(RaftCore):
    """The real core; tells each step."""

    __slots__ = ("_incarnation", "_node", "_observer")

    def __init__(
        self,
        observer: ClusterObserver,
        node: int,
        incarnation: int,
        config: RaftConfig,
        log: RecoveredLog,
        *parts: Any,
    ) -> None:
        super().__init__(config, log, *parts)
        self._observer = observer
        self._node = node
        self._incarnation = incarnation
        observer.core_made(node, self, log)

    def step(self, event: Event) -> list[Effect]:
        effects = RaftCore.step(self, event)  # cheaper than `super()`, once a step
        self._observer.stepped(self._node, self._incarnation, self, event, effects)
        return effects
