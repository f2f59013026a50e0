"""`logstore placement` on real replicas: what is set is taken at once, by every thread, and by a
process that is started again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore.cli.embedded import CONFIG_NAME, LEADER_TIMEOUT_S, EmbeddedCluster, poll_until
from logstore.cli.exit_status import ExitStatus
from logstore.config import load_config
from tests.cluster.one_cluster import run_cli, running_cluster

pytestmark = pytest.mark.slow
NODE = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with running_cluster(tmp_path_factory.mktemp("placement"), "processes") as running:
        yield running


def set_(cluster: EmbeddedCluster, *arguments: str) -> tuple[int, bytes]:
    own = ("--config", str(cluster.folder / CONFIG_NAME), "--node", str(NODE))
    done = run_cli(
        cluster, "placement", "set", *arguments, *own, "--dir", str(cluster.node_folder(NODE))
    )
    return done.returncode, done.stderr


def shown(cluster: EmbeddedCluster, process: str) -> dict[str, Any]:
    done = run_cli(cluster, "placement", "show", "--json", "-")
    assert done.returncode == 0, done.stderr
    row = next(each for each in json.loads(done.stdout)["nodes"] if each["node"] == NODE)
    report: dict[str, Any] = row["placement"]["processes"][process]
    return report


def threads_of(pid: int) -> list[int]:
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]


def names_of_threads(pid: int) -> list[str]:
    return [path.read_text().strip() for path in Path(f"/proc/{pid}/task").glob("*/comm")]


@pytest.mark.long
def test_what_is_set_is_taken_by_every_thread_kept_and_taken_by_the_next_process(
    cluster: EmbeddedCluster,
) -> None:
    one = min(os.sched_getaffinity(0))
    writer, egress = (cluster.pid_of(NODE, name) for name in ("writer", "egress"))
    assert len(threads_of(writer)) > 1  # those that flush
    status, said = set_(cluster, "writer", "egress", "--cpus", str(one), "--nice", "3")
    assert status == 0, said
    for thread in (*threads_of(writer), *threads_of(egress)):
        assert os.sched_getaffinity(thread) == {one}
        assert os.getpriority(os.PRIO_PROCESS, thread) == 3
    assert load_config(cluster.folder / CONFIG_NAME).node(NODE).nice == {"writer": 3, "egress": 3}

    status, said = set_(cluster, "egress", "--io-threads", "2")
    assert status == 0, said
    assert b"2 IO threads when it starts again" in said
    cluster.kill_process(NODE, "egress")

    def has_new_egress() -> bool:
        counters = cluster.counters(NODE)
        return counters["egress.pid"] not in (0, egress) and counters["egress.loops"] > 0

    assert poll_until(has_new_egress, LEADER_TIMEOUT_S)
    egress = cluster.pid_of(NODE, "egress")
    for thread in threads_of(egress):
        assert os.sched_getaffinity(thread) == {one}
        assert os.getpriority(os.PRIO_PROCESS, thread) == 3
    assert sum(name.startswith("ZMQbg/IO") for name in names_of_threads(egress)) == 2

    wanted = {"cpus": [one], "nice": 3, "io_threads": 2, "spin": False}

    def is_shown() -> bool:
        report = shown(cluster, "egress")
        return bool(report["pid"] == egress and report["now"] == report["configured"] == wanted)

    assert poll_until(is_shown, LEADER_TIMEOUT_S)


@pytest.mark.long
def test_what_cannot_be_had_is_refused_and_changes_nothing(cluster: EmbeddedCluster) -> None:
    path = cluster.folder / CONFIG_NAME
    before = path.read_text()
    pid = cluster.pid_of(NODE, "raft")
    affinity = os.sched_getaffinity(pid)
    status, said = set_(cluster, "raft", "--cpus", "4096")
    assert status == ExitStatus.USAGE
    assert b"no CPU 4096 here" in said
    status, said = set_(cluster, "replicator-2", "--cpus", "0")
    assert status == ExitStatus.USAGE
    assert b"no process 'replicator-2'" in said
    assert path.read_text() == before
    assert os.sched_getaffinity(pid) == affinity


def test_a_file_that_is_edited_by_hand_is_followed_and_a_wrong_one_is_told_of(
    cluster: EmbeddedCluster,
) -> None:
    path = cluster.folder / CONFIG_NAME
    before = path.read_text()
    pid = cluster.pid_of(NODE, "raft")
    one = min(os.sched_getaffinity(0))
    try:
        path.write_text(
            before.replace("spin = []\ncpus = {}", f"spin = []\ncpus = {{raft = [{one}]}}")
        )
        assert poll_until(lambda: os.sched_getaffinity(pid) == {one}, LEADER_TIMEOUT_S)
        path.write_text(before.replace("spin = []\ncpus = {}", "spin = []\ncpus = {raft = [4095]}"))

        def is_told() -> bool:
            return b"no CPU 4095 here" in run_cli(cluster, "status").stderr

        assert poll_until(is_told, LEADER_TIMEOUT_S)
        assert os.sched_getaffinity(pid) == {one}
    finally:
        path.write_text(before)
    assert poll_until(
        lambda: os.sched_getaffinity(pid) == os.sched_getaffinity(0), LEADER_TIMEOUT_S
    )
