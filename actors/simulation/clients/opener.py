"""Opens the same name again and again, a new epoch each time (E8), and nothing more. Without a name
it is somebody new each time, who takes a place in the table and leaves it.

With it an OPEN is under way whenever a leader ends. It never appends.
"""

from __future__ import annotations

from typing import Any

import msgspec

from actors.simulation.checkers.client_facts import SessionOpened
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.host import MS_NS, ClientHost
from actors.simulation.clients.wire import Wire
from actors.simulation.clients.wish import Wish
from logstore.format.client_messages import ErrorReply, OpenSessionReply
from logstore.limits import SESSION_WINDOW_MIN
from logstore.model import SequenceMode
from logstore.settings import PortOffset

_ASK_EVERY_NS = (250 * MS_NS, 1_200 * MS_NS)  # the mean, drawn once


class Opener:
    """The subject of an inquirer."""

    port = PortOffset.CONTROL

    def __init__(self, host: ClientHost, name: bytes) -> None:
        self.host = host
        self.wire = Wire(host)
        self.ask_every_ns = host.random.randrange(*_ASK_EVERY_NS)
        mode = host.random.choice((SequenceMode.DENSE, SequenceMode.MONOTONE))
        self._wish = Wish(mode, SESSION_WINDOW_MIN, name)
        self._producer_id = self._epoch = 0

    def question(self) -> tuple[msgspec.Struct, type[Any]]:
        return self._wish.request(), OpenSessionReply

    def refused(self, node: int, error: ErrorReply) -> bool:
        self.wire.violated(Invariant.I17, f"{self._wish}: refused with {error} by node {node}")
        return False

    def answered(self, node: int, message: OpenSessionReply) -> None:
        wire = self.wire
        wire.count("opened")
        if not self._wish.is_granted_by(message):
            wire.violated(Invariant.I17, f"{self._wish} was answered by node {node}: {message}")
        # Somebody new each time; or the session of the name was ended meanwhile.
        if not self._wish.name or message.producer_id != self._producer_id:
            self._producer_id, self._epoch = message.producer_id, 0
        if message.producer_epoch <= self._epoch:
            text = f"epoch {message.producer_epoch} is told as new after epoch {self._epoch}"
            wire.violated(Invariant.I7, text)
        self._epoch = message.producer_epoch
        self.host.tell(SessionOpened(message.producer_id, self._epoch, self._wish.mode))
