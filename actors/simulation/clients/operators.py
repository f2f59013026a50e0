"""Clients that operate the cluster: an `Operator` transfers leadership and reads the status, a
`Founder` forms a cluster that does not form itself (SAFETY L2)."""

from __future__ import annotations

from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.operating import initialize, status, transfer
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Steps
from logstore.format.client_messages import InitializeRequest
from logstore.format.first_lsn import pack_first_lsn

_STATUS_EVERY_NS = 2_000 * MS_NS
_ANSWER_S = 1.0  # a node may wait ten seconds for the others; another one may be quicker


class Operator:
    """A subject. `transfer` says when leadership shall move."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer
        self._wanted: list[int] = []
        self._routing: Routing | None = None

    @property
    def ask_every_ns(self) -> int:
        return 0 if self._wanted else _STATUS_EVERY_NS

    def transfer(self, target: int) -> None:
        """The leader shall hand over to `target`; 0: to the fittest. Wake its process."""
        self._wanted.append(target)
        self._inquirer.ask_now()

    def ask(self) -> Steps[None]:
        if self._routing is None:  # one that does not guess: a transfer is asked for once
            self._routing = self._inquirer.client.connect()
        cluster = self._inquirer.cluster()._replace(routing=self._routing)
        if self._wanted:
            yield from transfer(cluster, self._wanted.pop(0))
            self._inquirer.witness.count("transferred")
        else:
            yield from status(cluster)


class Founder:
    """A subject. It asks as a user does, or one node directly, until a node confirms where the log
    begins."""

    ask_every_ns = 150 * MS_NS

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer

    def ask(self) -> Steps[None]:
        inquirer, host = self._inquirer, self._inquirer.host
        if host.random.random() < 0.5:
            yield from initialize(inquirer.cluster(), first_lsn=int(host.first_lsn))
        else:
            request = InitializeRequest(pack_first_lsn(host.first_lsn))
            yield from inquirer.ask_node(host.any_node(), request, wait_s=_ANSWER_S)
        inquirer.witness.count("formed")
        inquirer.stop()
