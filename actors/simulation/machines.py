"""The machines of a world, as its operator sees them: which are members, which may become ones, and
which may leave.

Owns what an operator has done so far. Must not know when it asks for what.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from logstore.client.endpoint import Endpoint
from logstore.settings import PortOffset

if TYPE_CHECKING:
    from actors.simulation.cluster import SimulatedCluster


class ClusterMachines:
    """Plays `clients.member_operator.Machines`. `vulnerable`: founders that may lose what they
    have."""

    def __init__(self, cluster: SimulatedCluster, vulnerable: tuple[int, ...]) -> None:
        self._cluster = cluster
        self._vulnerable = frozenset(vulnerable)
        self._asked: set[int] = set()  # voters that were to leave, and may do so late

    @property
    def idle(self) -> list[int]:
        record = self._cluster.ledger.record
        known = [each.configuration for each in record.electorates_in_force()]
        named = {
            member.number
            for each in known
            for member in (*each.voters, *each.incoming, *each.learners)
        }
        return [node for node in self._cluster.nodes if node not in named]

    def place_of(self, node: int) -> Endpoint:
        """Its first port."""
        host, _, port = self._cluster.endpoint(node, PortOffset(0)).rpartition(":")
        return Endpoint(host.removeprefix("tcp://"), int(port))

    def start(self, node: int) -> None:
        """One that was a member once gets an empty disk: it does not come back as what it was."""
        cluster = self._cluster
        record = cluster.ledger.record
        replica = cluster.replicas[node]
        if record.replicas[node].uuid and not record.is_member(node):
            if node in cluster.old_disks_in:
                return
            replica.kill()
            cluster.renew(node)
        cluster.commissioned.add(node)
        replica.start()

    def may_leave(self, node: int) -> bool:
        in_force = self._cluster.ledger.record.electorates_in_force()
        asked = {*self._asked, node}
        founders = frozenset(self._cluster.founders)
        is_safe = all(
            _leaves_enough(each.numbers, asked, self._vulnerable, founders) for each in in_force
        )
        if is_safe:
            self._asked.add(node)
        return is_safe


def _leaves_enough(
    voters: frozenset[int],
    leaving: set[int],
    vulnerable: frozenset[int],
    founders: frozenset[int],
) -> bool:
    """Whichever of them leave, the whole ones that stay are a majority, and two at least. One of
    these is a founder, whom every machine's file names: without, an operator would start a lost
    replica with --join."""
    going = sorted(voters & leaving)
    for size in range(len(going) + 1):
        for some in combinations(going, size):
            stay = voters.difference(some)
            whole = stay - vulnerable
            if len(whole) <= len(stay) // 2 or len(whole) < 2 or not whole & founders:
                return False
    return True
