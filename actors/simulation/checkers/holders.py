"""How many replicas have an entry on disk (I10).

Must not know what is done with it. Who claimed the entry was looked up then, and a crash that loses
it is found there; the others are looked up now.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.simulation.checkers.replica_promises import Replica
from actors.simulation.checkers.world_view import Durability


class Holders:
    """Of all replicas; without a `durability` port each counts."""

    __slots__ = ("_durability", "_replicas", "majority")

    def __init__(self, replicas: Sequence[Replica], durability: Durability | None) -> None:
        self._replicas = replicas
        self._durability = durability
        self.majority = len(replicas) // 2 + 1

    def count(self, index: int, chain: int) -> int:
        """Replicas that have it flushed; more than a majority need not be counted."""
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
        """The disk has it though nobody was told; one that was excused counts if it once had it."""
        port = self._durability
        return port is None or (
            port.has_entry(replica.node, index, chain)
            or (chain in replica.flushed_once and port.is_excused(replica.node))
        )
