"""Asks what the sessions of some names have committed, and opens none (V5, E9).

Must not know what a right answer is; the ledger does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from actors.simulation.checkers.client_facts import SessionAsked, SessionTold
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.host import MS_NS, ClientHost
from actors.simulation.clients.wire import Wire
from logstore.format.client_messages import ErrorReply, SessionLookupRequest, SessionStateReply
from logstore.settings import PortOffset

_ASK_EVERY_NS = (400 * MS_NS, 1_800 * MS_NS)  # the mean, drawn once


class SessionReader:
    """The subject of an inquirer."""

    port = PortOffset.CONTROL

    def __init__(self, host: ClientHost, names: Sequence[bytes]) -> None:
        self.host = host
        self.wire = Wire(host)
        self.ask_every_ns = host.random.randrange(*_ASK_EVERY_NS)
        self._names = names
        self._number = 0

    def question(self) -> tuple[msgspec.Struct, type[Any]]:
        host, name = self.host, self.host.random.choice(self._names)
        self._number = self.wire.next_operation()
        host.tell(SessionAsked(self._number, name))
        return SessionLookupRequest(name), SessionStateReply

    def answered(self, node: int, message: SessionStateReply) -> None:
        self.wire.count("looked-up" if message.producer_id else "nobody")
        self.host.tell(SessionTold(self._number, node, message))

    def refused(self, node: int, error: ErrorReply) -> bool:
        self.wire.violated(Invariant.I11, f"node {node} refuses a lookup with {error}")
        return False
