"""The folder of a cluster on this machine: which replicas were started there, and what each command
does.

Owns `DIR/cluster.json` (who runs where), `DIR/cluster.toml` (the generated config, where none was
given) and `DIR/lock`, which `up` and `down` hold while they work. Must not know how commands print.
Invariants: cluster.json appears whole or not at all; a process is signalled only if it is the one
that was started here; a cluster counts as the folder's only if the folder's replicas answer.
"""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import logstore
from logstore.cli.port_users import PortUser, describe, port_users
from logstore.cli.replica_process import (
    ReplicaProcess,
    finish_stop,
    is_alive,
    log_tail,
    send_stop,
    start_replica,
    supervisors_in,
    wait_gone,
)
from logstore.cli.trouble import standing_of, troubles_of
from logstore.client.client import LogClient
from logstore.client.clock import monotonic_ns, seconds_from_now
from logstore.client.core.member_admin import MemberInfo
from logstore.client.status import UNREACHABLE
from logstore.config import Config, load_config, render_config
from logstore.errors import (
    ConfigError,
    FolderRefused,
    InvalidRequest,
    LogStoreError,
    NoQuorum,
    NotReady,
    Overloaded,
    Unreachable,
)
from logstore.settings import ClusterSettings, NodeSettings
from logstore.storage.disk import make_folder_durable

DEFAULT_REPLICAS = 3
STATE_NAME = "cluster.json"
CONFIG_NAME = "cluster.toml"
LOCK_NAME = "lock"
# An orderly stop hands leadership over first: two election timeouts and the children's last
# flushes.
STOP_TIMEOUT_S = 20.0
# A stop usually takes less: replicas that need longer are named.
STOP_NOTICE_S = 2.0
# How often a wait for a leader looks whether a replica has given up meanwhile.
LOOK_S = 2.0
# How long the others may take to answer once a leader serves.
OTHERS_S = 3.0
# The children of a replica that was killed a moment ago still have its ports.
PORTS_TIMEOUT_S = 2.0
LOOK_MS = 50
# What `wait_for_leader` returns where no replica leads before `logstore init`.
NOT_FORMED = 0
# The role of a replica that was removed, or that has no place yet.
NO_MEMBER = "no member"
_T = TypeVar("_T")


class ClusterState(msgspec.Struct, frozen=True):
    """What cluster.json holds. `config` is an absolute path, `endpoints` HOST:PORT of each control
    port.
    """

    endpoints: list[str]
    config: str
    nodes: list[ReplicaProcess]


def default_config(*, auto_init: bool, replicas: int = DEFAULT_REPLICAS) -> Config:
    """Replicas on this machine; three of them are as in configs/cluster-3.toml."""
    return Config(
        cluster=ClusterSettings(name="demo", auto_init=auto_init),
        nodes=[NodeSettings(node=node, port=7_090 + 10 * node) for node in range(1, replicas + 1)],
    )


def endpoints_of(config: Config) -> list[str]:
    return [f"{node.host}:{node.port}" for node in config.nodes]


def read_state(folder: Path) -> ClusterState | None:
    """The cluster that was started in `folder`; None: none was.

    Raises:
      InvalidRequest: the file is there and is none of ours.
    """
    path = folder / STATE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        todo = "name another folder, or remove the file"
        if pids := supervisors_in(folder):
            numbers = " ".join(map(str, pids))
            todo = f"its replicas run: `kill {numbers}` stops them; then remove the file"
        raise InvalidRequest(f"{path}: {error}; {todo}") from error


