"""Checks the answers to an import, before the core reads them (P1).

Owns the batches and how many are known to be committed. A linearizable read of the log's end
decides how many are; the ack feed shows it earlier.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from actors.simulation.checkers.client_facts import AppendAcknowledged
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.messages.message_checker import Listener, MessageChecker, Received
from actors.simulation.checkers.messages.witness import Witness
from logstore.errors import ErrorCode
from logstore.format.batch import read_batch_header
from logstore.format.client_messages import ACK_ROW, Acks, WatermarksReply

# After these codes the core reads the end of the log again.
REFUSALS = frozenset(
    {
        ErrorCode.GAP,
        ErrorCode.NOT_LEADER,
        ErrorCode.NOT_READY,
        ErrorCode.OVERLOADED,
        ErrorCode.NO_QUORUM,
        ErrorCode.TIMED_OUT,
        ErrorCode.CORRUPT_DATA,
    }
)


class Imported(msgspec.Struct, frozen=True, gc=False):
    """A batch of the other log. `operation`: its number among appends."""

    operation: int
    first_lsn: int
    count: int
    data: bytes

    @property
    def last_lsn(self) -> int:
        return self.first_lsn + self.count - 1


class ImportChecker:
    """`messages` observes the links of an importer. `batches`: all that the core has taken, in
    order; `settled` of them are committed. `leaders`: nodes that acknowledged some."""

    def __init__(self, witness: Witness, on_append: Callable[[Any, bytes], None]) -> None:
        self.witness = witness
        self.batches: list[Imported] = []
        self.settled = 0
        self.leaders: set[int] = set()
        listeners: dict[type[Any], Listener] = {WatermarksReply: self._on_end, Acks: self._on_acks}
        self.messages = MessageChecker(witness, listeners, on_append)

    @property
    def next_lsn(self) -> int:
        """Where the next new batch belongs."""
        return self.batches[-1].last_lsn + 1 if self.batches else int(self.witness.client.first_lsn)

    @property
    def due_lsn(self) -> int:
        """Where the log ends, as far as is known."""
        is_due = self.settled < len(self.batches)
        return self.batches[self.settled].first_lsn if is_due else self.next_lsn

    def _check_compressed(self, first_lsn: int) -> None:
        """The log's format level is too low only for compressed batches."""
        for batch in self.batches:
            if batch.first_lsn == first_lsn and not read_batch_header(batch.data).codec:
                text = f"the import at LSN {first_lsn} is refused for its compression, has none"
                self.witness.violated(Invariant.I21, text)

    # --- what is committed ---

    def _on_end(self, received: Received) -> None:
        """The log ends there, confirmed by a quorum: no other client writes yet, so all of it was
        imported."""
        end_lsn = received.message.visible_lsn
        if not received.request.is_linearizable:
            return
        self._settle(end_lsn)
        if end_lsn != self.due_lsn - 1:
            text = f"the log ends at LSN {end_lsn}, {self.due_lsn - 1} or whole batches more"
            self.witness.violated(Invariant.I6, f"{text} were sent")

    def _on_acks(self, received: Received) -> None:
        """The answer to each request, by its first LSN."""
        for asked, first_lsn, count, code, _ in ACK_ROW.iter_unpack(received.message.rows):
            if code != ErrorCode.OK:
                self.witness.count(f"refused-{ErrorCode(code).name.lower()}")
                if code == ErrorCode.LEVEL_REFUSED:
                    self._check_compressed(asked)
                elif code not in REFUSALS:
                    self.witness.violated(Invariant.I11, f"an import was refused with {code}")
                continue
            batch = next((each for each in self.batches if each.first_lsn == asked), None)
            if batch is None or (first_lsn, count) != (batch.first_lsn, batch.count):
                text = f"the import of {batch} at LSN {asked} was acknowledged as "
                self.witness.violated(Invariant.I4, f"{text}{count} payloads at {first_lsn}")
                continue
            self.leaders.add(received.node)
            self._settle(batch.last_lsn)

    def _settle(self, last_lsn: int) -> None:
        while self.settled < len(self.batches):
            batch = self.batches[self.settled]
            if batch.last_lsn > last_lsn:
                break
            self.settled += 1
            told = AppendAcknowledged(batch.operation, batch.first_lsn, batch.count)
            self.witness.tell(told)
