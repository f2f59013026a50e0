"""One simulated cluster: replicas, network, observers and checkers in one world, from a script.

Owns how the parts are connected. Must not know faults, nor phases.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from actors.simulation.checkers.facts import DiskLost, DiskSwapped
from actors.simulation.checkers.invariant import Violation
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.world_view import Kept
from actors.simulation.disk.disk import SimulatedDisk
from actors.simulation.disk.medium import DiskLatency
from actors.simulation.faults.script import FaultClass, Ground, Script
from actors.simulation.network.network import VirtualNetwork
from actors.simulation.network.socket import MESSAGE_BYTES
from actors.simulation.oracle.durability import DiskDurability
from actors.simulation.oracle.ledger import Ledger
from actors.simulation.oracle.observers import ClusterObserver
from actors.simulation.oracle.reach import ReachObserver
from actors.simulation.oracle.wire_observer import WireObserver
from actors.simulation.replica import MS_NS, Replica
from actors.simulation.world.machine import MONOTONIC_BASE_NS
from actors.simulation.world.process import Process, Runnable
from actors.simulation.world.random_streams import stream
from actors.simulation.world.rings import PREEMPTED_MAX_NS
from actors.simulation.world.world import World
from actors.topology import EGRESS
from logstore.config import Config
from logstore.limits import KIB, SESSION_IDLE_MIN_NS, SESSION_WINDOW_MIN, ReplicaLimits
from logstore.model import FIRST_LSN
from logstore.settings import (
    ClusterSettings,
    LimitSettings,
    NodeSettings,
    PortOffset,
    ProcessSettings,
    RaftSettings,
    RetentionSettings,
    StorageSettings,
)

_FIRST_PORT = 7_000
_PORT_STEP = 100
_REQUESTS_BEFORE_APPENDS = 4
_FULL_DISK_KEPT_BYTES = 2_048  # three TRIMs or no-ops: a segment may have 16 records
CLIENTS = 0  # the node number of every client's machine


class SimulatedCluster:
    """Everything that runs. `start` begins it; the world's events do the rest."""

    def __init__(self, script: Script, *, trace: Callable[[str], None] | None = None) -> None:
        seed, ground = script.seed, script.ground
        self.script = script
        self.world = World(stream(seed, "ties"), trace=trace)
        self.config = make_config(ground)
        self.founders = tuple(self.config.node_ids())
        self.commissioned: set[int] = set(self.founders)  # machines that run, or ran
        self.nodes = tuple(range(1, ground.machines + 1))
        self.excused_from_ns = 0  # from then on violations prove nothing (`excuse_rest`)
        self.excused: dict[int, None] = {}  # nodes whose medium rotted or lied
        self.lost: dict[int, None] = {}  # nodes whose disk was replaced by an empty one
        self.old_disks_in: dict[int, int] = {}  # node → the disk that the old one took the place of
        self._disks: dict[int, list[str]] = {}  # node → the folders of all its disks
        self._excused_disks: set[tuple[int, int]] = set()
        self.network = VirtualNetwork(
            self.world,
            stream(seed, "network"),
            node_of=_node_of_endpoint,
            default_delay_ns=ground.link_delay_ns,
        )
        disks = {node: _make_disk(self.world, node, script) for node in self.nodes}
        self.durability = DiskDurability(
            disks.__getitem__,
            lambda node: self.replicas[node].folder,
            lambda node: node in self.excused,
        )
        record = Record(
            self.nodes,
            lambda: self.world.now_ns,
            durability=self.durability,
            read_ring=self._read_ring,
            read_clocks=lambda: {
                node: each.clock.wall_ns() for node, each in self.replicas.items()
            },
            read_clock_gaps=lambda: {
                node: each.clock.wall_ns() - each.clock.monotonic_ns()
                for node, each in self.replicas.items()
            },
            kept=Kept(
                ground.retention_age_ms * MS_NS, ground.retention_bytes, ground.retention_payloads
            ),
            ring_bytes=ground.ring_bytes,
            election_timeout_ns=self.config.raft.election_timeout_ns,
            session_expiry_ns=self.config.limits.session_expiry_ns,
            save_within_ns=_save_within_ns(ground),
            founders=self.founders,
        )
        self.reach = ReachObserver(self.nodes, founders=len(self.founders))
        self.ledger = Ledger(record, self.reach)
        self.network.on_send = WireObserver(self.ledger, _place_of_endpoint).on_send
        self.observer = ClusterObserver(self.world, self.ledger, self.durability)
        self.replicas = {
            node: Replica(
                self.world,
                node,
                seed=seed,
                config=self._config_of(node),
                limits=make_limits(ground),
                ground=ground,
                disk=disks[node],
                network=self.network,
                observer=self.observer,
                is_lagging=ground.counters_lag,
            )
            for node in self.nodes
        }
        self.observer.on_visible_news = lambda node: self.replicas[node].expect_bell(EGRESS)
        self.clients: dict[str, Process] = {}

    def start(self) -> None:
        for node in self.founders:
            self.replicas[node].start()

    def add_client(self, name: str, make: Callable[[Process], Runnable]) -> Process:
        """Start a client's process."""
        process = Process(self.world, _ClientSupervisor(self), node=CLIENTS, name=name, make=make)
        self.clients[name] = process
        process.wake()
        return process

    def excuse(self, node: int) -> None:
        """Its medium rots or lies: it may lose what it rightly acknowledged."""
        self.excused[node] = None
        self.replicas[node].is_excused = True
        self._excused_disks.add((node, self.ledger.record.replicas[node].disk))

    def lose(self, node: int) -> None:
        """Its disk was replaced by an empty one, in which all is well."""
        self.renew(node)
        self.lost[node] = None

    def renew(self, node: int) -> None:
        """A machine that was a member once gets an empty disk, to be another one."""
        folders = self._disks.setdefault(node, [self.replicas[node].folder])
        folders.append(f"/node-{node}.{len(folders)}")
        self.lost.pop(node, None)
        self._set_folder(node, len(folders) - 1)
        self.ledger.tell(DiskLost(node))

    def put_in(self, node: int, disk: int) -> None:
        """Another disk of the node's takes the place of the one that it has."""
        self._set_folder(node, disk)
        self.ledger.tell(DiskSwapped(node, disk))
        if not self.ledger.record.is_member(node):
            # its leader knows what another replica of this number has, and takes it for amnesia
            self.replicas[node].is_excused = True

    def _set_folder(self, node: int, disk: int) -> None:
        replica = self.replicas[node]
        replica.folder, replica.is_lost = self._disks[node][disk], False
        replica.is_excused = (node, disk) in self._excused_disks
        self.excused.pop(node, None)
        if replica.is_excused:
            self.excused[node] = None
        self.durability.replaced(node)

    def may_lose(self, node: int) -> bool:
        """A disk may be lost only while a majority of the voters, by any configuration in force
        somewhere, is whole without it, and the last one that was lost is made good. Those that
        have not formed the cluster are not whole: as nothing was stored, they may form another."""
        record = self.ledger.record
        if node not in self.observer.voters or not record.is_member(node) or self.old_disks_in:
            return False
        if any(not self.is_made_good(each) for each in self.lost):
            return False
        rest = [each for other, each in record.replicas.items() if self._is_whole(other, node)]
        return all(each.is_majority(rest) for each in record.electorates_in_force())

    def _is_whole(self, node: int, lost: int) -> bool:
        return node != lost and node in self.observer.voters and node not in self.excused

    @property
    def is_settled(self) -> bool:
        """No change of the members is under way or to follow, and lost replicas are replaced, if
        that can be: while a member is damaged each change is refused that is not forced (C13)."""
        record = self.ledger.record
        configuration = record.newest_committed.configuration
        if not configuration.id:
            return True
        sound = (  # a damaged one may have lost its newest CONFIG, and gets it when it is repaired
            record.replicas[node]
            for node in self.nodes
            if node not in self.excused and record.is_member(node)
        )
        newest = record.newest_committed
        if configuration.incoming or any(record.electorate(each) is not newest for each in sound):
            return False
        is_one_damaged = any(record.is_member(node) for node in self.excused)
        lost = [node for node in self.lost if node not in self.excused]
        return is_one_damaged or all(self.is_made_good(node) for node in lost)

    def is_made_good(self, node: int) -> bool:
        """Nothing waits for the replica on the empty disk, mostly it is a voter again, and no
        change is under way anywhere."""
        record = self.ledger.record
        in_force = record.electorates_in_force()
        replica = record.replicas[node]
        return all(not each.is_open(replica) and len(each.sets) == 1 for each in in_force)

    def _config_of(self, node: int) -> Config:
        """A machine that is no founder knows the founders, and itself."""
        if node in self.founders:
            return self.config
        nodes = [*self.config.nodes, _node_settings(node)]
        return msgspec.structs.replace(self.config, nodes=nodes)

    def endpoint(self, node: int, offset: PortOffset) -> str:
        return self._config_of(node).endpoint(node, offset)

    @property
    def violations(self) -> list[Violation]:
        return self.ledger.violations

    @property
    def has_problems(self) -> bool:
        return bool(self.ledger.violations or self.observer.errors)

    def excuse_rest(self, node: int) -> None:
        """`node` may have lost flushed entries, and nothing on its disk proves it.

        No replica can tell it from one that never had those entries: with one more replica lagging,
        they are lost (FAULTS D33, D34). Violations from here on prove nothing.
        """
        if not self.excused_from_ns:
            self.excused_from_ns = max(1, self.world.now_ns)
            self.world.note(f"{node} may have lost what it claims")

    def _read_ring(self, node: int, ring_start: int, ring_end: int) -> bytes | None:
        return self.observer.read_ring(node, ring_start, ring_end)


