"""Giving leadership up, and entering a newer term.

Owns the order in which a leadership ends (E3, E4, V5). Must not know how one is won.
"""

from __future__ import annotations

from logstore.errors import ErrorCode
from logstore.limits import QUIET_ELECTION_TIMEOUTS
from logstore.model import NO_NODE, Role, Term
from logstore.raft import commit, gens, read_index
from logstore.raft.effects import Log, StopLeading, TermEnded, TransferAnswered
from logstore.raft.state import Leading, State


def enter_newer_term(state: State, term: Term, why: str) -> None:
    """Become a follower in `term`, which is newer."""
    if state.leading is not None:
        _end_leadership(state, state.leading, why)
    state.role = Role.FOLLOWER
    state.enter_term(term)
    state.reset_election_timer()


def step_down(state: State, leading: Leading, why: str) -> None:
    """Stop leading, in the same term: the vote stays (C1, FAULTS.R4)."""
    _end_leadership(state, leading, why)
    state.role = Role.FOLLOWER
    state.set_leader(NO_NODE)
    state.reset_election_timer()


def on_ingress_stalled(state: State) -> None:
    """The loop of this replica's ingress stands still (V6)."""
    if state.leading is not None:
        step_down(state, state.leading, "its ingress stands still")


def step_down_quietly(state: State, leading: Leading, why: str) -> None:
    """Stop leading because this node can commit nothing, and let the others elect a leader. For
    some election timeouts this node votes and follows, and begins no election. If nobody else can
    win, because this log is ahead of theirs, it leads again after that (V6, Q3)."""
    state.stalls += 1
    quiet_ns = QUIET_ELECTION_TIMEOUTS * state.config.election_timeout_ns
    state.campaign.quiet_until_ns = state.now_ns + quiet_ns
    step_down(state, leading, why)


def answer_transfer(state: State, request_id: int | None, *, is_done: bool, reason: str) -> None:
    """Answer the requester; the core's own transfers have none."""
    if request_id is not None:
        state.emit(TransferAnswered(request_id, is_done, reason))


def _end_leadership(state: State, leading: Leading, why: str) -> None:
    state.emit(Log(f"node {state.config.node} stops leading term {state.term}: {why}"))
    state.emit(StopLeading(state.term))
    gens.close(state, "step_down")
    state.emit(TermEnded(state.term))
    read_index.refuse_all(state, leading)
    transfer = leading.transfer
    if transfer is not None:
        if transfer.timeout_sent_ns is None:
            answer_transfer(state, transfer.request_id, is_done=False, reason=why)
        else:
            state.handed_over = transfer  # the next leader decides whether it worked
    commit.answer_raise(state, leading, ErrorCode.OUTCOME_UNKNOWN, why)
    commit.answer_change(state, leading, ErrorCode.OUTCOME_UNKNOWN, why)
    state.leading = None
