"""What producers asked for and were told: every append operation of a run (I1, I7, I10, I15 apart).

Owns the operations and, by (producer, sequence), which stored batch is whose. An operation ends
acknowledged, refused for good, or unknown; an unknown one may be in the log or not. Several
operations may share a batch: retries under the same numbers, and those of a monotone producer
that opened its session again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from actors.simulation.checkers.batches import StoredBatch, digest_of
from actors.simulation.checkers.committed_log import CommittedLog
from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.producers import Sessions
from logstore.errors import ErrorCode
from logstore.model import SequenceMode

# After these the batch of the operation never gets into the log. Others leave it open: a fenced
# producer's batch may have been stored by an earlier try.
FINAL_CODES = frozenset(
    {
        ErrorCode.NOT_COMMITTED,
        ErrorCode.SEQUENCE_REUSED,
        ErrorCode.BATCH_TOO_LARGE,
        ErrorCode.INVALID_BATCH,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.WRONG_CLUSTER,
    }
)


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
    told_count: int = 0

    @property
    def last_lsn(self) -> int:
        return self.first_lsn + self.told_count - 1

    def __str__(self) -> str:
        numbers = f"{self.producer_epoch}/{self.sequence}"
        return f"append {self.number} ({numbers} of producer {self.producer_id})"


class Operations:
    """Every append; `committed` is None where no replica is looked into."""

    __slots__ = ("_by_sequence", "_committed", "_findings", "_sessions", "acknowledged_lsn", "all")

    def __init__(self, findings: Findings, sessions: Sessions, committed: CommittedLog) -> None:
        self._findings = findings
        self._sessions = sessions
        self._committed = committed
        self._by_sequence: dict[tuple[int, int], list[Operation]] = {}
        self.all: dict[int, Operation] = {}
        self.acknowledged_lsn = 0
        committed.on_batch = self.on_batch

    def invoked(
        self,
        number: int,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        payloads: Sequence[bytes],
        at_ns: int,
    ) -> None:
        if number in self.all:
            raise ValueError(f"operation {number} began before: each append has its own number")
        operation = Operation(
            number, producer_id, producer_epoch, sequence, len(payloads), digest_of(payloads), at_ns
        )
        self.all[number] = operation
        self._by_sequence.setdefault((producer_id, sequence), []).append(operation)

    def acknowledged(
        self, number: int, first_lsn: int, count: int, at_ns: int, *, is_replica_known: bool
    ) -> None:
        operation = self.all[number]
        report = self._findings.report
        told = f"{operation} is acknowledged with {count} LSNs from {first_lsn}"
        if operation.outcome is Outcome.REFUSED:
            report(Invariant.I7, f"{told} after it was refused for good", at_ns)
        if operation.outcome is Outcome.ACKNOWLEDGED:
            if (operation.first_lsn, operation.told_count) != (first_lsn, count):
                report(Invariant.I7, f"{told}, before with {operation.first_lsn}", at_ns)
            return
        operation.outcome, operation.returned_ns = Outcome.ACKNOWLEDGED, at_ns
        operation.first_lsn, operation.told_count = first_lsn, count
        self.acknowledged_lsn = max(self.acknowledged_lsn, operation.last_lsn)
        if count != operation.count and not self._is_monotone(operation.producer_id):
            report(Invariant.I4, f"{told}, it has {operation.count} payloads", at_ns)
        if is_replica_known:
            self._check_committed(operation, told, at_ns)

    def refused(self, number: int, code: int, at_ns: int) -> None:
        operation = self.all[number]
        if operation.outcome is Outcome.ACKNOWLEDGED:
            text = f"{operation} is refused with {ErrorCode(code).name}, it was acknowledged"
            self._findings.report(Invariant.I7, text, at_ns)
            return
        if code == ErrorCode.COMMITTED_LSN_UNKNOWN:
            operation.outcome, operation.returned_ns = Outcome.IN_LOG, at_ns
        elif code in FINAL_CODES:
            operation.outcome, operation.returned_ns = Outcome.REFUSED, at_ns
            for batch in self._committed.batches_of(operation.producer_id, operation.sequence):
                self.on_batch(batch, at_ns)

    def on_batch(self, batch: StoredBatch, at_ns: int) -> None:
        """A batch is committed: some append that may still succeed asked for these bytes."""
        if not self.all:
            return
        asked = [
            each
            for each in self._by_sequence.get((batch.producer_id, batch.sequence), ())
            if each.producer_epoch == batch.producer_epoch and each.digest == batch.digest
        ]
        if not asked:
            text = f"{batch} is committed: nobody appended these bytes under these numbers"
            self._findings.report(Invariant.I11, text, at_ns)
        elif all(each.outcome is Outcome.REFUSED for each in asked):
            text = f"{asked[0]} was refused for good, and is committed at LSN {batch.first_lsn}"
            self._findings.report(Invariant.I7, text, at_ns)

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
        if self._is_monotone(operation.producer_id):
            return True
        epoch, digest = operation.producer_epoch, operation.digest
        return (epoch, digest) == (batch.producer_epoch, batch.digest)

    def _is_monotone(self, producer_id: int) -> bool:
        return self._sessions.modes.get(producer_id) is SequenceMode.MONOTONE

    def _check_committed(self, operation: Operation, told: str, at_ns: int) -> None:
        committed = self._committed
        if operation.last_lsn >= committed.next_lsn:
            text = f"{told}, committed is up to {committed.next_lsn - 1}"
            self._findings.report(Invariant.I10, text, at_ns)
            return
        if not committed.has_batches:
            return
        batch = committed.batches.get(operation.first_lsn)
        if (
            batch is None
            or batch.count != operation.told_count
            or not self.is_stored_as(operation, batch)
        ):
            self._findings.report(Invariant.I1, f"{told}, there is {batch}", at_ns)
