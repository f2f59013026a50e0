"""Every process that publishes for another rings its bell afterwards (SAFETY M7).

The station knows which bells a process still has to ring (`rings.OwedBells`). Must not know which
process sleeps: the publisher does not know it either, so it always rings before its do_work ends.
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
        """The receiver may sleep until something else is published for it."""
        for receiver in owed.receivers:
            text = f"{owed.node}.{owed.process} publishes for {receiver} and does not ring"
            self._findings.report(Invariant.I13, f"{text} afterwards")
