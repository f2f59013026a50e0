"""A leader sends a restarted replicator the order to lead (SAFETY M3, W4; I13).

Owns which replicators have died and wait for orders. A restarted one has no state, and no timer of
raft repeats the order: without it the peer would get no entries for the rest of the term. Peers are
the members by the newest CONFIG in the leader's own log, committed or not (C5).
"""

from __future__ import annotations

from actors.simulation.checkers.facts import ProcessDied, Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads, reads_after
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import DeadReplicator, Replica
from logstore.model import Role
from logstore.raft.effects import Lead
from logstore.raft.events import Tick

# Every do_work of raft begins with a Tick. The supervisor's report takes some
# milliseconds; raft reads it after the Tick of a do_work.
TICKS_MAX = 3
RESTART_HEARD_NS = 10_000_000


class Orders:
    """Checks the replicators of all replicas."""

    def __init__(self, record: Record) -> None:
        self._record = record

    @reads(ProcessDied)
    def on_death(self, died: ProcessDied) -> None:
        name, _, peer = died.process.partition("-")
        if name == "replicator":
            self._record.replicas[died.node].dead_replicators[int(peer)] = DeadReplicator()

    @reads(Lead)
    def on_lead(self, replica: Replica, lead: Lead, _step: Stepped) -> None:
        replica.dead_replicators.pop(lead.peer, None)

    @reads_after(Tick)
    def on_tick(self, replica: Replica, _tick: Tick, step: Stepped) -> None:
        dead_replicators, core, at_ns = replica.dead_replicators, step.core, self._record.now()
        if not dead_replicators:
            return
        if core.role is not Role.LEADER:
            dead_replicators.clear()  # the next leader orders all its replicators to lead
            return
        for peer, dead in list(dead_replicators.items()):
            if dead.ticks == 0:
                dead.term, dead.since_ns = core.term, at_ns
            dead.ticks += 1
            has_left = peer not in self._record.electorate(replica).members
            if dead.term != core.term or has_left:
                del dead_replicators[peer]
            elif dead.ticks > TICKS_MAX and at_ns - dead.since_ns > RESTART_HEARD_NS:
                del dead_replicators[peer]
                text = f"node {replica.node} leads, and does not order replicator-{peer} to lead"
                self._record.findings.report(Invariant.I13, text)
