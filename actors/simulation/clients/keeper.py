"""Keeps cursors in the virtual world: sets, deletes and lists a few names, which it shares.

Owns one question at a time. Sets a cursor to an LSN that nobody else uses, so that the log says
whose change it was. Must not know what a right answer is; the ledger does.
"""

from __future__ import annotations

from typing import Any

import msgspec

from actors.simulation.checkers import client_facts
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.host import MS_NS, ClientHost
from actors.simulation.clients.wire import Wire
from logstore.errors import ErrorCode, FormatError
from logstore.format.client_messages import (
    CursorsReply,
    CursorsRequest,
    DoneReply,
    ErrorReply,
    SetCursorRequest,
)
from logstore.format.cursor_entries import ANY_LSN, NO_LSN, Cursor, decode_cursors
from logstore.model import Lsn
from logstore.settings import PortOffset

NAMES = (b"a", "ü".encode(), b"cursor-3")
_ASK_EVERY_NS = (400 * MS_NS, 1_800 * MS_NS)  # the mean, drawn once


class Keeper:
    """The subject of an inquirer."""

    port = PortOffset.CONTROL

    def __init__(self, host: ClientHost) -> None:
        self.host = host
        self.wire = Wire(host)
        self.ask_every_ns = host.random.randrange(*_ASK_EVERY_NS)
        self._number = 0
        self._change: Cursor | None = None
        self._known: dict[bytes, int] = {}  # where it believes each cursor stands

    # --- asking ---

    def question(self) -> tuple[msgspec.Struct, type[Any]]:
        host, random = self.host, self.host.random
        self._number = self.wire.next_operation()
        if random.random() < 0.45:
            self._change = None
            host.tell(client_facts.CursorAsked(self._number, None, ANY_LSN))
            return CursorsRequest(), CursorsReply
        change = self._change = self._draw_change()
        expected_lsn = self._draw_expected(change.name)
        host.tell(client_facts.CursorAsked(self._number, change, expected_lsn))
        request = SetCursorRequest(change.lsn, Lsn(expected_lsn), change.is_held, change.name)
        return request, DoneReply

    def _draw_change(self) -> Cursor:
        random = self.host.random
        name = random.choice(NAMES)
        if random.random() < 0.2:
            return Cursor(name, NO_LSN, False)
        return Cursor(name, Lsn(self._number), random.random() < 0.3)

    def _draw_expected(self, name: bytes) -> int:
        """Mostly where it stands, as far as this keeper knows; now and then anything."""
        random, known_lsn = self.host.random, self._known.get(name, NO_LSN)
        return random.choice((known_lsn, known_lsn, known_lsn, ANY_LSN, NO_LSN, 1))

    # --- answers ---

    def answered(self, node: int, message: Any) -> None:
        change = self._change
        if change is None:
            self._take_list(node, message.cursors)
        else:
            self.wire.count("changed")
            self._known[change.name] = change.lsn
            self.host.tell(client_facts.CursorChanged(self._number, message.value))

    def _take_list(self, node: int, rows: bytes) -> None:
        try:
            cursors = decode_cursors(rows)
        except FormatError as error:
            self.wire.violated(Invariant.I11, f"a list of cursors: {error}")
            return
        self.wire.count("listed")
        self._known = {each.name: each.lsn for each in cursors}
        self.host.tell(client_facts.CursorsListed(self._number, node, cursors))

    def refused(self, node: int, error: ErrorReply) -> bool:
        change = self._change
        if error.code == ErrorCode.CURSOR_MOVED and change is not None:
            self.wire.count("moved")
            self._known[change.name] = error.first
            self.host.tell(client_facts.CursorMoved(self._number, node, error.first))
            return True
        if error.code != ErrorCode.OUTCOME_UNKNOWN:
            self.wire.violated(Invariant.I11, f"a question for cursors is refused with {error}")
        return False
