"""Whoever leads tells a replicator that was started again to lead (SAFETY M3, W4; I13).

Owns which replicators have died and wait for orders. A new one knows nothing, and none of raft's
timers says it again: its peer would stay behind for the rest of the term.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.ports import Core
from actors.simulation.checkers.replica import Orphan, Replica
from logstore.model import Role
from logstore.raft.effects import Effect, Lead
from logstore.raft.events import Event, Tick

# Every do_work of raft begins with a Tick. The supervisor's word is there after some
# milliseconds; one do_work hears it, behind the Tick.
TICKS_MAX = 3
HEARD_NS = 10_000_000


class Orders:
    """All replicas' replicators."""

    __slots__ = ("_findings",)

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def on_death(self, replica: Replica, process: str) -> None:
        """A process died alone."""
        name, _, peer = process.partition("-")
        if name == "replicator":
            replica.orphans[int(peer)] = Orphan()

    def on_step(
        self, replica: Replica, core: Core, event: Event, effects: Sequence[Effect], at_ns: int
    ) -> None:
        """A step of a replica that has such replicators."""
        orphans = replica.orphans
        for effect in effects:
            if type(effect) is Lead:
                orphans.pop(effect.peer, None)
        if type(event) is not Tick:
            return
        if core.role is not Role.LEADER:
            orphans.clear()  # who leads next, begins with orders to all
            return
        for peer, orphan in list(orphans.items()):
            if orphan.ticks == 0:
                orphan.term, orphan.since_ns = core.term, at_ns
            orphan.ticks += 1
            if orphan.term != core.term:
                del orphans[peer]
            elif orphan.ticks > TICKS_MAX and at_ns - orphan.since_ns > HEARD_NS:
                del orphans[peer]
                text = f"node {replica.node} leads, and its new replicator-{peer} is not told so"
                self._findings.report(Invariant.I13, text, at_ns)
