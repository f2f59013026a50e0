"""What may strike a leader: which of its processes get which signal, or that its link is cut; how
each is undone, and when a cluster is whole again.

Owns the kinds of faults. Must not know what is measured.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import msgspec

from benchmarks.switched_network import SwitchedNetwork
from logstore.cli.embedded import EmbeddedCluster, make_config, poll_until
from logstore.client.clock import monotonic_ns
from logstore.config import Config
from logstore.config_layout import SUPERVISOR, kind_of
from logstore.errors import LogStoreError, Unreachable
from logstore.settings import ClusterSettings, NodeSettings, StorageSettings

REPLICAS = 3
PORT = 7_100  # in a namespace of its own a node has all ports
WHOLE_TIMEOUT_S = 180.0
ALL, LINK = "all", "link"


class Kind(msgspec.Struct, frozen=True):
    """A kind of fault. `strikes`: a process of the leader by the name that topology gives it,
    "replicator" any of them; ALL of its processes at once; or its LINK."""

    name: str
    strikes: str
    signal: signal.Signals = signal.SIGKILL


KINDS = (
    Kind("replica killed", ALL),
    Kind("supervisor killed", SUPERVISOR),
    Kind("ingress killed", "ingress"),
    Kind("raft killed", "raft"),
    Kind("writer killed", "writer"),
    Kind("egress killed", "egress"),
    Kind("replicator killed", "replicator"),
    Kind("replica stopped", ALL, signal.SIGSTOP),
    Kind("link cut", LINK),
)


class Struck(msgspec.Struct, frozen=True):
    """A fault that has struck, at some moment between these two, in monotonic ns.

    Attributes:
      entries: the leader's newest index before it.
      pid: of the process that was killed, of a whole replica its supervisor's; 0: none was.
    """

    kind: Kind
    node: int
    entries: int
    before_ns: int
    after_ns: int
    pid: int = 0


class StruckCluster(EmbeddedCluster):
    """Three replicas whose leader is struck; each in its namespace if there is a network."""

    def __init__(self, folder: Path, network: SwitchedNetwork | None, random: Random) -> None:
        super().__init__(folder, _config(network, random))
        self._network = network
        self._random = random

    def __enter__(self) -> StruckCluster:
        return self

    def start(self, node: int) -> None:
        if self._network is None:
            super().start(node)
            return
        with self._network.entered(node):
            super().start(node)

    def strike(self, kind: Kind) -> Struck:
        """Strike whoever leads now.

        Raises:
          LogStoreError: nobody leads, a process to kill is not there, or the link cannot be cut.
        """
        node = self.wait_for_leader()
        entries = self.counters(node).get("last_index", 0)
        if kind.strikes == LINK:
            if self._network is None:
                raise Unreachable("replicas on one loopback have no links to cut")
            before_ns = monotonic_ns()
            self._network.cut(node)
            return Struck(kind, node, entries, before_ns, monotonic_ns())
        target = self._target(node, kind)
        before_ns = monotonic_ns()
        os.kill(target, kind.signal)
        after_ns = monotonic_ns()
        killed = abs(target) if kind.signal == signal.SIGKILL else 0
        return Struck(kind, node, entries, before_ns, after_ns, pid=killed)

    def _target(self, node: int, kind: Kind) -> int:
        """What `kill` takes: a pid, or the replica's process group as a negative number. The
        supervisor leads the group."""
        wanted = SUPERVISOR if kind.strikes == ALL else kind.strikes
        actors = [SUPERVISOR, *(actor for each in self.layout(node).values() for actor in each)]
        pids = {name: self.pid_of(node, name) for name in sorted(actors) if kind_of(name) == wanted}
        if not any(pids.values()):
            raise Unreachable(f"node {node} runs no {wanted} now")
        pid = self._random.choice([pid for pid in pids.values() if pid])
        return -pid if kind.strikes == ALL else pid

    def make_whole(self, struck: Struck) -> None:
        """Undo the fault, and wait until all replicas run, follow one leader and show the same.

        Raises:
          LogStoreError: they do not in time.
        """
        if struck.kind.strikes == LINK and self._network is not None:
            self._network.mend(struck.node)
        elif struck.kind.signal == signal.SIGSTOP:
            self.resume(struck.node)
        elif struck.kind.strikes in (ALL, SUPERVISOR):
            self.kill(struck.node)  # what is left of it, and the zombie
        self.wait_until_whole(without_pid=struck.pid)

    def wait_until_whole(self, *, without_pid: int = 0) -> None:
        """Start what does not run, and wait until all replicas follow one leader and show what was
        shown then. `without_pid`: a process that is dead, and may not have been replaced yet.

        Raises:
          LogStoreError: they do not in time.
        """

        def is_replaced() -> bool:
            return all(without_pid not in self.processes(node).values() for node in self.nodes)

        if not poll_until(lambda: is_replaced() and self._is_whole(), WHOLE_TIMEOUT_S):
            raise LogStoreError(f"not whole after {WHOLE_TIMEOUT_S} s:\n{self._logs()}")
        shown = max(self.visible_lsn(node) for node in self.nodes)
        for node in self.nodes:
            self.wait_until_visible(node, shown, WHOLE_TIMEOUT_S)

    def _is_whole(self) -> bool:
        self.start_all()  # a supervisor may have given up
        return is_whole([self.counters(node) for node in self.nodes])

    def log_sizes(self) -> dict[int, int]:
        """How long each replica's log file is now, in bytes."""
        return {node: self._log(node).stat().st_size for node in self.nodes}

    def said_since(self, sizes: Mapping[int, int]) -> str:
        """What all replicas have written into their log files beyond `sizes`."""
        parts = []
        for node, size in sizes.items():
            with open(self._log(node), "rb") as log:
                log.seek(size)
                parts.append(log.read().decode(errors="replace"))
        return "".join(parts)

    def _log(self, node: int) -> Path:
        return self.node_folder(node) / "log"


def is_whole(counters: Sequence[Mapping[str, int]]) -> bool:
    """Whether every process of every replica runs, and all are in the term of one ready leader."""
    if not all(each.get("visible") for each in counters):
        return False
    if len({each["term"] for each in counters}) > 1 or sum(x["is_leader"] for x in counters) != 1:
        return False
    # A pid is there from the fork on, the first loop when it is up. A supervisor counts no loops.
    return all(
        value
        for each in counters
        for name, value in each.items()
        if name.endswith((".pid", ".loops")) and name != "supervisor.loops"
    )


def _config(network: SwitchedNetwork | None, random: Random) -> Config:
    """As it ships, but for segments that are quick to prepare."""
    config = make_config(REPLICAS, random)
    if network is not None:
        config = msgspec.structs.replace(
            config,
            cluster=ClusterSettings(name="struck", insecure=True),  # nobody else is on its network
            nodes=[
                NodeSettings(node=node, host=network.address(node), port=PORT)
                for node in config.node_ids()
            ],
        )
    return msgspec.structs.replace(config, storage=StorageSettings(segment="64MiB"))
