"""Lists the sessions of the log, a page at a time, and now and then ends one.

Owns one question at a time, and what the last pages showed. Must not know what a right answer is;
the ledger does.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from actors.simulation.checkers import client_facts
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.host import MS_NS, ClientHost
from actors.simulation.clients.wire import Wire
from logstore.errors import ErrorCode, FormatError
from logstore.format.client_messages import (
    DoneReply,
    EndSessionRequest,
    ErrorReply,
    SessionsReply,
    SessionsRequest,
)
from logstore.format.session_list import decode_sessions
from logstore.settings import PortOffset

_ASK_EVERY_NS = (400 * MS_NS, 1_800 * MS_NS)  # the mean, drawn once
_LIMITS = (0, 0, 1, 2, 5)
_END = 0.35
# Whose session is ended under it begins anew, which costs it a second of its run.
_END_OF_APPENDER = 0.15
_KNOWN_MAX = 64


class SessionLister:
    """The subject of an inquirer. `appenders`: names of sessions that are mostly left alone."""

    port = PortOffset.CONTROL

    def __init__(self, host: ClientHost, appenders: Collection[bytes]) -> None:
        self.host = host
        self.wire = Wire(host)
        self.ask_every_ns = host.random.randrange(*_ASK_EVERY_NS)
        self._appenders = appenders
        self._number = 0
        self._page: tuple[int, int] | None = None
        self._next_after = 0
        self._ending = 0
        self._is_in_haste = False
        self._known: dict[int, bytes] = {}  # producer id -> name; ended ones, too

    def hurry(self) -> None:
        """The next question is an end, of whatever session it has heard of last."""
        self._is_in_haste = True

    # --- asking ---

    def question(self) -> tuple[msgspec.Struct, type[Any]]:
        host = self.host
        self._number = self.wire.next_operation()
        self._ending = self._draw_ending()
        if self._ending:
            self._page = None
            host.tell(client_facts.SessionsAsked(self._number, None, self._ending))
            return EndSessionRequest(self._ending), DoneReply
        self._page = page = self._next_after, host.random.choice(_LIMITS)
        host.tell(client_facts.SessionsAsked(self._number, page, 0))
        return SessionsRequest(*page), SessionsReply

    def _draw_ending(self) -> int:
        """A session to end, whose end may have been asked for before; 0: list this time."""
        random = self.host.random
        if self._is_in_haste and self._known:
            self._is_in_haste = False
            return max(self._known)
        if random.random() >= _END or not self._known:
            return 0
        producer_id = random.choice(list(self._known))
        if self._known[producer_id] in self._appenders and random.random() >= _END_OF_APPENDER:
            return 0
        return producer_id

    # --- answers ---

    def answered(self, node: int, message: Any) -> None:
        if self._page is not None:
            self._take_page(node, message)
        elif message.value != self._ending:
            text = f"the end of session {self._ending} is answered with {message}"
            self.wire.violated(Invariant.I11, text)
        else:
            self.wire.count("ended")
            self.host.tell(client_facts.SessionEnded(self._number))

    def _take_page(self, node: int, message: SessionsReply) -> None:
        try:
            rows = decode_sessions(message.sessions)
        except FormatError as error:
            self.wire.violated(Invariant.I11, f"a page of sessions: {error}")
            return
        self.wire.count("listed")
        self._next_after = message.next_after
        for row in rows:
            self._known[row.producer_id] = row.name
        while len(self._known) > _KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self.host.tell(client_facts.SessionsListed(self._number, node, rows, message.next_after))

    def refused(self, node: int, error: ErrorReply) -> bool:
        if error.code == ErrorCode.UNKNOWN_PRODUCER and self._page is None:
            self.wire.count("no-session")
            self.host.tell(client_facts.SessionUnknown(self._number, node))
            return True
        if error.code != ErrorCode.OUTCOME_UNKNOWN or self._page is not None:
            self.wire.violated(Invariant.I11, f"a question for sessions is refused with {error}")
        return False
