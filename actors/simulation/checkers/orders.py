"""Whoever leads tells a replicator that was started again to lead (SAFETY M3, W4; I13).

Owns which replicators have died and wait for orders. A new one knows nothing, and none of raft's
timers says it again: its peer would stay behind for the rest of the term.
"""

from __future__ import annotations

from actors.simulation.checkers.facts import ProcessDied, Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads, reads_after
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Orphan, Replica
from logstore.model import Role
from logstore.raft.effects import Lead
from logstore.raft.events import Tick

# Every do_work of raft begins with a Tick. The supervisor's word is there after some
# milliseconds; one do_work hears it, behind the Tick.
TICKS_MAX = 3
HEARD_NS = 10_000_000


class Orders:
    """All replicas' replicators."""

    def __init__(self, record: Record) -> None:
        self._record = record

    @reads(ProcessDied)
    def on_death(self, died: ProcessDied) -> None:
        name, _, peer = died.process.partition("-")
        if name == "replicator":
            self._record.replicas[died.node].orphans[int(peer)] = Orphan()

    @reads(Lead)
    def on_lead(self, replica: Replica, lead: Lead, _step: Stepped) -> None:
        replica.orphans.pop(lead.peer, None)

    @reads_after(Tick)
    def on_tick(self, replica: Replica, _tick: Tick, step: Stepped) -> None:
        orphans, core, at_ns = replica.orphans, step.core, self._record.now()
        if not orphans:
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
                self._record.findings.report(Invariant.I13, text)
