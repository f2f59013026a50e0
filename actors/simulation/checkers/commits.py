"""How far each replica commits its log, and how far it shows it to readers (I1, I3, I5, I8, I10).

Keeps each replica's commit and visible indexes in step with its core. `CommittedLog` has what is
committed.
"""

from __future__ import annotations

from actors.simulation.checkers.consequences import CommitMoved, LogResumed
from actors.simulation.checkers.facts import Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads, reads_after
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from logstore.raft.effects import Committed, Visible


class Commits:
    """Checks the commit and visible indexes of all replicas."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._committed = record.committed
        self._entries = record.entries
        self._report = record.findings.report

    @reads(LogResumed)
    def on_resumed(self, log: LogResumed) -> None:
        replica = log.replica
        replica.commit = replica.log.start.index
        floor = min(log.recovered.commit_floor, replica.log.last_index)
        self.on_moved(CommitMoved(replica, max(floor, replica.commit), 0))

    @reads(CommitMoved)
    def on_moved(self, moved: CommitMoved) -> None:
        replica, commit = moved.replica, moved.commit
        node, leader_term = replica.node, moved.leader_term
        if commit < replica.commit:
            text = f"node {node} takes its commit index back to {commit} from {replica.commit}"
            self._report(Invariant.I5, text)
        if leader_term and commit > self._committed.last_index:
            self._check_term(replica, commit, leader_term)
        first = max(replica.commit + 1, int(replica.log.start.index))  # of one that was installed
        electorate = self._record.electorate(replica)
        for index in range(first, commit + 1):
            chain = replica.log.chain_at(index)
            if chain is None:
                text = f"node {node} calls entry {index} committed, which it does not have"
                self._report(Invariant.I3, text)
                return
            self._committed.commit(
                node, index, chain, leader_term=leader_term, electorate=electorate
            )
        replica.commit = commit

    def _check_term(self, replica: Replica, index: int, leader_term: int) -> None:
        """V1: a leader counts replicas for entries of its own term only; older entries are
        committed with them."""
        chain = replica.log.chain_at(index)
        header = None if chain is None else self._entries.headers.get(chain)
        if header is not None and header.term != leader_term:
            text = f"node {replica.node} commits entry {index} of term {header.term} by counting"
            self._report(Invariant.I1, f"{text} in term {leader_term}")

    @reads_after(Visible)
    def on_visible(self, replica: Replica, visible: Visible, _step: Stepped) -> None:
        node, index, lsn = replica.node, visible.index, visible.lsn
        if index <= replica.visible_index or lsn < replica.visible_lsn:
            text = f"node {node} shows {visible} after index {replica.visible_index}"
            self._report(Invariant.I5, f"{text}, LSN {replica.visible_lsn}")
        replica.visible_index, replica.visible_lsn = index, lsn
        if index > min(replica.commit, self._committed.last_index):
            text = f"node {node} shows entry {index}: it is not committed"
            self._report(Invariant.I8, text)
        elif lsn != self._committed.end_lsn_at(index):
            self._report(Invariant.I8, f"node {node} shows LSN {lsn} at entry {index}")
        elif index > max(replica.flushed_index, replica.log.start.index):
            text = f"node {node} shows entry {index}: it is not flushed"
            self._report(Invariant.I8, text)

    @reads_after(Committed)
    def on_committed(self, replica: Replica, committed: Committed, _step: Stepped) -> None:
        """Ingress acknowledges entries up to this index (E4)."""
        if committed.index > min(replica.commit, self._committed.last_index):
            text = f"node {replica.node} lets entry {committed.index} be acknowledged, uncommitted"
            self._report(Invariant.I10, text)
