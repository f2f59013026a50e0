"""A client that asks one question after the other, through the client's core.

Owns when it asks; one question is under way at a time. Its subject draws the questions,
`checkers/messages` and the ledger judge the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from actors.simulation.checkers.messages.judges import JUDGES
from actors.simulation.checkers.messages.message_checker import MessageChecker
from actors.simulation.checkers.messages.witness import Witness
from actors.simulation.network.core_client import CoreClient, endpoint_of
from actors.simulation.world.client_host import NEVER_NS, ClientHost
from logstore.client.core.operating import Cluster
from logstore.client.core.requests import Port
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Steps
from logstore.client.endpoint import Endpoint
from logstore.errors import LogStoreError, Unreachable
from logstore.settings import PortOffset

_ROAMING = 0.15


class Subject(Protocol):
    """Draws the questions of one client."""

    @property
    def ask_every_ns(self) -> int:
        """The mean time between two questions."""

    def ask(self) -> Steps[None]:
        """Ask one question and wait for its answer. Raises what a call of the core may raise."""


class GuessingRouting(Routing):
    """Takes the node that answered last for the leader, and now and then any node, without a
    search: a node that does not lead refuses. So deposed leaders that have not noticed are asked,
    too.

    `asked_last`: the last such node; 0: none yet. `is_trusting`: it answered, so it is asked again;
    after a failure the leader is searched for.
    """

    def __init__(self, client: CoreClient) -> None:
        host = self._client_host = client.host
        super().__init__(client.core, [endpoint_of(host, node) for node in host.draw_seeds()])
        self.is_trusting = False
        self.asked_last = 0

    def find_leader(self, *, deadline_ns: int) -> Steps[tuple[int, Endpoint]]:
        host = self._client_host
        guess = self.asked_last if self.is_trusting else 0
        self.is_trusting = False
        if host.random.random() < _ROAMING:
            guess = host.any_node()
        if not guess:
            guess, _ = yield from super().find_leader(deadline_ns=deadline_ns)
        self.asked_last = guess
        return guess, endpoint_of(host, guess)


class Inquirer:
    """`client` is its process. `is_asking`: a question is under way."""

    def __init__(self, host: ClientHost, subject_of: Callable[[Inquirer], Subject]) -> None:
        self.host = host
        self.witness = Witness(host)
        self.client = CoreClient(host, self._live, MessageChecker(self.witness))
        self.core = self.client.core
        self.is_asking = False
        self._ports: dict[str, Port] = {}
        self._subject = subject_of(self)
        self._ask_ns = 0
        self._is_stopped = False

    def stop(self) -> None:
        """Ask no more after the question under way. Wake its process."""
        self._is_stopped = True

    def ask_now(self) -> None:
        """Ask the next question without a pause, once the one under way is answered. Wake its
        process."""
        self._ask_ns = 0

    # --- for its subject ---

    def draw_timeout_s(self) -> float:
        """How long one question may take, drawn anew."""
        return self.host.draw_timeout_ns() / 1e9

    def cluster(self) -> Cluster:
        """What calls of the core take, with a timeout that is drawn anew."""
        return Cluster(self.core, self.routing, self.draw_timeout_s())

    def port(self, node: int, offset: PortOffset = PortOffset.CONTROL) -> Port:
        """A port of one node, for requests that no call of the core makes. Its connection stays."""
        address = self.host.endpoint(node, offset)
        if address not in self._ports:
            self._ports[address] = Port(self.core, address, cluster_id=self.routing.cluster_id)
        return self._ports[address]

    def ask_node(
        self,
        node: int,
        request: Any,
        *,
        offset: PortOffset = PortOffset.CONTROL,
        wait_s: float = 0.0,
    ) -> Steps[Any]:
        """The reply to one request to one node. The connection stays until the node does not
        answer. `wait_s`: how much longer than others this request may take."""
        port = self.port(node, offset)
        deadline_ns = self.core.deadline_ns(self.draw_timeout_s() + wait_s)
        reply_type = JUDGES[type(request)].reply
        try:
            reply, _ = yield from port.request(request, reply_type, deadline_ns=deadline_ns)
        except Unreachable:
            port.close()
            del self._ports[port.address]
            raise
        return reply

    def _live(self, client: CoreClient) -> Steps[None]:
        self.routing = GuessingRouting(client)
        while True:
            while self._is_stopped or client.clock.now_ns < self._ask_ns:
                yield client.sleep(NEVER_NS if self._is_stopped else self._ask_ns)
            self._ask_ns = NEVER_NS
            self.is_asking = True
            try:
                yield from self._subject.ask()
                self.routing.is_trusting = True
            except LogStoreError as error:
                self.witness.call_failed(error)
            self.is_asking = False
            pause_ns = self.host.random.expovariate(1.0) * self._subject.ask_every_ns
            self._ask_ns = min(self._ask_ns, client.clock.now_ns + int(pause_ns))
