"""Leadership transfer: on request, or because this disk is unfit for a leader (C2, V6, S9, Q3).

Owns the steps: close the gen, wait until the target has caught up, send TimeoutNow, and open a gen
again after an election timeout. Invariant: one transfer at a time; no gen is open while it lasts.
"""

from __future__ import annotations

from logstore.format.peer_messages import TimeoutNow
from logstore.limits import TRANSFER_LAG_MAX
from logstore.model import NO_INDEX, NO_NODE, Index, NodeId
from logstore.raft import gens, role
from logstore.raft.effects import Log
from logstore.raft.events import TransferRequested
from logstore.raft.progress import Progress
from logstore.raft.state import Leading, State, Transfer


def on_requested(state: State, event: TransferRequested) -> None:
    """Begin, or answer why not."""
    leading = state.leading
    target = event.target
    if leading is None:
        _refuse(state, event, "this replica does not lead")
    elif leading.transfer is not None:
        _refuse(state, event, "a transfer is under way")
    elif target == state.config.node:
        role.answer_transfer(state, event.request_id, is_done=True, reason="leads already")
    elif target != NO_NODE and target not in _voters(state):
        _refuse(state, event, f"node {target} is no voter of this cluster")
    else:
        fit = [
            progress
            for progress in _candidates(state, leading)
            if target in (NO_NODE, progress.peer) and _is_fit(state, progress)
        ]
        if fit:
            _begin(state, leading, _best(fit), event.request_id)
        else:
            unfit = (
                _why_unfit(state, progress)
                for progress in _candidates(state, leading)
                if target in (NO_NODE, progress.peer)
            )
            _refuse(state, event, "; ".join(unfit) or "there is no other voter")


def on_own_disk(state: State, leading: Leading) -> None:
    """A leader with a full disk closes its gen and hands over; if nobody takes over, it opens one
    without batches (S9)."""
    if state.is_disk_full:
        gens.close(state, "disk_full")
        begin_if_disk_is_unfit(state, leading)
    gens.open_if_allowed(state)


def begin_if_disk_is_unfit(state: State, leading: Leading) -> None:
    """Hand over if this disk is stuck, full or damaged and another replica's is not. A leader needs
    a working disk."""
    if leading.transfer is not None or state.now_ns < leading.next_handover_ns:
        return
    fit = [progress for progress in _candidates(state, leading) if _is_fit(state, progress)]
    since_ns = stalled_since_ns(state)
    if since_ns is not None:
        fit = [progress for progress in fit if progress.advanced_ns > since_ns]
    elif state.is_disk_full or state.faulty:
        fit = [progress for progress in fit if progress.is_whole]
        if not state.faulty:  # a full one would hand back, and so on without end
            fit = [progress for progress in fit if not progress.is_disk_full]
    else:
        return
    if fit:
        node = state.config.node
        why = _why_not_lead(state)
        state.emit(Log(f"node {node} hands term {state.term} over: its disk cannot lead, {why}"))
        leading.next_handover_ns = state.now_ns + 2 * state.config.election_timeout_ns
        _begin(state, leading, _best(fit), None)


def on_rotted(state: State, index: Index) -> None:
    """A reader found a damaged entry. From now on it is a faulty entry: it caps what is claimed and
    is no reason to truncate (Q1)."""
    log = state.log
    if not log.start.index < index <= log.last_index or index in state.faulty:
        return
    state.faulty.add(index)
    state.emit(Log(f"node {state.config.node}: entry {index} is damaged on disk"))
    if state.leading is not None:
        if state.has_uncommitted_fault:
            gens.close(state, "transfer")
        begin_if_disk_is_unfit(state, state.leading)


def begin_to_best(state: State, leading: Leading, *, caught_up_only: bool) -> bool:
    """Hand over to the best voter that is fit, if there is one, and wait for it to catch up (C9).
    `caught_up_only`: it must have this whole log already (V6)."""
    fit = [
        progress
        for progress in _candidates(state, leading)
        if _is_fit(state, progress)
        and (progress.match == state.log.last_index or not caught_up_only)
    ]
    if fit:
        _begin(state, leading, _best(fit), None)
    return bool(fit)


