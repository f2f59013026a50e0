"""Reports what its observer alone can judge: an answer that breaks the protocol, a ring that is
misused, a process that sleeps although something was published for it, a run that does not end (any
of I1 to I17).
"""

from __future__ import annotations

from actors.simulation.checkers.facts import PromiseBroken
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record


class Witnesses:
    """Reports every `PromiseBroken` as a violation."""

    def __init__(self, record: Record) -> None:
        self._findings = record.findings

    @reads(PromiseBroken)
    def on_broken(self, broken: PromiseBroken) -> None:
        self._findings.report(broken.invariant, broken.text)
