"""What every replica holds in the end, against all that anybody was told (I1 to I4, I6 to I8, I11).

Owns the final logs. Reads them from headers and bytes alone, so that it also serves histories in
which nobody looked into a replica before.
"""

from __future__ import annotations

from collections.abc import Iterable

from actors.simulation.checkers.batches import StoredBatch, parse_body
from actors.simulation.checkers.committed_log import CommittedLog
from actors.simulation.checkers.deliveries import Deliveries
from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.linear import NEVER_NS, Append, TailRead, find_fault
from actors.simulation.checkers.operations import Operation, Operations, Outcome
from actors.simulation.checkers.producers import ProducerOrder, Sessions
from actors.simulation.checkers.ring_ranges import is_sound
from actors.simulation.checkers.session_fold import FOLDED, FoldFault, PlainFold
from logstore.errors import FormatError
from logstore.format.entry import EntryHeader, takes_lsns
from logstore.model import FIRST_LSN, EntryKind


class FinalLog:
    """One replica's committed entries, checked as they are read."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.entries: list[tuple[EntryHeader, bytes]] = []
        self.chains: list[int] = []
        self.first_index = 0
        self.first_lsn = 0
        self.next_lsn = 0
        self.batches: dict[int, StoredBatch] = {}  # by first LSN, in order
        self.folded: list[tuple[EntryHeader, bytes]] = []  # what makes the session table


class FinalLogs:
    """All replicas' logs after convergence."""

    __slots__ = (
        "_committed", "_deliveries", "_findings", "_logs", "_operations", "_reads",
        "_session_expiry_ns", "_sessions",
    )  # fmt: skip

    def __init__(
        self,
        findings: Findings,
        sessions: Sessions,
        *,
        committed: CommittedLog,
        operations: Operations,
        deliveries: Deliveries,
        session_expiry_ns: int,
    ) -> None:
        self._session_expiry_ns = session_expiry_ns
        self._findings = findings
        self._sessions = sessions
        self._committed = committed
        self._operations = operations
        self._deliveries = deliveries
        self._reads: list[TailRead] = []
        self._logs: list[FinalLog] = []

    def tail_read(self, read: TailRead) -> None:
        """A linearizable one, for the end."""
        self._reads.append(read)

    # --- one log ---

    def add(self, node: int, entries: Iterable[tuple[EntryHeader, bytes]], at_ns: int) -> None:
        """Check one replica's log by itself, against the ledger's and against the others'. What
        has the same bytes as the first one is what was checked there."""
        log = FinalLog(node)
        log.entries = list(entries)
        if self._logs and self._logs[0].entries == log.entries:
            return
        order = ProducerOrder(self._sessions)
        previous: EntryHeader | None = None
        for header, body in log.entries:
            if previous is None:
                log.first_index, log.first_lsn = header.index, header.first_lsn
            fault = _follows(log, header, previous)
            if fault is not None:
                self._findings.report(fault[0], f"node {node} in the end: {fault[1]}", at_ns)
            if not is_sound(header, body):
                text = f"node {node} in the end: entry {header.index} has other bytes"
                self._findings.report(Invariant.I11, text, at_ns)
            log.chains.append(header.chain())
            if header.kind in FOLDED:
                log.folded.append((header, body))
            log.next_lsn = header.next_lsn
            if takes_lsns(header.kind):
                self._add_batches(log, header, body, order, at_ns)
            previous = header
        self._compare_with_committed(log, at_ns)
        for other in self._logs[:1]:
            if (other.first_index, other.chains) != (log.first_index, log.chains):
                text = f"nodes {other.node} and {node} end with different logs"
                self._findings.report(Invariant.I3, text, at_ns)
        self._check_fold(log, at_ns)
        self._check_clients(log, at_ns)
        self._logs.append(log)

    def _add_batches(
        self, log: FinalLog, header: EntryHeader, body: bytes, order: ProducerOrder, at_ns: int
    ) -> None:
        where = f"node {log.node} in the end: entry {header.index}"
        try:
            batches = parse_body(header.first_lsn, body)
        except FormatError as error:
            self._findings.report(Invariant.I4, f"{where}: {error}", at_ns)
            return
        if sum(batch.count for batch in batches) != header.count:
            text = f"{where} has {header.count} LSNs, its batches have others"
            self._findings.report(Invariant.I4, text, at_ns)
        for batch in batches:
            fault = order.add(batch)
            if fault is not None:
                self._findings.report(Invariant.I7, f"{where}: {fault}", at_ns)
            log.batches[batch.first_lsn] = batch

    def _compare_with_committed(self, log: FinalLog, at_ns: int) -> None:
        """Nothing that was ever committed is missing or different (I3 at all times)."""
        for index in range(self._committed.start_index + 1, self._committed.last_index + 1):
            place = index - log.first_index
            here = log.chains[place] if 0 <= place < len(log.chains) else None
            if here != self._committed.chain_at(index):
                what = "lacks" if here is None else "has another"
                text = f"node {log.node} in the end {what} entry {index}, which was committed"
                self._findings.report(Invariant.I3, text, at_ns)
                return

    def _check_fold(self, log: FinalLog, at_ns: int) -> None:
        """The log is one that a session table follows from (I17); without sessions, any is."""
        if not any(header.kind == EntryKind.OPEN for header, _ in log.folded):
            return
        fold = PlainFold(self._session_expiry_ns)
        try:
            for header, body in log.folded:
                fold.apply(header, body)
        except (FoldFault, FormatError) as error:
            text = f"node {log.node} in the end: {error}"
            self._findings.report(Invariant.I17, text, at_ns)
        log.folded = []

    # --- against what clients were told ---

    def _check_clients(self, log: FinalLog, at_ns: int) -> None:
        for operation in self._operations.all.values():
            self._check_operation(log, operation, at_ns)
        for batch in log.batches.values():
            self._operations.on_batch(batch, at_ns)
        for first_lsn, seen in self._deliveries.seen.items():
            there = log.batches.get(first_lsn)
            if there != seen:
                text = f"a consumer got {seen}, node {log.node} ends with {there}"
                self._findings.report(Invariant.I8, text, at_ns)

    def _check_operation(self, log: FinalLog, operation: Operation, at_ns: int) -> None:
        if operation.outcome is Outcome.ACKNOWLEDGED:
            batch = log.batches.get(operation.first_lsn)
            if (
                batch is None
                or batch.count != operation.told_count
                or not self._operations.is_stored_as(operation, batch)
            ):
                text = f"{operation} was acknowledged at LSN {operation.first_lsn}"
                self._findings.report(
                    Invariant.I1, f"{text}, node {log.node} ends with {batch} there", at_ns
                )
        elif operation.outcome is Outcome.IN_LOG and not self._is_stored(log, operation):
            text = f"{operation} was called committed, node {log.node} ends without it"
            self._findings.report(Invariant.I1, text, at_ns)

    def _is_stored(self, log: FinalLog, operation: Operation) -> bool:
        return any(self._operations.is_stored_as(operation, each) for each in log.batches.values())

    # --- the whole history ---

    def finish(self, at_ns: int) -> None:
        """The order of all appends and linearizable reads (I6), by the first log that was given."""
        if not self._logs:
            return
        log = self._logs[0]
        appends = []
        for batch in log.batches.values():
            owners = self._operations.owners_of(batch)
            if owners:
                appends.append(_append_of(batch, owners))
        if len(appends) < len(log.batches):
            return  # batches of nobody: `on_batch` has said so, or no client was watched
        fault = find_fault(appends, self._reads, first_lsn=log.first_lsn or FIRST_LSN)
        if fault is not None:
            self._findings.report(Invariant.I6, fault, at_ns)


def _append_of(batch: StoredBatch, owners: list[Operation]) -> Append:
    """It took effect once: after the first of its calls, before the first of its answers."""
    returned = [
        each.returned_ns
        for each in owners
        if each.returned_ns is not None and each.outcome in (Outcome.ACKNOWLEDGED, Outcome.IN_LOG)
    ]
    return Append(
        batch.first_lsn,
        batch.last_lsn,
        min(each.invoked_ns for each in owners),
        min(returned, default=NEVER_NS),
    )


def _follows(
    log: FinalLog, header: EntryHeader, previous: EntryHeader | None
) -> tuple[Invariant, str] | None:
    if previous is None:
        return None
    if header.first_lsn != log.next_lsn:
        return Invariant.I2, f"LSN {header.first_lsn} follows {log.next_lsn - 1}"
    if header.index != previous.index + 1 or header.prev_chain != log.chains[-1]:
        return Invariant.I3, f"{header} does not follow {previous}"
    return None
