"""One incarnation of a replica: its regions, its children and the supervisor's rings to raft.

Carries out what the supervisor decides. Invariant: the regions are closed only after every child
was reaped, so no process writes into memory that a new incarnation uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from actors import messages, topology
from actors.child import EXIT_LOST, ChildSpec
from actors.station import Station
from actors.supervisor.child_process import ChildProcess
from actors.supervisor.placement_keeper import PlacementKeeper
from actors.supervisor.placement_report import encode_report
from actors.supervisor.regions import ReplicaRegions
from actors.supervisor.restarts import reports_of_death
from logstore.config import Config, render_config
from logstore.config_layout import actors_in
from logstore.model import NodeId


class RunningReplica:
    """The children of `node` under one incarnation number. `damage`: why the replica must not go
    on; empty: it may (SAFETY L6)."""

    def __init__(
        self,
        config: Config,
        node: NodeId,
        folder: str,
        *,
        incarnation: int,
        run_child: Callable[[ChildSpec], None],
        placement: PlacementKeeper,
        damage: str = "",
    ) -> None:
        self._config = config
        self._node = node
        self._folder = folder
        self._run_child = run_child
        self._placement = placement
        self.damage = damage
        self._reported = b""  # the placement that raft was last told
        self.regions = ReplicaRegions(config, node, incarnation=incarnation)
        try:
            regions = self.regions.attach(topology.SUPERVISOR)
        except BaseException:
            self.regions.close()
            raise
        self.station = Station(
            topology.SUPERVISOR, node=node, config=config, folder=folder, regions=regions
        )
        self.layout = self.station.layout
        self._to_raft = self.station.outbox(topology.RAFT)
        self._from_raft = self.station.inbox(topology.RAFT)
        self._is_stop_ready = False
        self._started_spares: set[str] = set()  # of which raft knows
        self.children: dict[str, ChildProcess] = {}

    def actors_of(self, process: str) -> tuple[str, ...]:
        return actors_in(self.layout, process)

    def spawn_all(self, *, now_ns: int) -> None:
        for process in self.layout:
            self.spawn(process, now_ns=now_ns)

    def spawn(self, process: str, *, now_ns: int) -> None:
        """Start `process`; it must not be running. Raft learns when a spare replicator is started
        for the first time: only then it may use that one's rings.

        Raises:
          RegionUnavailable: no memory for the rings of a spare. OSError: no process.
        """
        is_spare = process in topology.SPARE_NAMES
        if is_spare:
            self.regions.allocate(process)
        spec = ChildSpec(
            process=process,
            node=self._node,
            config_text=render_config(self._config),
            folder=self._folder,
            incarnation=self.regions.incarnation,
            rings=self.regions.rings_of(process),
            payload=self.regions.payload,
            # the inherited descriptor: the file has no name
            counters_path=f"/proc/self/fd/{self.regions.counters}",
            stamps=self.regions.stamps,
            bells={name: bell.fileno() for name, bell in self.regions.bells.items()},
            placement=self._placement.begin(process),
            damage=self.damage,
        )
        for begins_anew in ("loops", "measured_ns"):  # what else is measured is the predecessor's
            self.station.slots[self.station.slot(f"{process}.{begins_anew}")] = 0
        descriptors = self.regions.descriptors_of(process)
        child = ChildProcess(self._run_child, spec, descriptors, now_ns=now_ns)
        self.children[process] = child
        self._store_gauge(process, "pid", child.pid)
        if is_spare and process not in self._started_spares:
            self._started_spares.add(process)
            self._to_raft.send(messages.ReplicatorStarted(process))
            self._to_raft.flush()

    def reap(self, process: str) -> int:
        """Collect the dead `process`; returns its exit status. With EXIT_LOST its last words are
        why the replica must not go on."""
        child = self.children.pop(process)
        status = child.reap()
        if status == EXIT_LOST:
            self.damage = child.last_words or "its log says why"
        for gauge in ("pid", "cpu_permille", "rss_bytes"):
            self._store_gauge(process, gauge, 0)
        return status

    def terminate_all(self) -> None:
        for child in self.children.values():
            child.terminate()

    def kill_all(self) -> None:
        for child in self.children.values():
            child.kill()

    def report_death(self, process: str) -> None:
        """Tell raft, which settles what each actor of the dead `process` held before a new one
        starts (SAFETY M3)."""
        for report in reports_of_death(self.actors_of(process)):
            self._to_raft.send(report)
        self._to_raft.flush()

    def keep_placement(self) -> None:
        """Put the children where they belong now, and tell raft, for its status, what changed."""
        document = encode_report(self._placement.keep(self.pids(), self.loops()))
        if document != self._reported:
            self._reported = document
            self._to_raft.send(messages.PlacementReported(document))
            self._to_raft.flush()

    def request_stop(self) -> None:
        self._to_raft.send(messages.StopRequested())
        self._to_raft.flush()

    @property
    def is_stop_ready(self) -> bool:
        """Whether raft has answered that leadership is handed over, or cannot be."""
        return self._is_stop_ready

    def take_orders(self) -> list[str]:
        """Read what raft has sent; returns the spares that it wants and that do not run, each
        once."""
        wanted: dict[str, None] = {}
        for message in self._from_raft.receive():
            match message:
                case messages.StopReady():
                    self._is_stop_ready = True
                case messages.ReplicatorWanted():
                    wanted[message.actor] = None
        return [each for each in wanted if each not in self.children]

    def loops(self) -> dict[str, int]:
        """The loop counter of each running child."""
        slots, slot = self.station.slots, self.station.slot
        return {name: slots[slot(f"{name}.loops")] for name in self.children}

    def pids(self) -> dict[str, int]:
        return {name: child.pid for name, child in self.children.items()}

    def bell_fileno(self) -> int:
        return self.station.bell.fileno()

    def clear_bell(self) -> None:
        self.station.bell.clear()

    def flush(self) -> None:
        self._to_raft.flush()

    def by_pidfd(self, descriptors: Iterable[int]) -> list[str]:
        """Names of the children whose pidfd is among `descriptors`."""
        wanted = set(descriptors)
        return [name for name, child in self.children.items() if child.pidfd in wanted]

    def close(self) -> None:
        """Free the shared memory and our own mappings of it, since the next incarnation needs the
        room. Every child must have been reaped, and no other object may keep the station."""
        del self.station, self._to_raft, self._from_raft
        self.regions.close()

    def _store_gauge(self, process: str, gauge: str, value: int) -> None:
        self.station.slots[self.station.slot(f"{process}.{gauge}")] = value
