"""Replicas as others' processes: only what we started is signalled; folders tell who runs."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest

from logstore.cli import cluster_folder, free_ports
from logstore.cli.cluster_folder import ClusterState, bring_down, bring_up, read_state, write_state
from logstore.cli.replica_process import (
    ReplicaProcess,
    finish_stop,
    is_alive,
    kill_replica,
    log_tail,
    send_stop,
    start_replica,
    start_tick,
    wait_gone,
)
from logstore.config import load_config
from logstore.errors import InvalidRequest, Overloaded

ROOT = Path(__file__).resolve().parents[2]
OBEDIENT = "import sys; sys.stdout.write('up\\n'); sys.stdout.flush(); sys.stdin.read()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + OBEDIENT


@pytest.fixture
def sleeper(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReplicaProcess]:
    """A process that leads its own group, and waits until it is ended."""
    child = subprocess.Popen(
        [sys.executable, "-c", getattr(request, "param", OBEDIENT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        yield ReplicaProcess(1, child.pid, str(tmp_path), start_tick(child.pid) or 0)
        child.kill()


def recycled(process: ReplicaProcess) -> ReplicaProcess:
    """As if the pid had been given to another process since."""
    return msgspec.structs.replace(process, start_tick=process.start_tick - 1)


def test_a_stopped_process_is_gone_and_reaped(sleeper: ReplicaProcess) -> None:
    assert is_alive(sleeper)
    send_stop(sleeper)
    assert finish_stop(sleeper, 10.0)
    assert not is_alive(sleeper)
    assert start_tick(sleeper.pid) is None


@pytest.mark.parametrize("sleeper", [STUBBORN], indirect=True)
def test_a_process_that_ignores_the_stop_is_killed(sleeper: ReplicaProcess) -> None:
    send_stop(sleeper)
    assert not finish_stop(sleeper, 0.05)
    assert not is_alive(sleeper)


def test_a_recycled_pid_is_never_signalled(sleeper: ReplicaProcess) -> None:
    other = recycled(sleeper)
    assert not is_alive(other)
    send_stop(other)
    kill_replica(other)
    assert wait_gone(other, 10.0)
    assert is_alive(sleeper)


def test_a_killed_process_that_nobody_reaped_is_not_alive(sleeper: ReplicaProcess) -> None:
    kill_replica(sleeper)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert start_tick(sleeper.pid) == sleeper.start_tick
    assert not is_alive(sleeper)
    assert wait_gone(sleeper, 10.0)


def test_a_replica_inherits_no_descriptor_of_who_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`flock X logstore cluster up` has X locked until the command ends, not until the replicas
    do."""
    witness = tmp_path / "witness"
    witness.write_text("#!/bin/sh\nls /proc/self/fd | tr '\\n' ' '\n")
    witness.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(witness))
    lock = os.open(tmp_path / "X", os.O_RDWR | os.O_CREAT)
    held = fcntl.fcntl(lock, fcntl.F_DUPFD, 77)  # inheritable, as a shell's own descriptors are
    try:
        process = start_replica(tmp_path / "c.toml", 1, tmp_path, dies_with_us=False)
        assert wait_gone(process, 10.0)
    finally:
        os.close(held)
        os.close(lock)
    seen = log_tail(process).split()
    assert {"0", "1", "2"} <= set(seen)
    assert str(held) not in seen


def test_what_never_ran_is_gone_and_said_nothing(tmp_path: Path) -> None:
    nobody = ReplicaProcess(1, 2**22 + 1, str(tmp_path), 1)
    assert not is_alive(nobody)
    send_stop(nobody)
    kill_replica(nobody)
    assert wait_gone(nobody, 0.0)
    assert log_tail(nobody) == ""


def test_ports_that_somebody_listens_on_are_not_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert not free_ports._is_free(taken.getsockname()[1])


def test_runs_of_ports_do_not_overlap_and_stay_below_the_ephemeral_range() -> None:
    found = free_ports.find_free_ports(5, Random(7))
    assert len(found) == 5
    ports = {first + offset for first in found for offset in range(9)}
    assert len(ports) == 45
    assert all(free_ports.PORT_MIN <= port < free_ports._ephemeral_start() for port in ports)


def test_no_free_ports_is_an_error_not_an_endless_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_ports, "_is_free", lambda port: False)
    with pytest.raises(Overloaded, match="no 1 free runs of 9 ports"):
        free_ports.find_free_ports(1, Random(7))


def test_the_default_config_is_the_one_in_configs() -> None:
    assert cluster_folder.default_config(auto_init=True) == load_config(
        ROOT / "configs" / "cluster-3.toml"
    )


def test_the_state_of_a_folder_comes_back_and_has_the_promised_keys(tmp_path: Path) -> None:
    state = ClusterState(["127.0.0.1:7100"], "c.toml", [ReplicaProcess(1, 2, "d", 3)])
    assert read_state(tmp_path) is None
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    document = msgspec.json.decode((tmp_path / "cluster.json").read_bytes())
    assert document["endpoints"] == ["127.0.0.1:7100"]
    assert {"node", "pid", "dir"} <= set(document["nodes"][0])


def test_a_foreign_cluster_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("[1]")
    with pytest.raises(InvalidRequest, match="cluster.json"):
        read_state(tmp_path)


def test_two_commands_do_not_work_in_one_folder_at_once(tmp_path: Path) -> None:
    write_state(tmp_path, ClusterState([], "c.toml", []))
    with cluster_folder.locked(tmp_path), pytest.raises(Overloaded, match="another cluster"):
        bring_down(tmp_path)
    assert bring_down(tmp_path) == []


def test_down_where_nothing_was_started_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no cluster was started"):
        bring_down(tmp_path / "nowhere")


def test_up_with_another_config_is_refused_while_replicas_run(
    sleeper: ReplicaProcess, tmp_path: Path
) -> None:
    write_state(tmp_path, ClusterState([], "other.toml", [sleeper]))
    config = ROOT / "configs" / "cluster-3.toml"
    with pytest.raises(InvalidRequest, match=r"other\.toml run"):
        bring_up(tmp_path, config, first_lsn=None)


def test_p1_a_cluster_that_forms_itself_cannot_be_told_where_to_begin(tmp_path: Path) -> None:
    config = ROOT / "configs" / "cluster-3.toml"
    with pytest.raises(InvalidRequest, match="auto_init = false"):
        bring_up(tmp_path, config, first_lsn=7_000)
    assert read_state(tmp_path) is None, "nothing was started"


def test_down_stops_what_runs_and_tells_what_was_gone(
    sleeper: ReplicaProcess, tmp_path: Path
) -> None:
    gone = recycled(sleeper)
    write_state(tmp_path, ClusterState([], "c.toml", [sleeper, gone]))
    assert bring_down(tmp_path, 10.0) == [(sleeper, "stopped"), (gone, "was gone")]
