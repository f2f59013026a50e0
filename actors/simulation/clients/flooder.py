"""Opens one name in bursts and waits for no answer: whoever does that must not hold up appends
(SAFETY E6).

It never appends. That appends have their turn is `checkers.turns`' to see.
"""

from __future__ import annotations

from typing import Any

from actors.simulation.clients.asking import Asking
from actors.simulation.clients.open_request import open_request
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.requests import Port
from logstore.client.core.steps import Steps
from logstore.errors import ErrorCode
from logstore.format.client_messages import ErrorReply, OpenSessionReply
from logstore.model import SequenceMode
from logstore.settings import PortOffset

_BURST = 60
_BURST_EVERY_NS = (300 * MS_NS, 2_500 * MS_NS)


class Flooder:
    """A subject."""

    ask_every_ns = 100 * MS_NS  # while nobody is known to lead

    def __init__(self, asking: Asking, name: bytes) -> None:
        self._asking = asking
        self._opening = open_request(SequenceMode.MONOTONE, name)
        self._ports: dict[int, Port] = {}
        self._leader = 0
        self._next_burst_ns = 0

    def ask(self) -> Steps[None]:
        """Read what was answered, and send the next burst if it is time."""
        yield from ()
        for node, port in self._ports.items():
            while (received := port.try_receive()) is not None:
                self._answered(node, received[1].message)
        host, now_ns = self._asking.host, self._asking.core.clock.monotonic_ns()
        if now_ns < self._next_burst_ns:
            return
        if self._leader:
            self._next_burst_ns = now_ns + host.random.randrange(*_BURST_EVERY_NS)
        node = self._leader or host.any_node()
        if node not in self._ports:
            self._ports[node] = self._asking.port(host.endpoint(node, PortOffset.CONTROL))
        for _ in range(_BURST if self._leader else 1):
            if self._ports[node].try_send(self._opening):
                self._asking.witness.count("asked")
        self._leader = 0

    def _answered(self, node: int, message: Any) -> None:
        if isinstance(message, OpenSessionReply):
            self._leader = node
        elif isinstance(message, ErrorReply) and message.code == ErrorCode.NOT_LEADER:
            self._leader = message.leader
        elif isinstance(message, ErrorReply) and message.code == ErrorCode.OVERLOADED:
            self._leader = node
