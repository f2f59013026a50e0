"""When a leader opens and closes a gen, and which proposals it takes (SAFETY E3, S9, C2, Q3).

Invariants: a gen is open only while this node leads, hands nothing over, has room in its log and
has no damaged entry that may be uncommitted. While its disk is full, or too many others are, the
gen takes no batches. The props accepted of a gen are a prefix of those that ingress offered.
"""

from __future__ import annotations

from logstore.errors import InvariantViolated
from logstore.format.entry import takes_lsns
from logstore.raft import space
from logstore.raft.effects import AdmissionClosed, Admit
from logstore.raft.events import Proposed
from logstore.raft.state import State


def may_open(state: State) -> bool:
    leading = state.leading
    return (
        leading is not None
        and leading.transfer is None
        and space.may_propose(state)
        and not state.has_uncommitted_fault
    )


def open_if_allowed(state: State) -> None:
    """Open a new gen, if nothing forbids it and none is open, or one that takes other entries."""
    opened, leading = state.gen, state.leading
    if leading is None:
        return
    takes_batches = space.takes_batches(state, leading)
    if opened.is_open and opened.takes_batches != takes_batches:
        close(state, "disk_has_space" if takes_batches else "disk_full")
    if not opened.is_open and may_open(state):
        opened.is_open, opened.accepted, opened.takes_batches = True, 0, takes_batches
        opened.number += 1
        log, seq = state.log, state.persists.last_seq
        state.emit(
            Admit(state.term, opened.number, log.last_index, seq, log.newest_trim, takes_batches)
        )


def close(state: State, reason: str) -> None:
    """Close the gen: its later props are dropped and get no index or LSN (E3)."""
    opened = state.gen
    if opened.is_open:
        opened.is_open = False
        state.emit(AdmissionClosed(opened.number, opened.accepted, reason))


def try_accept(state: State, proposed: Proposed) -> bool:
    """Take the next prop of the open gen; False if the gen is closed. It is closed when full disks
    have no room for the prop.

    Raises:
      InvariantViolated: a prop was skipped or repeated within the open gen, or is a batch that the
        gen does not take.
    """
    opened, gen, prop = state.gen, proposed.gen, proposed.prop
    if not opened.is_open or gen != opened.number:
        return False
    if not opened.takes_batches and takes_lsns(proposed.kind):
        raise InvariantViolated(f"gen {gen} takes no batches: {proposed}")
    if not space.leader_takes(state, proposed.kind, proposed.ring_end - proposed.ring_start):
        close(state, "disk_full")
        return False
    if prop != opened.accepted:
        raise InvariantViolated(f"gen {gen}: prop {prop} came instead of {opened.accepted}")
    opened.accepted += 1
    return True
