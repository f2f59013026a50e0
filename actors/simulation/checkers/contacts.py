"""That a leader hears its majority (check-quorum, V6), and that nobody who hears a leader helps
another one into office (stickiness, C1; FAULTS N1 to N3, N10).

Owns the judgement; whom a replica has heard, and when by its own clock, is with it. What a process
slept through is no excuse and needs none: the first Tick behind it is judged like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.ports import Core
from actors.simulation.checkers.replica import NEVER_NS, Replica
from logstore.format.peer_messages import PreVoteReply, PreVoteRequest, VoteRequest
from logstore.model import Role
from logstore.raft.effects import Answer, Effect


class Contacts:
    """All replicas'. `election_timeout_ns`: how long a word counts.

    A leader looks once a heartbeat, and one round for a read may put that off by one more; an
    election timeout has five heartbeats at least.
    """

    __slots__ = ("_findings", "_lonely_after_ns", "_majority", "_timeout_ns")

    def __init__(self, findings: Findings, *, majority: int, election_timeout_ns: int) -> None:
        self._findings = findings
        self._majority = majority
        self._timeout_ns = election_timeout_ns
        self._lonely_after_ns = election_timeout_ns + election_timeout_ns // 2

    # --- who leads ---

    def on_leader(self, replica: Replica, term: int) -> None:
        """It leads from now on: a majority has just voted for it."""
        replica.heeded_term = term
        replica.office_ns = replica.clock_ns
        replica.heard_ns = {}
        replica.lonely_ns = replica.clock_ns + self._lonely_after_ns

    def on_end(self, replica: Replica) -> None:
        """It leads no more."""
        replica.lonely_ns = NEVER_NS
        replica.heeded_term = 0

    def on_ticked(self, replica: Replica, core: Core, at_ns: int) -> None:
        """The step of a tick after `lonely_ns` is done: has a majority spoken since that was
        reckoned?"""
        if core.role is not Role.LEADER:
            self.on_end(replica)
            return
        quorum_ns = self._quorum_ns(replica)
        replica.lonely_ns = quorum_ns + self._lonely_after_ns
        if replica.clock_ns > replica.lonely_ns:
            replica.lonely_ns = NEVER_NS
            text = f"node {replica.node} leads term {core.term} and has heard no majority"
            text = f"{text} for {(replica.clock_ns - quorum_ns) / 1e9:.3f} s"
            self._findings.report(Invariant.I13, text, at_ns)

    def _quorum_ns(self, replica: Replica) -> int:
        """Since when fewer than a majority, the leader included, have spoken."""
        needed = self._majority - 1
        if not needed:
            return replica.clock_ns  # one voter is its own majority
        heard = sorted(replica.heard_ns.values(), reverse=True)
        return heard[needed - 1] if len(heard) >= needed else replica.office_ns

    # --- who is asked for a vote ---

    def on_asked(
        self,
        replica: Replica,
        core: Core,
        request: VoteRequest | PreVoteRequest,
        effects: Sequence[Effect],
        at_ns: int,
    ) -> None:
        """The step of a request is done; `replica` is as it was before that."""
        if not self._is_content(replica):
            return
        if isinstance(request, VoteRequest):
            # a leader that hands over lets its successor pass (C2)
            is_helped = core.term == request.term > replica.heeded_term and not request.is_transfer
            text = "enters a candidate's term"
        else:
            is_helped = any(_is_granted(effect) for effect in effects)
            text = "grants a pre-vote"
        if is_helped:
            text = f"node {replica.node} {text}, {request.term}, and hears the leader"
            text = f"{text} of term {replica.heeded_term}"
            self._findings.report(Invariant.I13, text, at_ns)

    def _is_content(self, replica: Replica) -> bool:
        """It leads with a majority, or has heard the leader of its term a moment ago."""
        if replica.lonely_ns != NEVER_NS:
            return replica.clock_ns - self._quorum_ns(replica) < self._timeout_ns
        return replica.heeded_term != 0 and replica.clock_ns - replica.heeded_ns < self._timeout_ns


def _is_granted(effect: Effect) -> bool:
    return (
        type(effect) is Answer
        and isinstance(effect.message, PreVoteReply)
        and effect.message.is_granted
    )
