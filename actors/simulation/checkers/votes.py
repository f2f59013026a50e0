"""A term or vote is durable, and answered, in the time of its own flushes (I13, SAFETY S8).

Owns when each save was ordered, and which waits the world explains: a META file whose flushes are
slow, a writer or raft that was paused. Other work of the disk is no excuse: a vote, or the answer
to a heartbeat of a new term, that waits for a flush of the log loses an election.
"""

from __future__ import annotations

from actors.simulation.checkers.facts import SavesExcused, Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from logstore.raft.effects import SaveLevel, SaveMeta
from logstore.raft.events import MetaPersisted


class VoteDelays:
    """Of all replicas: from the order, or the answer to the one before it, to the answer."""

    def __init__(self, record: Record) -> None:
        self._now = record.now
        self._findings = record.findings
        self._within_ns = record.save_within_ns
        self._since_ns: dict[int, int] = {}
        self._excused_ns: dict[int, int] = {}

    @reads(SavesExcused)
    def on_excuse(self, excuse: SavesExcused) -> None:
        node = excuse.node
        self._excused_ns[node] = max(excuse.until_ns, self._excused_ns.get(node, 0))

    @reads(SaveMeta)
    def on_save(self, replica: Replica, _save: SaveMeta, _step: Stepped) -> None:
        """Another save is ordered; those before it go first."""
        if not replica.saves:
            self._since_ns[replica.node] = self._now()

    @reads(SaveLevel)
    def on_level(self, replica: Replica, _save: SaveLevel, _step: Stepped) -> None:
        """A save of META that is not answered: what comes after it waits for it, too."""
        node = replica.node
        before_ns = max(self._now(), self._excused_ns.get(node, 0))
        self._excused_ns[node] = before_ns + self._within_ns

    @reads(MetaPersisted)
    def on_saved(self, replica: Replica, _saved: MetaPersisted, _step: Stepped) -> None:
        """One or more are answered."""
        node, at_ns = replica.node, self._now()
        since_ns = max(self._since_ns.get(node, at_ns), self._excused_ns.get(node, 0))
        self._since_ns[node] = at_ns
        if at_ns - since_ns > self._within_ns:
            text = f"node {node} answers for term {replica.term} after {at_ns - since_ns} ns"
            text += f", its META takes {self._within_ns} at most"
            self._findings.report(Invariant.I13, text)
