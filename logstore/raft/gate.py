"""When a leader's admission opens and closes (SAFETY E3, S9, C2, Q3).

Invariant: admission is open only while this node leads, hands nothing over, has room on its disk
and has no damaged entry that may be uncommitted.
"""

from __future__ import annotations

from logstore.raft.effects import AdmissionClosed, Admit
from logstore.raft.state import State


def may_admit(state: State) -> bool:
    leading = state.leading
    return (
        leading is not None
        and leading.transfer is None
        and not state.is_disk_full
        and not state.has_uncommitted_fault
    )


def open_admission_if_allowed(state: State) -> None:
    """Begin a new gen, if none is open and nothing forbids it."""
    if not state.admission.is_open and may_admit(state):
        gen = state.admission.open()
        state.emit(Admit(state.term, gen, state.log.last_index, state.persists.last_seq))


def close_admission(state: State, reason: str) -> None:
    """Every later Proposed of the open gen is dropped without index or LSN (E3)."""
    admission = state.admission
    if admission.is_open:
        admission.close()
        state.emit(AdmissionClosed(admission.gen, admission.accepted, reason))
