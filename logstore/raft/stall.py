"""A leader that cannot commit anything stops leading (SAFETY V6).

Owns when that is so. Must not know how entries travel. The case: the leader's appends
are lost while its heartbeats arrive (a path MTU, a blocked bulk port), so its followers
stay its followers for ever.

Full disks are excluded. If so many followers are full that nothing can be committed whatever the
paths are, a change of leader would only end the reads that this one serves (S9).

Invariant: the timeout doubles each time until something is committed. So a cluster that cannot
commit under any leader has few elections.
"""

from __future__ import annotations

from logstore.limits import STALL_DOUBLINGS_MAX, STALL_ELECTION_TIMEOUTS
from logstore.raft import role, space, transfer
from logstore.raft.progress import Progress
from logstore.raft.state import Leading, State


def on_appended(state: State, leading: Leading) -> None:
    """An entry was appended to the leader's log. If it is the only uncommitted
    one, the timeout starts."""
    if state.commit + 1 == state.log.last_index:
        leading.progressed_ns = state.now_ns


def on_progress(state: State, leading: Leading, progress: Progress) -> None:
    """The peer accepted or persisted more. That is progress while the peer is a voter and lacks the
    first entry that counting can commit, which is of this term (V1); later ones bring no commit
    nearer. The caller has not updated the peer's match yet."""
    if progress.peer not in state.electors:
        return  # a learner may catch up for hours
    if progress.match < max(state.commit + 1, leading.noop_index):
        leading.progressed_ns = state.now_ns


def give_up_if_stalled(state: State, leading: Leading) -> bool:
    """Hand over or step down if there is no progress. True if this node stopped leading.

    The caller has checked that a majority answers heartbeats. If this leader's own flush is late,
    `transfer.begin_if_disk_is_unfit` chooses the better successor. The core's own handover is left
    to end, since it does; requested ones may follow each other for ever. Time in which too many
    disks are full does not count.
    """
    if space.lacks_space(state, leading):
        leading.progressed_ns = state.now_ns
        return False
    is_handing_over = leading.transfer is not None
    if leading.transfer is not None and leading.transfer.request_id is None:
        return False
    if transfer.stalled_since_ns(state) is not None:
        return False
    if not leading.progress or state.commit >= state.log.last_index:
        return False
    doublings = min(state.stalls, STALL_DOUBLINGS_MAX)
    patience_ns = (STALL_ELECTION_TIMEOUTS << doublings) * state.config.election_timeout_ns
    if state.now_ns - leading.progressed_ns <= patience_ns:
        return False
    if not leading.has_tried_handover and not is_handing_over:
        leading.has_tried_handover = True
        if transfer.begin_to_best(state, leading, caught_up_only=True):
            return False
    role.step_down_quietly(state, leading, f"entry {state.commit + 1} reaches no majority")
    return True
