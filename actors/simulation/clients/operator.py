"""An operator of the virtual world: hands leadership over when told to, looks at the status.

Owns what it was told to do. Must not know when a transfer is wanted.
"""

from __future__ import annotations

from actors.simulation.clients.asking import Asking
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.operating import status, transfer
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Steps

_STATUS_EVERY_NS = 2_000 * MS_NS


class Operator:
    """A subject."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._wanted: list[int] = []
        self._routing: Routing | None = None

    @property
    def ask_every_ns(self) -> int:
        return 0 if self._wanted else _STATUS_EVERY_NS

    def transfer(self, target: int) -> None:
        """Whoever leads shall hand over to `target`, 0: to whoever fits best. Wake its process."""
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
