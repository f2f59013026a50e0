"""What leaders and followers say to each other within a term: which rule reads which message.

Owns nothing but the rules beside it: `verified`, `read_rounds`, `peer_streams`, `handovers`,
`contacts`, `stalls`. Each is told of a step's event first, then of its effects in their order.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.simulation.checkers.committed_log import CommittedLog
from actors.simulation.checkers.contacts import Contacts
from actors.simulation.checkers.handovers import Handovers
from actors.simulation.checkers.invariant import Findings
from actors.simulation.checkers.peer_streams import PeerStreams
from actors.simulation.checkers.ports import Core
from actors.simulation.checkers.read_rounds import ReadRounds
from actors.simulation.checkers.replica import NEVER_NS, Replica
from actors.simulation.checkers.stalls import Stalls
from actors.simulation.checkers.verified import Verified
from logstore.format.peer_messages import (
    NO_ROUND,
    Append,
    AppendAccepted,
    AppendPersisted,
    Heartbeat,
    HeartbeatReply,
    PreVoteRequest,
    VoteRequest,
)
from logstore.model import Role
from logstore.raft.effects import (
    AdmissionClosed,
    Admit,
    Answer,
    Effect,
    ReadIndexAnswered,
    SaveMeta,
    Send,
    StopLeading,
)
from logstore.raft.events import (
    AppendReceived,
    ControlReceived,
    DiskFullChanged,
    Event,
    ReadIndexRequested,
    StreamAnswer,
    Tick,
)

_HANDED_OVER = frozenset((AdmissionClosed, Admit, StopLeading))


class TermTalk:
    """All replicas'. `election_timeout_ns`: their patience."""

    __slots__ = (
        "_committed", "_contacts", "_handovers", "_reads", "_stalls", "_streams", "_verified",
    )  # fmt: skip

    def __init__(
        self,
        findings: Findings,
        committed: CommittedLog,
        *,
        voters: int,
        election_timeout_ns: int,
    ) -> None:
        self._committed = committed
        self._verified = Verified(findings)
        self._reads = ReadRounds(findings, voters=voters)
        self._streams = PeerStreams(findings)
        self._handovers = Handovers(findings, election_timeout_ns=election_timeout_ns)
        majority = voters // 2 + 1
        self._stalls = Stalls(findings, majority=majority, election_timeout_ns=election_timeout_ns)
        self._contacts = Contacts(
            findings, majority=majority, election_timeout_ns=election_timeout_ns
        )

    def on_leader(self, replica: Replica, term: int) -> None:
        """The replica leads `term` from now on; its last entry is the term's no-op."""
        self._streams.on_leader(term, replica.log.last_index)
        self._contacts.on_leader(replica, term)
        self._stalls.on_leader(replica)

    def sent(self, node: int, peer: int, append: Append, at_ns: int) -> None:
        """A replicator of `node` handed an entry for `peer` to the network."""
        self._streams.on_sent(node, peer, append.term, append.header.index, at_ns)

    def read(self, node: int, invoked_ns: int, returned_ns: int) -> None:
        """A client's linearizable read was answered by `node`."""
        self._reads.on_read(node, invoked_ns, returned_ns)

    def told(self, node: int, invoked_ns: int, returned_ns: int) -> None:
        """A client was told by `node` how cursors stand, or what a session has committed."""
        self._reads.on_told(node, invoked_ns, returned_ns)

    def stepped(
        self,
        replica: Replica,
        core: Core,
        event: Event,
        effects: Sequence[Effect],
        at_ns: int,
    ) -> None:
        """One step, the replica's shadow is beyond it. Hot: half of all are a Tick that gives
        nothing."""
        kind: type = type(event)
        if kind is Tick:
            replica.clock_ns = now_ns = event.now_ns  # type: ignore[union-attr]
            if now_ns > replica.lonely_ns:
                self._contacts.on_ticked(replica, core, at_ns)
            if now_ns > replica.stall_look_ns:
                self._stalls.on_look(replica, core, at_ns)
            if not effects and replica.handover_ns == NEVER_NS:
                return
        elif kind is ControlReceived:
            self._on_control(replica, core, event, effects, at_ns)  # type: ignore[arg-type]
        elif kind is AppendReceived:
            append = event.append  # type: ignore[union-attr]
            if append.term == core.term:
                self._verified.on_shown(replica, append.term, append.header.index)
                replica.heeded_term, replica.heeded_ns = append.term, replica.clock_ns
        elif kind is StreamAnswer:
            if event.message.term == core.term and core.role is Role.LEADER:  # type: ignore[union-attr]
                is_full = event.sender in replica.full_peers  # type: ignore[union-attr]
                self._stalls.on_heard(replica, event.sender, is_full=is_full)  # type: ignore[union-attr]
                replica.heard_ns[event.sender] = replica.clock_ns  # type: ignore[union-attr]
                if isinstance(event.message, AppendPersisted):  # type: ignore[union-attr]
                    match = event.message.index  # type: ignore[union-attr]
                    self._stalls.on_moved(replica, event.sender, (0, match))  # type: ignore[union-attr]
                self._streams.on_heard(replica, core.term, event, effects, at_ns)  # type: ignore[arg-type]
        elif kind is ReadIndexRequested:
            if core.role is Role.LEADER:
                committed_lsn = self._committed.next_lsn - 1
                self._reads.on_asked(replica, core.term, event.request_id, committed_lsn, at_ns)  # type: ignore[union-attr]
        elif kind is DiskFullChanged:
            replica.is_full = event.is_full  # type: ignore[union-attr]
        beats: dict[tuple[int, int], list[int]] = {}  # (term, round) -> peers
        for effect in effects:
            kind = type(effect)
            if kind is Answer:
                self._on_answer(replica, core, effect, at_ns)  # type: ignore[arg-type]
            elif kind is Send:
                message = effect.message  # type: ignore[union-attr]
                if isinstance(message, Heartbeat) and message.round != NO_ROUND:
                    beat = message.term, message.round
                    beats.setdefault(beat, []).append(effect.peer)  # type: ignore[union-attr]
            elif kind is ReadIndexAnswered:
                self._reads.on_answered(replica, core.term, effect, at_ns)  # type: ignore[arg-type]
            elif kind in _HANDED_OVER:
                self._handovers.on_effect(replica, effect)
                if kind is StopLeading:
                    if type(event) is Tick:
                        self._stalls.on_ticked_out(replica, at_ns)
                    self._contacts.on_end(replica)
                    self._stalls.on_end(replica)
            elif kind is SaveMeta:
                if effect.term > replica.heeded_term:  # type: ignore[union-attr]
                    replica.heeded_term = 0
        for (term, round_), peers in beats.items():
            self._reads.on_begun(replica, term, round_, peers, at_ns)
        if type(event) is Tick and replica.handover_ns != NEVER_NS:
            self._handovers.on_ticked(replica, core, at_ns)

    def _on_control(
        self,
        replica: Replica,
        core: Core,
        event: ControlReceived,
        effects: Sequence[Effect],
        at_ns: int,
    ) -> None:
        message, term = event.message, core.term
        if isinstance(message, VoteRequest | PreVoteRequest):
            self._contacts.on_asked(replica, core, message, effects, at_ns)
            return
        if message.term != term:
            return
        if isinstance(message, Heartbeat):
            replica.heeded_term, replica.heeded_ns = term, replica.clock_ns
            self._verified.on_shown(replica, term, message.prev_index)
        elif isinstance(message, HeartbeatReply) and core.role is Role.LEADER:
            self._stalls.on_heard(replica, event.sender, is_full=message.is_disk_full)
            replica.heard_ns[event.sender] = replica.clock_ns
            self._stalls.on_moved(replica, event.sender, (1, message.last_index))
            self._reads.on_replied(replica, term, event.sender, message.round)
            self._streams.on_heard(replica, term, event, effects, at_ns)

    def _on_answer(self, replica: Replica, core: Core, effect: Answer, at_ns: int) -> None:
        message = effect.message
        if isinstance(message, AppendPersisted | AppendAccepted):
            self._verified.on_told(replica, core, message, at_ns)
            self._streams.on_told(replica.node, message.term, message.index)
