"""Replicas of several versions in one simulated cluster: who raises the log's format level, and who
is left out (SAFETY S11; FAULTS O7, O8)."""

from __future__ import annotations

import pytest

from actors.simulation.fault_injector import FaultInjector
from actors.simulation.faults.draw_ground import LEVEL_MAX
from actors.simulation.faults.script import Fault, FaultKind
from actors.simulation.oracle.reach import Reach
from tests.simulation.quiet_cluster import SECOND_NS, QuietCluster

UNTIL_RAISED_NS = 12 * SECOND_NS


def started(*newest: int) -> QuietCluster:
    """A version each; somebody raises levels all the time."""
    return QuietCluster(has_clients=True, newest_levels=newest)


def levels(quiet: QuietCluster) -> list[int]:
    """Of those that have recovered."""
    return [core.level for core in quiet.cluster.observer.cores.values()]


def strike(quiet: QuietCluster, *faults: Fault) -> FaultInjector:
    """The faults strike from now on."""
    injector = FaultInjector(quiet.cluster, quiet.workload.transfer, quiet.workload.flood)
    for fault in faults:
        injector._strike(fault)
    return injector


@pytest.mark.long
def test_a_level_is_raised_once_everybody_reads_it() -> None:
    quiet = started(2, 1, 3)
    quiet.run_for(UNTIL_RAISED_NS)
    assert levels(quiet) == [1, 1, 1]
    strike(quiet, Fault(0, FaultKind.VERSION, node=2, amount=2))
    quiet.run_for(UNTIL_RAISED_NS)
    assert quiet.replica(2).incarnation == 2
    assert levels(quiet) == [2, 2, 2]
    assert quiet.cluster.reach.counts()[Reach.LEVEL_RAISED.name] == 1
    assert quiet.problems == []


@pytest.mark.long
def test_a_replica_that_is_set_back_refuses_its_folder_until_the_newest_version_starts() -> None:
    quiet = started(2, 2, 2)
    quiet.run_for(UNTIL_RAISED_NS)
    assert levels(quiet) == [2, 2, 2]
    follower = quiet.replica(quiet.follower)
    strike(quiet, Fault(0, FaultKind.VERSION, node=follower.node, amount=1))
    quiet.run_for(SECOND_NS)
    assert not follower.is_running
    assert quiet.cluster.reach.counts()[Reach.LEVEL_REFUSED.name] == 1
    quiet.run_for(4 * SECOND_NS)
    assert (follower.is_running, follower.newest_level) == (True, LEVEL_MAX)
    assert levels(quiet) == [2, 2, 2]
    assert quiet.problems == []


def test_a_replica_is_set_back_to_the_level_that_it_knows() -> None:
    quiet = started(3, 3, 3)
    quiet.run_for(UNTIL_RAISED_NS)
    node = quiet.follower
    known = quiet.cluster.observer.cores[node].level
    assert known > 1
    strike(quiet, Fault(0, FaultKind.VERSION, node=node, for_ns=SECOND_NS // 10))
    quiet.run_for(SECOND_NS // 2)
    assert quiet.replica(node).newest_level == known
    assert quiet.problems == []


def test_an_older_version_takes_no_entries_of_a_raised_log_until_it_is_mended() -> None:
    """It says that it reads the level, and is set back before it is given the entry."""
    quiet = started(1, 1, 1)
    late = quiet.replica(quiet.follower)
    others = [each for each in quiet.cluster.nodes if each != late.node]
    strike(quiet, *(Fault(0, FaultKind.VERSION, node=node, amount=2) for node in others))
    quiet.run_for(3 * SECOND_NS)
    strike(quiet, Fault(0, FaultKind.TRANSFER, node=others[0]))
    quiet.run_for(3 * SECOND_NS)
    assert quiet.leaders == others[:1]
    cut = tuple((node, late.node) for node in others)
    for_ns = 60 * SECOND_NS
    injector = strike(
        quiet, Fault(0, FaultKind.PARTITION, links=cut, for_ns=for_ns, mode="drop", lane="bulk")
    )
    strike(quiet, Fault(0, FaultKind.VERSION, node=late.node, amount=2))
    while max(levels(quiet)) == 1:
        quiet.run_for(SECOND_NS // 50)
    late.kill()
    late.newest_level = 1
    late.start()
    quiet.cluster.network.heal_all()
    quiet.run_for(3 * SECOND_NS)
    core = quiet.cluster.observer.cores[late.node]
    assert (core.refused_level, core.level, core.faulty) == (2, 1, ())
    assert quiet.cluster.reach.counts()[Reach.LEVEL_NOT_TAKEN.name] >= 1
    injector.heal()
    assert late.newest_level == 2
    quiet.run_for(3 * SECOND_NS)
    assert levels(quiet) == [2, 2, 2]
    assert quiet.problems == []
