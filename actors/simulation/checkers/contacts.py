"""A leader hears its majority (check-quorum, V6), and no replica that hears a leader votes for
another one (stickiness, C1; FAULTS N1 to N3, N10). A broken connection to the leader counts as not
hearing it, until the leader's next message.

Owns the rules; `Replica` has which peers a replica has heard, and when by its own clock. A process
that was paused is not excused: its first Tick after the pause is checked like any other.
"""

from __future__ import annotations

from actors.simulation.checkers.consequences import LeaderBegan
from actors.simulation.checkers.facts import Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads, reads_after
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import NEVER_NS, Replica
from logstore.format.peer_messages import (
    Heartbeat,
    HeartbeatReply,
    PreVoteReply,
    PreVoteRequest,
    VoteRequest,
)
from logstore.model import Role
from logstore.raft.effects import Answer, Effect, SaveMeta, StopLeading
from logstore.raft.events import (
    AppendReceived,
    ConnectionLost,
    ControlReceived,
    StreamAnswer,
    Tick,
)


class Contacts:
    """Checks all replicas. A message counts as contact for one election timeout.

    A leader checks its quorum once per heartbeat interval, and a round for a read may put that off
    by one more; an election timeout is at least five heartbeat intervals.
    """

    def __init__(self, record: Record) -> None:
        self._findings = record.findings
        self._electorate = record.electorate
        self._timeout_ns = record.election_timeout_ns
        self._quorum_timeout_ns = self._timeout_ns + self._timeout_ns // 2

    # --- which messages are heard ---

    @reads(AppendReceived)
    def on_append(self, replica: Replica, event: AppendReceived, step: Stepped) -> None:
        self._on_leader_heard(replica, event.sender, event.append.term, step)

    @reads((ControlReceived, Heartbeat))
    def on_heartbeat(self, replica: Replica, event: ControlReceived, step: Stepped) -> None:
        self._on_leader_heard(replica, event.sender, event.message.term, step)

    def _on_leader_heard(self, replica: Replica, node: int, term: int, step: Stepped) -> None:
        """The replica hears the leader of a term. Hot."""
        if term == step.core.term:
            replica.heard_term, replica.heard_ns = term, replica.clock_ns
            replica.heard_node = node

    @reads(ConnectionLost)
    def on_connection_lost(self, replica: Replica, lost: ConnectionLost, _step: Stepped) -> None:
        if lost.peer == replica.heard_node:
            replica.heard_term = 0

    @reads((ControlReceived, HeartbeatReply), StreamAnswer)
    def on_heard(
        self, replica: Replica, event: ControlReceived | StreamAnswer, step: Stepped
    ) -> None:
        """A leader hears a peer. Hot."""
        if step.leads(event.message.term):
            replica.peers_heard_ns[event.sender] = replica.clock_ns

    @reads(SaveMeta)
    def on_save(self, replica: Replica, save: SaveMeta, _step: Stepped) -> None:
        if save.term > replica.heard_term:
            replica.heard_term = 0

    # --- leaders ---

    @reads(LeaderBegan)
    def on_leader(self, began: LeaderBegan) -> None:
        """A majority has just voted for it."""
        replica = began.replica
        replica.heard_term, replica.heard_node = began.term, replica.node
        replica.leading_since_ns = replica.clock_ns
        replica.peers_heard_ns = {}
        replica.quorum_deadline_ns = replica.clock_ns + self._quorum_timeout_ns

    @reads(StopLeading)
    def on_stop(self, replica: Replica, stop: StopLeading, _step: Stepped) -> None:
        if not stop.peer:  # else only that one gets nothing more
            self._end(replica)

    def _end(self, replica: Replica) -> None:
        """It leads no more."""
        replica.quorum_deadline_ns = NEVER_NS
        replica.heard_term = 0

    @reads_after(Tick)
    def on_tick(self, replica: Replica, _tick: Tick, step: Stepped) -> None:
        """After `quorum_deadline_ns`: has a majority been heard since the deadline was set?"""
        if replica.clock_ns <= replica.quorum_deadline_ns:
            return
        if step.core.role is not Role.LEADER:
            self._end(replica)
            return
        quorum_ns = self._quorum_ns(replica)
        replica.quorum_deadline_ns = quorum_ns + self._quorum_timeout_ns
        if replica.clock_ns > replica.quorum_deadline_ns:
            replica.quorum_deadline_ns = NEVER_NS
            text = f"node {replica.node} leads term {step.core.term} and has heard no majority"
            text = f"{text} for {(replica.clock_ns - quorum_ns) / 1e9:.3f} s"
            self._findings.report(Invariant.I13, text)

    def _quorum_ns(self, replica: Replica) -> int:
        """Since when the leader has heard fewer than a majority, itself included. Other voters
        counted before `counted_since_ns`: an operator may force a change to silent ones (C11)."""
        heard_ns = replica.peers_heard_ns | {replica.node: replica.clock_ns}
        reached_ns = self._electorate(replica).reached(heard_ns, replica.leading_since_ns)
        return max(reached_ns, replica.counted_since_ns)

    # --- votes ---

    @reads((ControlReceived, VoteRequest), (ControlReceived, PreVoteRequest))
    def on_vote_request(self, replica: Replica, event: ControlReceived, step: Stepped) -> None:
        """`replica` is as it was before the step."""
        request = event.message
        if not self._has_leader(replica):
            return
        if isinstance(request, VoteRequest):
            # the successor of a leader that hands over may be voted for (C2)
            is_helped = (
                step.core.term == request.term > replica.heard_term and not request.is_transfer
            )
            text = "enters a candidate's term"
        else:
            is_helped = any(_is_granted(effect) for effect in step.effects)
            text = "grants a pre-vote"
        if is_helped:
            text = f"node {replica.node} {text}, {request.term}, and hears the leader"
            text = f"{text} of term {replica.heard_term}"
            self._findings.report(Invariant.I13, text)

    def _has_leader(self, replica: Replica) -> bool:
        """Whether it leads and hears a majority, or has heard its leader within the timeout."""
        if replica.quorum_deadline_ns != NEVER_NS:
            return replica.clock_ns - self._quorum_ns(replica) < self._timeout_ns
        return replica.heard_term != 0 and replica.clock_ns - replica.heard_ns < self._timeout_ns


def _is_granted(effect: Effect) -> bool:
    return (
        type(effect) is Answer
        and isinstance(effect.message, PreVoteReply)
        and effect.message.is_granted
    )
