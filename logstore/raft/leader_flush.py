"""Telling ingress how far the leader's own disk is, where a batch waits for that (SAFETY E10, F9).

Owns which entries are waited for, and what was reported. Invariants: a report says what this
replica's own flush covers, never what followers have; there is one at most for each flush, and none
while no group waits, so that who waits for a majority pays nothing.
"""

from __future__ import annotations

from logstore.model import Index
from logstore.raft.effects import Flushed
from logstore.raft.state import Leading, State


def wait_for(state: State, leading: Leading, index: Index) -> None:
    """A batch in the entry at `index`, the newest one, is answered once it is flushed here."""
    if leading.flush_reported >= leading.flush_awaited:
        leading.flush_reported = state.persisted  # so far no batch waited for it
    leading.flush_awaited = index


def report(state: State, leading: Leading) -> None:
    """Report the flush to ingress, if entries are waited for and more of the log is flushed.

    A damaged entry that may be uncommitted caps it (Q1): what lies above is reported once the
    damage is known to be below the commit index.
    """
    reported = leading.flush_reported
    if reported < leading.flush_awaited and (flushed := state.persisted) > reported:
        leading.flush_reported = flushed
        state.emit(Flushed(state.term, flushed))
