"""`logstore cluster up|status|down` on real processes: detached, completed, stopped in order."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import psutil
import pytest

from logstore.cli.cluster_folder import ClusterState, read_state
from logstore.cli.embedded import make_small_config, poll_until
from logstore.cli.exit_status import ExitStatus
from logstore.cli.replica_process import is_alive, kill_replica, wait_gone
from logstore.config import load_config, render_config
from tests.cluster.one_cluster import processes_of, run_cli

pytestmark = pytest.mark.slow
REAP_S = 10.0
START_S = 30.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a config on free ports; whatever a failed test leaves running is killed."""
    with tempfile.TemporaryDirectory(prefix="logstore-test-") as name:
        path = Path(name)
        config = make_small_config(3, Random(os.urandom(8)))
        (path / "my.toml").write_text(render_config(config), encoding="utf-8")
        yield path
        state = read_state(path / "cluster")
        for row in state.nodes if state else ():
            kill_replica(row)
            wait_gone(row, REAP_S)


def cluster_command(folder: Path, *words: str) -> tuple[int, bytes]:
    done = run_cli(None, "cluster", *words, "--dir", str(folder / "cluster"))
    return done.returncode, done.stdout + done.stderr


def state_of(folder: Path) -> ClusterState:
    state = read_state(folder / "cluster")
    assert state is not None
    return state


def children_of(state: ClusterState) -> list[psutil.Process]:
    return [each for row in state.nodes for each in psutil.Process(row.pid).children()]


@pytest.mark.long
def test_up_starts_what_is_missing_and_down_stops_everything(folder: Path) -> None:
    config = str(folder / "my.toml")
    status, said = cluster_command(folder, "up", "--config", config)
    assert status == ExitStatus.DONE, said
    first = state_of(folder)
    assert [row.node for row in first.nodes] == [1, 2, 3]
    assert all(is_alive(row) for row in first.nodes)
    # each replica has a session and a process group of its own
    assert all(os.getpgid(row.pid) == os.getsid(row.pid) == row.pid for row in first.nodes)
    assert all((Path(row.dir) / "log").exists() for row in first.nodes)

    kill_replica(first.nodes[1])
    wait_gone(first.nodes[1], REAP_S)
    status, said = cluster_command(folder, "status")
    assert status == ExitStatus.NO, said
    assert b"gone" in said

    status, said = cluster_command(folder, "up")
    assert status == ExitStatus.DONE, said
    second = state_of(folder)
    assert second.config == config
    assert [second.nodes[at] == first.nodes[at] for at in range(3)] == [True, False, True]

    done = run_cli(None, "cluster", "status", "--json", "-", "--dir", str(folder / "cluster"))
    document = msgspec.json.decode(done.stdout)
    assert done.returncode == ExitStatus.DONE
    assert document["endpoints"] == second.endpoints
    assert all(row["is_running"] for row in document["nodes"])

    # a replica that was started a moment ago may still be at it: a leader serves without it
    running = load_config(config)
    children = sum(processes_of(running, node) - 1 for node in running.node_ids())
    assert poll_until(lambda: len(children_of(second)) == children, START_S)
    children = children_of(second)
    # the cluster's name tells processes and log lines apart
    assert poll_until(
        lambda: all(each.cmdline()[0].startswith("logstore embedded node ") for each in children),
        START_S,
    )
    status, said = cluster_command(folder, "down")
    assert status == ExitStatus.DONE, said
    assert said.count(b"stopped") == 3
    for row in second.nodes:
        log = (Path(row.dir) / "log").read_text(encoding="utf-8")
        assert f" INFO embedded node {row.node} supervisor: starting in mode " in log
        assert f" INFO embedded node {row.node} supervisor: stopping\n" in log
    assert not [each for each in children if each.is_running()]


@pytest.mark.long
def test_up_forms_a_cluster_whose_log_begins_where_it_is_told(folder: Path) -> None:
    """P1: also when it is said again, or not at all any more."""
    text = (folder / "my.toml").read_text(encoding="utf-8")
    (folder / "my.toml").write_text(text.replace("auto_init = true", "auto_init = false"))
    up = ("up", "--config", str(folder / "my.toml"))
    for words in ((*up, "--first-lsn", "7001"), (*up, "--first-lsn", "7001"), up):
        status, said = cluster_command(folder, *words)
        assert status == ExitStatus.DONE, said
    status, said = cluster_command(folder, *up, "--first-lsn", "9")
    assert status == ExitStatus.USAGE, said
    assert b"begins at LSN 7001, not at 9" in said
    assert cluster_command(folder, "down")[0] == ExitStatus.DONE


@pytest.mark.long
def test_up_of_replicas_that_cannot_start_gives_the_reason_and_status_3(folder: Path) -> None:
    text = (folder / "my.toml").read_text(encoding="utf-8")
    text = text.replace("cpus = {}", "cpus = {supervisor = [4095]}")  # no such CPU here
    (folder / "my.toml").write_text(text, encoding="utf-8")
    config = str(folder / "my.toml")
    status, said = cluster_command(folder, "up", "--config", config, "--timeout", "20")
    assert status == ExitStatus.UNREACHABLE, said
    assert b"has ended" in said
    assert cluster_command(folder, "down")[0] == ExitStatus.DONE


def test_a_bad_config_is_a_usage_error(folder: Path) -> None:
    (folder / "my.toml").write_text("[cluster]\nname = 'x'\nspeed = 3\n", encoding="utf-8")
    status, said = cluster_command(folder, "up", "--config", str(folder / "my.toml"))
    assert status == ExitStatus.USAGE, said
    assert b"speed" in said
