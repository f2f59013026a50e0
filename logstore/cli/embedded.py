"""A cluster of real replicas on this machine that lives as long as the object: demo, benchmarks,
tests.

Owns the folder's layout (`cluster.toml`, `node-N`), the ports, and when supervisors start and end.
Must not know what is appended. Invariants: whatever ends this process ends every replica (they die
with their parent), so start replicas from the main thread; after `close` no process is left.

Which replica leads and how far each has come is read from the replicas' counters files: that is
enough to know when to act, and costs no socket. A caller that needs certainty asks the cluster.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import psutil

from logstore.cli.free_ports import find_free_ports
from logstore.cli.replica_process import (
    ReplicaProcess,
    finish_stop,
    is_alive,
    kill_replica,
    log_tail,
    send_stop,
    signal_replica,
    start_replica,
    wait_gone,
)
from logstore.client.clock import milliseconds_until, seconds_from_now
from logstore.config import Config, render_config
from logstore.config_layout import (
    MODES,
    Layout,
    choose_mode,
    layout_of,
    process_of,
    with_mode,
)
from logstore.errors import InvalidRequest, NoQuorum, Unreachable
from logstore.settings import ClusterSettings, LimitSettings, NodeSettings, StorageSettings
from transport.counters import read_counters
from transport.errors import CountersInvalid

CONFIG_NAME = "cluster.toml"
MODE_VARIABLE = "LOGSTORE_MODE"
COUNTERS_NAME = "counters"
# A start is about 20 Python processes: seconds on a busy small machine.
LEADER_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
KILL_TIMEOUT_S = 10.0
# Replicas signal no other process when something changes: their counters are read this often.
LOOK_MS = 20


def make_config(replicas: int, random: Random) -> Config:
    """`replicas` nodes on free loopback ports, in the mode that the environment names
    (`LOGSTORE_MODE`), everything else as it ships."""
    ports = find_free_ports(replicas, random)
    nodes = [NodeSettings(node=number, port=port) for number, port in enumerate(ports, 1)]
    config = Config(cluster=ClusterSettings(name="embedded"), nodes=nodes)
    mode = os.environ.get(MODE_VARIABLE, "")
    if mode and mode not in MODES:
        raise InvalidRequest(f"{MODE_VARIABLE} is {mode!r}; write one of {', '.join(MODES)}")
    return with_mode(config, mode) if mode else config


def make_small_config(replicas: int, random: Random) -> Config:
    """The same with segments and rings of 28 MiB for a laptop's disk and memory: demo and tests."""
    return msgspec.structs.replace(
        make_config(replicas, random),
        storage=StorageSettings(segment="64MiB"),
        limits=LimitSettings(bulk_window="4MiB"),
    )


def poll_until(is_true: Callable[[], bool], timeout_s: float, *, look_ms: int = LOOK_MS) -> bool:
    """Look again and again until the condition holds, at most `timeout_s`; whether it does."""
    deadline_ns = seconds_from_now(timeout_s)
    nothing = select.poll()
    while not is_true():
        left_ms = milliseconds_until(deadline_ns)
        if not left_ms:
            return is_true()
        nothing.poll(min(look_ms, left_ms))
    return True


