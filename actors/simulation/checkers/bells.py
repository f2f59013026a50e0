"""That whoever publishes for a process rings its bell behind it (SAFETY M7).

Owns whom each process owes a bell: those it has put something into a ring for since it last rang
theirs. Must not know who sleeps: no giver knows, so each rings always, before its work is over.
"""

from __future__ import annotations

from actors.simulation.checkers.invariant import Findings, Invariant

Giver = tuple[int, str]  # a node, and a process of it


class Bells:
    """All processes'."""

    __slots__ = ("_findings", "owed")

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.owed: dict[Giver, dict[str, None]] = {}  # receivers; read by hot paths

    def on_offered(self, giver: Giver, receiver: str) -> None:
        """A message is in a ring that `receiver` reads. Hot."""
        owed = self.owed.get(giver)
        if owed is None:
            owed = self.owed[giver] = {}
        owed[receiver] = None

    def on_rung(self, giver: Giver, receiver: str) -> None:
        """Everything before this finds it awake. Hot."""
        owed = self.owed.get(giver)
        if owed:
            owed.pop(receiver, None)

    def on_worked(self, giver: Giver, at_ns: int) -> None:
        """A do_work is over: a bell that is still owed comes with other news, or never."""
        owed = self.owed.get(giver)
        if not owed:
            return
        node, process = giver
        for receiver in owed:
            text = f"{node}.{process} publishes for {receiver} and does not ring afterwards"
            self._findings.report(Invariant.I13, text, at_ns)
        owed.clear()

    def on_death(self, node: int, process: str) -> None:
        """The dead owe nothing; "" is all processes of the node."""
        for giver in list(self.owed):
            if giver[0] == node and process in ("", giver[1]):
                del self.owed[giver]
