"""That a leader which keeps its term after a handover takes proposals again in time (C2).

Owns the judgement; since when a replica has been handing over, by its own clock, is with it. Who is
full or damaged may stay closed for longer (S9, Q3).
"""

from __future__ import annotations

from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.ports import Core
from actors.simulation.checkers.replica import NEVER_NS, Replica
from logstore.model import Role
from logstore.raft.effects import AdmissionClosed, Admit, Effect, StopLeading


class Handovers:
    """All leaders. `election_timeout_ns`: what a handover may take."""

    __slots__ = ("_findings", "_timeout_ns")

    def __init__(self, findings: Findings, *, election_timeout_ns: int) -> None:
        self._findings = findings
        self._timeout_ns = election_timeout_ns

    def on_effect(self, replica: Replica, effect: Effect) -> None:
        """Admission was closed or opened, or the term's leadership ended."""
        match effect:
            case AdmissionClosed(reason="transfer"):
                replica.handover_ns = replica.clock_ns
            case Admit() | StopLeading():
                replica.handover_ns = NEVER_NS
            case _:
                pass

    def on_ticked(self, replica: Replica, core: Core, at_ns: int) -> None:
        """The step of a tick is done, while the replica hands over."""
        if replica.is_full or core.faulty:
            replica.handover_ns = replica.clock_ns  # it may begin another one meanwhile
            return
        for_ns = replica.clock_ns - replica.handover_ns
        if for_ns >= self._timeout_ns and core.role is Role.LEADER:
            replica.handover_ns = NEVER_NS
            text = f"node {replica.node} leads term {core.term} and takes nothing"
            text = f"{text} {for_ns / 1e9:.3f} s after it began to hand over"
            self._findings.report(Invariant.I13, text, at_ns)
