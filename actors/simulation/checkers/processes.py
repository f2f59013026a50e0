"""Ended processes do nothing more (I15), queues keep their bounds (I14), a full disk ends no
process, and after the faults the cluster works again in time (I13).

Owns which processes have ended, and the two deadlines of the liveness phase.
"""

from __future__ import annotations

from actors.simulation.checkers import client_facts, facts
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record

WHOLE_REPLICA = ""
RAFT = "raft"
EGRESS = "egress"


class Processes:
    """Checks the processes of all replicas."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._dead: set[tuple[int, int, str]] = set()

    @reads(facts.ProcessDied)
    def on_death(self, died: facts.ProcessDied) -> None:
        replica = self._record.replicas[died.node]
        self._dead.add((died.node, died.incarnation, died.process))
        if died.process in (WHOLE_REPLICA, RAFT) and died.incarnation == replica.incarnation:
            replica.is_running = False

    @reads(facts.ProcessRespawned)
    def on_respawn(self, back: facts.ProcessRespawned) -> None:
        """Replicators and egress restart alone (M3)."""
        self._dead.discard((back.node, back.incarnation, back.process))
        self.on_act(facts.ProcessActed(back.node, back.process, back.incarnation))

    @reads(facts.ProcessActed)
    def on_act(self, act: facts.ProcessActed) -> None:
        node, incarnation = act.node, act.incarnation
        if (
            incarnation != self._record.replicas[node].incarnation
            or (node, incarnation, act.process) in self._dead
            or (node, incarnation, WHOLE_REPLICA) in self._dead
        ):
            text = f"{act.process} of node {node}, incarnation {incarnation}, acts after its end"
            self._record.findings.report(Invariant.I15, text)

    @reads(facts.EndedByFullDisk)
    def on_full_disk(self, ended: facts.EndedByFullDisk) -> None:
        """A full disk is a state (S9): it ends no process, and keeps no replica from voting."""
        text = f"{ended.process} takes no part while its disk is full: {ended.error}"
        self._record.findings.report(Invariant.I13, text)

    @reads(facts.QueueSeen)
    def on_queue(self, queue: facts.QueueSeen) -> None:
        if not 0 <= queue.length <= queue.bound:
            text = f"{queue.name} holds {queue.length} of at most {queue.bound}"
            self._record.findings.report(Invariant.I14, text)


class Liveness:
    """After `FaultsEnded` an append is acknowledged in time; after `ReplicasReturned` all replicas
    become equal in time."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._append_by_ns: int | None = None
        self._equal_by_ns: int | None = None

    @reads(facts.FaultsEnded)
    def on_faults_ended(self, ended: facts.FaultsEnded) -> None:
        self._append_by_ns = self._record.now() + ended.append_within_ns

    @reads(facts.ReplicasReturned)
    def on_returned(self, returned: facts.ReplicasReturned) -> None:
        self._equal_by_ns = self._record.now() + returned.equal_within_ns

    @reads(client_facts.AppendAcknowledged)
    def on_acknowledged(self, _append: client_facts.AppendAcknowledged) -> None:
        deadline_ns, self._append_by_ns = self._append_by_ns, None
        self._check_deadline(deadline_ns, "an append was acknowledged")

    @reads(facts.Converged)
    def on_converged(self, _converged: facts.Converged) -> None:
        deadline_ns, self._equal_by_ns = self._equal_by_ns, None
        self._check_deadline(deadline_ns, "all replicas were equal")

    @reads(facts.Finished)
    def on_finish(self, _finished: facts.Finished) -> None:
        """Reports a deadline if what was awaited never happened."""
        for deadline_ns, what in (
            (self._append_by_ns, "no append was acknowledged"),
            (self._equal_by_ns, "the replicas did not become equal"),
        ):
            if deadline_ns is not None:
                text = f"{what} after the faults were over, due at {deadline_ns} ns"
                self._record.findings.report(Invariant.I13, text)

    def _check_deadline(self, deadline_ns: int | None, what: str) -> None:
        at_ns = self._record.now()
        if deadline_ns is not None and at_ns > deadline_ns:
            text = f"{what} only at {at_ns} ns, due at {deadline_ns} ns"
            self._record.findings.report(Invariant.I13, text)
