"""Elections: pre-vote, votes, stickiness, TimeoutNow (SAFETY C1, C2, V6; Q2, Q3).

Owns who may become leader and when. Invariants: one vote a term, durable before it is sent; a
candidate counts its own vote only once that is durable; a pre-vote changes no term; a broken
connection to the leader begins a pre-vote, never a campaign.
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
from logstore.raft.state import State

# Pre-votes after a broken connection, one soon after the other. The other followers may notice the
# break later, and each round finds those that have noticed it by then.
QUICK_ROUNDS = 4
# A candidate that has asked for votes waits one to two times this many turns for them, more where
# its own was flushed slowly: the voters flush theirs, too.
VOTE_TURNS = 4


def on_connection_lost(state: State, peer: NodeId) -> None:
    """The leader may be gone: count it as not heard, and run a pre-vote soon (C1). Another message
    of it takes that back. Followers of one leader wait for times that do not meet, or their votes
    would split. A damaged or full replica lets the others campaign first, as ever (Q3). A leader is
    given up for it after its first election timeout at the earliest: where connections break all
    the time (FAULTS N8), each would cost a term."""
    campaign = state.campaign
    if state.role != Role.FOLLOWER or peer != state.leader:
        return
    first_timeout_ns = campaign.term_entered_ns + state.config.election_timeout_ns
    campaign.given_up_ns = min(campaign.given_up_ns, max(state.now_ns, first_timeout_ns))
    if state.faulty or state.is_disk_full or not state.may_campaign:
        return
    campaign.quick_rounds = QUICK_ROUNDS
    turn_ns = state.config.quick_round_ns
    wait_ns = _turn_of(state, without=peer) * turn_ns + turn_ns // 4
    chance_ns = state.random.randrange(turn_ns // 4 + 1)
    _campaign_by(state, max(state.now_ns, campaign.given_up_ns) + wait_ns + chance_ns)


def _turn_of(state: State, *, without: NodeId) -> int:
    """This replica's place among the voters that are left, 0 the first one."""
    voters = dict.fromkeys((*state.voters.voters, *state.voters.incoming))
    return [voter for voter in (*voters, state.config.node) if voter != without].index(
        state.config.node
    )


def _campaign_by(state: State, deadline_ns: int) -> None:
    """Bring the election timer forward, but not into the time in which this node leaves elections
    to others (V6)."""
    campaign = state.campaign
    campaign.deadline_ns = min(campaign.deadline_ns, max(deadline_ns, campaign.quiet_until_ns))


def on_election_timeout(state: State) -> None:
    """No leader was heard: run a pre-vote, which changes no term. A replica whose log is being
    dropped does not: its log ends below what a majority has. Nor does one that is no voter (C9)."""
    if state.installing is not None or not state.may_campaign:
        if state.installing is None:
            state.set_leader(NO_NODE)
        state.reset_election_timer()
        return
    campaign = state.campaign
    if campaign.quick_rounds and (state.faulty or state.is_disk_full):  # since the hint
        campaign.quick_rounds = 0
        state.reset_election_timer()
        return
    campaign.quick_rounds = max(0, campaign.quick_rounds - 1)
    if state.role == Role.CANDIDATE and campaign.vote_wait_ns and campaign.quick_rounds:
        state.reset_election_timer()
        _ask_for_votes(state)
        return
    state.role = Role.PRE_CANDIDATE
    state.set_leader(NO_NODE)
    campaign.awaited_meta_seq = None
    campaign.granted = {state.config.node}
    state.reset_election_timer()
    if campaign.quick_rounds:
        _wait_a_turn(state)
    if has_won(state):
        _campaign(state, is_transfer=False)
        return
    request = PreVoteRequest(Term(state.term + 1), state.log.last_index, state.log.last.term)
    for peer in state.electors:
        state.send(peer, request)


def _wait_a_turn(state: State) -> None:
    """The next quick round is due after one to two turns: answers of this one had time to come."""
    turn_ns = state.config.quick_round_ns
    _campaign_by(state, state.now_ns + turn_ns + state.random.randrange(turn_ns))


def on_pre_vote_request(state: State, sender: NodeId, request: PreVoteRequest) -> None:
    """Grant the pre-vote if this node would vote for the sender. It would not while it hears a
    leader (stickiness)."""
    is_granted = (
        request.term > state.term
        and state.may_vote
        and not is_sticky(state)
        and _is_up_to_date(state, request.last_index, request.last_term)
    )
    if is_granted and state.campaign.quick_rounds:
        state.reset_election_timer()
        _wait_a_turn(state)  # the sender may campaign now: a round of our own would split the votes
    state.answer(sender, PreVoteReply(request.term if is_granted else state.term, is_granted))


