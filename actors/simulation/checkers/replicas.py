"""What each replica does, step by step: who reads which event and effect, in which order.

Owns the present incarnations and how far each replica's commit and visible indexes are (I5, I8);
hands everything else to the checker whose it is. Looks only at what a step has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from actors.simulation.checkers.committed_log import CommittedLog
from actors.simulation.checkers.damage import Damage
from actors.simulation.checkers.disk_claims import DiskClaims
from actors.simulation.checkers.elections import Elections
from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.orders import Orders
from actors.simulation.checkers.ports import Core
from actors.simulation.checkers.replica import Replica
from actors.simulation.checkers.ring_ranges import RingRanges
from actors.simulation.checkers.shadow import KnownEntries
from actors.simulation.checkers.term_talk import TermTalk
from actors.simulation.checkers.votes import VoteDelays
from logstore.format.entry import EntryHeader
from logstore.format.peer_messages import (
    AppendAccepted,
    AppendPersisted,
    HeartbeatReply,
    PreVoteReply,
    PreVoteRequest,
    VoteReply,
    VoteRequest,
)
from logstore.model import EntryKind, Role
from logstore.raft.effects import (
    Accepted,
    Admit,
    Answer,
    Committed,
    Effect,
    Persist,
    SaveMeta,
    Send,
    Settle,
    Truncate,
    Visible,
)
from logstore.raft.events import (
    AppendReceived,
    ControlReceived,
    EntryRotted,
    Event,
    MetaPersisted,
    Persisted,
    Proposed,
    Tick,
)
from logstore.raft.log_view import RecoveredLog


class ReplicaSteps:
    """All replicas, by node."""

    __slots__ = (
        "_claims", "_committed", "_damage", "_elections", "_findings", "_handlers", "_known",
        "_orders", "_replicas", "_rings", "_talk", "_votes", "on_expire",
    )  # fmt: skip

    def __init__(
        self,
        findings: Findings,
        known: KnownEntries,
        replicas: Sequence[Replica],
        *,
        committed: CommittedLog,
        elections: Elections,
        claims: DiskClaims,
        damage: Damage,
        rings: RingRanges,
        orders: Orders,
        talk: TermTalk,
        votes: VoteDelays,
    ) -> None:
        self._findings = findings
        self._known = known
        self._replicas = {replica.node: replica for replica in replicas}
        self._committed = committed
        self._elections = elections
        self._claims = claims
        self._damage = damage
        self._rings = rings
        self._orders = orders
        self._talk = talk
        self._votes = votes
        self.on_expire: Callable[[Replica, EntryHeader, int, int], None] = _ignore_expire
        self._handlers: dict[type, Callable[[Replica, Core, Any, int], None]] = {
            Persist: self._on_persist,
            Truncate: self._on_truncate,
            SaveMeta: self._on_save,
            Answer: self._on_answer,
            Send: self._on_send,
            Settle: self._on_settle,
            Admit: self._on_admit,
            Accepted: self._on_accepted,
        }

    def __getitem__(self, node: int) -> Replica:
        return self._replicas[node]

    # --- lives ---

    def started(self, node: int, incarnation: int, at_ns: int) -> None:
        replica = self._replicas[node]
        if incarnation <= replica.incarnation:
            text = f"node {node} starts as incarnation {incarnation} after {replica.incarnation}"
            self._findings.report(Invariant.I15, text, at_ns)
        replica.begin(incarnation)

    def recovered(self, node: int, recovered: RecoveredLog, at_ns: int) -> None:
        replica = self._replicas[node]
        if replica.is_lost:
            text = f"node {node} takes part again in place, and has lost its disk with its votes"
            self._findings.report(Invariant.I9, text, at_ns)
            return
        self._committed.begin(recovered.start.index, recovered.start.next_lsn)
        stranger = replica.log.recover(recovered, self._known)
        if stranger is not None:
            text = f"node {node} recovers an entry {stranger} that nobody ever wrote"
            self._findings.report(Invariant.I11, text, at_ns)
            return
        self._claims.on_recovered(replica, recovered, at_ns)
        self._damage.on_recovered(replica, at_ns)
        self._elections.on_recovered(replica, recovered, at_ns)
        replica.commit = replica.log.start.index
        floor = max(min(recovered.commit_floor, replica.log.last_index), replica.commit)
        self._advance(replica, floor, leader_term=0, at_ns=at_ns)

    def converged(self, at_ns: int) -> None:
        """Nothing is under way but at replicas whose media rotted: they were not waited for."""
        for replica in self._replicas.values():
            if not self._claims.is_excused(replica):
                self._rings.on_converged(replica, at_ns)

    # --- steps ---

    def stepped(
        self,
        node: int,
        incarnation: int,
        core: Core,
        event: Event,
        effects: Sequence[Effect],
        at_ns: int,
    ) -> None:
        """One step of a core. Hot: 1,500 times a simulated second."""
        replica = self._replicas[node]
        if incarnation != replica.incarnation or not replica.is_running:
            text = f"incarnation {incarnation} of node {node} lives on after its end"
            self._findings.report(Invariant.I15, text, at_ns)
            return
        kind: type = type(event)
        if kind is Tick and not effects and not replica.orphans and _is_still(replica, core):
            self._talk.stepped(replica, core, event, effects, at_ns)
            return
        if kind is Persisted:
            self._claims.on_persisted(replica, event.seq, at_ns)  # type: ignore[union-attr]
        elif kind is Proposed or kind is AppendReceived:
            self._rings.on_range(replica, event, at_ns)  # type: ignore[arg-type]
        elif kind is MetaPersisted:
            self._votes.on_saved(replica, at_ns)
            self._elections.on_saved(replica, event.seq)  # type: ignore[union-attr]
        elif kind is EntryRotted:
            self._claims.on_rotted(replica, event.index)  # type: ignore[union-attr]
            self._damage.on_rotted(replica, event.index, at_ns)  # type: ignore[union-attr]
        is_shown = False
        committed_term = 0
        if effects:
            handlers = self._handlers
            for effect in effects:
                kind = type(effect)
                handler = handlers.get(kind)
                if handler is not None:
                    handler(replica, core, effect, at_ns)
                elif kind is Visible:
                    is_shown = True
                elif kind is Committed:
                    committed_term = effect.term  # type: ignore[union-attr]
                if kind is Answer and type(event) is ControlReceived:
                    self._look_at_beat(replica, effect, at_ns)  # type: ignore[arg-type]
        term = core.term
        if term != replica.term:
            self._elections.on_term(replica, term, at_ns)
        is_leader = core.role is Role.LEADER
        if is_leader and term != replica.led_term:
            self._elections.on_leader(replica, term, at_ns)
            self._talk.on_leader(replica, term)
        if core.commit != replica.commit:
            leader_term = term if is_leader else committed_term
            self._advance(replica, core.commit, leader_term=leader_term, at_ns=at_ns)
        if is_shown or committed_term:
            self._look_at_shown(replica, effects, at_ns)
        if replica.orphans:
            self._orders.on_step(replica, core, event, effects, at_ns)
        if type(event) is Proposed and event.kind == EntryKind.EXPIRE:
            self._look_at_expiry(replica, effects, at_ns)
        if replica.ranges and (type(event) is Proposed or type(event) is AppendReceived):
            self._rings.on_brought(replica, event, at_ns)
        self._talk.stepped(replica, core, event, effects, at_ns)

    def _look_at_expiry(self, replica: Replica, effects: Sequence[Effect], at_ns: int) -> None:
        for effect in effects:
            if type(effect) is Persist:
                self.on_expire(replica, effect.header, effect.chain, at_ns)

    # --- effects, in the order of the step ---

    def _on_persist(self, replica: Replica, _core: Core, effect: Persist, at_ns: int) -> None:
        header, log = effect.header, replica.log
        before = log.last_index
        if header.index != before + 1 or header.prev_chain != log.chain_at(before):
            text = f"node {replica.node} writes {header} after entry {before}"
            self._findings.report(Invariant.I3, text, at_ns)
            return
        previous = self._known.headers.get(header.prev_chain)
        next_lsn = log.start.next_lsn if previous is None else previous.next_lsn
        if header.first_lsn != next_lsn:
            text = f"node {replica.node} gives entry {header.index} LSN {header.first_lsn}"
            self._findings.report(Invariant.I2, f"{text}, {next_lsn} is next", at_ns)
        self._known.add(header, effect.chain, at_ns)
        log.chains.append(effect.chain)
        self._claims.on_persist(replica, effect)
        self._rings.on_persist(replica, effect, at_ns)

    def _on_truncate(self, replica: Replica, _core: Core, effect: Truncate, at_ns: int) -> None:
        first = effect.first_index
        if first <= replica.commit:
            text = f"node {replica.node} truncates at {first}, and knows {replica.commit} committed"
            self._findings.report(Invariant.I3, text, at_ns)
        chain = self._committed.chain_at(first)
        if chain is not None and replica.log.chain_at(first) == chain:
            text = f"node {replica.node} truncates the committed entry {first}"
            self._findings.report(Invariant.I1, text, at_ns)
        self._claims.on_truncate(replica, effect)
        replica.log.truncate(first)

    def _on_save(self, replica: Replica, _core: Core, effect: SaveMeta, at_ns: int) -> None:
        self._votes.on_save(replica, at_ns)
        self._elections.on_save(replica, effect, at_ns)

    def _on_answer(self, replica: Replica, core: Core, effect: Answer, at_ns: int) -> None:
        message = effect.message
        kind: type = type(message)
        if kind is PreVoteReply:
            return
        if kind is AppendPersisted:
            self._claims.on_match_told(replica, message.index, core.commit, at_ns)  # type: ignore[union-attr]
        elif kind is VoteReply:
            self._elections.on_vote_told(replica, effect.peer, message, at_ns)  # type: ignore[arg-type]
        self._elections.on_term_told(replica, message.term, at_ns)
        if kind is AppendPersisted or kind is AppendAccepted:
            self._check_same(replica, message, at_ns)  # type: ignore[arg-type]

    def _look_at_beat(self, replica: Replica, answer: Answer, at_ns: int) -> None:
        """An answer that had to wait for META tells of the damage that was known before."""
        if type(answer.message) is HeartbeatReply:
            self._damage.on_beat_answered(replica, answer.message, at_ns)

    def _check_same(
        self, replica: Replica, told: AppendPersisted | AppendAccepted, at_ns: int
    ) -> None:
        """What a follower says it has is what the leader of that term has (V2, W1)."""
        leader = self._replicas.get(self._elections.leader_of(told.term))
        if leader is None or leader.led_term != told.term or not leader.is_running:
            return
        chain = leader.log.chain_at(told.index)
        if told.index > leader.log.start.index and replica.log.chain_at(told.index) != chain:
            text = f"node {replica.node} says {told}, and has another entry there than its leader"
            self._findings.report(Invariant.I12, text, at_ns)

    def _on_send(self, replica: Replica, _core: Core, effect: Send, at_ns: int) -> None:
        message = effect.message
        if type(message) is VoteRequest:
            self._elections.on_vote_asked(replica, message, at_ns)
        if type(message) is not PreVoteRequest:
            self._elections.on_term_told(replica, message.term, at_ns)

    def _on_settle(self, replica: Replica, _core: Core, effect: Settle, at_ns: int) -> None:
        self._rings.on_settle(replica, effect, at_ns)

    def _on_admit(self, replica: Replica, _core: Core, effect: Admit, at_ns: int) -> None:
        if effect.gen <= replica.gen:
            text = f"node {replica.node} opens gen {effect.gen} after gen {replica.gen}"
            self._findings.report(Invariant.I17, text, at_ns)
        replica.gen = effect.gen
        index = effect.last_index
        replica.admits[effect.gen] = (index, replica.log.chain_at(index) or 0)

    def _on_accepted(self, replica: Replica, _core: Core, effect: Accepted, at_ns: int) -> None:
        chain = replica.log.chain_at(effect.index)
        header = None if chain is None else self._known.headers.get(chain)
        if header is None or (header.term, header.first_lsn) != (effect.term, effect.first_lsn):
            text = f"node {replica.node} tells {effect} of {header}"
            self._findings.report(Invariant.I2, text, at_ns)

    # --- commit and what is shown ---

    def _advance(self, replica: Replica, commit: int, *, leader_term: int, at_ns: int) -> None:
        """The replica's commit index moved."""
        if commit < replica.commit:
            text = f"node {replica.node} takes its commit index back to {commit}"
            self._findings.report(Invariant.I5, f"{text} from {replica.commit}", at_ns)
        if leader_term and commit > self._committed.last_index:
            self._check_term(replica, commit, leader_term, at_ns)
        for index in range(replica.commit + 1, commit + 1):
            chain = replica.log.chain_at(index)
            if chain is None:
                text = f"node {replica.node} calls entry {index} committed, which it does not have"
                self._findings.report(Invariant.I3, text, at_ns)
                return
            self._committed.commit(replica.node, index, chain, leader_term=leader_term, at_ns=at_ns)
        replica.commit = commit

    def _check_term(self, replica: Replica, index: int, leader_term: int, at_ns: int) -> None:
        """V1: counting commits entries of the leader's own term only, others with them."""
        chain = replica.log.chain_at(index)
        header = None if chain is None else self._known.headers.get(chain)
        if header is not None and header.term != leader_term:
            text = f"node {replica.node} commits entry {index} of term {header.term} by counting"
            self._findings.report(Invariant.I1, f"{text} in term {leader_term}", at_ns)

    def _look_at_shown(self, replica: Replica, effects: Sequence[Effect], at_ns: int) -> None:
        for effect in effects:
            kind = type(effect)
            if kind is Visible:
                self._on_visible(replica, effect, at_ns)  # type: ignore[arg-type]
            elif kind is Committed:
                self._on_committed(replica, effect, at_ns)  # type: ignore[arg-type]

    def _on_visible(self, replica: Replica, effect: Visible, at_ns: int) -> None:
        report, node = self._findings.report, replica.node
        index, lsn = effect.index, effect.lsn
        if index <= replica.visible_index or lsn < replica.visible_lsn:
            text = f"node {node} shows {effect} after index {replica.visible_index}"
            report(Invariant.I5, f"{text}, LSN {replica.visible_lsn}", at_ns)
        replica.visible_index, replica.visible_lsn = index, lsn
        if index > min(replica.commit, self._committed.last_index):
            report(Invariant.I8, f"node {node} shows entry {index}: it is not committed", at_ns)
        elif lsn != self._committed.end_lsn_at(index):
            report(Invariant.I8, f"node {node} shows LSN {lsn} at entry {index}", at_ns)
        elif index > max(replica.claim_index, replica.log.start.index):
            report(Invariant.I8, f"node {node} shows entry {index}: it is not flushed", at_ns)

    def _on_committed(self, replica: Replica, effect: Committed, at_ns: int) -> None:
        """Ingress acknowledges on this word (E4)."""
        if effect.index > min(replica.commit, self._committed.last_index):
            text = f"node {replica.node} lets entry {effect.index} be acknowledged, uncommitted"
            self._findings.report(Invariant.I10, text, at_ns)


def _is_still(replica: Replica, core: Core) -> bool:
    """Nothing that is read of a core after its step has moved."""
    if core.term != replica.term or core.commit != replica.commit:
        return False
    return core.role is not Role.LEADER or replica.term == replica.led_term


def _ignore_expire(_replica: Replica, _header: EntryHeader, _chain: int, _at_ns: int) -> None:
    """Nobody listens to sessions that end yet."""
