"""A leader that keeps its term after a failed handover takes proposals again in time (C2).

Owns the rule; `Replica.handover_began_ns` has the start of a handover, by the replica's own clock.
A leader whose disk is full, or which has damaged entries, may stay closed for longer (S9, Q3).
"""

from __future__ import annotations

from actors.simulation.checkers.facts import Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads, reads_after
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import NEVER_NS, Replica
from logstore.model import Role
from logstore.raft.effects import AdmissionClosed, Admit, StopLeading
from logstore.raft.events import DiskFullChanged, Tick


class Handovers:
    """Checks all leaders. A handover may take one election timeout."""

    def __init__(self, record: Record) -> None:
        self._findings = record.findings
        self._timeout_ns = record.election_timeout_ns

    @reads(DiskFullChanged)
    def on_disk(self, replica: Replica, disk: DiskFullChanged, _step: Stepped) -> None:
        replica.is_full = disk.is_full

    @reads(AdmissionClosed)
    def on_closed(self, replica: Replica, closed: AdmissionClosed, _step: Stepped) -> None:
        if closed.reason == "transfer":
            replica.handover_began_ns = replica.clock_ns

    @reads(Admit, StopLeading)
    def on_over(self, replica: Replica, over: Admit | StopLeading, _step: Stepped) -> None:
        if isinstance(over, Admit) or not over.peer:
            replica.handover_began_ns = NEVER_NS

    @reads_after(Tick)
    def on_tick(self, replica: Replica, _tick: Tick, step: Stepped) -> None:
        core = step.core
        if replica.handover_began_ns == NEVER_NS:
            return
        if replica.is_full or core.faulty:
            replica.handover_began_ns = replica.clock_ns  # it may begin another one meanwhile
            return
        for_ns = replica.clock_ns - replica.handover_began_ns
        if for_ns >= self._timeout_ns and core.role is Role.LEADER:
            replica.handover_began_ns = NEVER_NS
            text = f"node {replica.node} leads term {core.term} and takes nothing"
            text = f"{text} {for_ns / 1e9:.3f} s after it began to hand over"
            self._findings.report(Invariant.I13, text)