class _ClientSupervisor:
    """A client's clock is exact, and a client that fails is a bug of the simulator or the core."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def monotonic_ns(self) -> int:
        return MONOTONIC_BASE_NS + self._cluster.world.now_ns

    def on_death(self, process: Process, reason: str) -> None:
        self._cluster.observer.add_error(f"{process.name}: {reason}")

    def on_unexpected_error(self, process: Process, error: BaseException) -> None:
        self._cluster.observer.unexpected_error(process.name, error)
        process.kill()


def make_config(ground: Ground) -> Config:
    """The configuration of a world, below the lower bounds that `logstore.config` checks."""
    return Config(
        cluster=ClusterSettings(
            name="simulated",
            auto_init=ground.first_lsn == FIRST_LSN,
            replace_lost="auto" if ground.is_lost_replaced else "manual",
        ),
        nodes=[_node_settings(node) for node in range(1, ground.replicas + 1)],
        raft=RaftSettings(
            heartbeat=f"{ground.heartbeat_ms}ms",
            election_timeout=f"{ground.election_ms}ms",
            stream_mode="paper" if ground.stream_mode == "paper" else "streaming",
        ),
        storage=StorageSettings(
            segment=f"{ground.segment_bytes}B", segment_records=ground.segment_records
        ),
        retention=RetentionSettings(
            age=f"{ground.retention_age_ms}ms",
            bytes=f"{ground.retention_bytes}B",
            payloads=ground.retention_payloads,
        ),
        limits=LimitSettings(
            batch_max=f"{ground.batch_max_bytes}B",
            group_max=f"{ground.group_max_bytes}B",
            ring=f"{ground.ring_bytes}B",
            bulk_window=f"{ground.bulk_window_bytes}B",
            groups_in_flight=ground.groups_in_flight,
            client_memory=f"{ground.client_memory_bytes}B",
            session_window="64KiB",
            session_expiry=f"{ground.session_expiry_ms}ms",
            fetch_max="64KiB",
        ),
        process=ProcessSettings(
            mode="custom" if ground.groups else "processes",
            groups={process: list(actors) for process, actors in ground.groups.items()},
        ),
    )


def _node_settings(node: int) -> NodeSettings:
    return NodeSettings(node=node, port=_FIRST_PORT + _PORT_STEP * (node - 1))


def make_limits(ground: Ground) -> ReplicaLimits:
    """Limits so small that they are met in seconds instead of hours."""
    return ReplicaLimits(
        snapshot_every_batches=ground.snapshot_every_batches,
        # a group of them has one to three batches, so that either bound is met first
        snapshot_every_entries=ground.snapshot_every_batches // 2,
        snapshot_part_max_bytes=ground.snapshot_part_bytes,
        rows_kept=ground.rows_kept,
        rows_dropped_at_once=max(1, ground.rows_kept // 4),
        flush_entries_max=ground.flush_entries_max,
        full_disk_kept_bytes=_FULL_DISK_KEPT_BYTES,
        requests_before_appends_max=_REQUESTS_BEFORE_APPENDS,
        sessions_max=ground.sessions_max,
        provisional_window_min=SESSION_WINDOW_MIN,
        kept_names_max=ground.kept_names_max,
        # one unread answer per client, and a few in all
        answers_per_client_bytes=MESSAGE_BYTES,
        answers_bytes_max=128 * KIB,
        session_idle_min_ns=ground.session_idle_ms * MS_NS or SESSION_IDLE_MIN_NS,
    )


def _make_disk(world: World, node: int, script: Script) -> SimulatedDisk:
    ground = script.ground
    disk = SimulatedDisk(keep_history=FaultClass.ROT in script.classes, clock=world)
    disk.latency = DiskLatency(
        random=stream(script.seed, f"disk-{node}"),
        write_ns=ground.write_ns,
        flush_min_ns=ground.flush_ns[0],
        flush_max_ns=ground.flush_ns[1],
    )
    return disk


def _place_of_endpoint(endpoint: str) -> tuple[int, int]:
    """The node, and which of its ports (`PortOffset`)."""
    port = int(endpoint.rpartition(":")[2]) - _FIRST_PORT
    if not 0 <= port % _PORT_STEP < len(PortOffset):
        raise ValueError(f"{endpoint} is no port of a node")
    return port // _PORT_STEP + 1, port % _PORT_STEP


def _node_of_endpoint(endpoint: str) -> int:
    return _place_of_endpoint(endpoint)[0]


def _save_within_ns(ground: Ground) -> int:
    """How long a save of META may take: two copies, each written and flushed, and the messages to
    the writer and back."""
    copy_ns = ground.write_ns + ground.flush_ns[1]
    way_ns = ground.wake_ns + ground.ring_delay_ns + 2 * PREEMPTED_MAX_NS
    return 2 * copy_ns + 4 * way_ns
