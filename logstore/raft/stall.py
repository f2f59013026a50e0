"""A leader under which nothing is committed gives its place up (SAFETY V6).

Owns when that is so. Must not know how entries travel. The leader's appends are lost while its
heartbeats arrive (a path MTU, a blocked bulk port), and the heartbeats keep everybody else a
follower for ever.

Full disks are not its concern: where so many followers are full that nothing can be committed
whatever the paths are, a change of leader would only end the reads that this one serves (S9).

Invariant: until something is committed, each time takes twice as long as the one before, so that a
cluster that cannot commit whoever leads it has few elections.
"""

from __future__ import annotations

from logstore.limits import STALL_DOUBLINGS_MAX, STALL_ELECTION_TIMEOUTS
from logstore.raft import role, transfer
from logstore.raft.progress import Progress
from logstore.raft.quorum import majority
from logstore.raft.state import Leading, State


def on_appended(state: State, leading: Leading) -> None:
    """An entry was added to the leader's log: if it is the only uncommitted one, its age begins."""
    if state.commit + 1 == state.log.last_index:
        leading.moved_ns = state.now_ns


def on_moved(state: State, leading: Leading, progress: Progress) -> None:
    """The peer accepted or persisted more. It counts while the peer lacks the first entry that can
    be committed by counting, which is of this term (V1): after that it brings no commit nearer. The
    caller has not updated its match yet."""
    if progress.match < max(state.commit + 1, leading.noop_index):
        leading.moved_ns = state.now_ns


def give_up(state: State, leading: Leading) -> bool:
    """Hand over or step down if nothing moves; True if this node leads no more.

    The caller has checked that a majority answers heartbeats. A leader whose own flush is late is
    left to `transfer.seek`, which knows better successors for it. A handover of its own idea may
    end; one that was asked for may be followed by the next for ever. Time in which too many disks
    are full does not count.
    """
    if _lacks_space(state, leading):
        leading.moved_ns = state.now_ns
        return False
    is_handing_over = leading.transfer is not None
    if leading.transfer is not None and leading.transfer.request_id is None:
        return False
    if transfer.stalled_since_ns(state) is not None:
        return False
    if not state.config.peers or state.commit >= state.log.last_index:
        return False
    doublings = min(state.stalls, STALL_DOUBLINGS_MAX)
    patience_ns = (STALL_ELECTION_TIMEOUTS << doublings) * state.config.election_timeout_ns
    if state.now_ns - leading.moved_ns <= patience_ns:
        return False
    if not leading.has_tried_level and not is_handing_over:
        leading.has_tried_level = True
        if transfer.begin_to_level(state, leading):
            return False
    role.step_down_quietly(state, leading, f"entry {state.commit + 1} reaches no majority")
    return True


def _lacks_space(state: State, leading: Leading) -> bool:
    """With this node, whose own entries are flushed, fewer than a majority could take an entry: the
    others' disks are full, or they do not answer. With no disk full, check-quorum has seen to
    it that enough answer."""
    since_ns = state.now_ns - state.config.election_timeout_ns
    able = 1 + sum(
        progress.was_heard_since(since_ns) and not progress.is_disk_full
        for progress in leading.progress.values()
    )
    return able < majority(len(state.config.voters))
