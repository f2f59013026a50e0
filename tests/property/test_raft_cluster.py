"""Random schedules over the virtual cluster: every promise holds, and it heals.

The checks are in `tests.paper.virtual_cluster`; a failing seed replays by itself.
"""

from __future__ import annotations

import pytest

from tests.paper.virtual_cluster import (
    VirtualCluster,
    to_what_all_have,
    to_what_the_leader_committed,
)

STEPS = 3_000


@pytest.mark.parametrize("mode", ["paper", "streaming"])
@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(6))
def test_promises_hold_under_loss_crashes_and_late_disks(seed: int, nodes: int, mode: str) -> None:
    cluster = VirtualCluster(nodes, seed, mode=mode)
    cluster.run(STEPS)
    cluster.heal_and_settle()


@pytest.mark.parametrize("mode", ["paper", "streaming"])
@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_promises_hold_while_log_starts_move(seed: int, nodes: int, mode: str) -> None:
    """Up to what all disks hold: everybody gets every log start in the end, and drops no log."""
    cluster = VirtualCluster(nodes, seed, mode=mode, trims=to_what_all_have)
    cluster.run(STEPS)
    cluster.heal_and_settle()
    assert not sum(node.installs for node in cluster.nodes.values())


@pytest.mark.parametrize("mode", ["paper", "streaming"])
@pytest.mark.parametrize("seed", range(12))
def test_followers_that_are_left_below_the_log_start_begin_there_anew(seed: int, mode: str) -> None:
    """SAFETY G5: they all have the leader's log in the end."""
    cluster = VirtualCluster(
        3 + 2 * (seed % 2), seed, mode=mode, trims=to_what_the_leader_committed
    )
    cluster.run(2 * STEPS)
    cluster.heal_and_settle()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40, 100))
def test_log_starts_are_installed_on_longer_schedules(seed: int) -> None:
    cluster = VirtualCluster(3 + 2 * (seed % 2), seed, trims=to_what_the_leader_committed)
    cluster.run(4 * STEPS)
    cluster.heal_and_settle()


@pytest.mark.long
@pytest.mark.slow
def test_the_schedules_move_log_starts_and_install_some() -> None:
    moved = installs = taken = 0
    for seed in range(40, 80):
        cluster = VirtualCluster(3 + 2 * (seed % 2), seed, trims=to_what_the_leader_committed)
        cluster.run(2 * STEPS)
        cluster.heal_and_settle()
        assert cluster.leader is not None
        moved += cluster.leader.core.log_start.index
        installs += sum(node.installs for node in cluster.nodes.values())
        taken += sum(node.starts_taken for node in cluster.nodes.values())
    assert moved > 100
    assert installs > 10
    assert taken > 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_promises_hold_on_longer_schedules(seed: int) -> None:
    cluster = VirtualCluster(3 + seed % 3, seed, mode="paper" if seed % 4 == 0 else "streaming")
    cluster.run(4 * STEPS)
    cluster.heal_and_settle()


@pytest.mark.slow
def test_the_schedules_reach_what_they_are_for() -> None:
    """Without truncations, rejects, handovers and crashes the runs above would prove little."""
    elections = truncations = crashes = committed = 0
    for seed in range(8):
        cluster = VirtualCluster(3, seed)
        cluster.run(4 * STEPS)
        elections += len(cluster.leaders)
        truncations += sum(node.truncations for node in cluster.nodes.values())
        crashes += sum(node.boot - 1 for node in cluster.nodes.values())
        committed += len(cluster.committed)
    assert elections > 20
    assert crashes > 50
    assert truncations > 5
    assert committed > 200


def test_the_same_seed_is_the_same_run() -> None:
    runs = []
    for _ in range(2):
        cluster = VirtualCluster(3, 5)
        cluster.run(STEPS)
        runs.append((cluster.describe(), len(cluster.wire), dict(cluster.committed)))
    assert runs[0] == runs[1]