def write_state(folder: Path, state: ClusterState) -> None:
    """Replace cluster.json as one act."""
    temporary = folder / f".{STATE_NAME}-{os.getpid()}"
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n")
    temporary.replace(folder / STATE_NAME)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the kernel frees it when we die.

    Raises:
      Overloaded: another command is at work there.
    """
    descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(descriptor).st_nlink:  # its holder removed it, with the folder
            raise BlockingIOError
        yield
    except BlockingIOError as error:
        raise Overloaded(f"another cluster command works in {folder}: wait for it") from error
    finally:
        os.close(descriptor)


def bring_up(
    folder: Path,
    config_path: Path | None,
    *,
    first_lsn: int | None,
    replicas: int = DEFAULT_REPLICAS,
) -> ClusterState:
    """Start every replica that does not run; returns all that run. Does not wait for a leader.

    Args:
      replicas: how many nodes a config has that is generated now.
      first_lsn: where the log is to begin, which the caller tells the replicas; None: at LSN 1.

    Raises:
      ConfigError: the config is refused.
      InvalidRequest: replicas of another config run in this folder, or a port that a replica
        needs is in use.
      FolderRefused: nothing can be written there.
      Overloaded: another command is at work there.
    """
    is_new = not folder.exists()
    try:
        make_folder_durable(folder)
        with locked(folder):
            try:
                return _start_missing(folder, config_path, first_lsn=first_lsn, replicas=replicas)
            except (LogStoreError, OSError):
                if is_new:
                    _remove_unused(folder)
                raise
    except OSError as error:
        raise FolderRefused(
            f"{error.filename or folder}: {error.strerror}: free some space there, make it "
            "writable, or name another folder with --dir"
        ) from error


def _remove_unused(folder: Path) -> None:
    """Leave nothing of a folder that was made for replicas of which none was started."""
    ours = {LOCK_NAME, CONFIG_NAME, Path(CONFIG_NAME).with_suffix(".new").name}
    if {path.name for path in folder.iterdir()} <= ours:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def _start_missing(
    folder: Path, config_path: Path | None, *, first_lsn: int | None, replicas: int
) -> ClusterState:
    """`bring_up`, under the folder's lock."""
    before = read_state(folder)
    running = {row.node: row for row in before.nodes if is_alive(row)} if before else {}
    new = default_config(auto_init=first_lsn is None, replicas=replicas)
    path = _choose_config(folder, config_path, before, new)
    if before and running and before.config != str(path):
        raise InvalidRequest(
            f"replicas of {before.config} run in {folder}: `logstore cluster down` first, or "
            "name another folder"
        )
    config = load_config(path)
    if first_lsn is not None and config.cluster.auto_init:
        other = "" if config_path is not None else ", or name a new folder"
        raise InvalidRequest(
            f"a cluster of {path} forms itself, with a log that begins at LSN 1: set "
            f"`auto_init = false` there{other}"
        )
    _require_free_ports(config, [node for node in config.node_ids() if node not in running])
    rows = dict(running)
    try:
        for node in config.node_ids():
            if node not in running:
                rows[node] = start_replica(path, node, folder / f"node-{node}", dies_with_us=False)
        # What runs stays known, though the config does not name it any more: `down` stops it.
        order = dict.fromkeys((*config.node_ids(), *rows))
        state = ClusterState(endpoints_of(config), str(path), [rows[node] for node in order])
        write_state(folder, state)
    except BaseException:
        for node in rows.keys() - running.keys():
            send_stop(rows[node])  # cluster.json does not name it
        raise
    return state


def initialize(state: ClusterState, first_lsn: int, timeout_s: float) -> None:
    """Form the cluster, once every replica of the folder answers.

    Raises: as `wait_for_leader`, and `Admin.initialize`.
    """

    def form(client: LogClient, status: dict[str, Any]) -> None:
        silent = [row["node"] for row in status["nodes"] if not row["pid"]]
        if silent:
            raise NotReady(f"nodes {silent} do not answer yet")
        client.admin.initialize(first_lsn=first_lsn)

    _ask(state, timeout_s, form)


def wait_for_leader(state: ClusterState, timeout_s: float) -> int:
    """Node id of a leader that a majority follows; NOT_FORMED where all replicas wait for
    `logstore init`. The wait ends early if a replica gives up.

    Raises:
      Unreachable: a replica ended, with the end of its log; or none answered in time.
      NoQuorum: replicas answer, but none leads in time.
      InvalidRequest: the replica that answers is none of this folder.
    """
    is_formed_by_hand = not load_config(state.config).cluster.auto_init

    def find_leader(client: LogClient, status: dict[str, Any]) -> int:
        if is_formed_by_hand and all(row.get("state") == "empty" for row in status["nodes"]):
            return NOT_FORMED
        return client.admin.watermarks(linearizable=True).node

    return _ask(state, timeout_s, find_leader)


