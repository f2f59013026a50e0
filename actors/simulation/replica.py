"""One simulated replica: its processes, disk and clocks, and what its supervisor does.

Owns when processes of a node start and die, by the product's rules (SAFETY M3, `RestartPolicy`).
Must not know when faults strike, nor the other replicas.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from actors import topology
from actors.actor import Actor
from actors.child_main import make_actor
from actors.simulation.checkers.facts import (
    LevelRefused,
    MetaWritten,
    PairRemoved,
    ProcessActed,
    ProcessRespawned,
    QueueSeen,
    VersionStarted,
)
from actors.simulation.disk.disk import SimulatedDisk
from actors.simulation.disk_moments import DiskMoments
from actors.simulation.faults.draw_ground import LEVEL_MAX
from actors.simulation.faults.script import Ground
from actors.simulation.oracle.observers import ClusterObserver, ProcessObserver
from actors.simulation.supervisor_rings import SupervisorRings
from actors.simulation.world.group import Group
from actors.simulation.world.machine import NodeClock, SimulatedHost
from actors.simulation.world.process import PARK_MAX_NS, Process, ProcessKilled, Runnable
from actors.simulation.world.random_streams import stream
from actors.simulation.world.rings import PREEMPTED_MAX_NS, CommandRingSender, end_turn_of
from actors.simulation.world.station import ProcessMemory, SimulatedRegions, SimulatedStation
from actors.simulation.world.world import World
from actors.supervisor.restarts import (
    RestartPolicy,
    is_stall_fatal,
    is_vital,
    reports_of_death,
)
from logstore.config import Config
from logstore.config_layout import actors_in, kind_of, layout_of, process_of
from logstore.errors import DiskFull, ReplicaLost, UnsupportedLevel
from logstore.format.level import NEWEST_LEVEL
from logstore.limits import ReplicaLimits
from logstore.model import NodeId
from logstore.storage.meta_store import META_NAMES
from logstore.storage.segment import segment_numbers

MS_NS = 1_000_000
SPAWN_NS = 5_000_000  # from the decision to start a process to its first do_work
OPERATOR_NS = 2_000_000_000  # after which an operator starts a replica that gave up
STOP_POLL_NS = 20_000_000
# A process that is not paused closes a removed file within this time; a product's has 30 s.
REMOVED_OPEN_NS = 5_000_000_000
LIVENESS_NS = 5_000_000_000  # a process that hangs this long is killed (M3)


class Replica:
    """The `Supervisor` of one node's processes."""

    def __init__(
        self,
        world: World,
        node: int,
        *,
        seed: int,
        config: Config,
        limits: ReplicaLimits,
        ground: Ground,
        disk: SimulatedDisk,
        network: Any,
        observer: ClusterObserver,
        is_lagging: bool,
    ) -> None:
        self.node = node
        # the newest format level that its version reads
        self.newest_level = ground.newest_levels[node - 1] if ground.newest_levels else NEWEST_LEVEL
        self.folder = f"/node-{node}"
        self.disk = disk
        self.clock = NodeClock(
            world,
            drift_ppm=ground.clock_drift_ppm[node - 1],
            offset_ns=ground.clock_offset_ns[node - 1],
        )
        self.monotonic_ns: Callable[[], int] = self.clock.monotonic_ns
        self.processes: dict[str, Process] = {}
        self.layout = layout_of(config, node)
        self.incarnation = 0
        self._plan = 0  # number of the last decision; a start planned before it is dropped
        self.is_running = False
        self.is_lost = False  # damaged so that only a new replica helps
        self.is_excused = False  # its medium rotted or lied
        self._damage = ""  # why this incarnation must not go on
        self._world = world
        self._config = config
        self._limits = limits
        self._ground = ground
        self._call_max_ns = ground.flush_ns[1] + ground.write_ns  # of a call without a stall
        self._network = network
        self._observer = observer
        self._is_lagging = is_lagging
        self._random = stream(seed, f"node-{node}")
        self._ring_random = stream(seed, f"rings-{node}")
        self._policy = RestartPolicy(stream(seed, f"restarts-{node}"))
        self.stalled_until_ns = 0  # until then the disk's flushes are slow
        self._stops = 0  # number of the last orderly stop, or of what ended it
        self._regions: SimulatedRegions | None = None
        self._actors: dict[str, Actor] = {}
        self._views: dict[str, Any] = {}
        self._removed_open: dict[str, dict[str, int]] = {}  # process -> path -> since when
        self._rings = SupervisorRings(world, 0, self._respawn)
        self._to_replicators: dict[str, CommandRingSender] = {}  # raft's ends, by the receiver
        self._calls_left = -1
        self._victim = ""  # the process whose disk calls are counted; "": all
        self._on_kill: Callable[[], None] | None = None
        self._counted_from = ""  # a `Moment`: calls count from the next one on
        self._moments = DiskMoments()

    # --- start and death of the replica ---

    def start(self, damage: str = "") -> None:
        """Begin a new incarnation. `damage`: why it must not go on."""
        if self.is_running:
            return
        self._damage = damage
        self.is_running = True
        self._plan += 1
        self._stops += 1
        self.incarnation += 1
        node, nodes = NodeId(self.node), tuple(NodeId(each) for each in self._config.node_ids())
        self._regions = SimulatedRegions(
            node,
            nodes,
            self.layout,
            incarnation=self.incarnation,
            command_ring_bytes=self._ground.command_ring_bytes,
            ring_bytes=self._ground.ring_bytes,
            is_lagging=self._is_lagging,
        )
        self._observer.started(self.node, self.incarnation, self._regions)
        self._observer.tell(VersionStarted(self.node, self.newest_level))
        supervisor = Process(
            self._world, self, node=self.node, name=f"{self.node}.supervisor", make=_nobody
        )
        memory = self._memory_of(supervisor, writes_files=False)
        self._rings = SupervisorRings(self._world, self.incarnation, self._respawn)
        self._rings.attach(self._station(topology.SUPERVISOR, memory, host=None))
        for name in self.layout:
            self._spawn(name)

    def process_running(self, actor: str) -> Process | None:
        return self.processes.get(process_of(self.layout, actor))

    def actors_beside(self, actor: str) -> tuple[str, ...]:
        """The actors of the process that runs `actor`, itself among them."""
        return self.actors_of(process_of(self.layout, actor))

    def actors_of(self, process: str) -> tuple[str, ...]:
        return actors_in(self.layout, process)

    def expect_bell(self, actor: str) -> None:
        """From now on there is work for this actor: a bell must ring."""
        process = self.process_running(actor)
        if process is not None:
            process.expect_bell()

    def report_holdings(self) -> None:
        """Report what its actors hold, and how many removed files each keeps open too long."""
        now_ns = self._world.now_ns
        running = [each for each in self.processes.items() if each[1].actor is not None]
        for name, process in ((a, each) for own, each in running for a in self.actors_of(own)):
            shown = f"{self.node}.{name}"
            self._observer.report_holdings(shown, self._actors[name])
            view, since = self._views.get(name), self._removed_open.get(name, {})
            removed = [] if view is None or process.is_paused else view.removed_open
            self._removed_open[name] = {path: since.get(path, now_ns) for path in removed}
            late = [path for path in removed if now_ns - since.get(path, now_ns) > REMOVED_OPEN_NS]
            self._observer.tell(QueueSeen(f"{shown}/removed files", len(late), 0))

    def kill(self, *, for_good: bool = False) -> None:
        """SIGKILL to every process; the page cache stays. `for_good`: no planned start follows."""
        if for_good:
            self._plan += 1
        if not self.is_running:
            return
        self._world.note(f"{self.node} killed")
        self.is_running = False
        for name in list(self.processes):
            self._remove(name)
        self._observer.died(self.node, "", self.incarnation)

    def power_cut(self, random: Random, *, garble: bool) -> None:
        # Other processes may have acted on everything the disk had by the end of their work.
        writing = self.process_running(topology.WRITER)
        others = [each for each in self.processes.values() if each is not writing]
        self.disk.drop_after(max(self._world.now_ns, *(each.free_at_ns for each in others), 0))
        self.kill()
        self._world.note(f"{self.node} power cut")
        self.disk.power_cut(random, garble=garble)
        self._observer.disk_changed(self.node)

    def kill_process(self, actor: str) -> None:
        """SIGKILL to the process that runs `actor`."""
        process = self.process_running(actor)
        if process is not None:
            self.on_death(process, "killed")

    def kill_at_call(self, process: str, calls: int, act: Callable[[], None]) -> None:
        """Kill the process of the actor `process` in that one's `calls`-th disk call from now, and
        call `act` there."""
        self._victim, self._calls_left, self._on_kill = process, calls, act
        self._counted_from = ""

    def kill_at_call_from(self, moment: str, calls: int, act: Callable[[], None]) -> None:
        """As `kill_at_call`, counting the writer's calls from the next such `Moment`."""
        self.kill_at_call(topology.WRITER, calls, act)
        self._counted_from = moment

    def cancel_kills_and_stops(self) -> None:
        """No disk call kills a process, and no orderly stop goes on."""
        self._calls_left, self._on_kill = -1, None
        self._stops += 1

    def pause(self, actor: str, for_ns: int) -> None:
        """The process that runs `actor`; "": the whole replica, with its supervisor."""
        for name, process in self.processes.items():
            actors = self.actors_of(name)
            if not actor or actor in actors:
                process.pause(for_ns)
                if actor and is_stall_fatal(actors) and for_ns > LIVENESS_NS:
                    self._world.at(self._world.now_ns + LIVENESS_NS, self._reap, process)

    def resume(self) -> None:
        for process in self.processes.values():
            process.resume()

    def stop_orderly(self, then: Callable[[], None]) -> None:
        """SIGTERM: hand over leadership, end all processes, then call `then`."""
        if not self.is_running:
            return
        self._rings.request_stop()
        election_ns = self._config.raft.election_timeout_ns
        self._stops += 1
        self._await_stop(self._stops, self._world.now_ns + 2 * election_ns, then)

    def _await_stop(self, number: int, deadline_ns: int, then: Callable[[], None]) -> None:
        if not self.is_running or number != self._stops:
            return
        self._rings.take()
        if self._rings.is_stop_ready or self._world.now_ns >= deadline_ns:
            self.kill()
            then()
            return
        next_ns = self._world.now_ns + STOP_POLL_NS
        self._world.at(next_ns, self._await_stop, number, deadline_ns, then)

    # --- death of a process ---

    def on_death(self, process: Process, reason: str) -> None:
        name = process.name.partition(".")[2]
        if self.processes.get(name) is not process:
            return
        self._world.note(f"{process.name} died: {reason}")
        if self._calls_left == 0 and self._on_kill is not None:
            act, self._on_kill, self._calls_left = self._on_kill, None, -1
            act()
            if self.processes.get(name) is not process:
                return
        now_ns = self.clock.monotonic_ns()
        actors = self.actors_of(name)
        if is_vital(actors):
            at_ns = self._policy.try_replica_restart_at(now_ns=now_ns)
            self.kill()
            wait_ns = OPERATOR_NS if at_ns is None else at_ns - now_ns
            self._world.at(self._world.now_ns + wait_ns + SPAWN_NS, self._restart, self._plan)
            return
        self._remove(name)
        for actor in actors:
            self._observer.died(self.node, actor, self.incarnation)
            if actor in self._to_replicators:
                self._to_replicators[actor].drop_refused()
        self._rings.report(reports_of_death(actors))
        at_ns = self._policy.child_restart_at(name, now_ns=now_ns, lived_ns=0)
        wait_ns = at_ns - now_ns
        self._world.at(self._world.now_ns + wait_ns, self._respawn, name, self.incarnation)

    def on_unexpected_error(self, process: Process, error: BaseException) -> None:
        if isinstance(error, UnsupportedLevel):
            self._give_up(str(error))
            return
        if isinstance(error, DiskFull) or isinstance(error.__cause__, DiskFull):
            self._observer.out_for_space(process.name, str(error))
        elif isinstance(error, ReplicaLost) and (self.is_excused or self.disk.rotten()):
            self.is_lost = True
            self._stay_up(str(error))
            return
        else:
            self._observer.unexpected_error(process.name, error)
        self.on_death(process, f"{type(error).__name__}: {error}")

    def _stay_up(self, reason: str) -> None:
        """It must not go on (status 79): it stays up, until an operator starts it again."""
        self._world.note(f"{self.node} must not go on: {reason}")
        self.kill()
        self._world.at(self._world.now_ns + SPAWN_NS, self._restart, self._plan, reason)
        self._world.at(self._world.now_ns + OPERATOR_NS, self._start_again, self._plan + 1)

    def _start_again(self, plan: int) -> None:
        if plan == self._plan and self._damage:
            self.kill()
            self._restart(plan)

    def _give_up(self, reason: str) -> None:
        """Starting it again cannot help (status 78). Somebody starts the newest version."""
        self._world.note(f"{self.node} refuses its folder: {reason}")
        self._observer.tell(LevelRefused(self.node))
        self.kill()
        self._world.at(self._world.now_ns + OPERATOR_NS + SPAWN_NS, self._start_newest, self._plan)

    def _start_newest(self, plan: int) -> None:
        if plan == self._plan:
            self.newest_level = LEVEL_MAX
            self.start()

    def _restart(self, plan: int, damage: str = "") -> None:
        if plan == self._plan:
            self.start(damage)

    def _respawn(self, name: str, incarnation: int) -> None:
        if self.is_running and incarnation == self.incarnation and name not in self.processes:
            for actor in self.actors_of(name):
                self._observer.tell(ProcessRespawned(self.node, actor, incarnation))
            self._spawn(name)

    def _reap(self, process: Process) -> None:
        if process.is_alive and process.is_paused:
            self.on_death(process, "stood still")

    # --- processes ---

    def _spawn(self, name: str) -> None:
        process = Process(
            self._world, self, node=self.node, name=f"{self.node}.{name}", make=self._make
        )
        process.wake_delay_ns = self._ground.wake_ns
        process.park_max_ns = max(PARK_MAX_NS, self._ground.election_ms * MS_NS)
        if self._ground.ring_delay_ns:
            process.bell_delay_max_ns += self._ground.ring_delay_ns + PREEMPTED_MAX_NS
        if len(self.actors_of(name)) > 1:
            process.rung_ns = {actor: [] for actor in self.actors_of(name)}
        self.processes[name] = process
        process.wake_at(self._world.now_ns + SPAWN_NS + self._random.randrange(SPAWN_NS))

    def _make(self, process: Process) -> Actor | Group:
        """The actors of a process, as one if there are several."""
        actors = self.actors_of(process.name.partition(".")[2])
        memory = self._memory_of(process, writes_files=topology.WRITER in actors)
        stations = [self._make_actor(process, actor, memory) for actor in actors]
        # Ingress' loops are read by raft (V6); nobody reads those of the others, late or not.
        slots = memory.slots if topology.INGRESS in actors else memory.raw_slots
        loops = stations[0].loops_slot(actors[0])
        process.count_loop = partial(_count_loop, slots, loops)
        process.on_worked = partial(self._on_work_done, process, stations)
        process.on_overslept = partial(self._observer.overslept, process.name)
        if topology.RAFT in actors:
            self._to_replicators = stations[actors.index(topology.RAFT)].to_replicators
        end_turn = partial(end_turn_of, self._to_replicators)
        found: Actor | Group = self._actors[actors[0]]
        if len(actors) > 1:
            members = {actor: self._actors[actor] for actor in actors}
            found = Group(process, members, {topology.RAFT: end_turn})
        elif topology.RAFT in actors:
            process.count_loop = partial(_count_loop, slots, loops, end_turn)
        process.rerun_work_min = found.full_turn
        return found

    def _make_actor(self, process: Process, name: str, memory: ProcessMemory) -> SimulatedStation:
        """Make the actor; returns its station."""
        view = self._views[name] = self.disk.view(partial(self._charge, process), process)
        view.on_call = self._on_call(name, process)
        view.on_write = partial(self._observer.on_write, process)
        host = SimulatedHost(
            process,
            disk=view,
            links=self._network.links(process),
            clock=self.clock,
            random=self._random,
            observer=ProcessObserver(self._observer, self.node, self.incarnation),
        )
        station = self._station(name, memory, host=host)
        actor = self._actors[name] = make_actor(station)
        if kind_of(name) == topology.REPLICATOR:
            view.on_read = partial(self._observer.on_replicator_read, self.node, actor)
        return station

    def _memory_of(self, process: Process, *, writes_files: bool) -> ProcessMemory:
        if self._regions is None:
            raise RuntimeError("a process before its replica")
        return ProcessMemory(
            process,
            self._regions,
            writes_files=writes_files,
            random=self._ring_random,
            ring_delay_ns=self._ground.ring_delay_ns,
        )

    def _station(self, name: str, memory: ProcessMemory, *, host: Any) -> SimulatedStation:
        return SimulatedStation(
            name,
            memory,
            config=self._config,
            folder=self.folder,
            host=host,
            limits=self._limits,
            newest_level=self.newest_level,
            new_log_level=self._ground.new_log_level,
            process_running=lambda actor: (
                self._rings if actor == topology.SUPERVISOR else self.process_running(actor)
            ),
            observer=self._observer,
            damage=self._damage,
        )

    def _on_work_done(self, process: Process, stations: list[SimulatedStation]) -> None:
        """Hot: after each do_work."""
        for station in stations:
            self._observer.on_work_done(process, station, self._actors[station.actor])

    def _charge(self, process: Process, cost_ns: int) -> None:
        """The end of a stall ends a call that it delays, too."""
        most_ns = self._call_max_ns
        if cost_ns > most_ns:
            cost_ns = min(cost_ns, most_ns + max(0, self.stalled_until_ns - process.local_now_ns))
        process.charge(cost_ns)

    def _remove(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        self._network.close_owner(process)
        for actor in self.actors_of(name):
            view = self._views.pop(actor, None)
            if view is not None:
                view.kill()
            if self._regions is not None:
                self._regions.drop_after(actor, self._world.now_ns)

    def _on_call(self, name: str, process: Process) -> Callable[[str, str], None]:
        incarnation = self.incarnation
        acted = ProcessActed(self.node, name, incarnation)

        def tell(what: str, path: str) -> None:
            self._count_call(name, what, path)
            self._observer.tell(acted)
            if what == "unlink":
                for segment in segment_numbers([os.path.basename(path)]):
                    self._world.at(process.local_now_ns, self._report_removed, incarnation, segment)
            if what == "write" and path.endswith(META_NAMES):
                copy = int(path.endswith(META_NAMES[1]))
                at_ns = process.local_now_ns
                self._world.at(at_ns, self._report_meta_written, incarnation, copy)

        return tell

    def _count_call(self, name: str, what: str, path: str) -> None:
        core = self._observer.cores.get(self.node)
        moment = self._moments.moment_of(what, path, core is not None and core.is_installing)
        if self._counted_from not in ("", moment):
            return
        self._counted_from = ""
        if self._calls_left <= 0 or self._victim not in ("", name):
            return
        self._calls_left -= 1
        if self._calls_left == 0:
            raise ProcessKilled(f"before {what} {path}")

    def _report_removed(self, incarnation: int, segment: int) -> None:
        """A dead one's calls are done; the next one may use the segment's number meanwhile."""
        if self.is_running and incarnation == self.incarnation:
            self._observer.tell(PairRemoved(self.node, segment))

    def _report_meta_written(self, incarnation: int, copy: int) -> None:
        if self.is_running and incarnation == self.incarnation:
            self._observer.tell(MetaWritten(self.node, copy))


def _count_loop(slots: Any, loops: int, end_turn: Callable[[], None] | None = None) -> None:
    slots[loops] += 1
    if end_turn is not None:
        end_turn()


def _nobody(process: Process) -> Runnable:
    raise RuntimeError(f"{process.name} has no actor")
