"""Appends are not starved by other requests to a leader (SAFETY E6).

Owns the oldest unread batch of each leader, and how many requests became entries while it waited.
Must not know why a batch was not read. A leader without room accepts neither; it is wrong to accept
request after request and no batch, but for a gen that takes no batches, while disks are full (S9).
"""

from __future__ import annotations

from actors.simulation.checkers.facts import BatchUnread, Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads, reads_after
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from logstore.model import EntryKind
from logstore.raft.effects import Admit
from logstore.raft.events import Proposed

_REQUESTS = frozenset((EntryKind.OPEN, EntryKind.EXPIRE, EntryKind.CURSOR))
# While one batch waits: the requests of the turn before it came and of the turn after it, with the
# sessions that expire then, and the groups that were under way.
TAKEN_MAX = 2 * (4 + 4) + 16


class AppendTurns:
    """Checks all leaders."""

    def __init__(self, record: Record) -> None:
        self._findings = record.findings
        self._oldest: dict[int, object] = {}  # by node; the message, kept for its identity
        self._taken: dict[int, int] = {}
        self._closed: set[int] = set()  # to batches: leaders by their newest gen

    @reads(Admit)
    def on_admit(self, replica: Replica, admit: Admit, _step: Stepped) -> None:
        if admit.takes_batches:
            self._closed.discard(replica.node)
        else:
            self._closed.add(replica.node)

    @reads_after(Proposed)
    def on_proposed(self, replica: Replica, event: Proposed, step: Stepped) -> None:
        """An OPEN, EXPIRE or CURSOR got its index at this leader."""
        if event.kind in _REQUESTS and step.effects and replica.node not in self._closed:
            self._taken[replica.node] = self._taken.get(replica.node, 0) + 1

    @reads(BatchUnread)
    def on_unread(self, batch: BatchUnread) -> None:
        """Too many requests were taken while it waited."""
        node, oldest = batch.node, batch.oldest
        if oldest is None or self._oldest.get(node) is not oldest:
            self._oldest[node] = oldest
            self._taken[node] = 0
        taken = self._taken.get(node, 0)
        if taken > TAKEN_MAX:
            text = f"node {node} took {taken} requests while a batch waited to be read"
            self._findings.report(Invariant.I13, text)
