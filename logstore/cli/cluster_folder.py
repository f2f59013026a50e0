"""The folder of a cluster on this machine: which replicas were started there, and what each command
does.

Owns `DIR/cluster.json` (who runs where), `DIR/cluster.toml` (the generated config, where none was
given) and `DIR/lock`, which `up` and `down` hold while they work. Must not know how commands print.
Invariants: cluster.json appears whole or not at all; a process is signalled only if it is the one
we started.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

import logstore
from logstore.cli.replica_process import (
    ReplicaProcess,
    finish_stop,
    is_alive,
    log_tail,
    send_stop,
    start_replica,
)
from logstore.client.clock import monotonic_ns, seconds_from_now
from logstore.config import Config, load_config, render_config
from logstore.errors import InvalidRequest, LogStoreError, Overloaded, Unreachable
from logstore.settings import ClusterSettings, NodeSettings

STATE_NAME = "cluster.json"
CONFIG_NAME = "cluster.toml"
LOCK_NAME = "lock"
# An orderly stop hands leadership over first: two election timeouts and the children's last
# flushes.
STOP_TIMEOUT_S = 20.0
# How often a wait for a leader looks whether a replica has given up meanwhile.
LOOK_S = 2.0


class ClusterState(msgspec.Struct, frozen=True):
    """What cluster.json holds. `config` is an absolute path, `endpoints` HOST:PORT of each control
    port.
    """

    endpoints: list[str]
    config: str
    nodes: list[ReplicaProcess]


def default_config(*, auto_init: bool) -> Config:
    """Three replicas on this machine, as in configs/cluster-3.toml."""
    return Config(
        cluster=ClusterSettings(name="demo", auto_init=auto_init),
        nodes=[NodeSettings(node=node, port=7_090 + 10 * node) for node in (1, 2, 3)],
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
        raise InvalidRequest(f"{path}: {error}; name another folder, or remove the file") from error


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
        yield
    except BlockingIOError as error:
        raise Overloaded(f"another cluster command works in {folder}: wait for it") from error
    finally:
        os.close(descriptor)


def bring_up(folder: Path, config_path: Path | None, *, first_lsn: int | None) -> ClusterState:
    """Start every replica that does not run, and tell who runs; does not wait for a leader.

    Args:
        first_lsn: where the log is to begin, which the caller tells the replicas; None: at LSN 1.

    Raises:
        ConfigError: the config does not hold.
        InvalidRequest: replicas of another config run in this folder.
        Overloaded: another command is at work there.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(folder):
        before = read_state(folder)
        running = {row.node: row for row in before.nodes if is_alive(row)} if before else {}
        path = _choose_config(folder, config_path, before, auto_init=first_lsn is None)
        if before and running and before.config != str(path):
            raise InvalidRequest(
                f"replicas of {before.config} run in {folder}: `logstore cluster down` first, or "
                "name another folder"
            )
        config = load_config(path)
        if first_lsn is not None and config.cluster.auto_init:
            raise InvalidRequest(
                f"a cluster of {path} forms itself, with a log that begins at LSN 1: set "
                "`auto_init = false` there, or name a new folder"
            )
        rows = [
            running.get(node)
            or start_replica(path, node, folder / f"node-{node}", dies_with_us=False)
            for node in config.node_ids()
        ]
        state = ClusterState(endpoints_of(config), str(path), rows)
        write_state(folder, state)
        return state


def wait_for_leader(state: ClusterState, timeout_s: float) -> int:
    """Node id of a leader that a majority follows; the wait ends early if a replica gives up.

    Raises:
        Unreachable: a replica ended, with what it said; or nobody answered in time.
        NoQuorum: replicas answer, but none leads in time.
    """
    deadline_ns = seconds_from_now(timeout_s)
    while True:
        left_s = max(0.1, (deadline_ns - monotonic_ns()) / 1e9)
        try:
            with logstore.connect(state.endpoints, timeout=min(LOOK_S, left_s)) as client:
                node: int = client.admin.watermarks(linearizable=True).node
                return node
        except LogStoreError as error:
            ended = [row for row in state.nodes if not is_alive(row)]
            if ended:
                raise Unreachable(_describe_end(ended[0])) from error
            if monotonic_ns() >= deadline_ns:
                raise


def bring_down(folder: Path, timeout_s: float = STOP_TIMEOUT_S) -> list[tuple[ReplicaProcess, str]]:
    """Stop every replica of the folder; what became of each: "stopped", "killed" or "was gone".

    Raises:
        InvalidRequest: no cluster was started there.
        Overloaded: another command is at work there.
        Unreachable: a process does not end even when killed.
    """
    if not folder.is_dir() or (state := read_state(folder)) is None:
        raise InvalidRequest(f"no cluster was started in {folder}: name its folder with --dir")
    with locked(folder):
        alive = [row for row in state.nodes if is_alive(row)]
        for (
            row
        ) in alive:  # all at once: the last ones have nobody to hand over to, and need not wait
            send_stop(row)
        deadline_ns = seconds_from_now(timeout_s)
        outcome = []
        for row in state.nodes:
            if row not in alive:
                outcome.append((row, "was gone"))
                continue
            left_s = max(0.0, (deadline_ns - monotonic_ns()) / 1e9)
            outcome.append((row, "stopped" if finish_stop(row, left_s) else "killed"))
        return outcome


def _choose_config(
    folder: Path, given: Path | None, before: ClusterState | None, *, auto_init: bool
) -> Path:
    """The config named, else the one of last time, else the default, written into the folder."""
    if given is not None:
        return given.resolve()
    if before is not None and Path(before.config).exists():
        return Path(before.config)
    path = folder.resolve() / CONFIG_NAME
    if not path.exists():
        temporary = path.with_suffix(".new")
        temporary.write_text(render_config(default_config(auto_init=auto_init)), encoding="utf-8")
        temporary.replace(path)
    return path


def _describe_end(row: ReplicaProcess) -> str:
    said = log_tail(row) or "nothing"
    return f"the replica of node {row.node} has ended; its log in {row.dir} ends with:\n{said}"
