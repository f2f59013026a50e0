"""The one door through which facts reach the checkers and the must-reach marks (FAULTS section 2).

Owns the table from the class of a fact to those who read it, made of what each of them declares.
Whoever runs a history, simulated or real, tells each fact once, at the moment it is true. After
each fact `violations` is complete: the first one should stop the run. Facts that a harness cannot
know are left out; what they would check is then not checked before `LogRead`.
"""

from __future__ import annotations

from actors.observer import Seen
from actors.simulation.checkers.catalogue import CHECKERS
from actors.simulation.checkers.facts import Fact, Stepped
from actors.simulation.checkers.invariant import Violation
from actors.simulation.checkers.reads import Table
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.steps import Steps


class Ledger:
    """One run's facts. `marks` read them as checkers do, after all of those."""

    def __init__(self, record: Record, *marks: object) -> None:
        self.record = record
        readers = [*(make(record) for make in CHECKERS), *marks]
        self.table = Table(readers, "reads")
        self.table[Stepped] = [Steps(record, self.table, Table(readers, "reads_after")).on_step]
        self.violations: list[Violation] = record.findings.violations
        record.open(self.tell)

    def tell(self, fact: Fact | Seen) -> None:
        """Hot."""
        for read in self.table[type(fact)]:
            read(fact)
