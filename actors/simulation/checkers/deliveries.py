"""Consumers get batches in order and whole, committed and never different (I4, I5, I8, I11).

Owns each consumer's position. Must not know how a consumer got there.
"""

from __future__ import annotations

from actors.simulation.checkers.batches import StoredBatch, parse_batch
from actors.simulation.checkers.client_facts import Delivered, Subscribed
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from logstore.errors import FormatError

Where = tuple[str, int, int]  # consumer, LSN, node


class Deliveries:
    """Checks all consumers of a run."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._findings = record.findings
        self._next_lsns: dict[str, int] = {}
        self._at_earliest: set[str] = set()  # who got nothing yet, and begins at a log start

    @reads(Subscribed)
    def on_subscribed(self, subscribed: Subscribed) -> None:
        self._next_lsns[subscribed.consumer] = subscribed.next_lsn
        if subscribed.is_earliest:
            self._at_earliest.add(subscribed.consumer)
        else:
            self._at_earliest.discard(subscribed.consumer)

    @reads(Delivered)
    def on_delivered(self, fact: Delivered) -> None:
        consumer, first_lsn = fact.consumer, fact.first_lsn
        where = (consumer, first_lsn, fact.node)
        try:
            stored = parse_batch(first_lsn, fact.batch)
        except FormatError as error:
            self._findings.report(Invariant.I11, f"{_text(where)}: {error}")
            return
        if stored is None:
            self._findings.report(Invariant.I11, f"{_text(where)}: its CRC does not fit")
            return
        first, last = fact.handed or (first_lsn, stored.last_lsn)
        self._check_position(consumer, first, last, where)
        if fact.is_whole != ((first, last) == (first_lsn, stored.last_lsn)):
            text = f"{_text(where)}: [{first}, {last}] of [{first_lsn}, {stored.last_lsn}]"
            self._findings.report(Invariant.I4, f"{text}, is_whole {fact.is_whole}")
        if self._record.is_replica_known:
            self._check_committed(stored, where)
        known = self._record.delivered.setdefault(first_lsn, stored)
        if known != stored:
            text = f"{_text(where)}: {stored}, another consumer got {known} there"
            self._findings.report(Invariant.I8, text)

    def _check_position(self, consumer: str, first: int, last: int, where: Where) -> None:
        expected = self._next_lsns.get(consumer, first)
        if consumer in self._at_earliest and first in self._record.start_lsns:
            expected = max(expected, first)
        self._at_earliest.discard(consumer)
        if first != expected or last < first:
            text = f"{_text(where)}: LSNs [{first}, {last}], {expected} was next"
            self._findings.report(Invariant.I5, text)
        self._next_lsns[consumer] = last + 1

    def _check_committed(self, stored: StoredBatch, where: Where) -> None:
        committed = self._record.committed
        if stored.last_lsn >= committed.next_lsn:
            text = f"{_text(where)}: committed is up to {committed.next_lsn - 1}"
            self._findings.report(Invariant.I8, text)
        elif committed.has_batches and committed.batches.get(stored.first_lsn) != stored:
            there = committed.batches.get(stored.first_lsn)
            self._findings.report(Invariant.I8, f"{_text(where)}: {stored}, there is {there}")


def _text(where: Where) -> str:
    consumer, lsn, node = where
    return f"{consumer} got LSN {lsn} from node {node}"
