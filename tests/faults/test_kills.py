"""kill -9 of every kind of process, alone and together, under load: nothing acknowledged is lost
(FAULTS P1, P2, P7, P10, P11, P12; SAFETY M3).
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore.cli.embedded import MODE_VARIABLE, poll_until
from logstore.config_layout import kind_of, process_of
from logstore.settings import ProcessSettings
from tests.faults.ledger import Load
from tests.faults.quick_cluster import (
    GONE_TIMEOUT_S,
    QuickCluster,
    members,
    quick_cluster,
    quick_config,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]
# Each vital process takes its replica with it; a replicator and egress come back alone.
ON_THE_LEADER = ("ingress", "raft", "writer", "replicator", "egress")
# Where it differs: a follower's ingress receives what the leader's replicator sends.
ON_A_FOLLOWER = ("ingress", "writer", "egress")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickCluster]:
    """With a process for each actor, where the environment names no mode: `test_layouts` has the
    others."""
    process = None if os.environ.get(MODE_VARIABLE) else ProcessSettings(mode="processes")
    folder = tmp_path_factory.mktemp("kills")
    with quick_cluster(folder, quick_config(process=process)) as started:
        yield started


def _kill_under_load(cluster: QuickCluster, node: int, kind: str, kinds: tuple[str, ...]) -> None:
    """Kill the process that runs an actor of this kind; each process once, for a replica may
    restart so often."""
    actors = sorted(actor for each in cluster.layout(node).values() for actor in each)
    actor = next(each for each in actors if kind_of(each) == kind)
    beside = set(map(kind_of, cluster.layout(node)[process_of(cluster.layout(node), actor)]))
    if kind != next(each for each in kinds if each in beside):
        pytest.skip("its process was killed already")
    pid = cluster.pid_of(node, actor)
    with Load(cluster) as load:
        load.wait_until_in_flight()
        os.kill(pid, signal.SIGKILL)
        assert poll_until(lambda: cluster.pid_of(node, actor) not in (0, pid), GONE_TIMEOUT_S)
        load.wait_for_progress(20)
    load.assert_kept()
    assert cluster.pid_of(node, actor) != pid


@pytest.mark.long
@pytest.mark.parametrize("kind", ON_THE_LEADER)
@pytest.mark.promise("P3", "P7")
def test_killing_one_process_of_the_leader_loses_nothing(cluster: QuickCluster, kind: str) -> None:
    _kill_under_load(cluster, cluster.wait_for_leader(), kind, ON_THE_LEADER)


@pytest.mark.parametrize("kind", ON_A_FOLLOWER)
def test_killing_one_process_of_a_follower_loses_nothing(cluster: QuickCluster, kind: str) -> None:
    _kill_under_load(cluster, cluster.followers()[0], kind, ON_A_FOLLOWER)


@pytest.mark.parametrize("is_leader", [True, False])
def test_no_process_survives_its_supervisor_and_the_folder_is_free(
    cluster: QuickCluster, is_leader: bool
) -> None:
    node = cluster.wait_for_leader() if is_leader else cluster.followers()[0]
    pids = cluster.processes(node)
    session = cluster.session(node)
    assert set(members(session)) == set(pids.values())
    with Load(cluster) as load:
        os.kill(pids["supervisor"], signal.SIGKILL)
        assert poll_until(lambda: not members(session), GONE_TIMEOUT_S), members(session)
        # a killed process is a zombie while its other threads still end: a flush holds the lock
        folder = cluster.node_folder(node)
        assert poll_until(lambda: _is_lockable(folder), GONE_TIMEOUT_S)
        load.wait_for_progress(20)
        cluster.start(node)
    load.assert_kept()


def _is_lockable(folder: Path) -> bool:
    for name in ("lock", "supervisor.lock"):
        with (folder / name).open("r+b") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
    return True


def test_killing_all_of_the_leaders_replica_loses_nothing(cluster: QuickCluster) -> None:
    with Load(cluster) as load:
        load.wait_until_in_flight()
        leader = cluster.wait_for_leader()
        cluster.kill(leader)
        load.wait_for_progress(20)
        assert cluster.leader() != leader
        cluster.start(leader)
    load.assert_kept()


@pytest.mark.long
@pytest.mark.promise("P1", "P2", "P3", "P4")
def test_killing_all_three_replicas_at_once_loses_nothing(cluster: QuickCluster) -> None:
    with Load(cluster) as load:
        load.wait_until_in_flight()
        cluster.kill_all()
        cluster.start_all()
        load.wait_for_progress(20)
    load.assert_kept()
