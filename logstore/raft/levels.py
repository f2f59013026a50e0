"""Raising the log's format level because an operator asks for it, and refusing a level that this
version does not read (SAFETY S11).

Owns when a leader appends the entry that raises the level, and what a follower does with one that
is too new for it. `commit` says when the level is raised. Invariant: a leader appends such an entry
only for the next level, which every voter has reported to read.
"""

from __future__ import annotations

from logstore.errors import ErrorCode
from logstore.format.level import level_kind, level_of, refusal_of
from logstore.model import NodeId
from logstore.raft import gens, replication
from logstore.raft.effects import LevelAnswered, StreamAccepted
from logstore.raft.events import AppendReceived, LevelRequested
from logstore.raft.progress import Progress
from logstore.raft.state import Leading, Raise, State


def on_requested(state: State, event: LevelRequested) -> None:
    """Begin to raise the level, or answer: it is raised already, or why it cannot be now."""
    leading, level = state.leading, event.level
    if leading is None:
        _answer(state, event, ErrorCode.NOT_LEADER, "this replica does not lead")
        return
    if level <= state.level:
        _answer(state, event, ErrorCode.OK, "")
        return
    index = state.log.raised_at(
        level
    )  # not committed yet: an earlier request, maybe of another leader
    reason = _why_wait(state, leading, level)
    if index is None and not reason:
        reason = _why_not_append(state, leading, level)
    if reason:
        _answer(state, event, ErrorCode.LEVEL_REFUSED, reason)
        return
    if index is None:
        index = replication.append_empty_entry(state, level_kind(level)).index
    leading.raising = Raise(event.request_id, level, index)


def refuse_if_too_new(state: State, event: AppendReceived) -> bool:
    """Take nothing of a log above the newest level that this version reads. The stream is not
    answered, for it is right: what else it brings is dropped, and its leader sends it again until a
    newer version runs here."""
    append, following = event.append, state.following
    level = level_of(append.header.kind)
    if level <= state.config.newest_level:
        return False
    state.settle(event.ring_start, event.ring_end)
    following.is_dead = True
    following.refused_level = level
    state.emit(StreamAccepted(append.term, append.stream, state.verified, True))
    what = f"node {state.config.node} takes no entries: the log of its leader, node {event.sender},"
    state.alarm(refusal_of(what, level, newest=state.config.newest_level))
    return True


def newest_levels(state: State) -> dict[NodeId, int | None]:
    """The newest level that each voter reads, on a leader; None: not reported."""
    levels: dict[NodeId, int | None] = {
        peer: progress.newest_level for peer, progress in state.peers.items()
    }
    is_leader = state.leading is not None
    return levels | {state.config.node: state.config.newest_level} if is_leader else levels


def _why_wait(state: State, leading: Leading, level: int) -> str:
    """Why this request cannot be taken now; empty: it can."""
    if level > state.level + 1:
        return f"the log is at format level {state.level}: raise it to {state.level + 1} first"
    if leading.raising is not None:
        return "another request raises the level: ask again"
    return ""


def _why_not_append(state: State, leading: Leading, level: int) -> str:
    """Why the entry may not be appended now; empty: it may."""
    if level > state.config.newest_level:
        return f"node {state.config.node} reads levels up to {state.config.newest_level}"
    lacking = [_what_it_lacks(state, each, level) for each in leading.progress.values()]
    if any(lacking):
        return "; ".join(filter(None, lacking))
    if not gens.may_open(state):
        return "the leader takes no entries now: its disk is full or damaged, or it hands over"
    return ""


def _what_it_lacks(state: State, progress: Progress, level: int) -> str:
    """Why this peer is in the way; empty: it reads the level, as far as this leader can know."""
    newest = progress.newest_level
    since_ns = state.now_ns - state.config.election_timeout_ns
    if newest is None or not progress.was_heard_since(since_ns):
        return f"node {progress.peer} has not answered lately"
    if newest < level:
        return f"node {progress.peer} reads levels up to {newest}"
    return ""


def _answer(state: State, event: LevelRequested, code: ErrorCode, reason: str) -> None:
    state.emit(LevelAnswered(event.request_id, code, state.level, reason))
