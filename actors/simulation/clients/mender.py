"""Gives the places of lost replicas to those on their empty disks, where these do not take them by
themselves (`replace_lost = manual`), as `logstore member replace NODE` does.

Owns when it is asked. Asks on after faults have ended: without it a lost voter stays lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from actors.simulation.checkers.facts import PlaceGiven
from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.member_admin import members, replace_member
from logstore.client.core.steps import Steps
from logstore.errors import InvalidRequest

_ASK_EVERY_NS = 300 * MS_NS


class Mender:
    """A subject. `lost`: the nodes whose place waits for a replica."""

    ask_every_ns = _ASK_EVERY_NS

    def __init__(self, inquirer: Inquirer, lost: Callable[[], Sequence[int]]) -> None:
        self._inquirer = inquirer
        self._lost = lost

    def ask(self) -> Steps[None]:
        """The cluster refuses it while the replica that was there is heard, or another one has
        joined to replace it (SAFETY L5)."""
        lost = self._lost()
        if not lost:
            return
        found = yield from members(self._inquirer.cluster())
        voters = [each.number for each in found.members if each.is_voter and each.number in lost]
        if voters:
            node = self._inquirer.host.random.choice(voters)
            try:
                yield from replace_member(self._inquirer.cluster(), node, None, False, None)
            except InvalidRequest as error:
                if f"is to replace node {node} already" not in str(error):
                    raise
                return
            self._inquirer.witness.tell(PlaceGiven(node))
