"""A fault's end undoes that fault and no other."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from actors.simulation.checkers.facts import SavesExcused
from actors.simulation.disk.disk import SimulatedDisk
from actors.simulation.fault_injector import FaultInjector
from actors.simulation.faults.script import Fault, FaultKind
from actors.simulation.network.network import VirtualNetwork
from actors.simulation.world.world import World
from logstore.errors import DiskFull
from transport.link import Lane

LINK = (1, 2)


class Stage:
    """A conductor over a real network and disk; no replica runs."""

    def __init__(self, *faults: Fault) -> None:
        self.world = World(Random(1))
        self.network = VirtualNetwork(self.world, Random(2), node_of=lambda _: 1)
        self.disk = SimulatedDisk()
        script = SimpleNamespace(
            ground=SimpleNamespace(link_delay_ns=(1_000, 2_000)), faults=faults
        )
        self.excused: list[SavesExcused] = []
        self.told: list[str] = []  # of node 1, what was done to it
        replica = SimpleNamespace(
            disk=self.disk,
            stalled_until_ns=0,
            kill=lambda: self.told.append("killed"),
            start=lambda: self.told.append("started"),
        )
        self.observer = SimpleNamespace(leader=0, voters={})
        self.members = {1, 2, 3}
        self.record = SimpleNamespace(
            is_joint_under_way=False,
            replicas={1: SimpleNamespace(disk=1)},
            is_member=lambda node: node in self.members,
        )
        cluster: Any = SimpleNamespace(
            world=self.world,
            observer=self.observer,
            nodes=(1, 2, 3),
            founders=(1, 2, 3),
            commissioned={1, 2, 3},
            old_disks_in={},
            may_lose=lambda node: node in self.observer.voters,
            network=self.network,
            script=script,
            replicas={1: replica},
            excuse=lambda _: None,
            ledger=SimpleNamespace(tell=self.excused.append, record=self.record),
            lost={},
            lose=lambda _: self.told.append("lost"),
            put_in=self.put_in,
        )
        self.injector = FaultInjector(cluster, lambda _: None, lambda _: None)
        self.injector.schedule()

    def put_in(self, node: int, disk: int) -> None:
        self.told.append(f"disk {disk}")
        self.record.replicas[node].disk = disk

    @property
    def link(self) -> Any:
        return self.lane(Lane.CONTROL)

    def lane(self, lane: Lane) -> Any:
        return self.network._conditions_of(*LINK, lane)

    def cut_links(self) -> list[tuple[int, int]]:
        conditions = self.network._conditions
        return sorted({(a, b) for (a, b, _), each in conditions.items() if each.is_cut})

    def pass_to(self, at_ns: int) -> None:
        self.world.run_until(at_ns)


def cut(at_ns: int, for_ns: int, mode: str) -> Fault:
    return Fault(at_ns, FaultKind.PARTITION, links=(LINK,), for_ns=for_ns, mode=mode)


def test_a_fault_that_awaits_a_joint_configuration_strikes_while_it_is_in_force() -> None:
    ms = 1_000_000
    stage = Stage(
        replace(cut(10 * ms, 100 * ms, "drop"), awaits_joint=True),
        replace(cut(60 * ms, 20 * ms, "hold"), awaits_joint=True),
    )
    stage.record.is_joint_under_way = True
    stage.pass_to(9 * ms)
    assert not stage.link.is_cut, "it is too early"
    stage.record.is_joint_under_way = False
    stage.pass_to(50 * ms)
    assert not stage.link.is_cut, "nothing changes"
    stage.record.is_joint_under_way = True
    stage.pass_to(51 * ms)
    assert (stage.link.is_dropping, stage.link.is_holding) == (True, False)
    stage.record.is_joint_under_way = False
    stage.pass_to(149 * ms)
    assert stage.link.is_dropping
    stage.pass_to(152 * ms)
    assert not stage.link.is_cut, "the second one never strikes"


@pytest.mark.parametrize("first", [0, 1])
def test_a_link_stays_cut_until_the_last_of_two_overlapping_cuts_ends(first: int) -> None:
    cuts = [cut(10, 100, "drop"), cut(50, 100, "drop")]
    stage = Stage(*(cuts if first else reversed(cuts)))
    stage.pass_to(120)
    assert stage.link.is_cut
    stage.pass_to(200)
    assert not stage.link.is_cut


def test_a_cut_that_goes_on_is_of_its_own_mode_again() -> None:
    stage = Stage(cut(10, 200, "hold"), cut(50, 50, "drop"))
    stage.pass_to(60)
    assert (stage.link.is_dropping, stage.link.is_holding) == (True, False)
    stage.pass_to(150)
    assert (stage.link.is_dropping, stage.link.is_holding) == (False, True)


def test_a_reset_holds_until_its_end_and_takes_the_connections_with_it() -> None:
    stage = Stage(cut(10, 100, "reset"))
    ended: list[tuple[Any, bool]] = []
    stage.network.disconnect = lambda links, lane: ended.append(  # type: ignore[method-assign]
        (lane, stage.lane(lane).is_holding)
    )
    stage.pass_to(50)
    assert (stage.link.is_holding, ended) == (True, [])
    stage.pass_to(120)
    assert dict(ended) == dict.fromkeys(Lane, True)
    assert not stage.link.is_cut


def test_a_fault_of_one_lane_leaves_the_other_alone() -> None:
    stage = Stage(
        replace(cut(10, 100, "drop"), lane="bulk"),
        Fault(10, FaultKind.LINK_QUALITY, links=(LINK,), for_ns=100, loss=7, lane="control"),
    )
    stage.pass_to(60)
    bulk, control = stage.lane(Lane.BULK), stage.lane(Lane.CONTROL)
    assert [(each.is_cut, each.loss) for each in (bulk, control)] == [(True, 0), (False, 7)]
    stage.pass_to(120)
    assert [(each.is_cut, each.loss) for each in (bulk, control)] == [(False, 0), (False, 0)]


def test_overlapping_qualities_are_as_bad_as_the_worst_and_end_one_by_one() -> None:
    stage = Stage(
        Fault(10, FaultKind.LINK_QUALITY, links=(LINK,), for_ns=100, loss=7),
        Fault(50, FaultKind.LINK_QUALITY, links=(LINK,), for_ns=100, loss=3, delay_ns=9_000),
    )
    stage.pass_to(60)
    assert (stage.link.loss, stage.link.quality_delay_ns) == (7, (1_000, 10_000))
    stage.pass_to(120)
    assert (stage.link.loss, stage.link.quality_delay_ns) == (3, (1_000, 10_000))
    stage.pass_to(200)
    assert (stage.link.loss, stage.link.quality_delay_ns) == (0, None)


def test_a_disk_stays_full_until_the_last_of_two_overlapping_faults_ends() -> None:
    full = (Fault(at_ns, FaultKind.DISK_FULL, node=1, for_ns=100) for at_ns in (10, 50))
    stage = Stage(*full)
    stage.pass_to(120)
    with pytest.raises(DiskFull):
        stage.disk.create("/a")
    stage.pass_to(200)
    stage.disk.create("/a")
    assert stage.disk.paths() == ["/a"]


def test_a_stall_goes_on_when_a_worse_one_ends() -> None:
    stage = Stage(
        Fault(10, FaultKind.DISK_STALL, node=1, for_ns=200, delay_ns=5_000),
        Fault(50, FaultKind.DISK_STALL, node=1, for_ns=50, delay_ns=9_000),
    )
    costs = []
    for at_ns in (20, 60, 150, 300):
        stage.pass_to(at_ns)
        costs.append(stage.disk.flush_cost_ns("/a"))
    assert costs == [5_000, 9_000, 5_000, 0]


def test_stalls_of_some_files_and_of_all_go_on_beside_each_other() -> None:
    stage = Stage(
        Fault(10, FaultKind.DISK_STALL, node=1, for_ns=200, delay_ns=5_000, process=".raft"),
        Fault(50, FaultKind.DISK_STALL, node=1, for_ns=50, delay_ns=1_000),
    )
    costs = []
    for at_ns in (20, 60, 150, 300):
        stage.pass_to(at_ns)
        costs.append([stage.disk.flush_cost_ns(path) for path in ("/1.raft", "/1.data")])
    assert costs == [[5_000, 0], [5_000, 1_000], [5_000, 0], [0, 0]]
    # Slow records are no reason for a late vote; two flushes of META that begin before the end are.
    assert stage.excused == [SavesExcused(1, 100 + 2 * 1_000)]


def test_faults_of_a_group_count_their_nodes_from_whoever_leads_when_the_first_one_strikes() -> (
    None
):
    def cut_of_group(at_ns: int, node: int, group: int) -> Fault:
        links = ((node, 0), (node, 1))
        return Fault(
            at_ns, FaultKind.PARTITION, links=links, for_ns=1_000, mode="drop", group=group
        )

    stage = Stage(cut_of_group(10, 1, 7), cut_of_group(20, 2, 7), cut_of_group(30, 1, 0))
    stage.observer.leader = 3
    stage.pass_to(15)
    assert stage.cut_links() == [(3, 0), (3, 3)]
    stage.observer.leader = 2
    stage.pass_to(25)
    assert stage.cut_links() == [(1, 0), (1, 3), (3, 0), (3, 3)]
    stage.pass_to(35)
    assert stage.cut_links() == [(1, 0), (1, 1), (1, 3), (3, 0), (3, 3)]


def test_a_fault_counts_as_its_kind_and_as_what_it_does() -> None:
    assert cut(0, 1, "hold").names == ("partition", "partition.hold", "partition.one way")
    both = Fault(0, FaultKind.PARTITION, links=((1, 2), (2, 1)), mode="drop")
    assert both.names[1:] == ("partition.drop", "partition.both ways")
    bad = Fault(0, FaultKind.LINK_QUALITY, links=(LINK,), loss=5, reordering=1)
    assert bad.names == ("link-quality", "link-quality.loss", "link-quality.reordering")
    assert Fault(0, FaultKind.KILL_PROCESS, process="replicator-2").names[1:] == (
        "kill-process.replicator",
    )
    assert Fault(0, FaultKind.RESTART).names == ("restart",)


@pytest.mark.parametrize("is_voter", [False, True])
def test_a_disk_that_may_be_lost_is_replaced_by_an_empty_one_and_starts_again(
    is_voter: bool,
) -> None:
    stage = Stage(Fault(10, FaultKind.LOST_DISK, node=1, for_ns=30))
    if is_voter:
        stage.observer.voters[1] = None
    stage.pass_to(20)
    assert stage.told == (["killed", "lost"] if is_voter else [])
    stage.pass_to(50)
    assert stage.told[2:] == (["started"] if is_voter else [])


@pytest.mark.parametrize("is_needed", [True, False])
def test_an_old_disk_that_was_kept_is_taken_out_once_its_replica_was_replaced(
    is_needed: bool,
) -> None:
    """A place was reserved for the replica of the newer disk, which was not put in again: the
    cluster was never whole (seed 71044 of class members)."""
    stage = Stage(Fault(10, FaultKind.OLD_DISK, node=1, for_ns=50))
    stage.pass_to(100)
    assert stage.told == ["killed", "disk 0", "started"], "the cluster needs it: it is a member"
    if not is_needed:
        stage.members = {2, 3}
    for _ in range(2):
        stage.injector.mend_places()
    assert stage.told[3:] == ([] if is_needed else ["killed", "disk 1", "started"])
