"""A client that asks one thing after the other, through the client's core.

Owns when it asks, and one question at a time. What is asked is the subject's; what an answer is
worth, `checkers/messages` and the ledger say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from actors.simulation.checkers.messages.judges import JUDGES
from actors.simulation.checkers.messages.message_checker import MessageChecker
from actors.simulation.checkers.messages.witness import Witness
from actors.simulation.network.core_client import CoreClient, draw_ask_again_ns, endpoint_of
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
    """What is asked about."""

    @property
    def ask_every_ns(self) -> int:
        """The mean."""

    def ask(self) -> Steps[None]:
        """One question, to its end. It may fail as a call of a user's may."""


class GuessingRouting(Routing):
    """Takes whoever answered last for the leader, and now and then any node, without asking who
    leads: it will say so itself if it does not. So an old leader is asked, too.

    `asked_last`: whom; 0: nobody yet. `is_trusting`: that was answered; so who fails once is looked
    for anew.
    """

    def __init__(self, client: CoreClient) -> None:
        host = self._client_host = client.host
        seeds = host.random.sample(host.nodes, host.random.randint(1, len(host.nodes)))
        super().__init__(client.core, [endpoint_of(host, node) for node in seeds])
        self.ask_again_ns = draw_ask_again_ns(host)
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


class Asking:
    """`client` is its process. `is_asking`: a question is under way."""

    def __init__(self, host: ClientHost, subject_of: Callable[[Asking], Subject]) -> None:
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
        """No more questions after the one under way. Wake its process."""
        self._is_stopped = True

    def ask_now(self) -> None:
        """The next question, or the one after that under way, is due. Wake its process."""
        self._ask_ns = 0

    # --- for its subject ---

    def patience_s(self) -> float:
        """How long one question may take, drawn anew."""
        return self.host.patience_ns() / 1e9

    def cluster(self) -> Cluster:
        """What calls of the core go to, with a patience drawn anew."""
        return Cluster(self.core, self.routing, self.patience_s())

    def port(self, node: int, offset: PortOffset = PortOffset.CONTROL) -> Port:
        """For requests that no call of the core makes. Its connection stays."""
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
        """One request to one node, over a connection that stays until it does not answer; the
        reply. `wait_s`: how much longer than others it may take."""
        port = self.port(node, offset)
        deadline_ns = self.core.deadline_ns(self.patience_s() + wait_s)
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
            pause_ns = self.host.random.expovariate(1.0) * self._subject.ask_every_ns
            self._ask_ns = client.clock.now_ns + int(pause_ns)
            self.is_asking = True
            try:
                yield from self._subject.ask()
                self.routing.is_trusting = True
            except LogStoreError as error:
                self.witness.failed(error)
            self.is_asking = False
