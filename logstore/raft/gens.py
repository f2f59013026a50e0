"""A leader's admission: when it opens and closes, and which proposals it takes (SAFETY E3, S9, C2,
Q3).

Invariants: admission is open only while this node leads, hands nothing over, has room on its disk
and has no damaged entry that may be uncommitted; what is accepted of a gen is a prefix of its
props.
"""

from __future__ import annotations

from logstore.errors import InvariantViolated
from logstore.raft.effects import AdmissionClosed, Admit
from logstore.raft.state import State


def may_open(state: State) -> bool:
    leading = state.leading
    return (
        leading is not None
        and leading.transfer is None
        and not state.is_disk_full
        and not state.has_uncommitted_fault
    )


def open_if_allowed(state: State) -> None:
    """Begin a new gen, if none is open and nothing forbids it."""
    admission = state.admission
    if not admission.is_open and may_open(state):
        admission.is_open, admission.accepted = True, 0
        admission.gen += 1
        state.emit(Admit(state.term, admission.gen, state.log.last_index, state.persists.last_seq))


def close(state: State, reason: str) -> None:
    """Every later Proposed of the open gen is dropped without index or LSN (E3)."""
    admission = state.admission
    if admission.is_open:
        admission.is_open = False
        state.emit(AdmissionClosed(admission.gen, admission.accepted, reason))


def try_accept(state: State, gen: int, prop: int) -> bool:
    """Take the next prop of the open gen; False for one of a closed gen.

    Raises:
      InvariantViolated: a prop was skipped or repeated within the open gen.
    """
    admission = state.admission
    if not admission.is_open or gen != admission.gen:
        return False
    if prop != admission.accepted:
        raise InvariantViolated(f"gen {gen}: prop {prop} came instead of {admission.accepted}")
    admission.accepted += 1
    return True
