"""What follows from a new commit index, a flush or a leader's first message: what is visible and
what is reported.

Owns the consequences. `replication` (leader) and `following` decide that an entry is committed.
Invariants: the commit index and the visible index only rise (V3); nothing is visible before a
current leader was heard (V4).
"""

from __future__ import annotations

from logstore.errors import ErrorCode
from logstore.format.peer_messages import AppendPersisted
from logstore.model import NO_INDEX, NO_NODE, Index, Lsn, Role
from logstore.raft.effects import (
    ApplyTrim,
    ChangeAnswered,
    LevelAnswered,
    Log,
    SaveLevel,
    Visible,
)
from logstore.raft.state import Leading, State


def follow_commit(state: State, leader_commit: Index) -> None:
    """A follower's commit is min(leader's commit, index verified by this
    leader in this term) (V2)."""
    state.shown.is_ready = True
    raise_commit(state, min(leader_commit, state.verified))


def raise_commit(state: State, index: Index) -> None:
    """Raise the commit index to `index`, if that is higher, and make visible what may be."""
    if index > state.commit:
        state.commit = index
        state.configurations.commit(index)
        state.tell_members()
        state.stalls = 0
        follow_level(state, index)
    advance_visible(state)
    config = state.config
    state.log.drop_rows(
        min(state.commit, state.persists.persisted),
        kept=config.rows_kept,
        at_once=config.rows_dropped_at_once,
    )


def follow_level(state: State, index: Index) -> None:
    """Know the level of the log up to `index`, which is committed (S11)."""
    level = state.log.level_at(index)
    if level > state.level:
        _raise_level(state, level)


def _raise_level(state: State, level: int) -> None:
    """The entry that raises the log to `level` is committed: forms of it may be written and sent
    from now on (S11)."""
    state.level = level
    state.emit(SaveLevel(level))
    state.emit(Log(f"node {state.config.node}: the log is at format level {level}"))
    leading = state.leading
    if leading is not None and leading.raising is not None and leading.raising.level <= level:
        answer_raise(state, leading, ErrorCode.OK, "")


def answer_raise(state: State, leading: Leading, code: ErrorCode, reason: str) -> None:
    """What this leader began to raise the log to is committed, or somebody else's matter. Answer
    who asked for it; nobody asks for a new log's level."""
    raising, leading.raising = leading.raising, None
    if raising is not None and raising.request_id is not None:
        state.emit(LevelAnswered(raising.request_id, code, state.level, reason))


def answer_change(state: State, leading: Leading, code: ErrorCode, reason: str) -> None:
    """The change that this leader had begun has ended, or is the next leader's matter."""
    change, leading.change = leading.change, None
    if change is not None and change.request is not None:
        state.emit(ChangeAnswered(change.request.request_id, code, reason))


def know_level(state: State, level: int) -> None:
    """A peer knows that the log was raised to `level`. Damage may hide the entry here (S11)."""
    if state.level < level <= state.config.newest_level:
        state.log.know_level(level)
        _raise_level(state, level)


def advance_visible(state: State) -> None:
    """visible LSN = next_lsn(min(commit, persisted)) - 1, forward only (V3)."""
    if state.config.has_joined and state.log.last_index == NO_INDEX:
        return  # where its log begins, it heard from replicas that may have trimmed theirs (L4)
    shown = state.shown
    index = min(state.commit, state.persisted)
    if not shown.is_ready or (shown.index is not None and index <= shown.index):
        return
    position = state.log.position(index)
    if position is None:
        return  # damaged: the visible LSN moves with the next whole entry
    shown.index = index
    shown.lsn = Lsn(position.next_lsn - 1)
    state.emit(Visible(shown.lsn, index))
    for trim in state.log.take_trims(index):
        state.emit(ApplyTrim(trim))  # it acts once committed, and is read from this disk (G1)


def report_match(state: State) -> None:
    """A follower reports to its leader how far it is verified and flushed, when that has risen; not
    while its log is being dropped (G5a)."""
    if state.installing is not None:
        return
    match = state.claimed_match
    if state.role == Role.FOLLOWER and state.leader != NO_NODE:
        if match > state.following.match_reported:
            repeat_match_report(state, match)


def repeat_match_report(state: State, match: Index) -> None:
    """Report the match again: the leader's message shows that it does not know it."""
    state.following.match_reported = match
    state.answer(state.leader, AppendPersisted(state.term, match))
