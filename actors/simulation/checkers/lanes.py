"""Every do_work reads each control lane, whatever else waits for room (SAFETY W7).

Owns the oldest unread message of each lane. Must not know how much a do_work may read: it must read
at least one message.
"""

from __future__ import annotations

from actors.simulation.checkers.facts import ControlLaneUnread
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record


class ControlLanes:
    """Checks the control lanes of all processes."""

    def __init__(self, record: Record) -> None:
        self._findings = record.findings
        self._left: dict[tuple[str, str], object] = {}  # the oldest message, kept for its identity

    @reads(ControlLaneUnread)
    def on_unread(self, lane: ControlLaneUnread) -> None:
        """It was unread at the end of the do_work before, too."""
        key = (lane.process, lane.endpoint)
        if self._left.get(key) is lane.oldest:
            text = f"{lane.process} does not read {lane.endpoint}, a control lane"
            self._findings.report(Invariant.I13, text)
        self._left[key] = lane.oldest