def _ask(
    state: ClusterState, timeout_s: float, question: Callable[[LogClient, dict[str, Any]], _T]
) -> _T:
    """What the folder's own replicas answer, asked until they do or the time is over."""
    deadline_ns = seconds_from_now(timeout_s)
    status: dict[str, Any] = {"nodes": []}
    while True:
        left_s = max(0.1, (deadline_ns - monotonic_ns()) / 1e9)
        try:
            with logstore.connect(state.endpoints, timeout=min(LOOK_S, left_s)) as client:
                status = client.admin.status()
                refuse_strangers(state, status)
                return question(client, status)
        except LogStoreError as error:
            ended = [row for row in state.nodes if not is_alive(row)]
            if ended:
                raise Unreachable(_describe_end(ended[0])) from error
            if isinstance(error, InvalidRequest):
                raise
            if monotonic_ns() >= deadline_ns:
                if why := troubles_of(status):
                    raise NoQuorum(f"the cluster did not serve in time: {why}") from error
                raise


def standings(state: ClusterState, leader: int, *, timeout_s: float = OTHERS_S) -> dict[int, str]:
    """What each replica of the folder does, in words that follow its name."""
    if leader == NOT_FORMED:
        return {row.node: "waits for `logstore init`" for row in state.nodes}
    words = {row.node: "does not answer" for row in state.nodes}

    def look(_: LogClient, status: dict[str, Any]) -> None:
        words.update({row.node: f"is {NO_MEMBER} of the cluster" for row in state.nodes})
        for row in status["others"]:
            if row["node"] in words and row["refusal"]:
                words[row["node"]] += f" ({row['refusal']})"
        words.update({row["node"]: standing_of(row, leader) for row in status["nodes"]})
        if any(row["role"] == UNREACHABLE for row in status["nodes"]):
            raise NotReady("not all replicas answer yet")

    with suppress(LogStoreError):
        _ask(state, timeout_s, look)
    for row in state.nodes:
        if not is_alive(row):
            words[row.node] = f"has ended ({_why_ended(row)}; more in its log)"
    return words


def member_roles(state: ClusterState, *, timeout_s: float = OTHERS_S) -> dict[int, str]:
    """What each replica of the folder is in the cluster; NO_MEMBER: it has no place there. Empty
    where no leader says so."""
    if not any(map(is_alive, state.nodes)):
        return {}
    with suppress(LogStoreError), logstore.connect(state.endpoints, timeout=timeout_s) as client:
        found = client.admin.members()
        return {row.node: _role_of(found.member(row.node)) for row in state.nodes}
    return {}


def _role_of(member: MemberInfo | None) -> str:
    return NO_MEMBER if member is None else member.role


def refuse_strangers(state: ClusterState, status: dict[str, Any]) -> None:
    """Check that the replicas that answer are those of the folder, by their supervisors' pids.
    Members may run elsewhere, too, under other numbers.

    Raises:
      InvalidRequest: another cluster's replica has a port of ours.
    """
    pids = {row.node: row.pid for row in state.nodes}
    for row in status["nodes"]:
        is_ours = row["node"] in pids or f"{row['host']}:{row['port']}" in state.endpoints
        if is_ours and row["pid"] and row["pid"] != pids.get(row["node"]):
            raise InvalidRequest(
                f"process {row['pid']} answers at {row['host']}:{row['port']}, not the replica of "
                f"node {row['node']} that was started: another cluster uses these ports, name a "
                "config with others"
            )


