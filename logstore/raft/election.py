"""Elections: pre-vote, votes, stickiness, TimeoutNow (SAFETY C1, C2, V6; Q2, Q3).

Owns who may become leader and when. Invariants: one vote a term, durable before it is sent; a
candidate counts its own vote only once that is durable; a pre-vote changes no term.
"""

from __future__ import annotations

from logstore.format.peer_messages import (
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from logstore.model import NO_NODE, Index, NodeId, Role, Term
from logstore.raft import replication
from logstore.raft.effects import Log
from logstore.raft.quorum import majority
from logstore.raft.state import State


def on_election_timeout(state: State) -> None:
    """No leader was heard: run a pre-vote, which changes no term. A replica whose log is being
    dropped does not: its log ends below what a majority has."""
    if state.installing is not None:
        state.reset_election_timer()
        return
    state.role = Role.PRE_CANDIDATE
    state.set_leader(NO_NODE)
    state.campaign.awaited_meta_seq = None
    state.campaign.granted = {state.config.node}
    state.reset_election_timer()
    if _has_won(state):
        _campaign(state, is_transfer=False)
        return
    request = PreVoteRequest(Term(state.term + 1), state.log.last_index, state.log.last.term)
    for peer in state.config.peers:
        state.send(peer, request)


def on_pre_vote_request(state: State, sender: NodeId, request: PreVoteRequest) -> None:
    """Grant the pre-vote if this node would vote for the sender. It would not while it hears a
    leader (stickiness)."""
    is_granted = (
        request.term > state.term
        and not is_sticky(state)
        and _is_up_to_date(state, request.last_index, request.last_term)
    )
    state.answer(sender, PreVoteReply(request.term if is_granted else state.term, is_granted))


def on_pre_vote_reply(state: State, sender: NodeId, reply: PreVoteReply) -> None:
    if state.role != Role.PRE_CANDIDATE or not reply.is_granted or reply.term != state.term + 1:
        return
    state.campaign.granted.add(sender)
    if _has_won(state):
        _campaign(state, is_transfer=False)


def on_vote_request(state: State, sender: NodeId, request: VoteRequest) -> None:
    """A vote request of the current term. The caller has adopted a newer term and dropped a request
    that stickiness refuses."""
    is_granted = (
        state.meta.vote in (NO_NODE, sender)
        and state.leader == NO_NODE
        and _is_up_to_date(state, request.last_index, request.last_term)
    )
    if is_granted:
        state.role = Role.FOLLOWER  # a pre-candidate that votes gives up its own campaign
        state.meta.cast_vote(sender)
        state.reset_election_timer()
    state.answer(sender, VoteReply(state.term, is_granted))


def on_vote_reply(state: State, sender: NodeId, reply: VoteReply) -> None:
    if state.role != Role.CANDIDATE or not reply.is_granted or reply.term != state.term:
        return
    state.campaign.granted.add(sender)
    _lead_if_won(state)


def on_timeout_now(state: State, sender: NodeId, message: TimeoutNow) -> None:
    """The leader hands over: campaign without a pre-vote, and ask for votes in spite of stickiness
    (C2). A late message may find a log that is being dropped (G5a)."""
    is_meant = message.term == state.term and state.leader == sender
    if is_meant and state.role == Role.FOLLOWER and state.installing is None:
        _campaign(state, is_transfer=True)


def on_meta_durable(state: State, seq: int) -> None:
    """The campaign's term and own vote are durable: count the vote and ask the peers for theirs."""
    campaign = state.campaign
    awaited_seq = campaign.awaited_meta_seq
    if state.role != Role.CANDIDATE or awaited_seq is None or seq < awaited_seq:
        return
    campaign.awaited_meta_seq = None
    campaign.granted = {state.config.node}
    request = VoteRequest(
        state.term, state.log.last_index, state.log.last.term, campaign.is_transfer
    )
    for peer in state.config.peers:
        state.send(peer, request)
    _lead_if_won(state)


def is_sticky(state: State) -> bool:
    """This node leads, or heard a leader within the least election timeout."""
    if state.role == Role.LEADER:
        return True
    heard_ns = state.campaign.leader_heard_ns
    return (
        state.leader != NO_NODE
        and heard_ns is not None
        and state.now_ns - heard_ns < state.config.election_timeout_ns
    )


def _campaign(state: State, *, is_transfer: bool) -> None:
    """Enter a new term and vote for this node; `on_meta_durable` asks for votes
    once both are durable."""
    state.role = Role.CANDIDATE
    state.enter_term(Term(state.term + 1))
    state.meta.cast_vote(state.config.node)
    state.emit(Log(f"node {state.config.node} campaigns in term {state.term}"))
    campaign = state.campaign
    campaign.granted = set()
    campaign.is_transfer = is_transfer
    campaign.awaited_meta_seq = state.meta.needed_seq
    state.reset_election_timer()


def _has_won(state: State) -> bool:
    return len(state.campaign.granted) >= majority(len(state.config.voters))


def _lead_if_won(state: State) -> None:
    if _has_won(state):
        replication.begin_leading(state)


def _is_up_to_date(state: State, last_index: Index, last_term: Term) -> bool:
    """Whether the sender's log is at least as up to date as ours. Our last entry counts even if it
    is damaged (Q2)."""
    last = state.log.last
    return (last_term, last_index) >= (last.term, last.index)
