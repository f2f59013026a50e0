"""The counters that show where the core is, for metrics only (SAFETY U1).

Owns which of the core's facts goes into which slot. Must not know when that is due.
"""

from __future__ import annotations

from actors import topology
from actors.raft.routes import Routes
from actors.station import Station
from actors.topology import Counter
from logstore.model import Role
from logstore.raft.core import RaftCore

NS_PER_MS = 1_000_000


class CoreMetrics:
    """Of one incarnation."""

    def __init__(self, station: Station, routes: Routes) -> None:
        self._slots = station.slots
        self._routes = routes
        self._clocks = [(node, station.slot(topology.clock_slot(node))) for node in station.nodes]
        self._spare_clocks = [
            (spare, station.slot(topology.clock_slot(spare))) for spare in topology.SPARE_NAMES
        ]

    def update(self, core: RaftCore) -> None:
        """Store what is true now."""
        slots = self._slots
        slots[Counter.IS_LEADER] = core.role == Role.LEADER
        slots[Counter.TERM] = core.term
        slots[Counter.COMMIT_INDEX] = core.commit
        slots[Counter.LAST_INDEX] = core.last_index
        slots[Counter.FORMAT_LEVEL] = core.level
        slots[Counter.ROOM_FOR_CHANGES] = core.room_for_changes
        skews_ns = core.clock_skews_ns
        served = self._routes.number_of
        by_spare = ((served(spare), slot) for spare, slot in self._spare_clocks)
        for node, slot in (*self._clocks, *by_spare):
            skew_ns = skews_ns.get(node)
            slots[slot] = 0 if skew_ns is None else topology.SKEW_ZERO_MS + skew_ns // NS_PER_MS
