"""Every process that publishes for another rings its bell afterwards (SAFETY M7).

The station knows which bells a process still has to ring (`rings.OwedBells`). Must not know which
process sleeps: the publisher does not know it either, so it always rings before its do_work ends.
"""

from __future__ import annotations

from actors.simulation.checkers.facts import BellsNotRung
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record


class Bells:
    """Checks every process at the end of each do_work."""

    def __init__(self, record: Record) -> None:
        self._findings = record.findings

    @reads(BellsNotRung)
    def on_not_rung(self, bells: BellsNotRung) -> None:
        """The receiver may sleep until something else is published for it."""
        for receiver in bells.receivers:
            text = f"{bells.node}.{bells.process} publishes for {receiver} and does not ring"
            self._findings.report(Invariant.I13, f"{text} afterwards")
