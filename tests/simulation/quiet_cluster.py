"""A simulated cluster in which nothing goes wrong by itself, and the same with clients."""

from __future__ import annotations

from typing import Any

import msgspec

from actors.simulation.cluster import SimulatedCluster
from actors.simulation.faults.draw_ground import draw_ground
from actors.simulation.faults.script import Fault, Script
from actors.simulation.replica import Replica
from actors.simulation.workload import Workload
from logstore.raft.role import Role

SECOND_NS = 1_000_000_000
# Long enough for three replicas to start and elect a leader.
SETTLED_NS = 4 * SECOND_NS


def quiet_script(*faults: Fault, **ground: Any) -> Script:
    """Three replicas on ideal clocks and rings, quick disks; `ground` says what is different."""
    plain = msgspec.structs.replace(
        draw_ground(1, replicas=3, classes=()),
        safety_ns=12 * SECOND_NS,
        heartbeat_ms=100,
        election_ms=500,
        link_delay_ns=(100_000, 200_000),
        flush_ns=(100_000, 400_000),
        write_ns=5_000,
        groups={},
        has_brink=False,
        has_flooder=False,
        comparers=0,
        newest_levels=(),
        trim_every_ms=0,
        retention_age_ms=0,
        retention_bytes=0,
        retention_payloads=0,
        command_ring_bytes=2_048,
        groups_in_flight=4,
        snapshot_every_batches=63,
        rows_kept=25,
        session_expiry_ms=2_325,
        is_lost_replaced=True,
        segment_records=256,  # a flush group, which is not made smaller here, fits
    )
    return Script(1, (), msgspec.structs.replace(plain, **ground), faults)


class QuietCluster:
    """Started, and with a leader."""

    def __init__(self, *, has_clients: bool = False, **ground: Any) -> None:
        self.cluster = SimulatedCluster(quiet_script(**ground))
        self.world = self.cluster.world
        self.workload = Workload(self.cluster)
        self.cluster.start()
        if has_clients:
            self.workload.start()
        self.world.run_until(SETTLED_NS)

    def run_for(self, for_ns: int) -> None:
        self.world.run_until(self.world.now_ns + for_ns)

    def replica(self, node: int) -> Replica:
        return self.cluster.replicas[node]

    @property
    def leaders(self) -> list[int]:
        cores = self.cluster.observer.cores
        return [node for node in cores if cores[node].role is Role.LEADER]

    @property
    def follower(self) -> int:
        return next(node for node in self.cluster.nodes if node not in self.leaders)

    @property
    def problems(self) -> list[Any]:
        return [*self.cluster.violations, *self.cluster.observer.errors]
