"""An append that expects an LSN is stored there or nowhere; a refusal rests on what is committed
(SAFETY E11; I21, I22).

So of those that compare with one LSN at most one is stored, and if all were refused because the log
had gone on, another batch is there. That a refused one never gets into the log is checked with the
other final refusals (`acknowledgements`). Owns what was committed when each such append began, when
leaders asked for a quorum round that was answered since, and the level of the committed log.
"""

from __future__ import annotations

from actors.messages import READS_OF_COMPARISONS
from actors.simulation.checkers import client_facts
from actors.simulation.checkers.consequences import BatchFound, LevelCommitted
from actors.simulation.checkers.facts import NextLsnSent, Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.operations import Operation
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from logstore.format.level import EXPECTED_LSN_LEVEL, FIRST_LEVEL
from logstore.raft.effects import ReadIndexAnswered
from logstore.raft.events import ReadIndexRequested


class ExpectedLsns:
    """Checks every append that expects an LSN."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._report = record.findings.report
        self._begun: dict[int, int] = {}  # by operation: where the committed log ended
        self._level = FIRST_LEVEL
        self._asked_ns: dict[int, dict[int, int]] = {}  # by node and request, without an answer
        self._confirmed_ns = -1  # when the newest read that was answered had been asked for

    @reads(ReadIndexRequested)
    def on_asked(self, replica: Replica, event: ReadIndexRequested, _step: Stepped) -> None:
        if event.request_id >= READS_OF_COMPARISONS:
            asked = self._asked_ns.setdefault(replica.node, {})
            asked[event.request_id] = self._record.now()

    @reads(ReadIndexAnswered)
    def on_confirmed(self, replica: Replica, answer: ReadIndexAnswered, _step: Stepped) -> None:
        """`read_rounds` checks that a quorum round had begun since it was asked for."""
        asked_ns = self._asked_ns.get(replica.node, {}).pop(answer.request_id, -1)
        if answer.is_leader:
            self._confirmed_ns = max(self._confirmed_ns, asked_ns)

    @reads(client_facts.AppendInvoked)
    def on_invoked(self, call: client_facts.AppendInvoked) -> None:
        if call.expected_lsn is not None:
            self._begun[call.operation] = self._record.committed.next_lsn

    @reads(LevelCommitted)
    def on_level(self, committed: LevelCommitted) -> None:
        self._level = max(self._level, committed.level)

    @reads(client_facts.AppendAcknowledged)
    def on_acknowledged(self, answer: client_facts.AppendAcknowledged) -> None:
        operation = self._record.operations.all[answer.operation]
        if operation.expected_lsn not in (None, answer.first_lsn):
            self._report(Invariant.I22, f"{_named(operation)} has LSN {answer.first_lsn}")

    @reads(BatchFound)
    def on_batch(self, fact: BatchFound) -> None:
        """A batch that was only appended with expectations has the LSN of one of them."""
        batch = fact.batch
        found = self._record.operations.operations_for(batch)
        if not found or any(each.expected_lsn is None for each in found):
            return
        if all(each.expected_lsn != batch.first_lsn for each in found):
            self._report(Invariant.I22, f"{_named(found[0])} is stored at LSN {batch.first_lsn}")
        if self._record.is_replica_known and self._level < EXPECTED_LSN_LEVEL:
            text = f"{_named(found[0])} is stored in a log at level {self._level}"
            self._report(Invariant.I21, text)

    @reads(client_facts.ComparisonRefused)
    def on_refused(self, answer: client_facts.ComparisonRefused) -> None:
        """What the answer says was so at some time between question and answer."""
        operation = self._record.operations.all[answer.operation]
        text = f"{_named(operation)} is refused, the next LSN is {answer.next_lsn}"
        if operation.expected_lsn in (None, answer.next_lsn):
            self._report(Invariant.I22, f"{text}: without a reason")
        if not self._record.is_replica_known:
            return
        if self._confirmed_ns < operation.invoked_ns:
            self._report(Invariant.I22, f"{text}: without a quorum round")
        begun_lsn = self._begun.get(answer.operation, 0)
        if answer.next_lsn < begun_lsn:
            text = f"{text}: {begun_lsn - 1} was committed before it began"
            self._report(Invariant.I22, text)

    @reads(NextLsnSent)
    def on_told(self, refusal: NextLsnSent) -> None:
        """What it rests on is committed."""
        committed = self._record.committed
        text = f"node {refusal.node} says that the next LSN is {refusal.next_lsn}"
        if refusal.next_lsn > committed.next_lsn:
            self._report(Invariant.I22, f"{text}, committed is up to {committed.next_lsn - 1}")


def _named(operation: Operation) -> str:
    return f"{operation}, which expects LSN {operation.expected_lsn},"
