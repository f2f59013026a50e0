"""Leaders send entries to each peer without a gap (W2, W5), and begin a new stream when a peer has
restarted (W1).

Owns, for each term, the last entry that was sent to each peer and the last one that it reported to
have. A leader knows nothing of a peer when its term begins: the first entry it sends is its no-op
or an older one, or, where that is gone, the first one after its log start (G5).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from actors.simulation.checkers.consequences import LeaderBegan
from actors.simulation.checkers.facts import EntrySent, Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads, reads_after
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from logstore.format.configuration_body import NO_UUID
from logstore.format.peer_messages import AppendAccepted, AppendPersisted, HeartbeatReply
from logstore.model import NO_NODE
from logstore.raft.effects import Answer, Lead, MembersChanged, StopLeading
from logstore.raft.events import ControlReceived, StreamAnswer

LET_GO = 1 << 62  # above every boot number


@dataclass(slots=True)
class _Term:
    """One leader's term: its no-op; by peer, the highest index that was sent to it or that it
    reported, and its boot number."""

    noop_index: int
    reached: dict[int, int] = field(default_factory=dict)
    boots: dict[int, int] = field(default_factory=dict)
    config_index: int = 0  # of the newest CONFIG that its leader has
    uuids: dict[int, bytes] = field(default_factory=dict)  # of the members


class PeerStreams:
    """Checks the streams of all terms that had a leader."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._findings = record.findings
        self._terms: dict[int, _Term] = {}

    @reads(LeaderBegan)
    def on_leader(self, began: LeaderBegan) -> None:
        known = self._terms.setdefault(began.term, _Term(began.replica.log.last_index))
        known.uuids = self._record.electorate(began.replica).uuids

    @reads_after(MembersChanged)
    def on_members(self, replica: Replica, changed: MembersChanged, step: Stepped) -> None:
        """The stream to a new member begins at the CONFIG that has it."""
        known = self._terms.get(step.core.term)
        if known is None or not step.leads(step.core.term) or changed.index <= known.config_index:
            return
        known.config_index = changed.index
        uuids = self._record.electorate(replica).uuids
        for peer, uuid in uuids.items():
            if known.uuids.get(peer) not in (uuid, NO_UUID):
                known.reached[peer] = max(known.noop_index, changed.index - 1)
                known.boots.pop(peer, None)
        known.uuids = uuids

    @reads(EntrySent)
    def on_sent(self, sent: EntrySent) -> None:
        node, peer, append = sent.node, sent.peer, sent.append
        term, index = append.term, append.header.index
        known = self._terms.get(term)
        if known is None:
            return
        start = self._record.replicas[node].start.index
        reached = max(known.noop_index - 1, known.reached.get(peer, 0), start)
        if index > reached + 1:
            text = f"node {node} sends entry {index} of term {term} to node {peer}"
            text = f"{text}, which was not sent those after {reached}"
            self._findings.report(Invariant.I12, text)
        known.reached[peer] = max(reached, index)

    @reads((Answer, AppendAccepted), (Answer, AppendPersisted))
    def on_answer(self, replica: Replica, answer: Answer, _step: Stepped) -> None:
        """A peer reports that it has every entry up to an index."""
        report, peer = answer.message, replica.node
        known = self._terms.get(report.term)
        if known is not None and isinstance(report, AppendAccepted | AppendPersisted):
            known.reached[peer] = max(known.reached.get(peer, 0), report.index)

    @reads(StopLeading)
    def on_stop(self, _replica: Replica, stop: StopLeading, _step: Stepped) -> None:
        """A peer that has left gets nothing more, whatever it still answers."""
        known = self._terms.get(stop.term)
        if known is not None and stop.peer != NO_NODE:
            known.boots[stop.peer] = LET_GO

    @reads(StreamAnswer, (ControlReceived, HeartbeatReply))
    def on_heard(
        self, replica: Replica, heard: StreamAnswer | ControlReceived, step: Stepped
    ) -> None:
        """A leader hears a peer in its term; after a restart of the peer it must begin a new
        stream. Hot."""
        known = self._terms.get(heard.message.term)
        if known is None or not step.leads(heard.message.term):
            return
        peer, boot = heard.sender, heard.boot
        before = known.boots.setdefault(peer, boot)
        if boot <= before:
            return
        known.boots[peer] = boot
        for effect in step.effects:
            if isinstance(effect, StopLeading) and effect.peer in (NO_NODE, peer):
                return
            if isinstance(effect, Lead) and effect.peer == peer:
                return
        text = f"node {replica.node} hears node {peer} from a new start, boot {boot}"
        text = f"{text}, and goes on with its stream as if nothing were lost"
        self._findings.report(Invariant.I12, text)
