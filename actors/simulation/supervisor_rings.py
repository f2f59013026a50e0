"""The rings between raft and the supervisor of a simulated replica, as the supervisor uses them.

Owns what raft has asked for in this incarnation. Must not know how a process is started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from actors import topology
from actors.messages import (
    ProcessGone,
    ReplicatorStarted,
    ReplicatorWanted,
    StopReady,
    StopRequested,
)
from actors.simulation.world.world import World

# From raft's bell to what the supervisor does: some preemptions.
WAKE_NS = 1_000_000


class SupervisorRings:
    """Of one incarnation. `start`: starts an actor of it, unless that runs."""

    def __init__(self, world: World, incarnation: int, start: Callable[[str, int], None]) -> None:
        self._world = world
        self._incarnation = incarnation
        self._start = start
        self.is_stop_ready = False
        self._to_raft: Any = None
        self._from_raft: Any = None

    def attach(self, station: Any) -> None:
        """`station`: the supervisor's own."""
        self._to_raft = station.outbox(topology.RAFT)
        self._from_raft = station.inbox(topology.RAFT)

    def ring(self, actor: str, at_ns: int) -> None:
        """raft rings the supervisor's bell then."""
        del actor
        self._world.at(max(at_ns, self._world.now_ns) + WAKE_NS, self.take)

    def request_stop(self) -> None:
        self.is_stop_ready = False
        self._send([StopRequested()])

    def report(self, deaths: Iterable[ProcessGone]) -> None:
        self._send(deaths)

    def take(self) -> None:
        """Do what raft has asked for by now."""
        for order in self._from_raft.receive():
            if isinstance(order, StopReady):
                self.is_stop_ready = True
            elif isinstance(order, ReplicatorWanted):
                self._start(order.actor, self._incarnation)
                self._send([ReplicatorStarted(order.actor)])

    def _send(self, messages: Iterable[Any]) -> None:
        for message in messages:
            self._to_raft.send(message)
        self._to_raft.flush()
