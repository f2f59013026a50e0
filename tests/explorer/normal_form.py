"""What must not tell two states apart, made equal: counters rebased, clocks stopped, memories of
what was already said forgotten.

Owns the list of these changes and the argument for each. Every change leaves a core that behaves
like the one before it in all that the explorer can still do to it (no transfers, no reads, no
damage), or that can do more; never less, so no violation is hidden.
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
    VoteReply,
)
from logstore.model import NO_INDEX, NO_NODE, NO_TERM, Role
from logstore.raft.state import Campaign, Leading, Shown, State
from logstore.raft.stream import FollowerStream

NOW_NS = 1_000_000_000_000
DEFERRED_KEPT = 1


def normalise_state(state: State, *, has_restarted: bool) -> None:
    """Bring a core that has just finished a step to its normal form."""
    # What readers see follows from commit and persisted; it is told again, and checked, each step.
    state.shown = Shown()
    if has_restarted:
        _keep_last_row(state.log)
    _stop_clock(state)
    _settle_role(state)
    _rebase_persists(state)
    _rebase_meta(state)
    # Whatever was answered is in flight for good (messages are never used up), so that saying it
    # again adds nothing: what was answered last need not be remembered.
    state.following.match_reported = NO_INDEX
    state.following.stale_rejected = None
    # A deferred append is in flight still: it can be delivered again once the term is durable. One
    # is kept, so that redelivery itself is explored; the bound of the product drops others too.
    del state.deferred[DEFERRED_KEPT:]
    # An open gen takes its next prop, whatever their numbers; the explorer offers nothing else.
    state.gen.number = state.gen.accepted = 0
    # Streams are numbered where they begin (`Replica`), for each peer by itself.
    state.lead_count = 0
    state.dropped = state.stalls = 0
    if state.leading is not None:
        _settle_leading(state, state.leading)


def _keep_last_row(log: Any) -> None:
    """As after recovery: older rows come from the files. Who never restarted has all in memory."""
    if log._rows:
        del log._rows[:-1]
        log._rows_first = log.last.index


def _stop_clock(state: State) -> None:
    """Each replica has a clock of its own that only timeouts move; then all ages begin anew.

    Ages matter in three places. Stickiness ends with the timeout event itself (it forgets the
    leader). Check-quorum is an event of its own. Neither flushes nor a leader's entries ever count
    as stalled: a leader that gives up does what the event of losing its majority makes it do.
    """
    state.now_ns = NOW_NS
    state.alarmed_ns = state.alarmed_text = None
    state.campaign.deadline_ns = NOW_NS + state.config.election_timeout_ns
    heard = state.role == Role.FOLLOWER and state.leader != NO_NODE
    state.campaign.leader_heard_ns = NOW_NS if heard else None


def _settle_role(state: State) -> None:
    """Pre-votes are granted out of thin air: a pre-candidate is a follower that knows no leader.

    The votes of a campaign matter to a candidate only; the next campaign begins without them.
    """
    if state.role == Role.PRE_CANDIDATE:
        state.role = Role.FOLLOWER
    if state.role != Role.CANDIDATE:
        state.campaign = Campaign(state.campaign.deadline_ns)
        if state.role == Role.FOLLOWER and state.leader != NO_NODE:
            state.campaign.leader_heard_ns = NOW_NS


def _settle_leading(state: State, leading: Leading) -> None:
    """Rounds serve reads only. Every peer counts as just heard until the isolation event."""
    leading.heartbeat_deadline_ns = NOW_NS + state.config.heartbeat_ns
    leading.leadership_check_ns = leading.heartbeat_deadline_ns
    leading.next_handover_ns = leading.progressed_ns = NOW_NS
    leading.round = 0
    for progress in leading.progress.values():
        progress.heard_ns = progress.advanced_ns = NOW_NS
        progress.round_answered = 0
        progress.has_replied = progress.is_disk_full = False
        progress.last_index = NO_INDEX


def _rebase_persists(state: State) -> None:
    """Sequences of requests are compared among the outstanding ones only: those are 1, 2, …"""
    persists: Any = state.persists
    for number, request in enumerate(persists._outstanding, start=1):
        request.seq = number
        request.ordered_ns = NOW_NS
    persists.last_seq = len(persists._outstanding)


def _rebase_meta(state: State) -> None:
    """The same for saves, and for what waits for them; nothing waits twice, or for nothing."""
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
    """A stream that does not lead begins anew at its next Lead, which is of a newer term."""
    inner: Any = stream
    if not inner._is_leading:
        made: Any = fresh
        made._boot = inner._boot
        made.term = NO_TERM
        return fresh
    inner._heard_ns = 0
    inner._files_seq = 0
    # All has been sent, or will be sent again: the files have it. No clock asks for repetition.
    inner._described.clear()
    inner._ring_position = None
    inner._accepted = NO_INDEX
    if inner._window_entries > 1:  # a window that is never full need not be counted
        inner._in_flight.clear()
        inner._in_flight_bytes = 0
    return stream


def message_in_flight(message: Any) -> Any:
    """`message` as it is kept in flight, or None when the explorer has another way to its effect.

    Pre-votes are stood in for by the campaign event. Refusals only spread a newer term: the event
    of seeing a term does. Rounds serve reads only, answers to heartbeats those, transfers and
    the restart of streams, which AppendPersisted brings about as well; AppendAccepted serves
    resend timers. Commit news counts as a heartbeat, whose answer may always get lost.
    """
    match message:
        case PreVoteRequest() | PreVoteReply() | AppendAccepted() | HeartbeatReply():
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
