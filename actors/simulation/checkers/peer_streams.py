"""What leaders send to each peer, without a gap (W2, W5), and that they begin anew when a peer was
started anew (W1).

Owns, for each term, how far each peer was sent entries and how far it said to have them. A leader
knows nothing of a peer when its term begins: its first entry for it is its no-op or an older one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from actors.simulation.checkers.consequences import LeaderBegan
from actors.simulation.checkers.facts import EntrySent, Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from logstore.format.peer_messages import AppendAccepted, AppendPersisted, HeartbeatReply
from logstore.raft.effects import Answer, Lead, StopLeading
from logstore.raft.events import ControlReceived, StreamAnswer


@dataclass(slots=True)
class _Term:
    """One leader's term: its no-op, and the highest index that each peer was sent or told of."""

    noop_index: int
    reached: dict[int, int] = field(default_factory=dict)
    boots: dict[int, int] = field(default_factory=dict)


class PeerStreams:
    """All terms that somebody led."""

    def __init__(self, record: Record) -> None:
        self._findings = record.findings
        self._terms: dict[int, _Term] = {}

    @reads(LeaderBegan)
    def on_leader(self, began: LeaderBegan) -> None:
        self._terms.setdefault(began.term, _Term(began.replica.log.last_index))

    @reads(EntrySent)
    def on_sent(self, sent: EntrySent) -> None:
        node, peer, append = sent.node, sent.peer, sent.append
        term, index = append.term, append.header.index
        known = self._terms.get(term)
        if known is None:
            return
        reached = max(known.noop_index - 1, known.reached.get(peer, 0))
        if index > reached + 1:
            text = f"node {node} sends entry {index} of term {term} to node {peer}"
            text = f"{text}, which has not been given those behind {reached}"
            self._findings.report(Invariant.I12, text)
        known.reached[peer] = max(reached, index)

    @reads((Answer, AppendAccepted), (Answer, AppendPersisted))
    def on_told(self, replica: Replica, answer: Answer, _step: Stepped) -> None:
        """A peer says that it has everything up to an index."""
        told, peer = answer.message, replica.node
        known = self._terms.get(told.term)
        if known is not None and isinstance(told, AppendAccepted | AppendPersisted):
            known.reached[peer] = max(known.reached.get(peer, 0), told.index)

    @reads(StreamAnswer, (ControlReceived, HeartbeatReply))
    def on_heard(
        self, replica: Replica, heard: StreamAnswer | ControlReceived, step: Stepped
    ) -> None:
        """A leader hears a peer in its term, and does what follows. Hot."""
        known = self._terms.get(heard.message.term)
        if known is None or not step.leads(heard.message.term):
            return
        peer, boot = heard.sender, heard.boot
        before = known.boots.setdefault(peer, boot)
        if boot <= before:
            return
        known.boots[peer] = boot
        for effect in step.effects:
            if isinstance(effect, StopLeading) or (
                isinstance(effect, Lead) and effect.peer == peer
            ):
                return
        text = f"node {replica.node} hears node {peer} from a new start, boot {boot}"
        text = f"{text}, and goes on with its stream as if nothing were lost"
        self._findings.report(Invariant.I12, text)
