"""Asks what the sessions of some names have committed, and opens none (V5, E9)."""

from __future__ import annotations

from collections.abc import Sequence

from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.commits import look_up
from logstore.client.core.steps import Steps

_ASK_EVERY_NS = (400 * MS_NS, 1_800 * MS_NS)  # the mean, drawn once


class SessionReader:
    """A subject."""

    def __init__(self, inquirer: Inquirer, names: Sequence[str]) -> None:
        self._inquirer = inquirer
        self.ask_every_ns = inquirer.host.random.randrange(*_ASK_EVERY_NS)
        self._names = names

    def ask(self) -> Steps[None]:
        inquirer = self._inquirer
        name = inquirer.host.random.choice(self._names)
        found = yield from look_up(
            inquirer.core, inquirer.routing, name, timeout_s=inquirer.draw_timeout_s()
        )
        inquirer.witness.count("nobody" if found is None else "looked-up")