def foreign_ports(state: ClusterState) -> dict[int, list[PortUser]]:
    """The ports of each node that a process listens on which is none of its replica's.

    Empty where the config cannot be read any more: which ports they have is not known then.
    """
    try:
        config = load_config(state.config)
    except ConfigError:
        return {}
    return {
        row.node: port_users(
            config,
            [row.node],
            except_sessions=[row.pid] if is_alive(row) else [],
        )
        for row in state.nodes
        if row.node in config.node_ids()
    }


def bring_down(
    folder: Path,
    timeout_s: float = STOP_TIMEOUT_S,
    *,
    node: int | None = None,
    say: Callable[[str], None] = lambda _: None,
    notice_s: float = STOP_NOTICE_S,
) -> list[tuple[ReplicaProcess, str]]:
    """Stop replicas of the folder; what became of each: "stopped", "killed" or "was gone".

    Args:
      folder: of the cluster.
      timeout_s: how long all together may take; those that still run then are killed.
      node: which one is stopped; None: all.
      say: prints a line for people.
      notice_s: after so long, replicas that still run are named.

    Raises:
      InvalidRequest: no cluster was started there, or it has no such node.
      Overloaded: another command is at work there.
      Unreachable: a process does not end even when killed.
    """
    if not folder.is_dir() or (state := read_state(folder)) is None:
        raise InvalidRequest(f"no cluster was started in {folder}: name its folder with --dir")
    chosen = [row for row in state.nodes if node in (None, row.node)]
    if node is not None and not chosen:
        nodes = ", ".join(str(row.node) for row in state.nodes)
        raise InvalidRequest(f"the cluster in {folder} has no node {node}: it has {nodes}")
    with locked(folder):
        alive = [row for row in chosen if is_alive(row)]
        for row in alive:
            # all at once: the last ones have no replica to hand over to, and need not wait
            send_stop(row)
        deadline_ns = seconds_from_now(timeout_s)
        notice_ns = seconds_from_now(min(notice_s, timeout_s))
        for row in alive:
            if not wait_gone(row, _seconds_until(notice_ns)):
                say(
                    f"node {row.node} (pid {row.pid}) does not stop: it is killed if it has not "
                    f"within {_seconds_until(deadline_ns):.0f} s"
                )
        return [(row, _finish(row, deadline_ns) if row in alive else "was gone") for row in chosen]


def _finish(row: ReplicaProcess, deadline_ns: int) -> str:
    return "stopped" if finish_stop(row, _seconds_until(deadline_ns)) else "killed"


def _seconds_until(deadline_ns: int) -> float:
    return max(0.0, (deadline_ns - monotonic_ns()) / 1e9)


def _require_free_ports(config: Config, nodes: list[int]) -> None:
    """Raises: InvalidRequest: somebody listens on a port of a node that is to be started."""
    deadline_ns = seconds_from_now(PORTS_TIMEOUT_S)
    while users := port_users(config, nodes):
        if monotonic_ns() >= deadline_ns:
            raise InvalidRequest(
                f"{describe(users)}: stop it, or name a config with other ports; nothing is started"
            )
        select.poll().poll(LOOK_MS)


def _choose_config(
    folder: Path, given: Path | None, before: ClusterState | None, new: Config
) -> Path:
    """The config named, else the one of last time, else `new`, written into the folder."""
    if given is not None:
        return given.resolve()
    if before is not None and Path(before.config).exists():
        return Path(before.config)
    path = folder.resolve() / CONFIG_NAME
    if not path.exists():
        temporary = path.with_suffix(".new")
        temporary.write_text(render_config(new), encoding="utf-8")
        temporary.replace(path)
    return path


def _why_ended(row: ReplicaProcess) -> str:
    """The line of its log that says why: its supervisor only says last which process ended."""
    lines = log_tail(row).splitlines()
    for line in reversed(lines):
        if " supervisor: starting in mode " in line:
            break
        if " CRITICAL " in line and " supervisor: " not in line:
            return line
    return lines[-1] if lines else "it says nothing"


def _describe_end(row: ReplicaProcess) -> str:
    said = log_tail(row) or "nothing"
    return f"the replica of node {row.node} has ended; its log in {row.dir} ends with:\n{said}"
