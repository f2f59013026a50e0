"""What one session has sent amiss on purpose, and what may be said of it.

Owns the batches that must be refused, and rounds of their own for all of it: the core, which did
not send it, takes no refusal of another round for one of its own batches. Must not know how any of
it is sent.
"""

from __future__ import annotations

from actors.simulation.checkers.client_facts import AppendRefused, BatchRefused
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.wire import Wire
from logstore.errors import ErrorCode

# Rounds that no session reaches: they are numbered up from zero.
ODD_ROUND_FIRST = 1 << 31


class Amiss:
    """`bad`: by sequence, the operations of batches that no replica may take."""

    def __init__(self, wire: Wire) -> None:
        self.bad: dict[int, int] = {}
        self._wire = wire
        self._next_round = ODD_ROUND_FIRST

    def odd_round(self) -> int:
        """The round of one push."""
        self._next_round += 1
        return self._next_round

    def answered(self, sequence: int, code: int) -> None:
        """A replica answers such a push of a dense session (E7)."""
        wire = self._wire
        wire.host.tell(BatchRefused(code))
        if code == ErrorCode.SEQUENCE_REUSED:
            wire.count("sequence-reused")
        elif code == ErrorCode.OK:
            text = f"other bytes under the used sequence {sequence} are said to be committed"
            wire.violated(Invariant.I7, text)

    def refused(self, sequence: int, code: int) -> bool:
        """A refusal that was asked for; False: it was not."""
        operation = self.bad.get(sequence)  # it stays: a message may come twice
        if code == ErrorCode.OK or operation is None:
            return False
        wire = self._wire
        wire.count("refused-for-good")
        wire.host.tell(AppendRefused(operation, code))
        return True
