"""One replica in one process: the same actors, rings and bells, run in turn by one loop.

For small hosts and debugging. The regions are anonymous memory. No actor can be restarted: an error
ends the replica.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from actors import topology
from actors.child_main import make_actor
from actors.host import RealHost
from actors.loop_usage import LoopUsage
from actors.messages import PlacementReported, StopReady, StopRequested
from actors.naming import name_process
from actors.runner import StopFlag, refuse_optimised_python, run
from actors.station import Regions, Station
from actors.supervisor.placement import Machine
from actors.supervisor.placement_report import PlacementReport, ProcessReport, encode_report
from actors.supervisor.regions import COUNTERS_LINK, publish_descriptor
from actors.supervisor.sampler import SAMPLE_NS, ProcessSampler
from actors.supervisor.serve import prepare_folder, sole_supervisor
from actors.thread_placement import cpus_and_nice
from actors.trace import row_names
from logstore.config import Config
from logstore.config_placement import Placement
from logstore.errors import ConfigError
from logstore.limits import COMMAND_RING_BYTES
from logstore.model import NodeId
from transport.command_ring import command_region_bytes, format_command_ring
from transport.counters import create_nameless_counters, open_counters
from transport.doorbell import Doorbell
from transport.errors import RegionUnavailable
from transport.payload_ring import format_payload_ring, payload_region_bytes
from transport.process_memory import raise_descriptor_limit
from transport.shm import map_anonymous, require_total_store_order
from transport.stamp_table import format_stamp_table, stamp_region_bytes

_NS = 1_000_000_000


class SingleSupervisor:
    """What a supervisor says to raft. After SIGTERM or SIGINT: ask it to hand leadership over, and
    run on until it has or the time is up."""

    def __init__(self, station: Station, *, timeout_ns: int) -> None:
        self._to_raft = station.outbox(topology.RAFT)
        self._from_raft = station.inbox(topology.RAFT)
        self._timeout_ns = timeout_ns
        self._deadline_ns = 0
        self.signals = StopFlag()

    def tell_placement(self, report: PlacementReport) -> None:
        self._to_raft.send(PlacementReported(encode_report(report)))
        self._to_raft.flush()

    def is_over(self) -> bool:
        """Whether the loop may end now."""
        if not self.signals.is_set:
            return False
        if self._deadline_ns == 0:
            self._deadline_ns = time.monotonic_ns() + self._timeout_ns
            self._to_raft.send(StopRequested())
            self._to_raft.flush()
            return False
        is_ready = any(isinstance(each, StopReady) for each in self._from_raft.receive())
        return is_ready or time.monotonic_ns() >= self._deadline_ns


def serve_single(config: Config, node: int, folder: str | Path) -> int:
    """Run replica `node` with its data in `folder` until SIGTERM or SIGINT. Returns 0.

    Raises:
      ConfigError, InvalidRequest, FolderRefused: nothing was served; the message says why.
    """
    refuse_optimised_python()
    raise_descriptor_limit()
    require_total_store_order()
    config.node(node)
    is_new = not Path(folder).exists()
    path = prepare_folder(Path(folder))
    name_process(config.cluster.name, node, "single")
    with sole_supervisor(path, is_new=is_new):
        try:
            _run_actors(config, NodeId(node), path)
        except RegionUnavailable as error:
            raise ConfigError(f"no memory for the rings of node {node}: {error}") from error
    return 0


def _run_actors(config: Config, node: NodeId, folder: Path) -> None:
    nodes = tuple(NodeId(each) for each in config.node_ids())
    counters = create_nameless_counters(topology.counter_names(node, nodes), 1)
    publish_descriptor(folder, COUNTERS_LINK, counters)
    regions = _make_regions(config, node, nodes, counters)

    def station(process: str) -> Station:
        return Station(
            process,
            node=node,
            config=config,
            folder=str(folder),
            regions=regions,
            host=RealHost(has_own_thread=False),
        )

    stop = SingleSupervisor(
        station(topology.SUPERVISOR),
        timeout_ns=2 * config.raft.election_timeout_ns + _NS,
    )
    signal.signal(signal.SIGTERM, stop.signals.set)
    signal.signal(signal.SIGINT, stop.signals.set)
    processes = topology.processes(node, nodes)
    first = station(topology.SUPERVISOR)
    loops = [first.slot(f"{process}.loops") for process in processes]
    for process in (topology.SUPERVISOR, *processes):
        first.slots[first.slot(f"{process}.pid")] = os.getpid()

    stop.tell_placement(_report_of_all(node))
    sampler = ProcessSampler(first)
    sample_ns = 0

    def count_loops() -> None:
        nonlocal sample_ns
        for slot in loops:
            first.slots[slot] += 1
        if (now_ns := time.monotonic_ns()) >= sample_ns:
            sample_ns = now_ns + SAMPLE_NS
            # There is one process, so it is sampled once, as the supervisor;
            # status adds all processes up.
            sampler.sample({topology.SUPERVISOR: os.getpid()}, now_ns=now_ns)

    stop.signals.wake(first.bell)
    run(
        [make_actor(station(process)) for process in processes],
        [regions.bells[process] for process in processes],
        count_loop=count_loops,
        usage=LoopUsage(first.slots, first.slot, topology.SUPERVISOR),
        stop=stop.is_over,
        lifeline=None,
        spin=False,
    )


def _report_of_all(node: NodeId) -> PlacementReport:
    """The one process there is runs as it was started: it has no placement of its own."""
    cpus, nice = cpus_and_nice(os.getpid())
    placed = Placement(cpus=cpus, nice=nice)
    report = ProcessReport(os.getpid(), placed, placed)
    return PlacementReport(node, Machine(cpus, nice, nice), "", {"single": report})


def _make_regions(
    config: Config, node: NodeId, nodes: tuple[NodeId, ...], counters: int
) -> Regions:
    rings = {}
    for name in topology.rings(node, nodes):
        rings[name] = map_anonymous(command_region_bytes(COMMAND_RING_BYTES))
        format_command_ring(rings[name], incarnation=1)
    payload = map_anonymous(payload_region_bytes(config.limits.ring_bytes))
    format_payload_ring(payload, incarnation=1)
    stamps = map_anonymous(stamp_region_bytes(len(row_names(node, nodes))))
    format_stamp_table(stamps, incarnation=1)
    bells = {name: Doorbell.create() for name in topology.processes(node, nodes)}
    # the loop looks at what raft says to a supervisor at each turn
    bells[topology.SUPERVISOR] = bells[topology.RAFT]
    return Regions(
        rings=rings,
        payload=payload,
        counters=open_counters(counters),
        stamps=stamps,
        bells=bells,
        incarnation=1,
    )
