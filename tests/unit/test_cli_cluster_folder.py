"""`cluster up`, `down` and `status`: who answers is compared with what was started, taken ports are
named, a replica that does not stop is named."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from actors.supervisor import held_folder
from logstore.cli import cluster, cluster_folder
from logstore.cli.cluster_folder import (
    NOT_FORMED,
    ClusterState,
    bring_down,
    bring_up,
    foreign_ports,
    read_state,
    standings,
    wait_for_leader,
    write_state,
)
from logstore.cli.main import main
from logstore.cli.port_users import describe, port_users
from logstore.cli.replica_process import (
    SUPERVISOR_LOCK_NAME,
    ReplicaProcess,
    is_alive,
    start_tick,
)
from logstore.config import Config, NodeSettings, render_config
from logstore.errors import ConfigError, ErrorCode, FolderRefused, InvalidRequest, NoQuorum
from logstore.format.client_messages import (
    ErrorReply,
    MetadataRequest,
    StatusReply,
    StatusRequest,
    WatermarksRequest,
)
from logstore.settings import ClusterSettings, ProcessSettings
from tests.unit.cli_stage import kept_process_settings, run
from tests.unit.client_stage import Cluster, free_base_ports

STUBBORN = (
    "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "sys.stdout.write('up\\n'); sys.stdout.flush(); sys.stdin.read()"
)


@pytest.fixture(autouse=True)
def _process_settings() -> Iterator[None]:
    with kept_process_settings():
        yield


def me() -> ReplicaProcess:
    """This process, as if it were a supervisor."""
    return ReplicaProcess(1, os.getpid(), "nowhere", start_tick(os.getpid()) or 0)


def config_at(port: int, folder: Path, *, auto_init: bool = True) -> Path:
    path = folder / "my.toml"
    config = Config(
        cluster=ClusterSettings(name="mine", auto_init=auto_init),
        nodes=[NodeSettings(node=1, port=port)],
    )
    path.write_text(render_config(config), encoding="utf-8")
    return path


@pytest.fixture
def taken() -> Iterator[int]:
    """A base port whose fetch port, 4 above, this process listens on."""
    (port,) = free_base_ports(1)
    with socket.create_server(("127.0.0.1", port + 4)):
        yield port


@pytest.fixture
def other() -> Iterator[Cluster]:
    """A cluster of one node, whose supervisor has the pid that a test gives it."""
    with Cluster(nodes=1) as cluster:
        yield cluster


def play_status(cluster: Cluster, **facts: object) -> None:
    document = {"role": "leader", "term": 1, "state": "voter", **facts}
    cluster.replicas[1].on[StatusRequest] = lambda _: StatusReply(json.dumps(document).encode())


def test_a_port_in_use_is_named_and_nothing_is_started(
    taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_folder, "PORTS_TIMEOUT_S", 0.0)
    config = config_at(taken, tmp_path)
    with pytest.raises(InvalidRequest, match=f"port {taken + 4} of node 1 is in use by process"):
        bring_up(tmp_path / "cluster", config, first_lsn=None)
    assert read_state(tmp_path / "cluster") is None


def test_the_process_that_has_a_port_is_named_but_for_the_replicas_own(taken: int) -> None:
    nodes = [NodeSettings(node=1, port=taken), NodeSettings(node=2, host="127.0.0.2", port=taken)]
    config = Config(cluster=ClusterSettings(name="test"), nodes=nodes)
    (found,) = port_users(config, [1, 2])
    assert (found.node, found.port, found.pid) == (1, taken + 4, os.getpid())
    assert describe([found]).startswith(f"port {taken + 4} of node 1 is in use by process ")
    assert describe([found] * 5).endswith(", and 2 ports more")
    assert port_users(config, [1, 2], except_sessions=[os.getsid(0)]) == []


def test_a_metrics_port_that_no_node_listens_on_may_be_in_use(taken: int) -> None:
    config = Config(
        cluster=ClusterSettings(name="test"), nodes=[NodeSettings(node=1, port=taken - 3)]
    )
    assert len(port_users(config, [1])) == 1
    silent = msgspec.structs.replace(config, process=ProcessSettings(metrics=False))
    assert port_users(silent, [1]) == []


def test_a_produce_port_that_is_in_use_is_named(taken: int) -> None:
    config = Config(
        cluster=ClusterSettings(name="test"), nodes=[NodeSettings(node=1, port=taken - 4)]
    )
    (found,) = port_users(config, [1])
    assert found.port == config.produce_port(1) == taken + 4
    silent = msgspec.structs.replace(config, process=ProcessSettings(produce=False))
    assert port_users(silent, [1]) == []


def test_status_names_the_port_that_a_replica_of_the_folder_cannot_listen_on(
    taken: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = config_at(taken, tmp_path)
    gone = ReplicaProcess(1, 2**22 + 1, str(tmp_path), 1)
    write_state(tmp_path, ClusterState([f"127.0.0.1:{taken}"], str(config), [gone]))
    assert main(["cluster", "status", "--dir", str(tmp_path)]) == 1
    said = capfd.readouterr()
    assert "gone" in said.out
    assert f"port {taken + 4} of node 1 is in use by process {os.getpid()}" in said.err
    assert main(["cluster", "status", "--dir", str(tmp_path), "--json", "-"]) == 1
    (row,) = json.loads(capfd.readouterr().out)["nodes"]
    assert row["ports_in_use"][0]["port"] == taken + 4
    config.unlink()
    assert foreign_ports(ClusterState([], str(config), [gone])) == {}


def test_another_cluster_that_answers_is_not_taken_for_what_was_started(
    other: Cluster, tmp_path: Path
) -> None:
    config = config_at(other.ports[1], tmp_path)
    state = ClusterState([other.endpoint], str(config), [me()])
    play_status(other, pid=os.getpid())
    assert wait_for_leader(state, 10.0) == 1
    play_status(other, pid=os.getpid() + 1)
    with pytest.raises(InvalidRequest, match="another cluster uses these ports"):
        wait_for_leader(state, 10.0)


def test_members_elsewhere_are_no_strangers_and_a_removed_replica_is_said_to_be_none(
    tmp_path: Path,
) -> None:
    with Cluster(nodes=2) as cluster:
        play_status(cluster, pid=os.getpid())
        elsewhere = json.dumps({"role": "follower", "term": 1, "pid": os.getpid() + 1})
        cluster.replicas[2].on[StatusRequest] = lambda _: StatusReply(elsewhere.encode())
        removed = ReplicaProcess(3, os.getpid(), "nowhere", me().start_tick)
        config = config_at(cluster.ports[1], tmp_path)
        state = ClusterState([cluster.endpoint], str(config), [me(), removed])
        assert wait_for_leader(state, 10.0) == 1
        words = standings(state, 1, timeout_s=2.0)
        assert (words[1], words[3]) == ("leads", "is no member of the cluster")
        there = f"127.0.0.1:{cluster.ports[2]}"  # an address of the folder's
        state = ClusterState([cluster.endpoint, there], str(config), [me()])
        with pytest.raises(InvalidRequest, match="another cluster uses these ports"):
            wait_for_leader(state, 10.0)


def test_up_says_that_init_is_missing_where_auto_init_is_off(
    other: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other.cluster_id, other.leader = bytes(16), 0
    play_status(other, role="none", state="empty", pid=os.getpid())
    by_hand = config_at(other.ports[1], tmp_path, auto_init=False)
    assert wait_for_leader(ClusterState([other.endpoint], str(by_hand), [me()]), 10.0) == NOT_FORMED
    by_itself = config_at(other.ports[1], tmp_path)
    with pytest.raises(NoQuorum, match="`logstore init` forms it"):
        wait_for_leader(ClusterState([other.endpoint], str(by_itself), [me()]), 0.1)
    assert main(["status", "--endpoint", other.endpoint]) == 3
    assert "node 1: runs, and is part of no cluster yet: `logstore init`" in capfd.readouterr().err
    for command in (["consume"], ["cursor", "list"], ["produce", os.devnull]):
        assert main([*command, "--endpoint", other.endpoint, "--timeout", "0.1"]) == 3
        assert "none is part of a cluster yet" in capfd.readouterr().err
    assert MetadataRequest in {type(each) for each in other.replicas[1].requests.queue}


def test_up_says_why_nobody_leads(other: Cluster, tmp_path: Path) -> None:
    other.leader = 0
    play_status(other, role="follower", is_disk_full=True, pid=os.getpid())
    state = ClusterState([other.endpoint], str(config_at(other.ports[1], tmp_path)), [me()])
    with pytest.raises(NoQuorum, match="node 1: its disk is full: free some space"):
        wait_for_leader(state, 0.1)
    refusal = ErrorReply(ErrorCode.NOT_LEADER, 0, 0, 0, b"only the leader reads linearizably")
    other.replicas[1].on[WatermarksRequest] = lambda _: refusal
    with pytest.raises(NoQuorum, match="node 1: its disk is full: free some space"):
        wait_for_leader(state, 0.1)


def test_a_log_that_begins_later_names_a_new_folder_only_where_that_helps(tmp_path: Path) -> None:
    port = free_base_ports(1)[0]
    with pytest.raises(InvalidRequest, match=r"set `auto_init = false` there$"):
        bring_up(tmp_path / "new", config_at(port, tmp_path), first_lsn=1_000)
    assert not (tmp_path / "new").exists()
    config_at(port, tmp_path).rename(tmp_path / "cluster.toml")
    with pytest.raises(InvalidRequest, match=r"there, or name a new folder$"):
        bring_up(tmp_path, None, first_lsn=1_000)


def test_replicas_that_no_file_names_are_found_by_their_locks(tmp_path: Path) -> None:
    assert SUPERVISOR_LOCK_NAME == held_folder.LOCK_NAME
    (tmp_path / "cluster.json").write_text('{"endpoints": [', encoding="utf-8")
    with pytest.raises(InvalidRequest, match="name another folder, or remove the file"):
        read_state(tmp_path)
    data = tmp_path / "node-1"
    data.mkdir()
    todo = f"its replicas run: `kill {os.getpid()}` stops them; then remove the file"
    with held_folder.sole_supervisor(data), pytest.raises(InvalidRequest, match=todo):
        read_state(tmp_path)


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterState:
    """What `cluster up` starts: this process, at once."""
    state = ClusterState(["127.0.0.1:7100", "127.0.0.1:7200"], "unused", [me()])

    def note(folder: Path, *_: object, **__: object) -> ClusterState:
        write_state(folder, state)
        return state

    monkeypatch.setattr(cluster, "bring_up", note)
    monkeypatch.setattr(cluster, "wait_for_leader", lambda *_: 1)
    monkeypatch.setattr(cluster, "grow", lambda *_, **__: state)
    monkeypatch.setattr(cluster, "standings", lambda *_: {1: "leads"})
    monkeypatch.delenv("LOGSTORE_ENDPOINT", raising=False)
    return state


def test_up_says_how_other_commands_ask_the_cluster_unless_they_do(
    quick: ClusterState,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    endpoints = ",".join(quick.endpoints)
    for known, is_said in (
        ("", True),
        ("10.0.0.1:7100", True),
        (endpoints, False),
        (quick.endpoints[1], False),
    ):
        monkeypatch.setenv("LOGSTORE_ENDPOINT", known)
        assert run("cluster", "up", "--dir", tmp_path) == 0
        said = capfd.readouterr().err
        assert (f"export LOGSTORE_ENDPOINT={endpoints}\n" in said) == is_said, known
    monkeypatch.setenv("LOGSTORE_ENDPOINT", endpoints)
    for replicas, words in (
        ("4", "4 replicas survive the loss of 1, no more than 3 do\n"),
        ("5", ""),
    ):
        assert run("cluster", "up", "--dir", tmp_path, "--replicas", replicas) == 0
        assert capfd.readouterr().err == words


def test_an_interrupted_up_or_down_says_who_runs_on(
    quick: ClusterState,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "wait_for_leader", interrupt)
    monkeypatch.setattr(cluster, "bring_down", interrupt)
    down = f"`logstore cluster down --dir {tmp_path}`"
    assert run("cluster", "up", "--dir", tmp_path) == 130
    assert f"replicas 1 run on: {down} stops them\n" in capfd.readouterr().err
    assert run("cluster", "down", "--dir", tmp_path) == 130
    assert f"replicas 1 still run: {down} once more\n" in capfd.readouterr().err
    gone = msgspec.structs.replace(me(), start_tick=1)
    write_state(tmp_path, msgspec.structs.replace(quick, nodes=[gone]))
    assert run("cluster", "down", "--dir", tmp_path) == 130
    assert "run" not in capfd.readouterr().err


def test_a_replica_that_is_silent_or_refused_is_not_said_to_follow(tmp_path: Path) -> None:
    with Cluster(nodes=3) as cluster:
        refused = json.dumps({"role": "none", "state": "empty", "refusal": "copy of node 1"})
        cluster.replicas[2].on[StatusRequest] = lambda _: StatusReply(refused.encode())
        cluster.replicas[3].on[StatusRequest] = lambda _: None
        config = config_at(cluster.ports[1], tmp_path)
        state = ClusterState([cluster.endpoint], str(config), [me()])
        assert standings(state, 1, timeout_s=1.0) == {
            1: "leads",
            2: "takes no part (copy of node 1)",
            3: "does not answer",
        }
        gone = ReplicaProcess(1, me().pid, str(tmp_path), 1)
        (tmp_path / "log").write_text("begins\nnode 1 does not start: no CPU 77 here\n")
        words = standings(ClusterState([cluster.endpoint], str(config), [gone]), 2, timeout_s=0.2)
        assert words[1] == "has ended (node 1 does not start: no CPU 77 here; more in its log)"
        ending = "CRITICAL log node 1 supervisor: writer exited with status 78\n"
        for begin, why in (
            ("CRITICAL log node 1 writer: of another start\n", ending.strip()),
            ("", "CRITICAL log node 1 writer: is node 2's"),
        ):
            starting = "INFO log node 1 supervisor: starting in mode single, as one\n"
            own = "" if begin else "2026 CRITICAL log node 1 writer: is node 2's\n"
            (tmp_path / "log").write_text(f"2026 {begin}2026 {starting}{own}2026 {ending}")
            words = standings(
                ClusterState([cluster.endpoint], str(config), [gone]), 2, timeout_s=0.2
            )
            assert words[1] == f"has ended (2026 {why}; more in its log)"
    assert standings(state, NOT_FORMED) == {1: "waits for `logstore init`"}


def test_a_refused_up_leaves_no_folder_that_it_made(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("[cluster]", encoding="utf-8")
    for folder in (tmp_path / "new", tmp_path):
        with pytest.raises(ConfigError):
            bring_up(folder, bad, first_lsn=None)
    assert not (tmp_path / "new").exists()
    assert bad.exists()


def test_up_in_a_folder_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(FolderRefused, match="free some space there, make it writable, or name"):
        bring_up(tmp_path, None, first_lsn=None)


def test_down_says_at_once_who_does_not_stop_and_how_long_it_waits(tmp_path: Path) -> None:
    said: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        row = ReplicaProcess(1, child.pid, str(tmp_path), start_tick(child.pid) or 0)
        write_state(tmp_path, ClusterState([], "c.toml", [row]))
        assert bring_down(tmp_path, 0.1, say=said.append, notice_s=0.01) == [(row, "killed")]
    assert said == [f"node 1 (pid {row.pid}) does not stop: it is killed if it has not within 0 s"]


def test_an_up_that_cannot_note_whom_it_started_stops_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full once the replicas run: `down` would know of none."""
    port = free_base_ports(1)[0]
    stopped: list[ReplicaProcess] = []

    def fail(_folder: Path, _state: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(cluster_folder, "start_replica", lambda *_, **__: me())
    monkeypatch.setattr(cluster_folder, "send_stop", stopped.append)
    monkeypatch.setattr(cluster_folder, "write_state", fail)
    with pytest.raises(FolderRefused, match="no space"):
        bring_up(tmp_path / "cluster", config_at(port, tmp_path), first_lsn=None)
    assert stopped == [me()]


def test_a_replica_that_runs_and_is_in_the_config_no_more_is_still_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry was taken out first: the next `up` forgot it, and nothing stopped it any more."""
    path = config_at(free_base_ports(1)[0], tmp_path)
    with subprocess.Popen(["sleep", "60"]) as child:
        row = ReplicaProcess(2, child.pid, str(tmp_path), start_tick(child.pid) or 0)
        write_state(tmp_path, ClusterState([], str(path), [row]))
        monkeypatch.setattr(cluster_folder, "start_replica", lambda *_, **__: me())
        try:
            assert bring_up(tmp_path, path, first_lsn=None).nodes == [me(), row]
            assert bring_down(tmp_path, node=2) == [(row, "stopped")]
            assert bring_up(tmp_path, path, first_lsn=None).nodes == [me()]
        finally:
            child.kill()


def test_down_stops_the_node_that_is_named_and_no_other(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in "12"]
    try:
        rows = [
            ReplicaProcess(node, each.pid, str(tmp_path), start_tick(each.pid) or 0)
            for node, each in enumerate(sleepers, 1)
        ]
        write_state(tmp_path, ClusterState([], "unused", rows))
        down = ("cluster", "down", "--dir", tmp_path, "--node")
        assert run(*down, "2") == 0
        assert capfd.readouterr().out == f"node 2 (pid {rows[1].pid}): stopped\n"
        assert (is_alive(rows[0]), is_alive(rows[1])) == (True, False)
        assert run(*down, "3") == 2
        assert "has no node 3: it has 1, 2\n" in capfd.readouterr().err
    finally:
        for each in sleepers:
            each.kill()
            each.wait()
