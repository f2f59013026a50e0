"""Brings states to a normal form, so that states with the same behaviour are equal: counters are
rebased, clocks stopped, and what was already sent is forgotten.

Owns these changes and the argument for each. The changed core behaves as before under every event
of the explorer (which has no reads or damage), or can do more; never less, so that no
violation is hidden.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from logstore.format.peer_messages import (
    AppendAccepted,
    Heartbeat,
    HeartbeatReply,
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
    VoteReply,
)
from logstore.model import NO_INDEX, NO_NODE, NO_TERM, Role
from logstore.raft.state import Campaign, Leading, Shown, State, Transfer
from logstore.raft.stream import FollowerStream

NOW_NS = 1_000_000_000_000
DEFERRED_KEPT = 1


def normalise_state(state: State, *, has_restarted: bool) -> None:
    """The core is between two steps."""
    # What readers see follows from commit and persisted; every step reports it again.
    state.shown = Shown()
    if has_restarted:
        _keep_last_row(state.log)
    _stop_clock(state)
    _normalise_role(state)
    _rebase_persists(state)
    _rebase_meta(state)
    # An answer stays in flight for good, so sending it again adds nothing: the last answer need not
    # be remembered.
    state.following.match_reported = NO_INDEX
    state.following.stale_rejected = None
    # A deferred append is still in flight: it can be delivered again once the term is durable. One
    # is kept, so that the redelivery of deferred ones is explored.
    del state.deferred[DEFERRED_KEPT:]
    # The explorer offers an open gen only its next proposal, so the numbers do not matter.
    state.gen.number = state.gen.accepted = 0
    # `Replica._lead` numbers streams, for each peer by itself.
    state.lead_count = 0
    state.dropped = state.stalls = 0
    state.handed_over = None  # it says whether a transfer worked
    if state.leading is not None:
        _normalise_leading(state, state.leading)


def _keep_last_row(log: Any) -> None:
    """As after recovery, when older rows come from the files."""
    if log._rows:
        del log._rows[:-1]
        log._rows_first = log.last.index


def _stop_clock(state: State) -> None:
    """Only timeout events move a replica's clock; afterwards all ages are 0 again.

    Ages matter in three places. Stickiness ends with the timeout event, which forgets the leader.
    Check-quorum is an event of its own. Flushes and a leader's entries never count as stalled: a
    leader that gives up for that does the same as one that loses its majority.
    """
    state.now_ns = NOW_NS
    state.alarmed_ns = state.alarmed_text = None
    state.campaign.deadline_ns = NOW_NS + state.config.election_timeout_ns
    heard = state.role == Role.FOLLOWER and state.leader != NO_NODE
    state.campaign.leader_heard_ns = NOW_NS if heard else None
    state.campaign.term_entered_ns = 0


def _normalise_role(state: State) -> None:
    """Pre-votes are always granted, so a pre-candidate equals a follower without a leader. Votes
    matter to a candidate only."""
    if state.role == Role.PRE_CANDIDATE:
        state.role = Role.FOLLOWER
    if state.role != Role.CANDIDATE:
        state.campaign = Campaign(state.campaign.deadline_ns)
        if state.role == Role.FOLLOWER and state.leader != NO_NODE:
            state.campaign.leader_heard_ns = NOW_NS


def _normalise_leading(state: State, leading: Leading) -> None:
    """Rounds serve reads only. Every peer counts as just heard until contact is lost."""
    leading.heartbeat_deadline_ns = NOW_NS + state.config.heartbeat_ns
    leading.leadership_check_ns = leading.heartbeat_deadline_ns
    leading.next_handover_ns = leading.progressed_ns = NOW_NS
    leading.began_ns = NOW_NS
    leading.round = 0
    _normalise_change(state, leading)
    for progress in leading.progress.values():
        progress.heard_ns = progress.advanced_ns = NOW_NS
        progress.round_answered = 0
        progress.has_replied = progress.is_disk_full = False
        progress.newest_level = None
        progress.last_index = NO_INDEX


def _normalise_change(state: State, leading: Leading) -> None:
    """Who asked for a change does not matter, nor when ingress was offered its CONFIG: it may
    propose it at any time. A replica that has left gets the log for as long as it can use it, which
    is more than for an election timeout.

    A leader that was removed hands over, and campaigns cover what its TimeoutNow causes: only that
    it takes no more entries matters, not to whom it hands over. It leads on until it loses contact.
    """
    change, until_ns = leading.change, NOW_NS + state.config.election_timeout_ns
    if change is not None:
        change.request, change.offered_gen = None, 0
    leading.progress = dict(sorted(leading.progress.items()))
    leading.leaving = dict.fromkeys(sorted(leading.leaving), until_ns)
    if leading.transfer is not None:
        target = min(peer for peer in leading.progress if peer in state.members)
        leading.transfer = Transfer(target, None, until_ns)


def _rebase_persists(state: State) -> None:
    """Sequence numbers are compared among outstanding requests only, so these become 1, 2, …"""
    persists: Any = state.persists
    for number, request in enumerate(persists._outstanding, start=1):
        request.seq = number
        request.ordered_ns = NOW_NS
    persists.last_seq = len(persists._outstanding)


def _rebase_meta(state: State) -> None:
    """The same for saves and for the messages that wait for them, each of which waits once."""
    meta: Any = state.meta
    answered = meta.last_seq - len(meta._saves)
    meta.last_seq -= answered
    meta._saves = deque((seq - answered, term) for seq, term in meta._saves)
    waiting: dict[Any, int] = {}
    for seq, effect in meta._withheld:
        message = message_in_flight(effect.message)
        if message is not None:
            kept = type(effect)(effect.peer, message)
            waiting.setdefault(kept, seq - answered)
    ordered = sorted(waiting.items(), key=lambda item: (item[1], repr(item[0])))
    meta._withheld = deque((seq, effect) for effect, seq in ordered)
    awaited_seq = state.campaign.awaited_meta_seq
    if awaited_seq is not None:
        state.campaign.awaited_meta_seq = awaited_seq - answered


def normalise_stream(stream: FollowerStream, fresh: FollowerStream) -> FollowerStream:
    """A stream that does not lead starts afresh at its next Lead, which has a newer term."""
    inner: Any = stream
    if not inner._is_leading:
        made: Any = fresh
        made._boot = inner._boot
        made.term = NO_TERM
        return fresh
    inner._heard_ns = 0
    inner._files_seq = 0
    # Everything was sent, or is sent again from the files. No timer causes a resend.
    inner._described.clear()
    inner._ring_position = None
    inner._accepted = NO_INDEX
    if inner._window_entries > 1:  # a window that is never full need not be counted
        inner._in_flight.clear()
        inner._in_flight_bytes = 0
    return stream


def message_in_flight(message: Any) -> Any:
    """`message` as it is kept in flight, or None where an event has its effect.

    `Campaign` covers pre-votes and TimeoutNow. Refusals only spread a newer term, as `TermSeen`
    does. Replies to heartbeats serve reads, transfers and the restart of streams, which
    AppendPersisted causes as well; AppendAccepted serves resend timers. Commit news is a heartbeat
    whose reply is lost.
    """
    match message:
        case PreVoteRequest() | PreVoteReply() | AppendAccepted() | HeartbeatReply() | TimeoutNow():
            return None
        case VoteReply(is_granted=False):
            return None
        case Heartbeat():
            return Heartbeat(
                message.term, message.commit, 1, message.prev_index, message.prev_term,
                message.prev_next_lsn, message.prev_chain,
            )  # fmt: skip
        case _:
            return message
