"""Layouts on real processes: whichever actors run together, a replica keeps the same promises
(SAFETY M3).

`make test` runs this file besides the suites in the mode that ships; `make test-layouts` runs the
suites of clusters in the other modes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import logstore
from logstore.cli.embedded import poll_until
from logstore.client.replica_trace import ReplicaTrace
from logstore.settings import ProcessSettings
from tests.cluster.one_cluster import run_cli
from tests.faults.ledger import Load, stop_the_leader_under_load
from tests.faults.quick_cluster import (
    GONE_TIMEOUT_S,
    RECOVERY_TIMEOUT_S,
    QuickCluster,
    members,
    quick_cluster,
    quick_config,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]
LAYOUTS = {
    "shared": ProcessSettings(mode="shared"),
    "single": ProcessSettings(mode="single"),
    "custom": ProcessSettings(
        mode="custom",
        groups={"core": ["raft", "writer"], "out": ["replicator", "egress"]},
        nice={"core": 3},
    ),
}


@pytest.fixture(scope="module", params=LAYOUTS)
def cluster(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[QuickCluster]:
    folder = tmp_path_factory.mktemp("layout")
    with quick_cluster(folder, quick_config(process=LAYOUTS[request.param])) as started:
        yield started


@pytest.mark.long
def test_each_process_of_the_layout_runs_and_is_told_of_with_its_actors(
    cluster: QuickCluster,
) -> None:
    with Load(cluster) as load:
        load.wait_for_progress(20)
    load.assert_kept()
    with logstore.connect(cluster.endpoints) as log:
        # a process takes its placement after it was started, and the next report says so
        assert poll_until(lambda: _is_placed(log.admin.status()["nodes"]), RECOVERY_TIMEOUT_S)
        rows = log.admin.status()["nodes"]
        trace = log.admin.traces()[1]
    assert isinstance(trace, ReplicaTrace)
    for row in rows:
        node, layout = row["node"], cluster.layout(row["node"])
        processes = cluster.processes(node)
        assert processes.keys() == {"supervisor", *layout}
        assert set(members(cluster.session(node))) == set(processes.values())
        assert len(set(processes.values())) == len(processes)
        told = row["processes"]
        assert {name: each["pid"] for name, each in told.items()} == processes
        assert {name: tuple(each["actors"]) for name, each in told.items()} == {
            "supervisor": (),
            **layout,
        }
        placed = row["placement"]["processes"]
        assert {name: tuple(each["actors"]) for name, each in placed.items() if name in layout} == (
            layout
        )
        nice = cluster.config.process.nice
        for name, each in placed.items():
            assert each["now"]["nice"] == os.getpriority(os.PRIO_PROCESS, processes[name])
            assert each["now"]["nice"] == nice.get(name, os.getpriority(os.PRIO_PROCESS, 0))
    assert trace.layout == cluster.layout(1)
    assert trace.processes.keys() == {"supervisor", *trace.layout}


def _is_placed(rows: list[dict[str, Any]]) -> bool:
    return all(
        each["now"] == each["configured"]
        for row in rows
        for each in row["placement"]["processes"].values()
    )


@pytest.mark.long
def test_placement_is_set_by_the_name_of_a_group(cluster: QuickCluster) -> None:
    name, actors = max(cluster.layout(2).items(), key=lambda each: len(each[1]))
    own = ("--config", str(cluster.folder / "cluster.toml"), "--node", "2")
    where = (*own, "--dir", str(cluster.node_folder(2)))
    pid, cpu = cluster.processes(2)[name], min(os.sched_getaffinity(0))
    done = run_cli(cluster, "placement", "set", name, "--cpus", str(cpu), *where)
    assert done.returncode == 0, done.stderr
    threads = [int(each) for each in os.listdir(f"/proc/{pid}/task")]
    assert {tuple(os.sched_getaffinity(thread)) for thread in threads} == {(cpu,)}
    done = run_cli(cluster, "placement", "set", actors[0], "--cpus", str(cpu), *where)
    assert done.returncode != 0
    assert f"{actors[0]} runs in {name}".encode() in done.stderr


@pytest.mark.long
@pytest.mark.promise("P3", "P7")
def test_killing_a_process_of_the_leader_loses_nothing(cluster: QuickCluster) -> None:
    """One with raft takes its replica with it; one without raft, writer and ingress comes back."""
    for name, actors in cluster.layout(cluster.wait_for_leader()).items():
        node = cluster.wait_for_leader()
        before = cluster.processes(node)
        with Load(cluster) as load:
            os.kill(before[name], signal.SIGKILL)
            assert poll_until(
                lambda: cluster.processes(node).get(name, 0) not in (0, before[name]),  # noqa: B023
                GONE_TIMEOUT_S,
            )
            load.wait_for_progress(20)
        load.assert_kept()
        cluster.wait_for_leader(RECOVERY_TIMEOUT_S)
        is_vital = bool({"raft", "writer", "ingress"} & set(actors))
        same = [each for each, pid in before.items() if cluster.processes(node)[each] == pid]
        assert same == (["supervisor"] if is_vital else [each for each in before if each != name])


@pytest.mark.long
def test_an_orderly_stop_hands_leadership_over(cluster: QuickCluster) -> None:
    stop_the_leader_under_load(cluster)
