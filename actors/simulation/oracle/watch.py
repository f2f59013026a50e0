"""Who looks on: passes what replicas do to the ledger and to the must-reach marks.

Owns the points at which the real actors are observed, all from outside: a core that tells its
steps, a look at ingress after its work. Must not change what happens.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from random import Random
from typing import Any

from actors.ingress.actor import IngressActor
from actors.simulation.checkers.bells import Giver
from actors.simulation.checkers.invariant import Invariant, Violation
from actors.simulation.checkers.lanes import ControlLanes
from actors.simulation.checkers.turns import AppendTurns
from actors.simulation.network.socket import VirtualSocket
from actors.simulation.oracle.bounds import holdings
from actors.simulation.oracle.facts import DiskFacts
from actors.simulation.oracle.ledger import Ledger
from actors.simulation.oracle.reach import ReachObserver
from actors.simulation.world.process import Process
from actors.simulation.world.rings import SharedSlots
from actors.simulation.world.station import SimulatedRegions
from actors.simulation.world.world import World
from actors.topology import EGRESS, Counter
from actors.writer.actor import WriterActor
from logstore.format.raft_record import RECORD_SIZE
from logstore.format.segment_header import SEGMENT_HEADER_SIZE
from logstore.limits import SECTOR_BYTES
from logstore.model import EntryKind, Role
from logstore.raft.core import RaftCore
from logstore.raft.effects import Effect, Truncate, Visible
from logstore.raft.events import Event, Proposed, Tick
from logstore.raft.log_view import LogView, RecoveredLog
from logstore.raft.raft_config import RaftConfig
from logstore.session.table import SessionTable
from transport.link import Lane
from transport.payload_ring import PayloadRingReader

_NO_RECORD = bytes(RECORD_SIZE)
_REQUESTS = frozenset((EntryKind.OPEN, EntryKind.EXPIRE, EntryKind.CURSOR))
# Taken while one batch waits: those of a turn before it came and of one after it, with what expires
# then, and the groups that were under way.
_REQUESTS_MAX = 2 * (4 + 4) + 16


class Watch:
    """One run's observer. Facts go to the ledger. What is wrong by itself, whatever else happened,
    is in `violations`, and `errors` has (time, text) of what no operating condition explains."""

    def __init__(
        self, world: World, ledger: Ledger, facts: DiskFacts, reach: ReachObserver
    ) -> None:
        self.errors: list[tuple[int, str]] = []
        self.violations: list[Violation] = []
        self.born: dict[int, None] = {}  # replicas that are or were voters
        self.cores: dict[int, RaftCore] = {}  # of running replicas that have recovered
        self._world = world
        self._ledger = ledger
        self.offered, self.rung = ledger.offered, ledger.rung  # hot
        self._bells_owed = ledger.bells_owed
        self._facts = facts
        self._reach = reach
        self._rings: dict[int, PayloadRingReader] = {}
        self._slots: dict[int, Any] = {}
        self._counters: dict[int, SharedSlots] = {}
        self._control_lanes = ControlLanes()
        self._turns = AppendTurns(_REQUESTS_MAX)
        self._written: dict[int, int] = {}  # WRITTEN as it was seen last
        self._watching: dict[int, None] = {}  # nodes whose egress waits for what becomes visible
        self.on_news: Callable[[int], None] = _nobody  # there is some for the egress of a node

    def started(self, node: int, incarnation: int, regions: SimulatedRegions) -> None:
        self._rings[node] = PayloadRingReader(regions.payload, incarnation=incarnation)
        self.tell_counters(node)
        self._slots[node] = regions.counters.values
        self._counters[node] = regions.counters
        self._written[node] = 0
        self._facts.started(node)
        self._ledger.started(node, incarnation, self._world.now_ns)

    def died(self, node: int, process: str, incarnation: int) -> None:
        if not process:
            self.cores.pop(node, None)
        if process in ("", EGRESS):
            self._watching.pop(node, None)
        self._ledger.died(node, process, incarnation)

    def respawned(self, node: int, process: str, incarnation: int) -> None:
        """A process that may restart alone is back."""
        self._ledger.respawned(node, process, incarnation, self._world.now_ns)

    def called(self, node: int, process: str, incarnation: int) -> None:
        """This process begins a disk call that changes something."""
        self._ledger.acted(node, process, incarnation, self._world.now_ns)

    def look_at(self, process: str, actor: Any) -> None:
        """What its bounded things hold now."""
        for what, length, bound in holdings(actor):
            self._ledger.queue(f"{process}/{what}", length, bound, self._world.now_ns)
        if isinstance(actor, WriterActor) and actor.delay:
            node = int(process.partition(".")[0])
            if node in self.born and not self._facts.is_excused(node):
                self.out_for_space(process, actor.delay)

    def liveness_lost(self, text: str) -> None:
        self._complain(Invariant.I13, text)

    def ring_misused(self, text: str) -> None:
        self._complain(Invariant.I14, text)

    def overslept(self, process: str, late_ns: int) -> None:
        """It found what others had published long before, and nobody had rung (SAFETY M7)."""
        text = f"{process} slept for {late_ns / 1e6:.1f} ms while there was news for it"
        self._complain(Invariant.I13, text)

    def worked(self, giver: Giver, process: Process) -> None:
        """Hot. A do_work of it is over."""
        if self._bells_owed.get(giver):
            self._ledger.worked(giver, self._world.now_ns)
        if type(process.actor) is IngressActor:
            self._look_at_turns(process.node, process.actor)
        if process.unread and process.actor is not None:
            for socket in process.actor.wait_on():
                if socket.lane is Lane.CONTROL and socket.oldest is not None:
                    self._left_unread(process.name, socket)

    def _look_at_turns(self, node: int, ingress: IngressActor) -> None:
        """Hot. A leader that has closed admission reads no batch, and takes no request either."""
        oldest = None if ingress.admission.table is None else ingress._ports.append.oldest  # type: ignore[attr-defined]
        if taken := self._turns.passed_over(node, oldest):
            text = f"node {node} took {taken} requests while a batch waited to be read"
            self._complain(Invariant.I13, text)

    def _left_unread(self, process: str, socket: VirtualSocket) -> None:
        if self._control_lanes.is_passed_over(process, socket.endpoint, socket.oldest):
            self._complain(
                Invariant.I13, f"{process} does not read {socket.endpoint}, a control lane"
            )

    def egress_watches(self, node: int, is_watching: bool) -> None:
        """Raft has heard from egress whether it waits for what becomes visible."""
        if is_watching:
            self._watching[node] = None
        else:
            self._watching.pop(node, None)

    def _complain(self, invariant: Invariant, text: str) -> None:
        self._world.note(text)
        self.violations.append(Violation(invariant.value, text, self._world.now_ns))

    def wrote(self, process: Process, path: str, offset: int, before: bytes) -> None:
        """Hot. A write; `before` are the bytes that it replaces."""
        node = process.node
        if not path.endswith(".data"):
            if not offset and path.endswith(".raft"):
                self._opens_segment(process, path)
            return
        if offset >= SEGMENT_HEADER_SIZE and before.strip(b"\0"):
            how = f"writes {path} at byte {offset}, over other bytes"
            self._ledger.misplaced(node, how, self._world.now_ns)
        elif size := offset % SECTOR_BYTES:
            if self._facts.has_bytes(node, path, offset - size, size):
                how = f"writes {path} at byte {offset}, in a sector with flushed frames"
                self._ledger.misplaced(node, how, self._world.now_ns)

    def _opens_segment(self, process: Process, path: str) -> None:
        """A roll or a truncation begins with this header (SAFETY F6)."""
        for flushed in self._facts.flushed_after(process.node, process.local_now_ns):
            how = f"writes the header of {path} while {flushed} is being flushed"
            self._ledger.misplaced(process.node, how, self._world.now_ns)

    def replicator_read(self, process: Process, path: str, offset: int, data: bytes) -> None:
        """Hot. A replicator has looked into a file; of interest is a record that is not there."""
        if data == _NO_RECORD and path.endswith(".raft") and process.actor is not None:
            term = process.actor._stream.term  # type: ignore[attr-defined]
            place = f"{path} at byte {offset}"
            self._ledger.looked_ahead(process.node, term, place, self._world.now_ns)

    def disk_changed(self, node: int) -> None:
        self._facts.disk_changed(node)

    def meta_written(self, node: int, copy: int) -> None:
        self._ledger.meta_written(node, copy, self._world.now_ns)

    def out_for_space(self, process: str, error: str) -> None:
        """It ended of a full disk, or cannot begin on one that has lost nothing."""
        self._world.note(f"{process}: {error}")
        self._ledger.out_for_space(process, error, self._world.now_ns)

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
        """The ledger's look at bytes that an entry is made of."""
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

    def core_type(self, node: int, incarnation: int) -> Callable[..., RaftCore]:
        """What a raft actor makes its core of."""

        def make(
            config: RaftConfig, state: RecoveredLog, log_view: LogView, random: Random
        ) -> RaftCore:
            now_ns = self._world.now_ns
            self._ledger.recovered(node, state, now_ns)
            last = state.start.index if state.last is None else state.last.header.index
            self._facts.truncated(node, last + 1)
            self._reach.recovered(node, incarnation, state)
            parts = (config, state, log_view, random)
            self.born[node] = None
            core = self.cores[node] = _WatchedCore(self, node, incarnation, parts)
            return core

        return make

    def stepped(
        self, node: int, incarnation: int, core: RaftCore, event: Event, effects: list[Effect]
    ) -> None:
        """Hot: half of all steps are a Tick that gives nothing."""
        for effect in effects:
            if type(effect) is Truncate:
                self._facts.truncated(node, effect.first_index)
            elif type(effect) is Visible and node in self._watching:
                self.on_news(node)
        self._ledger.stepped(node, incarnation, core, event, effects, self._world.now_ns)
        if effects or type(event) is not Tick:
            seq = self._counters[node].seen(Counter.WRITTEN, self._world.now_ns)
            if seq != self._written[node]:
                self._written[node] = seq
                self._ledger.written(node, seq, self._world.now_ns)
            if type(event) is Proposed and event.kind in _REQUESTS and effects:
                self._turns.taken(node)
            self._reach.stepped(node, incarnation, core, event, effects)

    def watch_ingress(self, node: int, ingress: Any) -> None:
        """Look at the session table the moment it is rebuilt, before new batches change it."""

        def look(gen: int, table: SessionTable) -> None:
            now_ns = self._world.now_ns
            parts = (table.sessions(), table.cursors.rows(), table.kept())
            self._ledger.table_rebuilt(node, gen, parts, now_ns)

        ingress.admission.on_open = look

    def tell_counters(self, node: int) -> None:
        """What the counters of an incarnation say is told once, when nothing comes after it."""
        slots = self._slots.pop(node, None)
        if slots is not None:
            for _ in range(slots[Counter.RING_OVERWRITTEN]):
                self._reach.ring_overwritten()


def _nobody(_node: int) -> None:
    """Nobody is to be woken."""


class _WatchedCore(RaftCore):
    """The real core; each step is told."""

    __slots__ = ("_incarnation", "_node", "_watch")

    def __init__(self, watch: Watch, node: int, incarnation: int, parts: tuple[Any, ...]) -> None:
        super().__init__(*parts)
        self._watch = watch
        self._node = node
        self._incarnation = incarnation

    def step(self, event: Event) -> list[Effect]:
        effects = super().step(event)
        self._watch.stepped(self._node, self._incarnation, self, event, effects)
        return effects
