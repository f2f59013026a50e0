"""What consumers got: in order and whole, committed and never changing (I4, I5, I8, I11).

Owns each consumer's position and the first content seen at each LSN. Must not know how it came.
"""

from __future__ import annotations

from actors.simulation.checkers.batches import StoredBatch, parse_batch
from actors.simulation.checkers.committed_log import CommittedLog
from actors.simulation.checkers.invariant import Findings, Invariant
from logstore.errors import FormatError

Where = tuple[str, int, int]  # consumer, LSN, node


class Deliveries:
    """All consumers of a run."""

    __slots__ = ("_committed", "_findings", "_next_lsns", "seen")

    def __init__(self, findings: Findings, committed: CommittedLog) -> None:
        self._findings = findings
        self._committed = committed
        self._next_lsns: dict[str, int] = {}
        self.seen: dict[int, StoredBatch] = {}  # by first LSN

    def subscribed(self, consumer: str, next_lsn: int) -> None:
        self._next_lsns[consumer] = next_lsn

    def delivered(
        self,
        consumer: str,
        node: int,
        first_lsn: int,
        batch: bytes,
        at_ns: int,
        *,
        handed: tuple[int, int] | None,
        is_whole: bool,
        is_replica_known: bool,
    ) -> None:
        where = (consumer, first_lsn, node)
        try:
            stored = parse_batch(first_lsn, batch)
        except FormatError as error:
            self._findings.report(Invariant.I11, f"{_name(where)}: {error}", at_ns)
            return
        if stored is None:
            self._findings.report(Invariant.I11, f"{_name(where)}: its CRC does not fit", at_ns)
            return
        first, last = (first_lsn, stored.last_lsn) if handed is None else handed
        self._check_position(consumer, first, last, where, at_ns)
        if is_whole != ((first, last) == (first_lsn, stored.last_lsn)):
            text = f"{_name(where)}: [{first}, {last}] of [{first_lsn}, {stored.last_lsn}]"
            self._findings.report(Invariant.I4, f"{text}, is_whole {is_whole}", at_ns)
        if is_replica_known:
            self._check_committed(stored, where, at_ns)
        known = self.seen.setdefault(first_lsn, stored)
        if known != stored:
            text = f"{_name(where)}: {stored}, somebody got {known} there"
            self._findings.report(Invariant.I8, text, at_ns)

    def _check_position(
        self, consumer: str, first: int, last: int, where: Where, at_ns: int
    ) -> None:
        expected = self._next_lsns.get(consumer, first)
        if first != expected or last < first:
            text = f"{_name(where)}: LSNs [{first}, {last}], {expected} was next"
            self._findings.report(Invariant.I5, text, at_ns)
        self._next_lsns[consumer] = last + 1

    def _check_committed(self, stored: StoredBatch, where: Where, at_ns: int) -> None:
        committed = self._committed
        if stored.last_lsn >= committed.next_lsn:
            text = f"{_name(where)}: committed is up to {committed.next_lsn - 1}"
            self._findings.report(Invariant.I8, text, at_ns)
        elif committed.has_batches and committed.batches.get(stored.first_lsn) != stored:
            there = committed.batches.get(stored.first_lsn)
            self._findings.report(
                Invariant.I8, f"{_name(where)}: {stored}, there is {there}", at_ns
            )


def _name(where: Where) -> str:
    consumer, lsn, node = where
    return f"{consumer} got LSN {lsn} from node {node}"