def on_pre_vote_reply(state: State, sender: NodeId, reply: PreVoteReply) -> None:
    if state.role != Role.PRE_CANDIDATE or not reply.is_granted or reply.term != state.term + 1:
        return
    state.campaign.granted.add(sender)
    if has_won(state):
        _campaign(state, is_transfer=False)


def on_vote_request(state: State, sender: NodeId, uuid: bytes, request: VoteRequest) -> None:
    """A vote request of the current term. The caller has adopted a newer term and dropped a request
    that stickiness refuses. The vote is for the replica `uuid` alone (C6)."""
    is_granted = (
        state.may_vote
        and state.may_vote_for(sender, uuid)
        and state.leader == NO_NODE
        and _is_up_to_date(state, request.last_index, request.last_term)
    )
    if is_granted:
        state.role = Role.FOLLOWER  # a pre-candidate that votes gives up its own campaign
        state.meta.cast_vote(sender, uuid)
        state.reset_election_timer()
    state.answer(sender, VoteReply(state.term, is_granted), uuid)


def on_vote_reply(state: State, sender: NodeId, reply: VoteReply) -> None:
    if state.role != Role.CANDIDATE or reply.term != state.term:
        return
    if not reply.is_granted:
        state.campaign.vote_wait_ns = 0  # the votes are split: the next round has a new term
        return
    state.campaign.granted.add(sender)
    _lead_if_won(state)


def on_timeout_now(state: State, sender: NodeId, message: TimeoutNow) -> None:
    """The leader hands over: campaign without a pre-vote, and ask for votes in spite of stickiness
    (C2). A late message may find a log that is being dropped (G5a)."""
    is_meant = message.term == state.term and state.leader == sender
    is_able = state.role == Role.FOLLOWER and state.installing is None and state.may_campaign
    if is_meant and is_able:
        _campaign(state, is_transfer=True)


def on_meta_durable(state: State, seq: int) -> None:
    """The campaign's term and own vote are durable: count the vote and ask the peers for theirs."""
    campaign = state.campaign
    awaited_seq = campaign.awaited_meta_seq
    if state.role != Role.CANDIDATE or awaited_seq is None or seq < awaited_seq:
        return
    campaign.awaited_meta_seq = None
    campaign.granted = {state.config.node}
    if campaign.quick_rounds:
        flush_ns = state.now_ns - campaign.term_entered_ns
        campaign.vote_wait_ns = max(VOTE_TURNS * state.config.quick_round_ns, 2 * flush_ns)
    _ask_for_votes(state)
    _lead_if_won(state)


def _ask_for_votes(state: State) -> None:
    """Where quick rounds are left and the votes do not come, another round follows soon. A voter
    may have read a last message of the leader that is gone, and then drops the request: it is asked
    again in the same term, for its vote may as well be on its way, or its disk slow. After a vote
    for another candidate a pre-vote follows."""
    campaign = state.campaign
    request = VoteRequest(
        state.term, state.log.last_index, state.log.last.term, campaign.is_transfer
    )
    for peer in state.electors:
        if peer not in campaign.granted:
            state.send(peer, request)
    if campaign.vote_wait_ns:
        chance_ns = state.random.randrange(campaign.vote_wait_ns)
        _campaign_by(state, state.now_ns + campaign.vote_wait_ns + chance_ns)


def is_sticky(state: State) -> bool:
    """This node leads, or heard a leader within the least election timeout."""
    if state.role == Role.LEADER:
        return True
    heard_ns = state.campaign.leader_heard_ns
    return (
        state.leader != NO_NODE
        and heard_ns is not None
        and state.now_ns
        < min(heard_ns + state.config.election_timeout_ns, state.campaign.given_up_ns)
    )


def _campaign(state: State, *, is_transfer: bool) -> None:
    """Enter a new term and vote for this node; `on_meta_durable` asks for votes once both are
    durable. Quick rounds that are left stay for that."""
    campaign = state.campaign
    quick_rounds = campaign.quick_rounds
    state.role = Role.CANDIDATE
    state.enter_term(Term(state.term + 1))
    state.meta.cast_vote(state.config.node)
    state.emit(Log(f"node {state.config.node} campaigns in term {state.term}"))
    campaign.granted = set()
    campaign.is_transfer = is_transfer
    campaign.quick_rounds = quick_rounds
    campaign.vote_wait_ns = 0
    campaign.awaited_meta_seq = state.meta.needed_seq
    state.reset_election_timer()


def has_won(state: State) -> bool:
    """The votes or pre-votes of this campaign are those of a majority."""
    return state.voters.is_majority(state.campaign.granted)


def _lead_if_won(state: State) -> None:
    if has_won(state):
        replication.begin_leading(state)


def _is_up_to_date(state: State, last_index: Index, last_term: Term) -> bool:
    """Whether the sender's log is at least as up to date as ours. Our last entry counts even if it
    is damaged (Q2)."""
    last = state.log.last
    return (last_term, last_index) >= (last.term, last.index)
