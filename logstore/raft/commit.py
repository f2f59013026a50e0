"""What follows from a new commit index, a flush or a leader's first message: what is visible and
what is reported.

Owns the consequences. `replication` (leader) and `following` decide that an entry is committed.
Invariants: the commit index and the visible index only rise (V3); nothing is visible before a
current leader was heard (V4).
"""

from __future__ import annotations

from logstore.errors import ErrorCode
from logstore.format.peer_messages import AppendPersisted
from logstore.model import NO_NODE, Index, Lsn, Role
from logstore.raft.effects import LevelAnswered, Log, SaveLevel, Visible
from logstore.raft.state import State


def follow_commit(state: State, leader_commit: Index) -> None:
    """A follower's commit is min(leader's commit, index verified by this
    leader in this term) (V2)."""
    state.shown.is_ready = True
    raise_commit(state, min(leader_commit, state.verified))


def raise_commit(state: State, index: Index) -> None:
    """Raise the commit index to `index`, if that is higher, and make visible what may be."""
    if index > state.commit:
        state.commit = index
        state.stalls = 0
        level = state.log.level_at(index)
        if level > state.level:
            _raise_level(state, level)
    advance_visible(state)
    config = state.config
    state.log.drop_rows(
        min(state.commit, state.persists.persisted),
        kept=config.rows_kept,
        at_once=config.rows_dropped_at_once,
    )


def _raise_level(state: State, level: int) -> None:
    """The entry that raises the log to `level` is committed: forms of it may be written and sent
    from now on (S11)."""
    state.level = level
    state.emit(SaveLevel(level))
    state.emit(Log(f"node {state.config.node}: the log is at format level {level}"))
    leading = state.leading
    if leading is not None and leading.raising is not None and leading.raising.level <= level:
        state.emit(LevelAnswered(leading.raising.request_id, ErrorCode.OK, level, ""))
        leading.raising = None


def advance_visible(state: State) -> None:
    """visible LSN = next_lsn(min(commit, persisted)) - 1, forward only (V3)."""
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


def report_match(state: State) -> None:
    """A follower reports to its leader how far it is verified and flushed, when that has risen."""
    match = state.claimed_match
    if state.role == Role.FOLLOWER and state.leader != NO_NODE:
        if match > state.following.match_reported:
            repeat_match_report(state, match)


def repeat_match_report(state: State, match: Index) -> None:
    """Report the match again: the leader's message shows that it does not know it."""
    state.following.match_reported = match
    state.answer(state.leader, AppendPersisted(state.term, match))
