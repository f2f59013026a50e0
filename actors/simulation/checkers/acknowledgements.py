"""An append that is acknowledged is committed, once; one that is refused for good never is (I1, I4,
I7, I10, I11).
"""

from __future__ import annotations

from actors.simulation.checkers import client_facts, consequences
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.operations import Operation, Outcome
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from logstore.errors import ErrorCode
from logstore.format.session_entries import OpenEntry

# After one of these codes the batch of the operation never gets into the log. After other codes the
# outcome is unknown: a fenced producer's batch may have been stored by an earlier attempt.
FINAL_CODES = frozenset(
    {
        ErrorCode.NOT_COMMITTED,
        ErrorCode.SEQUENCE_REUSED,
        ErrorCode.BATCH_TOO_LARGE,
        ErrorCode.INVALID_BATCH,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.WRONG_CLUSTER,
        ErrorCode.NEXT_LSN_IS,
        ErrorCode.LEVEL_REFUSED,
    }
)


class Acknowledgements:
    """Checks the answers to every append."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._operations = record.operations

    @reads(client_facts.AppendInvoked)
    def on_invoked(self, call: client_facts.AppendInvoked) -> None:
        self._operations.add(call, self._record.now())

    @reads(client_facts.SessionOpened)
    def on_opened(self, answer: client_facts.SessionOpened) -> None:
        """A producer epoch is opened once, and fences those before it."""
        record = self._record
        next_lsn = record.committed.next_lsn if record.is_replica_known else 0
        numbers = answer.producer_id, answer.producer_epoch
        fault = record.sessions.open(*numbers, answer.mode, next_lsn)
        if fault is not None:
            record.findings.report(Invariant.I7, fault)

    @reads(consequences.SessionOrdered)
    def on_ordered(self, ordered: consequences.SessionOrdered) -> None:
        if isinstance(ordered.entry, OpenEntry):
            self._record.sessions.order(ordered.entry)

    @reads(client_facts.AppendAcknowledged)
    def on_acknowledged(self, answer: client_facts.AppendAcknowledged) -> None:
        operation = self._operations.all[answer.operation]
        report = self._record.findings.report
        text = f"{operation} is acknowledged with {answer.count} LSNs from {answer.first_lsn}"
        if operation.outcome is Outcome.REFUSED:
            report(Invariant.I7, f"{text} after it was refused for good")
        place = (answer.first_lsn, answer.count)
        if operation.outcome is Outcome.ACKNOWLEDGED:
            if (operation.first_lsn, operation.acknowledged_count) != place:
                report(Invariant.I7, f"{text}, before with {operation.first_lsn}")
            return
        operation.outcome, operation.returned_ns = Outcome.ACKNOWLEDGED, self._record.now()
        operation.first_lsn, operation.acknowledged_count = place
        if answer.count != operation.count and not self._operations.is_monotone(
            operation.producer_id
        ):
            report(Invariant.I4, f"{text}, it has {operation.count} payloads")
        if self._record.is_replica_known:
            self._check_committed(operation, text)

    @reads(client_facts.AppendRefused)
    def on_refused(self, answer: client_facts.AppendRefused) -> None:
        operation = self._operations.all[answer.operation]
        if operation.outcome is Outcome.ACKNOWLEDGED:
            text = f"{operation} is refused with {ErrorCode(answer.code).name}, it was acknowledged"
            self._record.findings.report(Invariant.I7, text)
            return
        if answer.code == ErrorCode.COMMITTED_LSN_UNKNOWN:
            operation.outcome, operation.returned_ns = Outcome.IN_LOG, self._record.now()
        elif answer.code in FINAL_CODES:
            operation.outcome, operation.returned_ns = Outcome.REFUSED, self._record.now()
            committed = self._record.committed
            for batch in committed.batches_of(operation.producer_id, operation.sequence):
                self.on_batch(consequences.BatchFound(batch))

    @reads(consequences.BatchFound)
    def on_batch(self, fact: consequences.BatchFound) -> None:
        """A batch belongs to an append with these bytes and numbers that was not refused for
        good."""
        if not self._operations.all:
            return
        batch = fact.batch
        found = self._operations.operations_for(batch)
        if not found:
            text = f"{batch} is committed: nobody appended these bytes under these numbers"
            self._record.findings.report(Invariant.I11, text)
        elif all(each.outcome is Outcome.REFUSED for each in found):
            text = f"{found[0]} was refused for good, and is committed at LSN {batch.first_lsn}"
            self._record.findings.report(Invariant.I7, text)

    def _check_committed(self, operation: Operation, claim: str) -> None:
        committed, report = self._record.committed, self._record.findings.report
        if operation.last_lsn >= committed.next_lsn:
            text = f"{claim}, committed is up to {committed.next_lsn - 1}"
            report(Invariant.I10, text)
            return
        if not committed.has_batches:
            return
        batch = committed.batches.get(operation.first_lsn)
        if (
            batch is None
            or batch.count != operation.acknowledged_count
            or not self._operations.is_stored_as(operation, batch)
        ):
            report(Invariant.I1, f"{claim}, there is {batch}")
