"""Whether a majority of the voters have an entry on disk (I10).

Must not know what the answer is for. A replica that reported the entry as flushed is not looked up
again: `disk_claims` compared that report with its disk, and finds a crash that loses the entry. One
whose disk was lost afterwards counts, too: its leader may not know of that.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.simulation.checkers.electorates import Electorate
from actors.simulation.checkers.replica_promises import Replica
from actors.simulation.checkers.world_view import Durability


class Holders:
    """Among `replicas`; without a `durability` port every replica has every entry."""

    __slots__ = ("_durability", "_replicas")

    def __init__(
        self, replicas: Callable[[], list[Replica]], durability: Durability | None
    ) -> None:
        self._replicas = replicas
        self._durability = durability

    def fewer_than_majority(
        self, electorate: Electorate, index: int, chain: int
    ) -> list[int] | None:
        """The nodes whose replicas have flushed the entry, if they are no majority."""
        found: list[Replica] = []
        others: list[Replica] = []
        for replica in self._replicas():
            if replica.flushed_index >= index and replica.log.chain_at(index) == chain:
                found.append(replica)
            else:
                others.append(replica)
        if electorate.is_majority(found):
            return None
        found += [each for each in others if self._has_unreported(each, index, chain)]
        if electorate.is_majority(found):
            return None
        return [each.node for each in found]

    def _has_unreported(self, replica: Replica, index: int, chain: int) -> bool:
        """Whether the disk has an entry that the replica has not reported; a replica with an
        excused disk, or none any more, counts if it had flushed the entry once."""
        port = self._durability
        if port is None:
            return True
        if replica.is_gone:
            return chain in replica.flushed_once
        return port.has_entry(replica.node, index, chain) or (
            chain in replica.flushed_once and port.is_excused(replica.node)
        )
