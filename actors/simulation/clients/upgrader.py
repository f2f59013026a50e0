"""Raises the log's format level in the virtual world, as `logstore upgrade` does, and now and then
one that cannot be.

Owns which level it believes the log to have.
"""

from __future__ import annotations

from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.faults.draw_ground import LEVEL_MAX
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.steps import Steps
from logstore.client.core.upgrade import format_levels, raise_level
from logstore.format.level import FIRST_LEVEL

_ASK_EVERY_NS = (50 * MS_NS, 1_000 * MS_NS)  # the mean, drawn once


class Upgrader:
    """A subject."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer
        self._random = inquirer.host.random
        self.ask_every_ns = self._random.randrange(*_ASK_EVERY_NS)
        self._known = FIRST_LEVEL

    def ask(self) -> Steps[None]:
        if self._random.random() < 0.2:
            found = yield from format_levels(self._inquirer.cluster())
            self._known = max(self._known, found.level)
            return
        level = self._known + 1
        if self._random.random() < 0.3:
            level = self._random.randint(FIRST_LEVEL, LEVEL_MAX + 1)
        self._known = yield from raise_level(self._inquirer.cluster(), level)
