"""Every append operation of a run, and its outcome.

Owns the operations and, by (producer, sequence), which operations a stored batch belongs to. An
operation ends acknowledged, refused for good, or unknown; an unknown one may be in the log or not.
Several operations may share a batch: retries under the same numbers, and those of a monotone
producer that opened its session again. Must not know what is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from actors.simulation.checkers.batches import StoredBatch, digest_of, digest_of_body
from actors.simulation.checkers.client_facts import AppendInvoked
from actors.simulation.checkers.producers import Sessions
from logstore.model import SequenceMode


class Outcome(Enum):
    """What the client knows of its append."""

    UNKNOWN = 0
    ACKNOWLEDGED = 1
    IN_LOG = 2  # committed, at LSNs that the session has forgotten
    REFUSED = 3


@dataclass(slots=True)
class Operation:
    """One append of one client."""

    number: int
    producer_id: int
    producer_epoch: int
    sequence: int
    count: int
    digest: bytes
    invoked_ns: int
    returned_ns: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    first_lsn: int = 0
    acknowledged_count: int = 0
    expected_lsn: int | None = None

    @property
    def last_lsn(self) -> int:
        return self.first_lsn + self.acknowledged_count - 1

    def __str__(self) -> str:
        numbers = f"{self.producer_epoch}/{self.sequence}"
        return f"append {self.number} ({numbers} of producer {self.producer_id})"


class Operations:
    """Every append."""

    __slots__ = ("_by_sequence", "_sessions", "all")

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._by_sequence: dict[tuple[int, int], list[Operation]] = {}
        self.all: dict[int, Operation] = {}  # by number

    def add(self, call: AppendInvoked, at_ns: int) -> None:
        """A client begins an append.

        Raises:
          ValueError: its number was used before.
        """
        if call.operation in self.all:
            raise ValueError(f"operation {call.operation} began before: each has its own number")
        digest = digest_of_body(call.batch) if call.batch else digest_of(call.payloads)
        operation = Operation(
            call.operation, call.producer_id, call.producer_epoch, call.sequence,
            len(call.payloads), digest, at_ns, expected_lsn=call.expected_lsn,
        )  # fmt: skip
        self.all[call.operation] = operation
        self._by_sequence.setdefault((call.producer_id, call.sequence), []).append(operation)

    def operations_for(self, batch: StoredBatch) -> list[Operation]:
        """Every operation with these bytes under these numbers."""
        return [
            each
            for each in self._by_sequence.get((batch.producer_id, batch.sequence), ())
            if each.producer_epoch == batch.producer_epoch and each.digest == batch.digest
        ]

    def owners_of(self, batch: StoredBatch) -> list[Operation]:
        """Every operation whose batch this is."""
        return [
            each
            for each in self._by_sequence.get((batch.producer_id, batch.sequence), ())
            if self.is_stored_as(each, batch)
        ]

    def is_stored_as(self, operation: Operation, batch: StoredBatch) -> bool:
        """A monotone sequence is the same batch in every epoch, whatever its bytes (E1)."""
        if (operation.producer_id, operation.sequence) != (batch.producer_id, batch.sequence):
            return False
        if self.is_monotone(operation.producer_id):
            return True
        epoch, digest = operation.producer_epoch, operation.digest
        return (epoch, digest) == (batch.producer_epoch, batch.digest)

    def is_monotone(self, producer_id: int) -> bool:
        return self._sessions.modes.get(producer_id) is SequenceMode.MONOTONE
