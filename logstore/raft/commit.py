"""What a new commit index, a flush or a first word of a leader makes true: visible, answered,
whole.

Owns the consequences; the decision that something is committed is `replication`'s (leader) or
`following`'s. Invariants: commit and the visible index only rise (V3); nothing is shown before a
current leader was heard (V4).
"""

from __future__ import annotations

from logstore.format.peer_messages import AppendPersisted
from logstore.model import NO_NODE, Index, Lsn, Role
from logstore.raft.effects import Visible
from logstore.raft.state import State


def follow_commit(state: State, leader_commit: Index) -> None:
    """A follower's commit: min(leader's commit, index verified by this leader in this term)
    (V2)."""
    state.shown.is_ready = True
    raise_commit(state, min(leader_commit, state.verified))


def raise_commit(state: State, index: Index) -> None:
    """Commit up to `index`, if that is news, and show what has become visible."""
    if index > state.commit:
        state.commit = index
        state.stalls = 0
    show(state)
    config = state.config
    state.log.drop_rows(
        min(state.commit, state.persists.persisted),
        kept=config.rows_kept,
        at_once=config.rows_dropped_at_once,
    )


def show(state: State) -> None:
    """visible LSN = next_lsn(min(commit, persisted)) - 1, forward only (V3)."""
    shown = state.shown
    index = min(state.commit, state.persisted)
    if not shown.is_ready or (shown.index is not None and index <= shown.index):
        return
    position = state.log.position(index)
    if position is None:
        return  # the newest visible entry is damaged: the next one above it shows it as lost
    shown.index = index
    shown.lsn = Lsn(position.next_lsn - 1)
    state.emit(Visible(shown.lsn, index))


def answer_match(state: State) -> None:
    """A follower tells its leader how far it is verified and flushed, when that is news."""
    match = state.claimed_match
    if state.role == Role.FOLLOWER and state.leader != NO_NODE:
        if match > state.following.match_answered:
            repeat_match(state, match)


def repeat_match(state: State, match: Index) -> None:
    """Tell it again: the leader shows that it does not know."""
    state.following.match_answered = match
    state.answer(state.leader, AppendPersisted(state.term, match))
