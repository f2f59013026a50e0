"""Sets, deletes and lists a few named cursors, which several keepers share.

Owns the position that it believes each cursor to have. It sets a cursor to an LSN that nobody else
uses, so that the log shows whose change it was.
"""

from __future__ import annotations

from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.cursor_admin import Cursor, Cursors, deletion_of
from logstore.client.core.steps import Steps
from logstore.errors import CursorMoved
from logstore.format.cursor_entries import NO_LSN

NAMES = ("a", "ü", "cursor-3")
_ASK_EVERY_NS = (400 * MS_NS, 1_800 * MS_NS)  # the mean, drawn once


class Keeper:
    """A subject."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer
        self._random = inquirer.host.random
        self.ask_every_ns = self._random.randrange(*_ASK_EVERY_NS)
        self._lsn = inquirer.host.number << 32
        self._known: dict[str, int] = {}

    def ask(self) -> Steps[None]:
        host, routing, timeout_s = self._inquirer.cluster()
        cursors = Cursors(host, routing, timeout_s=timeout_s)
        if self._random.random() < 0.45:
            self._known = {each.name: each.lsn for each in (yield from cursors.list())}
            return
        change = self._draw_change()
        try:
            yield from cursors.change(change, self._draw_expected(change.name))
            self._known[change.name] = change.lsn
        except CursorMoved as moved:
            self._known[change.name] = moved.lsn

    def _draw_change(self) -> Cursor:
        name = self._random.choice(NAMES)
        if self._random.random() < 0.2:
            return deletion_of(name)
        self._lsn += 1
        return Cursor(name, self._lsn, self._random.random() < 0.3)

    def _draw_expected(self, name: str) -> int | None:
        """Mostly the position that this keeper knows; now and then another one."""
        known_lsn = self._known.get(name, NO_LSN)
        return self._random.choice((known_lsn, known_lsn, known_lsn, None, NO_LSN, 1))
