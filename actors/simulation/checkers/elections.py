"""Terms, votes and leaders (I9): terms and votes are durable before they are sent (I10), each start
has a new boot number (I15), and a leader has all that was committed before its term (I1). Who asks
for votes has won a pre-vote, or a leader handed over to it: else it would disturb a live leader
(I13, C1).

Owns which node led which term, and all votes. Must not know logs beyond the shadow logs.
"""

from __future__ import annotations

from actors.simulation.checkers.consequences import LeaderBegan, LogResumed, TermMoved
from actors.simulation.checkers.facts import MetaWritten, Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from logstore.format.peer_messages import (
    PreVoteReply,
    PreVoteRequest,
    VoteReply,
    VoteRequest,
)
from logstore.raft.effects import Answer, SaveMeta, Send
from logstore.raft.events import MetaPersisted

NOBODY = 0


class Elections:
    """Checks every leader and every vote of a run."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._findings = record.findings
        self._durability = record.durability
        # (voter, term) -> candidate, and its uuid where it is known
        self._votes: dict[tuple[tuple[int, int], int], tuple[int, bytes]] = {}
        self._pre_votes: dict[tuple[int, int], set[int]] = {}  # (candidate, term) -> granted by

    @reads(TermMoved)
    def on_term(self, moved: TermMoved) -> None:
        self._follow_term(moved.replica, moved.term)

    def _follow_term(self, replica: Replica, term: int) -> None:
        if term < replica.term:
            text = f"node {replica.node} went from term {replica.term} back to {term}"
            self._findings.report(Invariant.I9, text)
        replica.term = term

    @reads(SaveMeta)
    def on_save(self, replica: Replica, save: SaveMeta, _step: Stepped) -> None:
        """The step that changes term or vote also orders the save."""
        if save.term < replica.term:
            self._follow_term(replica, save.term)
        elif save.term == replica.term and replica.vote not in (NOBODY, save.vote):
            text = f"node {replica.node} changes its vote in term {save.term}"
            self._findings.report(Invariant.I9, f"{text} from {replica.vote} to {save.vote}")
        replica.term, replica.vote = save.term, save.vote
        replica.saves.append((save.seq, save.term))

    @reads(MetaPersisted)
    def on_saved(self, replica: Replica, saved: MetaPersisted, _step: Stepped) -> None:
        """This save, and those before it, are flushed."""
        while replica.saves and replica.saves[0][0] <= saved.seq:
            replica.saved_term = replica.saves.popleft()[1]

    @reads(LeaderBegan)
    def on_leader(self, began: LeaderBegan) -> None:
        """It is the term's only leader, a majority voted for it, and it has all that earlier terms
        have committed."""
        replica, term = began.replica, began.term
        replica.led_term = term
        known = self._record.leaders.setdefault(term, replica)
        if known is not replica:
            text = f"nodes {known.node} and {replica.node} both lead term {term}"
            self._findings.report(Invariant.I9, text)
            return
        votes = self._votes_for(replica, term)
        if not self._record.electorate(replica).is_majority(votes):
            nodes = sorted(each.node for each in votes)
            text = f"node {replica.node} leads term {term}, for which nodes {nodes} have voted"
            self._findings.report(Invariant.I9, text)
        needed = self._record.committed.newest_before_term(term)
        if needed is not None and replica.log.chain_at(needed[0]) != needed[1]:
            text = f"node {replica.node} leads term {term} without the committed entry {needed[0]}"
            self._findings.report(Invariant.I1, text)

    # --- what is sent ---

    @reads(Answer)
    def on_answer(self, replica: Replica, answer: Answer, _step: Stepped) -> None:
        message = answer.message
        if type(message) is VoteReply and message.is_granted:
            self._vote(replica, message.term, answer.peer, answer.uuid)
        if type(message) is not PreVoteReply:
            self._on_term_sent(replica, message.term)
        elif message.is_granted:
            self._pre_votes.setdefault((answer.peer, message.term), set()).add(replica.node)

    @reads(Send)
    def on_send(self, replica: Replica, send: Send, _step: Stepped) -> None:
        """A candidate votes for itself; its request says so."""
        message, node = send.message, replica.node
        if type(message) is VoteRequest:
            if not message.is_transfer:
                self._check_pre_vote(replica, message.term)
            if message.term > replica.promised_term or replica.promised_vote != node:
                self._vote(replica, message.term, node, replica.uuid)
        if type(message) is not PreVoteRequest:
            self._on_term_sent(replica, message.term)

    def _check_pre_vote(self, replica: Replica, term: int) -> None:
        granted = {replica.node, *self._pre_votes.get((replica.node, term), ())}
        if not self._record.electorate(replica).is_majority_of(granted):
            text = f"node {replica.node} asks for votes in term {term}"
            self._findings.report(Invariant.I13, f"{text} without a majority's pre-vote")

    def _on_term_sent(self, replica: Replica, term: int) -> None:
        """Any message promises its term, except those of a pre-vote, which changes no term (C1)."""
        if term > replica.durable_term:
            self._promise(replica, term, NOBODY)

    def _votes_for(self, candidate: Replica, term: int) -> list[Replica]:
        """Who has sent the candidate a vote, and itself, which need not be sent."""
        wanted = (candidate.node, candidate.uuid)
        voters = [
            each
            for each in self._record.all_replicas
            if _is_same(self._votes.get((each.key, term), (NOBODY, b"")), wanted)
        ]
        return voters if candidate in voters else [candidate, *voters]

    def _vote(self, replica: Replica, term: int, candidate: int, uuid: bytes) -> None:
        known = self._votes.setdefault((replica.key, term), (candidate, uuid))
        if not _is_same(known, (candidate, uuid)):
            text = f"node {replica.node} votes for {known[0]} and for {candidate} in term {term}"
            if known[0] == candidate:
                text = f"{text}, which are different replicas"
            self._findings.report(Invariant.I9, text)
        self._promise(replica, term, candidate)

    def _promise(self, replica: Replica, term: int, vote: int) -> None:
        """From now on a crash must not make the replica forget this. A later term on the disk is
        enough: the replica cannot vote in this one any more."""
        if vote != NOBODY or term > replica.durable_term:
            if self._durability is not None:
                durable = self._durability.meta(replica.node)
                replica.durable_term = durable[0]
                is_durable = durable[0] > term or (
                    durable[0] == term and vote in (NOBODY, durable[1])
                )
                if not is_durable and not self._durability.is_excused(replica.node):
                    text = f"node {replica.node} sends term {term} and vote {vote}"
                    self._findings.report(Invariant.I10, f"{text}, its disk has {durable}")
        if term > replica.promised_term:
            replica.promised_term, replica.promised_vote = term, vote
        elif term == replica.promised_term and vote != NOBODY:
            replica.promised_vote = vote

    @reads(MetaWritten)
    def on_meta_written(self, written: MetaWritten) -> None:
        """The copy may be torn, so the other one must be whole and hold what was promised (S8)."""
        port, node, copy = self._durability, written.node, written.copy
        replica = self._record.replicas[node]
        if port is None or port.is_excused(node) or not replica.promised_term:
            return
        other = port.meta_copy(node, 1 - copy)
        if other is None or not _holds(other, replica):
            after = port.meta_copy(node, copy)
            if after is not None and _holds(after, replica):
                return  # this write has ended already, the next write of the other copy has begun
            promised = (replica.promised_term, replica.promised_vote)
            text = f"node {node} writes one copy of META, the other has {other}"
            self._findings.report(Invariant.I9, f"{text}, promised was {promised}")

    # --- after a crash ---

    @reads(LogResumed)
    def on_resumed(self, log: LogResumed) -> None:
        replica = log.replica
        term, vote = log.recovered.term, log.recovered.vote
        promised = (replica.promised_term, replica.promised_vote)
        is_kept = _holds((term, vote), replica)
        is_excused = self._record.is_excused(replica.node)
        if not is_kept and not is_excused:
            text = f"node {replica.node} promised (term, vote) {promised}, recovers {(term, vote)}"
            self._findings.report(Invariant.I9, text)
        if self._durability is not None and not is_excused:
            durable = self._durability.meta(replica.node)
            if durable < (term, NOBODY) or (durable[0] == term and durable[1] != vote):
                text = f"node {replica.node} recovers term {term} and vote {vote}"
                self._findings.report(Invariant.I10, f"{text}, its disk has {durable}")
            self._check_boot(replica, self._durability.boot_of(replica.node))
        replica.term, replica.vote, replica.durable_term = term, vote, term
        replica.saved_term = term

    def _check_boot(self, replica: Replica, boot: int) -> None:
        """By its boot number peers recognise a new start, which has lost the memory of the one
        before (W1)."""
        if boot <= replica.boot:
            text = f"node {replica.node} starts as boot {boot} after boot {replica.boot}"
            self._findings.report(Invariant.I15, text)
        replica.boot = boot


def _is_same(one: tuple[int, bytes], other: tuple[int, bytes]) -> bool:
    """The same replica, as far as it is known; an empty uuid is not."""
    return one[0] == other[0] and (one[1] == other[1] or not (one[1] and other[1]))


def _holds(meta: tuple[int, int], replica: Replica) -> bool:
    """Whether a META with this (term, vote) keeps what was promised."""
    term, vote = meta
    if term != replica.promised_term:
        return term > replica.promised_term
    return replica.promised_vote in (NOBODY, vote)
