"""How many replicas have an entry on disk (I10).

Must not know what the count is for. A replica that reported the entry as flushed is not looked up
again: `disk_claims` compared that report with its disk, and finds a crash that loses the entry.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.simulation.checkers.replica_promises import Replica
from actors.simulation.checkers.world_view import Durability


class Holders:
    """Counts over all replicas; without a `durability` port every replica counts."""

    __slots__ = ("_durability", "_replicas", "majority")

    def __init__(self, replicas: Sequence[Replica], durability: Durability | None) -> None:
        self._replicas = replicas
        self._durability = durability
        self.majority = len(replicas) // 2 + 1

    def count(self, index: int, chain: int) -> int:
        """How many replicas have flushed the entry; the count may stop at a majority."""
        count = 0
        others = []
        for replica in self._replicas:
            if replica.flushed_index >= index and replica.log.chain_at(index) == chain:
                count += 1
            else:
                others.append(replica)
        if count < self.majority:
            count += sum(self._has_unreported(each, index, chain) for each in others)
        return count

    def _has_unreported(self, replica: Replica, index: int, chain: int) -> bool:
        """Whether the disk has an entry that the replica has not reported; a replica with an
        excused disk counts if it had flushed the entry once."""
        port = self._durability
        return port is None or (
            port.has_entry(replica.node, index, chain)
            or (chain in replica.flushed_once and port.is_excused(replica.node))
        )
