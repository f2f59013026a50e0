"""Passes each fact to the checkers and must-reach marks that read its class (FAULTS section 2).

Owns the table from a fact's class to its readers, made of what each of them declares. A harness
tells each fact once, at the moment it becomes true; facts that it cannot know it leaves out. After
each fact `violations` is complete, and the first one should end the run.
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
    """Of one run. `marks` read facts as checkers do, after the checkers."""

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
