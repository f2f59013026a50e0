"""What a follower says it has, against what its leader has shown it in this term (V2, F4, W1).

Owns, for each follower, the highest index that an append or a heartbeat of its term's leader named
since the follower started or the term began. Whatever it says to have beyond that, and beyond what
it knows committed, it only believes: another leader's entries may stand there.
"""

from __future__ import annotations

from dataclasses import dataclass

from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.ports import Core
from actors.simulation.checkers.replica import Replica
from logstore.format.peer_messages import AppendAccepted, AppendPersisted


@dataclass(slots=True)
class _Shown:
    """To one incarnation, in one term."""

    incarnation: int
    term: int
    index: int = 0


class Verified:
    """All followers, by node."""

    __slots__ = ("_findings", "_shown")

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._shown: dict[int, _Shown] = {}

    def on_shown(self, replica: Replica, term: int, index: int) -> None:
        """The leader of `term`, which is the follower's own by now, names an entry. Hot."""
        shown = self._shown_to(replica, term)
        shown.index = max(shown.index, index)

    def on_told(
        self, replica: Replica, core: Core, told: AppendAccepted | AppendPersisted, at_ns: int
    ) -> None:
        """The follower's word. What it says of an older term was withheld: it was true then."""
        if told.term != core.term:
            return
        shown = self._shown_to(replica, told.term)
        if told.index > max(shown.index, core.commit):
            text = f"node {replica.node} says {told}, and was shown {shown.index} in this term"
            self._findings.report(Invariant.I12, text, at_ns)

    def _shown_to(self, replica: Replica, term: int) -> _Shown:
        shown = self._shown.get(replica.node)
        if shown is None or (shown.incarnation, shown.term) != (replica.incarnation, term):
            shown = self._shown[replica.node] = _Shown(replica.incarnation, term)
        return shown
