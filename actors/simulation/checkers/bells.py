"""That whoever publishes for a process rings its bell behind it (SAFETY M7).

Whom a process owes a bell, its station knows (`rings.OwedBells`). Must not know who sleeps: no
giver knows, so each rings always, before its work is over.
"""

from __future__ import annotations

from actors.simulation.checkers.facts import BellsOwed
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record


class Bells:
    """All processes'."""

    def __init__(self, record: Record) -> None:
        self._findings = record.findings

    @reads(BellsOwed)
    def on_owed(self, owed: BellsOwed) -> None:
        """A bell that is still owed comes with other news, or never."""
        for receiver in owed.receivers:
            text = f"{owed.node}.{owed.process} publishes for {receiver} and does not ring"
            self._findings.report(Invariant.I13, f"{text} afterwards")
