"""Opens the same name again and again, a new epoch each time (E8), and nothing more. Without a name
it is somebody new each time, who takes a place in the table and leaves it.

With it an OPEN is under way whenever a leader ends. It never appends.
"""

from __future__ import annotations

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.asking import Asking
from actors.simulation.clients.open_request import open_request
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.sessions import open_session
from logstore.client.core.steps import Steps
from logstore.model import SequenceMode

_ASK_EVERY_NS = (250 * MS_NS, 1_200 * MS_NS)  # the mean, drawn once


class Opener:
    """A subject."""

    def __init__(self, asking: Asking, name: bytes) -> None:
        self._asking = asking
        random = asking.host.random
        self.ask_every_ns = random.randrange(*_ASK_EVERY_NS)
        mode = random.choice((SequenceMode.DENSE, SequenceMode.MONOTONE))
        self._opening = open_request(mode, name)
        self._producer_id = self._epoch = 0

    def ask(self) -> Steps[None]:
        host, routing, timeout_s = self._asking.cluster()
        session = yield from open_session(host, routing, self._opening, timeout_s=timeout_s)
        # Somebody new each time; or the session of the name was ended meanwhile.
        if not self._opening.name or session.producer_id != self._producer_id:
            self._producer_id, self._epoch = session.producer_id, 0
        if session.producer_epoch <= self._epoch:
            text = f"epoch {session.producer_epoch} is told as new after epoch {self._epoch}"
            self._asking.witness.violated(Invariant.I7, text)
        self._epoch = session.producer_epoch
