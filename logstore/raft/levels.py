"""Raising the log's format level because an operator asks for it, or because the log is new, and
refusing a level that this version does not read (SAFETY S11).

Owns when a leader appends the entry that raises the level, and what a follower does with one that
is too new for it. `commit` says when the level is raised. Invariant: a leader appends such an entry
only for the next level, which every voter and every learner that answers has reported to read. A
silent learner is not waited for: it counts in no majority, reads no further if it comes back as an
older version, and is promoted once it reads the log's level (C8).
"""

from __future__ import annotations

from logstore.errors import ErrorCode
from logstore.format.level import level_kind, refusal_of
from logstore.model import NodeId
from logstore.raft import commit, gens, replication
from logstore.raft.effects import LevelAnswered, Log, StreamAccepted
from logstore.raft.events import LevelRequested
from logstore.raft.progress import Progress
from logstore.raft.state import Leading, Raise, State


def on_requested(state: State, event: LevelRequested) -> None:
    """Begin to raise the level, or answer: it is raised already, or why it cannot be."""
    leading, level = state.leading, event.level
    if leading is None:
        _answer(state, event, ErrorCode.NOT_LEADER, "this replica does not lead")
    elif level <= state.level:
        _answer(state, event, ErrorCode.OK, "")
    elif reason := _why_busy(state, leading):
        _answer(state, event, ErrorCode.NOT_READY, reason)
    elif reason := _why_never(state, leading, level):
        _answer(state, event, ErrorCode.LEVEL_REFUSED, reason)
    elif reason := _who_is_silent(state, leading):
        _answer(state, event, ErrorCode.NOT_READY, reason)
    else:
        _begin(state, leading, level, event.request_id)


def raise_new_log(state: State, leading: Leading) -> None:
    """A new log begins at `new_log_level` without anybody asking, as soon as every voter has said
    that it reads it. One that does not leaves the level to operators: it is an older version, amid
    an upgrade or a way back. Nothing else waits for this."""
    level = state.level + 1
    if not leading.is_log_new or _why_busy(state, leading):
        return
    if level > state.config.new_log_level:
        leading.is_log_new = False
    elif reason := _why_never(state, leading, level):
        leading.is_log_new = False
        state.emit(Log(f"the new log stays at format level {state.level}: {reason}"))
    elif not _who_is_silent(state, leading):
        _begin(state, leading, level, None)


def _begin(state: State, leading: Leading, level: int, request_id: int | None) -> None:
    replication.append_empty_entry(state, level_kind(level))
    leading.raising = Raise(request_id, level)


def refuse_if_too_new(state: State, sender: NodeId, stream: int, level: int) -> bool:
    """Take nothing of a log above the newest level that this version reads. The stream is not
    answered, for it is right: what else it brings is dropped, and its leader sends it again until a
    newer version runs here."""
    following = state.following
    if level <= state.config.newest_level:
        return False
    following.is_dead = True
    following.refused_level = level
    state.emit(StreamAccepted(state.term, stream, state.verified, True))
    what = f"node {state.config.node} takes no entries: the log of its leader, node {sender},"
    state.alarm(refusal_of(what, level, newest=state.config.newest_level))
    return True


def learn(state: State, sender: NodeId, level: int) -> None:
    """The leader knows of a level at an index up to which this replica has committed, too: damage
    hides the entry here. A replica that did not learn it would let a version that does not read it
    have the log."""
    if not refuse_if_too_new(state, sender, state.following.stream, level):
        commit.know_level(state, level)


def newest_levels(state: State) -> dict[NodeId, int | None]:
    """The newest level that each voter reads, None for one that has not reported it; nothing where
    this replica does not lead."""
    if state.leading is None:
        return {}
    levels: dict[NodeId, int | None] = {
        peer: progress.newest_level for peer, progress in state.peers.items()
    }
    return levels | {state.config.node: state.config.newest_level}


def _why_busy(state: State, leading: Leading) -> str:
    """Why no level can be raised at this moment; empty: one can. Before the term's no-op is
    committed, `state.level` may be behind the log's (V1)."""
    if state.commit < leading.noop_index:
        return "this leader is not ready yet"
    if leading.raising is not None:
        return "another request raises the level"
    if leading.change is not None and not leading.change.index:  # its voters are not counted yet
        return "a change of the members is about to begin: `logstore member list` shows it"
    if not gens.may_open(state):
        return "the leader takes no entries now: its disk is full or damaged, or it hands over"
    return ""


def _why_never(state: State, leading: Leading, level: int) -> str:
    """Why this level cannot be raised by the versions that run, as they have reported; empty: it
    can, as far as that is known."""
    if level > state.level + 1:
        return f"the log is at format level {state.level}: raise it to {state.level + 1} first"
    newest = {state.config.node: state.config.newest_level} | {
        peer: each.newest_level
        for peer, each in leading.progress.items()
        if peer in state.members and each.newest_level and not _is_silent(state, each)
    }
    voters = (state.config.node, *state.electors)
    return "; ".join(
        f"node {node} reads levels up to {reads}"
        + ("" if node in voters else ": it is a learner, start a newer version there or remove it")
        for node, reads in newest.items()
        if reads < level
    )


def _who_is_silent(state: State, leading: Leading) -> str:
    """Which voters have not said lately what they read; empty: all have."""
    return "; ".join(
        f"node {peer} has not answered lately"
        for peer in state.electors
        if _is_silent(state, leading.progress[peer])
    )


def _is_silent(state: State, peer: Progress) -> bool:
    """It may be starting, perhaps as a newer version."""
    since_ns = state.now_ns - state.config.election_timeout_ns
    return peer.newest_level is None or not peer.was_heard_since(since_ns)


def _answer(state: State, event: LevelRequested, code: ErrorCode, reason: str) -> None:
    state.emit(LevelAnswered(event.request_id, code, state.level, reason))
