"""Terms, votes and leaders (I9), what of them must be durable before it is told (I10), that starts
are told apart (I15), and that a leader has all that was committed before its term (I1).

Owns who led which term and who voted for whom. Must not know logs beyond the shadow of one.
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
    """Every leader and every vote of a run."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._findings = record.findings
        self._durability = record.durability
        self._votes: dict[tuple[int, int], int] = {}  # (node, term) -> whom

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
        """Every change of term or vote is ordered saved in the step that makes it."""
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
        """Alone, by the votes of a majority, and with all that earlier terms have committed."""
        replica, term = began.replica, began.term
        replica.led_term = term
        known = self._record.leaders.setdefault(term, replica.node)
        if known != replica.node:
            text = f"nodes {known} and {replica.node} both lead term {term}"
            self._findings.report(Invariant.I9, text)
            return
        votes = self._votes_for(replica.node, term)
        if votes < self._record.majority:
            text = f"node {replica.node} leads term {term}, for which {votes} have voted"
            self._findings.report(Invariant.I9, text)
        needed = self._record.committed.newest_before_term(term)
        if needed is not None and replica.log.chain_at(needed[0]) != needed[1]:
            text = f"node {replica.node} leads term {term} without the committed entry {needed[0]}"
            self._findings.report(Invariant.I1, text)

    # --- what is told ---

    @reads(Answer)
    def on_answer(self, replica: Replica, answer: Answer, _step: Stepped) -> None:
        message = answer.message
        if type(message) is VoteReply and message.is_granted:
            self._vote(replica, message.term, answer.peer)
        if type(message) is not PreVoteReply:
            self._on_term_sent(replica, message.term)

    @reads(Send)
    def on_send(self, replica: Replica, send: Send, _step: Stepped) -> None:
        """A candidate votes for itself, and tells so by asking."""
        message, node = send.message, replica.node
        if type(message) is VoteRequest:
            if message.term > replica.promised_term or replica.promised_vote != node:
                self._vote(replica, message.term, node)
        if type(message) is not PreVoteRequest:
            self._on_term_sent(replica, message.term)

    def _on_term_sent(self, replica: Replica, term: int) -> None:
        """By any message but those of a pre-vote, which moves no term (C1)."""
        if term > replica.durable_term:
            self._promise(replica, term, NOBODY)

    def _votes_for(self, candidate: int, term: int) -> int:
        """How many have told it so by now, itself included: it need not tell itself."""
        others = [
            node for (node, of), whom in self._votes.items() if (of, whom) == (term, candidate)
        ]
        return len({candidate, *others})

    def _vote(self, replica: Replica, term: int, whom: int) -> None:
        known = self._votes.setdefault((replica.node, term), whom)
        if known != whom:
            text = f"node {replica.node} votes for {known} and for {whom} in term {term}"
            self._findings.report(Invariant.I9, text)
        self._promise(replica, term, whom)

    def _promise(self, replica: Replica, term: int, vote: int) -> None:
        """From now on a crash must not make the replica forget this. A later term on the disk is
        as good: there is no vote in this one any more."""
        if vote != NOBODY or term > replica.durable_term:
            if self._durability is not None:
                durable = self._durability.meta(replica.node)
                replica.durable_term = durable[0]
                is_durable = durable[0] > term or (
                    durable[0] == term and vote in (NOBODY, durable[1])
                )
                if not is_durable and not self._durability.is_excused(replica.node):
                    text = f"node {replica.node} tells of term {term} and vote {vote}"
                    self._findings.report(Invariant.I10, f"{text}, its disk has {durable}")
        if term > replica.promised_term:
            replica.promised_term, replica.promised_vote = term, vote
        elif term == replica.promised_term and vote != NOBODY:
            replica.promised_vote = vote

    @reads(MetaWritten)
    def on_meta_written(self, written: MetaWritten) -> None:
        """The copy may be torn: the other one stands and holds what was told (S8)."""
        port, node, copy = self._durability, written.node, written.copy
        replica = self._record.replicas[node]
        if port is None or port.is_excused(node) or not replica.promised_term:
            return
        other = port.meta_copy(node, 1 - copy)
        if other is None or not _holds(other, replica):
            after = port.meta_copy(node, copy)
            if after is not None and _holds(after, replica):
                return  # this write has ended already, and the next one of the other is under way
            promised = (replica.promised_term, replica.promised_vote)
            text = f"node {node} writes one copy of META, the other has {other}"
            self._findings.report(Invariant.I9, f"{text}, told was {promised}")

    # --- after a crash ---

    @reads(LogResumed)
    def on_resumed(self, log: LogResumed) -> None:
        replica = log.replica
        term, vote = log.recovered.term, log.recovered.vote
        promised = (replica.promised_term, replica.promised_vote)
        is_kept = _holds((term, vote), replica)
        is_excused = self._record.is_excused(replica.node)
        if not is_kept and not is_excused:
            text = f"node {replica.node} told of (term, vote) {promised}, recovers {(term, vote)}"
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
        """Peers tell two starts apart by it, whatever the first one lost with its memory (W1)."""
        if boot <= replica.boot:
            text = f"node {replica.node} starts as boot {boot} after boot {replica.boot}"
            self._findings.report(Invariant.I15, text)
        replica.boot = boot


def _holds(meta: tuple[int, int], replica: Replica) -> bool:
    """Whether a META with this (term, vote) keeps what was told."""
    term, vote = meta
    if term != replica.promised_term:
        return term > replica.promised_term
    return replica.promised_vote in (NOBODY, vote)
