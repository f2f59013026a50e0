"""What a system is to this measurement: a cluster of three nodes to start, to load and to kill.

Owns the port and what a row of the table of systems says. Each system implements it in a module of
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.peers.line_process import LineProcess
from benchmarks.peers.loads import Way


class Peer(Protocol):
    """A cluster with all its files in one folder, no node started yet. Used by one thread.

    Any method raises `Unreachable`, or another `LogStoreError`, where the system does not do it in
    time.
    """

    def start(self, node: int) -> None:
        """Start a node that does not run; returns at once."""
        ...

    def wait_first_ack(self) -> int:
        """Make what is appended to, append once; when that was acknowledged, in monotonic ns."""
        ...

    def pids(self) -> list[int]:
        """Of all server processes.

        Raises:
          Unreachable: a node that was started does not run.
        """
        ...

    def begin_load(self, way: Way, seconds: float, samples: Path) -> LineProcess:
        """Offer a load for so long. The process says when it began, in monotonic ns; later it says
        a report as JSON, or ends, and has written `samples` (as benchmarks/load.py does). It
        belongs to the peer and may serve the next load."""
        ...

    def wait_in_step(self) -> int:
        """Wait until every node has what the others have; which one leads."""
        ...

    def begin_probe(self) -> LineProcess:
        """Append 1 KiB again and again, one at a time, each until it is acknowledged. For each the
        process says a line: when it was sent first, when it was acknowledged, in monotonic ns. It
        belongs to the peer."""
        ...

    def kill(self, node: int) -> None:
        """SIGKILL all processes of a node, and wait until they are gone."""
        ...

    def killed_ns(self) -> int:
        """When the last kill had struck every process of the node, in monotonic ns."""
        ...

    def logs(self) -> str:
        """The end of what each node wrote, for messages."""
        ...

    def close(self) -> None:
        """Kill every process. The folder is the caller's to remove."""
        ...


@dataclass(frozen=True)
class System:
    """A row of the table of systems.

    Attributes:
      ways: all loads that it takes, each in the ways worth telling apart.
      warm_ups: loads that go before, again and again until two runs agree.
      durability: of what is appended for a start and for a failover, when it is acknowledged.
      find_missing: why it cannot be measured on this machine; "": it can.
      versions: of its programs, by name, for the environment; called only if nothing is missing.
      open: makes the cluster in a folder.
    """

    name: str
    ways: tuple[Way, ...]
    warm_ups: tuple[Way, ...]
    durability: tuple[str, str]
    find_missing: Callable[[], str]
    versions: Callable[[], Mapping[str, str]]
    open: Callable[[Path], Peer]
