"""A term or vote is durable, and answered, in the time of its own flushes (I13, SAFETY S8).

Owns when each save was ordered, and which waits the world explains: a META file whose flushes are
slow, a writer or raft that was paused. Whatever else the disk is busy with is no excuse: a vote, or
the answer to a heartbeat of a new term, that stands behind a flush of the log is an election lost.
"""

from __future__ import annotations

from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.replica import Replica


class VoteDelays:
    """`within_ns`: from the order, or the answer to the one before it, to the answer."""

    __slots__ = ("_excused_ns", "_findings", "_since_ns", "_within_ns")

    def __init__(self, findings: Findings, within_ns: int) -> None:
        self._findings = findings
        self._within_ns = within_ns
        self._since_ns: dict[int, int] = {}
        self._excused_ns: dict[int, int] = {}

    def excuse(self, node: int, until_ns: int) -> None:
        """Until then its saves may take as long as they like."""
        self._excused_ns[node] = max(until_ns, self._excused_ns.get(node, 0))

    def on_save(self, replica: Replica, at_ns: int) -> None:
        """Another save is ordered; those before it go first."""
        if not replica.saves:
            self._since_ns[replica.node] = at_ns

    def on_saved(self, replica: Replica, at_ns: int) -> None:
        """One or more are answered."""
        node = replica.node
        since_ns = max(self._since_ns.get(node, at_ns), self._excused_ns.get(node, 0))
        self._since_ns[node] = at_ns
        if at_ns - since_ns > self._within_ns:
            text = f"node {node} answers for term {replica.term} after {at_ns - since_ns} ns"
            text += f", its META takes {self._within_ns} at most"
            self._findings.report(Invariant.I13, text, at_ns)
