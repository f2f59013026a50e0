"""What leaders send to each peer, without a gap (W2, W5), and that they begin anew when a peer was
started anew (W1).

Owns, for each term, how far each peer was sent entries and how far it said to have them. A leader
knows nothing of a peer when its term begins: its first entry for it is its no-op or an older one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.replica import Replica
from logstore.raft.effects import Effect, Lead, StopLeading
from logstore.raft.events import ControlReceived, StreamAnswer


@dataclass(slots=True)
class _Term:
    """One leader's term: its no-op, and the highest index that each peer was sent or told of."""

    noop_index: int
    reached: dict[int, int] = field(default_factory=dict)
    boots: dict[int, int] = field(default_factory=dict)


class PeerStreams:
    """All terms that somebody led."""

    __slots__ = ("_findings", "_terms")

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._terms: dict[int, _Term] = {}

    def on_leader(self, term: int, noop_index: int) -> None:
        """A term is led from now on."""
        self._terms.setdefault(term, _Term(noop_index))

    def on_sent(self, node: int, peer: int, term: int, index: int, at_ns: int) -> None:
        """An entry leaves for `peer`, in an append of `term`."""
        known = self._terms.get(term)
        if known is None:
            return
        reached = max(known.noop_index - 1, known.reached.get(peer, 0))
        if index > reached + 1:
            text = f"node {node} sends entry {index} of term {term} to node {peer}"
            text = f"{text}, which has not been given those behind {reached}"
            self._findings.report(Invariant.I12, text, at_ns)
        known.reached[peer] = max(reached, index)

    def on_told(self, peer: int, term: int, index: int) -> None:
        """`peer` says that it has everything up to `index`."""
        known = self._terms.get(term)
        if known is not None:
            known.reached[peer] = max(known.reached.get(peer, 0), index)

    def on_heard(
        self,
        replica: Replica,
        term: int,
        heard: StreamAnswer | ControlReceived,
        effects: Sequence[Effect],
        at_ns: int,
    ) -> None:
        """The leader of `term` hears a peer in it, and does what follows. Hot."""
        known = self._terms.get(term)
        if known is None:
            return
        peer, boot = heard.sender, heard.boot
        before = known.boots.setdefault(peer, boot)
        if boot <= before:
            return
        known.boots[peer] = boot
        for effect in effects:
            if isinstance(effect, StopLeading) or (
                isinstance(effect, Lead) and effect.peer == peer
            ):
                return
        text = f"node {replica.node} hears node {peer} from a new start, boot {boot}"
        text = f"{text}, and goes on with its stream as if nothing were lost"
        self._findings.report(Invariant.I12, text, at_ns)
