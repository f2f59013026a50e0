"""Linearizable reads: a new quorum round for every request, after the term's
no-op is committed (V5, C4).

Owns the requests that wait. There are no leases, so clocks decide nothing. Invariant: a request is
answered only by replies to a round that began after the request came, in the same term; nothing is
reused across retries or leaders (FAULTS.R11).
"""

from __future__ import annotations

from logstore.limits import READS_WAITING_MAX
from logstore.model import Lsn
from logstore.raft.effects import ReadIndexAnswered
from logstore.raft.state import Leading, Read, State


def on_request(state: State, request_id: int) -> None:
    """Queue the request; refuse it if this node does not lead or has too many."""
    leading = state.leading
    if leading is None or len(leading.reads) >= READS_WAITING_MAX:
        _refuse(state, request_id)
    else:
        leading.reads.append(Read(request_id))


def wants_round(state: State, leading: Leading) -> bool:
    """A request waits for a round, and no round is under way whose replies could
    answer an earlier one."""
    reads = leading.reads
    return bool(reads) and state.commit >= leading.noop_index and reads[0].needed_round is None


def on_round_begun(state: State, leading: Leading) -> None:
    """Heartbeats of `leading.round` are being sent: their replies may answer
    every request that waits.

    The LSN is fixed here at the latest: it is the commit LSN at a time after the request came.
    """
    if state.commit < leading.noop_index:
        return  # entries above the known commit index may be committed (FAULTS.R9)
    for read in leading.reads:
        if read.needed_round is None:
            read.needed_round = leading.round
            if read.lsn is None:
                position = state.log.recent_position(state.commit)
                read.lsn = Lsn(position.next_lsn - 1)


def on_round_answered(state: State, leading: Leading) -> None:
    """Answer the requests whose round a majority, this node included, has replied to."""
    rounds = {peer: progress.round_answered for peer, progress in leading.progress.items()}
    rounds[state.config.node] = leading.round
    confirmed = state.voters.reached(rounds)
    reads = leading.reads
    while reads:
        read = reads[0]
        if read.needed_round is None or read.lsn is None or read.needed_round > confirmed:
            return
        reads.popleft()
        state.emit(ReadIndexAnswered(read.request_id, True, read.lsn))


def on_pause(leading: Leading) -> None:
    """This process was paused: every waiting request needs a round that begins after it (C4)."""
    for read in leading.reads:
        read.needed_round = None


def refuse_all(state: State, leading: Leading) -> None:
    """Leadership ended: no round can confirm these requests any more."""
    for read in leading.reads:
        _refuse(state, read.request_id)
    leading.reads.clear()


def _refuse(state: State, request_id: int) -> None:
    state.emit(ReadIndexAnswered(request_id, False, Lsn(0)))
