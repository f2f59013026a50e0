"""Terms, votes and leaders (I9), what of them must be durable before it is told (I10), that starts
are told apart (I15), and that a leader has all that was committed before its term (I1).

Owns who led which term and who voted for whom. Must not know logs beyond the shadow of one.
"""

from __future__ import annotations

from actors.simulation.checkers.committed_log import CommittedLog
from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.ports import Durability
from actors.simulation.checkers.replica import Replica
from logstore.format.peer_messages import VoteReply, VoteRequest
from logstore.raft.effects import SaveMeta
from logstore.raft.log_view import RecoveredLog

NOBODY = 0


class Elections:
    """Every leader and every vote of a run."""

    __slots__ = ("_committed", "_durability", "_findings", "_leaders", "_majority", "_votes")

    def __init__(
        self,
        findings: Findings,
        committed: CommittedLog,
        durability: Durability | None,
        *,
        majority: int,
    ) -> None:
        self._findings = findings
        self._majority = majority
        self._committed = committed
        self._durability = durability
        self._leaders: dict[int, int] = {}  # by term
        self._votes: dict[tuple[int, int], int] = {}  # (node, term) -> whom

    def on_term(self, replica: Replica, term: int, at_ns: int) -> None:
        """The term of a core after a step, when it differs from the one before."""
        if term < replica.term:
            text = f"node {replica.node} went from term {replica.term} back to {term}"
            self._findings.report(Invariant.I9, text, at_ns)
        replica.term = term

    def on_save(self, replica: Replica, save: SaveMeta, at_ns: int) -> None:
        """Every change of term or vote is ordered saved in the step that makes it."""
        if save.term < replica.term:
            self.on_term(replica, save.term, at_ns)
        elif save.term == replica.term and replica.vote not in (NOBODY, save.vote):
            text = f"node {replica.node} changes its vote in term {save.term}"
            self._findings.report(Invariant.I9, f"{text} from {replica.vote} to {save.vote}", at_ns)
        replica.term, replica.vote = save.term, save.vote
        replica.saves.append((save.seq, save.term))

    def on_saved(self, replica: Replica, seq: int) -> None:
        """The writer's word that this save, and those before it, are flushed."""
        while replica.saves and replica.saves[0][0] <= seq:
            replica.saved_term = replica.saves.popleft()[1]

    def on_leader(self, replica: Replica, term: int, at_ns: int) -> None:
        """The replica leads `term`: alone, by the votes of a majority, and with all that earlier
        terms have committed."""
        replica.led_term = term
        known = self._leaders.setdefault(term, replica.node)
        if known != replica.node:
            text = f"nodes {known} and {replica.node} both lead term {term}"
            self._findings.report(Invariant.I9, text, at_ns)
            return
        votes = self._votes_for(replica.node, term)
        if votes < self._majority:
            text = f"node {replica.node} leads term {term}, for which {votes} have voted"
            self._findings.report(Invariant.I9, text, at_ns)
        needed = self._committed.newest_before_term(term)
        if needed is not None and replica.log.chain_at(needed[0]) != needed[1]:
            text = f"node {replica.node} leads term {term} without the committed entry {needed[0]}"
            self._findings.report(Invariant.I1, text, at_ns)

    # --- what is told ---

    def on_vote_told(self, replica: Replica, peer: int, reply: VoteReply, at_ns: int) -> None:
        if reply.is_granted:
            self._vote(replica, reply.term, peer, at_ns)

    def on_vote_asked(self, replica: Replica, request: VoteRequest, at_ns: int) -> None:
        """A candidate votes for itself, and tells so by asking."""
        if request.term > replica.promised_term or replica.promised_vote != replica.node:
            self._vote(replica, request.term, replica.node, at_ns)

    def on_term_told(self, replica: Replica, term: int, at_ns: int) -> None:
        """Any message but those of a pre-vote, which moves no term (C1)."""
        if term > replica.durable_term:
            self._promise(replica, term, NOBODY, at_ns)

    def leader_of(self, term: int) -> int:
        """The node that leads or led `term`; 0: nobody, as far as is known."""
        return self._leaders.get(term, NOBODY)

    def _votes_for(self, candidate: int, term: int) -> int:
        """How many have told it so by now, itself included: it need not tell itself."""
        others = [
            node for (node, of), whom in self._votes.items() if (of, whom) == (term, candidate)
        ]
        return len({candidate, *others})

    def _vote(self, replica: Replica, term: int, whom: int, at_ns: int) -> None:
        known = self._votes.setdefault((replica.node, term), whom)
        if known != whom:
            text = f"node {replica.node} votes for {known} and for {whom} in term {term}"
            self._findings.report(Invariant.I9, text, at_ns)
        self._promise(replica, term, whom, at_ns)

    def _promise(self, replica: Replica, term: int, vote: int, at_ns: int) -> None:
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
                    self._findings.report(Invariant.I10, f"{text}, its disk has {durable}", at_ns)
        if term > replica.promised_term:
            replica.promised_term, replica.promised_vote = term, vote
        elif term == replica.promised_term and vote != NOBODY:
            replica.promised_vote = vote

    def on_meta_written(self, replica: Replica, copy: int, at_ns: int) -> None:
        """One copy of META is being written, and may be torn: the other one stands and holds what
        was told (S8)."""
        port, node = self._durability, replica.node
        if port is None or port.is_excused(node) or not replica.promised_term:
            return
        other = port.meta_copy(node, 1 - copy)
        if other is None or not _holds(other, replica):
            written = port.meta_copy(node, copy)
            if written is not None and _holds(written, replica):
                return  # this write has ended already, and the next one of the other is under way
            promised = (replica.promised_term, replica.promised_vote)
            text = f"node {node} writes one copy of META, the other has {other}"
            self._findings.report(Invariant.I9, f"{text}, told was {promised}", at_ns)

    # --- after a crash ---

    def on_recovered(self, replica: Replica, recovered: RecoveredLog, at_ns: int) -> None:
        term, vote = recovered.term, recovered.vote
        promised = (replica.promised_term, replica.promised_vote)
        is_kept = _holds((term, vote), replica)
        is_excused = self._durability is not None and self._durability.is_excused(replica.node)
        if not is_kept and not is_excused:
            text = f"node {replica.node} told of (term, vote) {promised}, recovers {(term, vote)}"
            self._findings.report(Invariant.I9, text, at_ns)
        if self._durability is not None and not is_excused:
            durable = self._durability.meta(replica.node)
            if durable < (term, NOBODY) or (durable[0] == term and durable[1] != vote):
                text = f"node {replica.node} recovers term {term} and vote {vote}"
                self._findings.report(Invariant.I10, f"{text}, its disk has {durable}", at_ns)
            self._check_boot(replica, self._durability.boot_of(replica.node), at_ns)
        replica.term, replica.vote, replica.durable_term = term, vote, term
        replica.saved_term = term

    def _check_boot(self, replica: Replica, boot: int, at_ns: int) -> None:
        """Peers tell two starts apart by it, whatever the first one lost with its memory (W1)."""
        if boot <= replica.boot:
            text = f"node {replica.node} starts as boot {boot} after boot {replica.boot}"
            self._findings.report(Invariant.I15, text, at_ns)
        replica.boot = boot


def _holds(meta: tuple[int, int], replica: Replica) -> bool:
    """Whether a META with this (term, vote) keeps what was told."""
    term, vote = meta
    if term != replica.promised_term:
        return term > replica.promised_term
    return replica.promised_vote in (NOBODY, vote)
