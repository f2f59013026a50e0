"""The log of every replica at the end, against every answer that was given (I1 to I4, I6 to I8,
I11).

Owns the final logs. Reads them from headers and bytes alone, so that it also checks histories that
have no other facts of replicas.
"""

from __future__ import annotations

from actors.simulation.checkers.batches import StoredBatch, parse_body
from actors.simulation.checkers.client_facts import EndTold
from actors.simulation.checkers.consequences import BatchFound
from actors.simulation.checkers.facts import Finished, LogRead
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.linear import NEVER_NS, Append, TailRead, find_fault
from actors.simulation.checkers.operations import Operation, Outcome
from actors.simulation.checkers.producers import ProducerOrder
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
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
        self.is_fold_known = True
        self.begin_lsn = 0  # of `batches`, if some of them were given up

    def chains_from(self, index: int) -> list[int]:
        return self.chains[max(0, index - self.first_index) :]


class FinalLogs:
    """Checks the logs of all replicas after convergence."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._findings = record.findings
        self._committed = record.committed
        self._operations = record.operations
        self._reads: list[TailRead] = []  # linearizable ones
        self._logs: list[FinalLog] = []

    @reads(EndTold)
    def on_end_told(self, told: EndTold) -> None:
        if told.is_linearizable:
            returned_ns = self._record.now()
            self._reads.append(TailRead(told.end_lsn, told.invoked_ns, returned_ns))

    # --- one log ---

    @reads(LogRead)
    def on_log(self, read: LogRead) -> None:
        """Check one replica's log by itself, against the committed log and against the first
        replica's log. A log with the same bytes as the first one needs no check."""
        node = read.node
        log = FinalLog(node)
        log.entries = list(read.entries)
        if self._logs and self._logs[0].entries == log.entries:
            return
        order = ProducerOrder(self._record.sessions)
        previous: EntryHeader | None = None
        for header, body in log.entries:
            if previous is None:
                log.first_index, log.first_lsn = header.index, header.first_lsn
                self._take_given_up(log, order)
            fault = _follows(log, header, previous)
            if fault is not None:
                self._findings.report(fault[0], f"node {node} in the end: {fault[1]}")
            if not is_sound(header, body):
                text = f"node {node} in the end: entry {header.index} has other bytes"
                self._findings.report(Invariant.I11, text)
            log.chains.append(header.chain())
            if header.kind in FOLDED:
                log.folded.append((header, body))
            log.next_lsn = header.next_lsn
            if takes_lsns(header.kind):
                self._add_batches(log, header, body, order)
            previous = header
        self._compare_with_committed(log)
        for other in self._logs[:1]:
            first = max(other.first_index, log.first_index)
            if other.chains_from(first) != log.chains_from(first):
                text = f"nodes {other.node} and {node} end with different logs"
                self._findings.report(Invariant.I3, text)
        self._check_fold(log)
        self._check_clients(log)
        self._logs.append(log)

    def _take_given_up(self, log: FinalLog, order: ProducerOrder) -> None:
        """What a TRIM gave up counts as it was committed: clients were told of it, and the session
        table follows from it."""
        committed, known = self._committed, self._record.entries
        for chain in committed.chains[: max(0, log.first_index - 1 - committed.start_index)]:
            header, body = known.headers[chain], known.bodies.get(chain)
            if header.kind in FOLDED:
                log.is_fold_known &= body is not None
                log.folded.append((header, body or b""))
        for first_lsn in sorted(committed.batches):
            if first_lsn >= log.first_lsn:
                break
            order.add(committed.batches[first_lsn])
            log.batches[first_lsn] = committed.batches[first_lsn]
            log.begin_lsn = committed.start_lsn

    def _add_batches(
        self, log: FinalLog, header: EntryHeader, body: bytes, order: ProducerOrder
    ) -> None:
        where = f"node {log.node} in the end: entry {header.index}"
        try:
            batches = parse_body(header.first_lsn, body)
        except FormatError as error:
            self._findings.report(Invariant.I4, f"{where}: {error}")
            return
        if sum(batch.count for batch in batches) != header.count:
            text = f"{where} has {header.count} LSNs, its batches have others"
            self._findings.report(Invariant.I4, text)
        for batch in batches:
            fault = order.add(batch)
            if fault is not None:
                self._findings.report(Invariant.I7, f"{where}: {fault}")
            log.batches[batch.first_lsn] = batch

    def _compare_with_committed(self, log: FinalLog) -> None:
        """Nothing that was ever committed is missing or different (I3 at all times), but for what a
        committed TRIM gave up (I19)."""
        start_index = log.first_index - 1 if log.chains else self._committed.start_index
        is_known = self._record.is_replica_known and bool(log.chains)
        if is_known and self._record.starts.get(start_index) != log.first_lsn:
            text = f"node {log.node} in the end begins with entry {log.first_index} at LSN"
            text = f"{text} {log.first_lsn}, no committed TRIM says so"
            self._findings.report(Invariant.I19, text)
            return
        for index in range(start_index + 1, self._committed.last_index + 1):
            place = index - log.first_index
            here = log.chains[place] if 0 <= place < len(log.chains) else None
            if here != self._committed.chain_at(index):
                what = "lacks" if here is None else "has another"
                text = f"node {log.node} in the end {what} entry {index}, which was committed"
                self._findings.report(Invariant.I3, text)
                return

    def _check_fold(self, log: FinalLog) -> None:
        """A session table follows from the log (I17); a log without sessions is not checked."""
        if not any(header.kind == EntryKind.OPEN for header, _ in log.folded):
            return
        if not log.is_fold_known:
            return
        fold = PlainFold(self._record.session_expiry_ns)
        try:
            for header, body in log.folded:
                fold.apply(header, body)
        except (FoldFault, FormatError) as error:
            text = f"node {log.node} in the end: {error}"
            self._findings.report(Invariant.I17, text)
        log.folded = []

    # --- against the answers to clients ---

    def _check_clients(self, log: FinalLog) -> None:
        for operation in self._operations.all.values():
            self._check_operation(log, operation)
        for batch in log.batches.values():
            self._record.tell(BatchFound(batch))
        for first_lsn, seen in self._record.delivered.items():
            there = log.batches.get(first_lsn)
            if there != seen:
                text = f"a consumer got {seen}, node {log.node} ends with {there}"
                self._findings.report(Invariant.I8, text)

    def _check_operation(self, log: FinalLog, operation: Operation) -> None:
        if operation.outcome is Outcome.ACKNOWLEDGED:
            batch = log.batches.get(operation.first_lsn)
            if (
                batch is None
                or batch.count != operation.acknowledged_count
                or not self._operations.is_stored_as(operation, batch)
            ):
                text = f"{operation} was acknowledged at LSN {operation.first_lsn}"
                self._findings.report(
                    Invariant.I1, f"{text}, node {log.node} ends with {batch} there"
                )
        elif operation.outcome is Outcome.IN_LOG and not self._is_stored(log, operation):
            text = f"{operation} was called committed, node {log.node} ends without it"
            self._findings.report(Invariant.I1, text)

    def _is_stored(self, log: FinalLog, operation: Operation) -> bool:
        return any(self._operations.is_stored_as(operation, each) for each in log.batches.values())

    # --- the whole history ---

    @reads(Finished)
    def on_finish(self, _finished: Finished) -> None:
        """The order of all appends and linearizable reads (I6), by the first log."""
        if not self._logs:
            return
        log = self._logs[0]
        appends = []
        for batch in log.batches.values():
            owners = self._operations.owners_of(batch)
            if owners:
                appends.append(_append_of(batch, owners))
        if len(appends) < len(log.batches):
            return  # batches of nobody: that has been said, or no client was watched
        fault = find_fault(
            appends, self._reads, first_lsn=log.begin_lsn or log.first_lsn or FIRST_LSN
        )
        if fault is not None:
            self._findings.report(Invariant.I6, fault)


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