class EmbeddedCluster:
    """Replicas in `folder`, none started yet. Used by one thread; close it, or use it as a context
    manager.
    """

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder = folder
        self.config = config
        self._config_path = folder / CONFIG_NAME
        self._config_path.write_text(render_config(config), encoding="utf-8")
        self._running: dict[int, ReplicaProcess] = {}
        self._cpus: dict[int, int] = {}  # how many each replica found when it started

    def __enter__(self) -> EmbeddedCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def nodes(self) -> list[int]:
        return self.config.node_ids()

    @property
    def endpoints(self) -> list[str]:
        """HOST:PORT of every node's control port, in the order of the nodes."""
        return [f"{node.host}:{node.port}" for node in self.config.nodes]

    def endpoint(self, node: int) -> str:
        settings = self.config.node(node)
        return f"{settings.host}:{settings.port}"

    def node_folder(self, node: int) -> Path:
        return self.folder / f"node-{node}"

    def name_nodes(self, config: Config) -> None:
        """Replicas that are started from now on have this configuration file, which names the
        nodes that there are, and more."""
        self.config = config
        self._config_path.write_text(render_config(config), encoding="utf-8")

    # --- start and end ---

    def start(self, node: int) -> None:
        """Start one replica; it must not be running."""
        if self.is_running(node):
            raise InvalidRequest(f"node {node} runs already")
        self._cpus[node] = len(os.sched_getaffinity(0))
        self._running[node] = start_replica(
            self._config_path, node, self.node_folder(node), dies_with_us=True
        )

    def start_all(self) -> None:
        """Start every replica that does not run."""
        for node in self.nodes:
            if not self.is_running(node):
                self.start(node)

    def is_running(self, node: int) -> bool:
        row = self._running.get(node)
        return row is not None and is_alive(row)

    def kill(self, node: int) -> None:
        """SIGKILL every process of the replica, then wait until its supervisor is reaped."""
        row = self._running.pop(node)
        kill_replica(row)
        wait_gone(row, KILL_TIMEOUT_S)

    def kill_all(self) -> None:
        """SIGKILL every process of every replica at once."""
        running = list(self._running.values())
        self._running.clear()
        for row in running:
            kill_replica(row)
        for row in running:
            wait_gone(row, KILL_TIMEOUT_S)

    def stop(self, node: int) -> bool:
        """Orderly stop; whether it needed no SIGKILL."""
        row = self._running.pop(node)
        send_stop(row)
        return finish_stop(row, STOP_TIMEOUT_S)

    def stop_all(self) -> bool:
        """Orderly stop of all at once; whether none needed SIGKILL."""
        running = list(self._running.values())
        self._running.clear()
        for row in running:
            send_stop(row)
        went_alone = [finish_stop(row, STOP_TIMEOUT_S) for row in running]
        return all(went_alone)

    def pause(self, node: int) -> None:
        """SIGSTOP every process of the replica."""
        signal_replica(self._running[node], signal.SIGSTOP)

    def resume(self, node: int) -> None:
        signal_replica(self._running[node], signal.SIGCONT)

    def kill_process(self, node: int, actor: str) -> None:
        """SIGKILL the process of a replica that runs `actor`."""
        pid = self.pid_of(node, actor)
        if not pid:  # which would be our own process group
            raise InvalidRequest(f"no process of node {node} runs {actor} now")
        os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill what still runs. The folder is the caller's to remove."""
        self.kill_all()

    # --- what the counters say ---

    def counters(self, node: int) -> dict[str, int]:
        """All counters of a running replica by name; empty while it has none to show."""
        row = self._running.get(node)
        if row is None or not is_alive(row):
            return {}
        try:
            return read_counters(self.node_folder(node) / COUNTERS_NAME)
        except (OSError, CountersInvalid):
            return {}  # between two incarnations

    def processes(self, node: int) -> dict[str, int]:
        """Name to pid of each running process of a replica, its supervisor included."""
        counters = self.counters(node)
        return {
            name.removesuffix(".pid"): pid
            for name, pid in counters.items()
            if name.endswith(".pid") and pid
        }

    def layout(self, node: int) -> Layout:
        """The actors of each process of a replica that was started."""
        cpus = self._cpus.get(node, len(os.sched_getaffinity(0)))
        return layout_of(choose_mode(self.config, node, cpus), node)

    def pid_of(self, node: int, actor: str) -> int:
        """The pid of the process that runs `actor`, or of the supervisor; 0: it does not run."""
        return self.processes(node).get(process_of(self.layout(node), actor), 0)

    def all_processes(self) -> dict[str, psutil.Process]:
        """Every running process of the cluster, as "1.writer" for example."""
        return {
            f"{node}.{name}": psutil.Process(pid)
            for node in self.nodes
            for name, pid in self.processes(node).items()
        }

    def visible_lsn(self, node: int) -> int:
        """The newest LSN that a replica shows; -1: it is not ready."""
        return self.counters(node).get("visible", 0) - 1

    def leader(self) -> int:
        """Node id of the leader of the newest term, if it is ready; 0: there is none now."""
        terms = {}
        for node in self.nodes:
            counters = self.counters(node)
            if counters.get("is_leader") and counters.get("visible"):
                terms[counters["term"]] = node
        return terms[max(terms)] if terms else 0

    def wait_for_leader(self, timeout_s: float = LEADER_TIMEOUT_S, *, other_than: int = 0) -> int:
        """Node id of a leader that is ready.

        Raises:
          Unreachable: a replica that was started has ended by itself; with the end of its log.
          NoQuorum: no replica leads in time.
        """
        found = 0

        def is_led() -> bool:
            nonlocal found
            found = self.leader()
            for node, row in self._running.items():
                if not is_alive(row):
                    raise Unreachable(f"node {node} has ended; it said:\n{log_tail(row)}")
            return bool(found and found != other_than)

        if not poll_until(is_led, timeout_s):
            raise NoQuorum(f"no leader within {timeout_s} s; the replicas said:\n{self._logs()}")
        return found

    def wait_until_visible(self, node: int, lsn: int, timeout_s: float = LEADER_TIMEOUT_S) -> None:
        """Wait until a replica shows `lsn`.

        Raises:
          Unreachable: it does not in time; with the end of its log.
        """
        if not poll_until(lambda: self.visible_lsn(node) >= lsn, timeout_s):
            raise Unreachable(
                f"node {node} shows LSN {self.visible_lsn(node)}, not {lsn}, after {timeout_s} s; "
                f"the replicas said:\n{self._logs()}"
            )

    def _logs(self) -> str:
        return "\n".join(
            f"-- node {node}, {'running' if is_alive(row) else 'ended'}:\n{log_tail(row)}"
            for node, row in sorted(self._running.items())
        )
