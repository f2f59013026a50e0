"""Who operates the cluster: an `Operator` transfers leadership and looks at the status, a `Founder`
forms the cluster where it does not form itself (SAFETY L2)."""

from __future__ import annotations

from actors.simulation.clients.asking import Asking
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.operating import initialize, status, transfer
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Steps
from logstore.format.client_messages import InitializeRequest
from logstore.format.first_lsn import pack_first_lsn

_STATUS_EVERY_NS = 2_000 * MS_NS
_ANSWER_S = 1.0  # a node may wait ten seconds for the others; another one may be quicker


class Operator:
    """A subject. When a transfer is wanted, it is told."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._wanted: list[int] = []
        self._routing: Routing | None = None

    @property
    def ask_every_ns(self) -> int:
        return 0 if self._wanted else _STATUS_EVERY_NS

    def transfer(self, target: int) -> None:
        """The leader shall hand over to `target`, 0: to the fittest. Wake its process."""
        self._wanted.append(target)
        self._asking.ask_now()

    def ask(self) -> Steps[None]:
        if self._routing is None:  # one that does not guess: a transfer is asked for once
            self._routing = self._asking.client.connect()
        cluster = self._asking.cluster()._replace(routing=self._routing)
        if self._wanted:
            yield from transfer(cluster, self._wanted.pop(0))
            self._asking.witness.count("transferred")
        else:
            yield from status(cluster)


class Founder:
    """A subject. It asks as a user does, or any node by hand, until one says that the log begins
    where it was told to."""

    ask_every_ns = 150 * MS_NS

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def ask(self) -> Steps[None]:
        asking, host = self._asking, self._asking.host
        if host.random.random() < 0.5:
            yield from initialize(asking.cluster(), first_lsn=int(host.first_lsn))
        else:
            request = InitializeRequest(pack_first_lsn(host.first_lsn))
            yield from asking.ask_node(host.any_node(), request, wait_s=_ANSWER_S)
        asking.witness.count("formed")
        asking.stop()
