"""The dead say nothing (I15), queues keep their bounds (I14), a full disk keeps nobody out, and in
the end all is well (I13).

Owns who is dead and the two deadlines of the liveness phase.
"""

from __future__ import annotations

from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.replica import Replica

WHOLE_REPLICA = ""
RAFT = "raft"
EGRESS = "egress"


class Processes:
    """Every process of every incarnation that has ended."""

    __slots__ = ("_dead", "_findings")

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._dead: set[tuple[int, int, str]] = set()

    def died(self, replica: Replica, process: str, incarnation: int) -> None:
        self._dead.add((replica.node, incarnation, process))
        if process in (WHOLE_REPLICA, RAFT) and incarnation == replica.incarnation:
            replica.is_running = False

    def respawned(self, replica: Replica, process: str, incarnation: int, at_ns: int) -> None:
        """Replicators and egress restart alone (M3)."""
        self._dead.discard((replica.node, incarnation, process))
        self.acted(replica, process, incarnation, at_ns)

    def acted(self, replica: Replica, process: str, incarnation: int, at_ns: int) -> None:
        node = replica.node
        if (
            incarnation != replica.incarnation
            or (node, incarnation, process) in self._dead
            or (node, incarnation, WHOLE_REPLICA) in self._dead
        ):
            text = f"{process} of node {node}, incarnation {incarnation}, acts after its end"
            self._findings.report(Invariant.I15, text, at_ns)

    def out_for_space(self, process: str, error: str, at_ns: int) -> None:
        """A full disk is a state (S9): it ends no process, and keeps no replica from voting."""
        text = f"{process} takes no part while its disk is full: {error}"
        self._findings.report(Invariant.I13, text, at_ns)

    def queue(self, name: str, length: int, bound: int, at_ns: int) -> None:
        if not 0 <= length <= bound:
            text = f"{name} holds {length} of at most {bound}"
            self._findings.report(Invariant.I14, text, at_ns)


class Liveness:
    """From `healed` on an append acknowledged in time, from `returned` on all replicas equal."""

    __slots__ = ("_append_by_ns", "_equal_by_ns", "_findings")

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._append_by_ns: int | None = None
        self._equal_by_ns: int | None = None

    def healed(self, at_ns: int, append_within_ns: int) -> None:
        self._append_by_ns = at_ns + append_within_ns

    def returned(self, at_ns: int, equal_within_ns: int) -> None:
        self._equal_by_ns = at_ns + equal_within_ns

    def acknowledged(self, at_ns: int) -> None:
        deadline_ns, self._append_by_ns = self._append_by_ns, None
        self._look_at(deadline_ns, "an append was acknowledged", at_ns)

    def converged(self, at_ns: int) -> None:
        deadline_ns, self._equal_by_ns = self._equal_by_ns, None
        self._look_at(deadline_ns, "all replicas were equal", at_ns)

    def finish(self, at_ns: int) -> None:
        """Deadlines that nothing has met, however late."""
        for deadline_ns, what in (
            (self._append_by_ns, "no append was acknowledged"),
            (self._equal_by_ns, "the replicas did not become equal"),
        ):
            if deadline_ns is not None:
                text = f"{what} after the faults were over, due at {deadline_ns} ns"
                self._findings.report(Invariant.I13, text, at_ns)

    def _look_at(self, deadline_ns: int | None, what: str, at_ns: int) -> None:
        if deadline_ns is not None and at_ns > deadline_ns:
            text = f"{what} only at {at_ns} ns, due at {deadline_ns} ns"
            self._findings.report(Invariant.I13, text, at_ns)
