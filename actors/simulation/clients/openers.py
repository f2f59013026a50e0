"""Clients that open sessions and never append: an `Opener` one after the other, a `Flooder` in
bursts.

Because of an opener an OPEN is under way whenever a leader ends. A flooder does not wait for
answers and must not hold up appends (SAFETY E6), which `checkers.turns` looks at.
"""

from __future__ import annotations

from typing import Any

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.clients.open_request import open_request
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.requests import Port
from logstore.client.core.sessions import open_session
from logstore.client.core.steps import Steps
from logstore.errors import ErrorCode
from logstore.format.client_messages import ErrorReply, OpenSessionReply
from logstore.model import SequenceMode

_OPEN_EVERY_NS = (250 * MS_NS, 1_200 * MS_NS)  # the mean, drawn once
_BURST = 60
_BURST_EVERY_NS = (300 * MS_NS, 2_500 * MS_NS)


class Opener:
    """A subject. It opens `name` again and again, each time with a new epoch (E8). Without a name
    each session is a new producer's, which fills the session table."""

    def __init__(self, inquirer: Inquirer, name: bytes) -> None:
        self._inquirer = inquirer
        random = inquirer.host.random
        self.ask_every_ns = random.randrange(*_OPEN_EVERY_NS)
        mode = random.choice((SequenceMode.DENSE, SequenceMode.MONOTONE))
        self._opening = open_request(mode, name)
        self._producer_id = self._epoch = 0

    def ask(self) -> Steps[None]:
        host, routing, timeout_s = self._inquirer.cluster()
        session = yield from open_session(host, routing, self._opening, timeout_s=timeout_s)
        # Somebody new each time; or the session of the name was ended meanwhile.
        if not self._opening.name or session.producer_id != self._producer_id:
            self._producer_id, self._epoch = session.producer_id, 0
        if session.producer_epoch <= self._epoch:
            text = f"epoch {session.producer_epoch} is told as new after epoch {self._epoch}"
            self._inquirer.witness.violated(Invariant.I7, text)
        self._epoch = session.producer_epoch


class Flooder:
    """A subject."""

    ask_every_ns = 100 * MS_NS  # while nobody is known to lead

    def __init__(self, inquirer: Inquirer, name: bytes) -> None:
        self._inquirer = inquirer
        self._opening = open_request(SequenceMode.MONOTONE, name)
        self._ports: dict[int, Port] = {}
        self._leader = 0
        self._next_burst_ns = 0

    def ask(self) -> Steps[None]:
        """Read the answers, and send the next burst if it is time."""
        yield from ()
        for node, port in self._ports.items():
            while (received := port.try_receive()) is not None:
                self._answered(node, received[1].message)
        host, now_ns = self._inquirer.host, self._inquirer.core.clock.monotonic_ns()
        if now_ns < self._next_burst_ns:
            return
        if self._leader:
            self._next_burst_ns = now_ns + host.random.randrange(*_BURST_EVERY_NS)
        node = self._leader or host.any_node()
        port = self._ports[node] = self._inquirer.port(node)
        for _ in range(_BURST if self._leader else 1):
            if port.try_send(self._opening):
                self._inquirer.witness.count("asked")
        self._leader = 0

    def _answered(self, node: int, message: Any) -> None:
        if isinstance(message, OpenSessionReply):
            self._leader = node
        elif isinstance(message, ErrorReply) and message.code == ErrorCode.NOT_LEADER:
            self._leader = message.leader
        elif isinstance(message, ErrorReply) and message.code == ErrorCode.OVERLOADED:
            self._leader = node
