"""A peer made of three server processes and a client program.

Owns the servers' lives: they die with this process, and what they write goes to a log for each node
in the folder. Must not know which system they are. Start them from the main thread, whose end the
kernel takes for ours.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Protocol

from actors.child import die_with_parent
from benchmarks.peers.line_process import LineProcess, tail_of
from benchmarks.peers.loads import Way
from logstore.cli.free_ports import find_free_ports
from logstore.client.clock import monotonic_ns
from logstore.errors import Unreachable

NODES = (1, 2, 3)


class Client(Protocol):
    """What of a `Peer` its client does; see there."""

    def wait_first_ack(self) -> int: ...

    def begin_load(self, way: Way, seconds: float, samples: Path) -> LineProcess: ...

    def wait_in_step(self) -> int: ...

    def begin_probe(self) -> LineProcess: ...

    def close(self) -> None:
        """Kill every process of the client."""
        ...


class ServerCluster:
    """See `Peer`. `commands`: what to run for each node, in the folder."""

    def __init__(self, folder: Path, commands: Mapping[int, Sequence[str]], client: Client) -> None:
        self._folder = folder
        self._commands = commands
        self._client = client
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._killed_ns = 0

    def start(self, node: int) -> None:
        parent = os.getpid()
        with self._log(node).open("ab") as log:
            self._running[node] = subprocess.Popen(
                self._commands[node],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: die_with_parent(parent),
            )

    def wait_first_ack(self) -> int:
        return self._client.wait_first_ack()

    def pids(self) -> list[int]:
        for node, process in self._running.items():
            if (
                process.poll() is not None
            ):  # as a zombie it would still answer who asks what it used
                raise Unreachable(f"node {node} has ended with status {process.returncode}")
        return [process.pid for process in self._running.values()]

    def begin_load(self, way: Way, seconds: float, samples: Path) -> LineProcess:
        return self._client.begin_load(way, seconds, samples)

    def wait_in_step(self) -> int:
        return self._client.wait_in_step()

    def begin_probe(self) -> LineProcess:
        return self._client.begin_probe()

    def kill(self, node: int) -> None:
        process = self._running.pop(node)
        process.kill()
        self._killed_ns = monotonic_ns()
        process.wait()

    def killed_ns(self) -> int:
        return self._killed_ns

    def logs(self) -> str:
        return "\n".join(f"-- node {node}: {tail_of(self._log(node))}" for node in NODES)

    def close(self) -> None:
        self._client.close()
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()
        self._running.clear()

    def _log(self, node: int) -> Path:
        return self._folder / f"node-{node}.log"


def free_ports() -> list[int]:
    """A free port for each node, in their order."""
    return find_free_ports(len(NODES), Random(os.urandom(8)), run=1)