def advance(state: State, leading: Leading) -> None:
    """Send TimeoutNow once the target has caught up, and again every heartbeat,
    since it may be lost."""
    transfer = leading.transfer
    if transfer is None:
        return
    if state.now_ns >= transfer.deadline_ns:
        leading.transfer = None
        reason = (
            f"node {transfer.target} did not take over within an election timeout"
            f"{_what_it_lacks(state, leading.progress[transfer.target])}"
        )
        role.answer_transfer(state, transfer.request_id, is_done=False, reason=reason)
        why = _why_it_cannot_succeed(state, transfer, leading.progress[transfer.target])
        if why:
            role.step_down_quietly(state, leading, f"{why}, and nobody got level")
            return
        gens.open_if_allowed(state)
    elif leading.progress[transfer.target].match == state.log.last_index:
        sent_ns = transfer.timeout_sent_ns
        if sent_ns is None or state.now_ns - sent_ns >= state.config.heartbeat_ns:
            transfer.timeout_sent_ns = state.now_ns
            state.send(transfer.target, TimeoutNow(state.term))


def conclude(state: State) -> None:
    """After TimeoutNow: the next leader, or a timeout without one, decides
    whether the transfer worked."""
    transfer = state.handed_over
    if transfer is None:
        return
    if state.leader != NO_NODE:
        is_done = state.leader == transfer.target
        reason = f"node {state.leader} leads term {state.term}"
    elif state.now_ns >= transfer.deadline_ns:
        is_done, reason = False, "no leader is known yet"
    else:
        return
    state.handed_over = None
    role.answer_transfer(state, transfer.request_id, is_done=is_done, reason=reason)


def _begin(state: State, leading: Leading, target: Progress, request_id: int | None) -> None:
    deadline_ns = state.now_ns + state.config.election_timeout_ns
    leading.transfer = Transfer(target.peer, request_id, deadline_ns)
    gens.close(state, "transfer")
    advance(state, leading)


def _voters(state: State) -> tuple[NodeId, ...]:
    """Those that may lead from now on: while voters change, the new ones."""
    return state.voters.incoming or state.voters.voters


def _candidates(state: State, leading: Leading) -> list[Progress]:
    voters = _voters(state)
    return [progress for progress in leading.progress.values() if progress.peer in voters]


def _is_fit(state: State, progress: Progress) -> bool:
    since_ns = state.now_ns - state.config.election_timeout_ns
    lag = state.log.last_index - progress.match
    return progress.was_heard_since(since_ns) and lag <= TRANSFER_LAG_MAX


def _why_unfit(state: State, progress: Progress) -> str:
    """Why a voter is not fit, as text."""
    if not progress.was_heard_since(state.now_ns - state.config.election_timeout_ns):
        return f"node {progress.peer} has not answered within an election timeout"
    return (
        f"node {progress.peer} is {state.log.last_index - progress.match} entries behind, and a "
        f"transfer waits for {TRANSFER_LAG_MAX} at most"
    )


def _what_it_lacks(state: State, progress: Progress) -> str:
    """What keeps the target from taking over, as far as this leader knows."""
    lag = state.log.last_index - progress.match
    lacking = [f"it lacks {lag} entries"] if lag else []
    if progress.is_disk_full:
        lacking.append("its disk is full")
    if progress.faulty_first != NO_INDEX:
        lacking.append("entries of its log are damaged")
    return f": {' and '.join(lacking)}" if lacking else ""


def _why_not_lead(state: State) -> str:
    if stalled_since_ns(state) is not None:
        return "a flush does not end"
    return "it is full" if state.is_disk_full else "entries of the log are damaged"


def _best(fit: list[Progress]) -> Progress:
    """The best target: whole before damaged, with space before full, then the highest match, then
    the lowest node id."""
    return max(
        fit,
        key=lambda progress: (
            progress.is_whole,
            not progress.is_disk_full,
            progress.match,
            -progress.peer,
        ),
    )


def _why_it_cannot_succeed(state: State, transfer: Transfer, target: Progress) -> str:
    """Why a transfer of its own idea can never end; empty: it may. The target never catches up: it
    lacks the damaged entry, which this node cannot send and without which it stays a follower as
    long as heartbeats arrive (Q3); or both disks are full, and the target takes no more of the
    entries that wait for this one. Others may have room for the TRIM that ends this (S9)."""
    if transfer.request_id is not None or transfer.timeout_sent_ns is not None:
        return ""
    if state.has_uncommitted_fault:
        return "a damaged entry of its log may be uncommitted"
    if state.is_disk_full and target.is_disk_full and stalled_since_ns(state) is not None:
        return "entries wait for its full disk"
    return ""


def stalled_since_ns(state: State) -> int | None:
    """When the oldest outstanding flush was ordered, if that is more than two
    election timeouts ago (V6)."""
    ordered_ns = state.persists.oldest_ordered_ns
    limit_ns = state.now_ns - 2 * state.config.election_timeout_ns
    return ordered_ns if ordered_ns is not None and ordered_ns < limit_ns else None


def _refuse(state: State, event: TransferRequested, reason: str) -> None:
    role.answer_transfer(state, event.request_id, is_done=False, reason=reason)
