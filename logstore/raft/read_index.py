"""Linearizable reads: a fresh quorum round for every request, after the term's no-op committed
(V5, C4).

Owns the requests that wait. No leases: the clock decides nothing. Invariant: a request is answered
only by replies to a round that was begun after the request came, in the term that still lasts;
nothing is reused across retries or leaders (FAULTS.R11).
"""

from __future__ import annotations

from logstore.limits import READS_WAITING_MAX
from logstore.model import Lsn
from logstore.raft.effects import ReadIndexAnswered
from logstore.raft.quorum import majority_value
from logstore.raft.state import Leading, Read, State


def on_request(state: State, request_id: int) -> None:
    """Queue the request; whoever does not lead, or has too many, sends it elsewhere."""
    leading = state.leading
    if leading is None or len(leading.reads) >= READS_WAITING_MAX:
        _refuse(state, request_id)
    else:
        leading.reads.append(Read(request_id))


def wants_round(state: State, leading: Leading) -> bool:
    """Some request waits for a round, and none is under way that later replies could end."""
    reads = leading.reads
    return bool(reads) and state.commit >= leading.noop_index and reads[0].needed_round is None


def on_round_begun(state: State, leading: Leading) -> None:
    """Heartbeats of `leading.round` are going out: everything that waits may be answered by it.

    The LSN is fixed here at the latest: it is the commit LSN at a time after the request came.
    """
    if state.commit < leading.noop_index:
        return  # what the log holds beyond the commit index known may be committed (FAULTS.R9)
    for read in leading.reads:
        if read.needed_round is None:
            read.needed_round = leading.round
            if read.lsn is None:
                position = state.log.recent_position(state.commit)
                read.lsn = Lsn(position.next_lsn - 1)


def on_round_answered(state: State, leading: Leading) -> None:
    """Answer the requests whose round a majority, this node included, has replied to."""
    rounds = [progress.round_answered for progress in leading.progress.values()]
    confirmed = majority_value([*rounds, leading.round])
    reads = leading.reads
    while reads:
        read = reads[0]
        if read.needed_round is None or read.lsn is None or read.needed_round > confirmed:
            return
        reads.popleft()
        state.emit(ReadIndexAnswered(read.request_id, True, read.lsn))


def on_pause(leading: Leading) -> None:
    """This process stood still: every waiting request needs a round begun after it (C4)."""
    for read in leading.reads:
        read.needed_round = None


def refuse_all(state: State, leading: Leading) -> None:
    """Leadership ended: nothing can be confirmed any more."""
    for read in leading.reads:
        _refuse(state, read.request_id)
    leading.reads.clear()


def _refuse(state: State, request_id: int) -> None:
    state.emit(ReadIndexAnswered(request_id, False, Lsn(0)))
