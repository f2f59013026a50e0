"""When a leader opens and closes a gen, and which proposals it takes (SAFETY E3, S9, C2, Q3).

Invariants: a gen is open only while this node leads, hands nothing over, has space on its disk and
has no damaged entry that may be uncommitted. The props accepted of a gen are a prefix of those that
ingress offered.
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
    """Open a new gen, if none is open and nothing forbids it."""
    opened = state.gen
    if not opened.is_open and may_open(state):
        opened.is_open, opened.accepted = True, 0
        opened.number += 1
        state.emit(Admit(state.term, opened.number, state.log.last_index, state.persists.last_seq))


def close(state: State, reason: str) -> None:
    """Close the gen: its later props are dropped and get no index or LSN (E3)."""
    opened = state.gen
    if opened.is_open:
        opened.is_open = False
        state.emit(AdmissionClosed(opened.number, opened.accepted, reason))


def try_accept(state: State, gen: int, prop: int) -> bool:
    """Take the next prop of the open gen; False if the gen is closed.

    Raises:
      InvariantViolated: a prop was skipped or repeated within the open gen.
    """
    opened = state.gen
    if not opened.is_open or gen != opened.number:
        return False
    if prop != opened.accepted:
        raise InvariantViolated(f"gen {gen}: prop {prop} came instead of {opened.accepted}")
    opened.accepted += 1
    return True
