"""Levels of acknowledgement: what is provisional was flushed where it is said, nothing is stored
twice or out of order, and no more is lost than a producer counts (E10).

Owns the batches of level `leader` and `none`, by producer. Must not know how they are sent.
"""

from __future__ import annotations

from collections import defaultdict

from actors.simulation.checkers.batches import parse_body
from actors.simulation.checkers.client_facts import (
    LossesCounted,
    ProvisionalSent,
    ProvisionalTold,
)
from actors.simulation.checkers.consequences import BatchFound
from actors.simulation.checkers.facts import Finished, Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from logstore.model import EntryKind
from logstore.raft.effects import Flushed, Persist

Numbers = tuple[int, int, int]  # producer id, epoch, sequence


class ProvisionalBatches:
    """Checks all producers of these levels, and the leaders that answer them."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._findings = record.findings
        self._batches: dict[Numbers, tuple[str, int]] = {}  # producer, and its number of the batch
        self._producer_ids: set[int] = set()
        self._chains: defaultdict[Numbers, set[int]] = defaultdict(set)  # of entries with it
        self._found: set[int] = set()  # first LSNs
        self._last: dict[str, int] = {}  # the number of a producer's newest committed batch
        self._sent: defaultdict[str, int] = defaultdict(int)
        self._stored: defaultdict[str, int] = defaultdict(int)
        self._possibly_lost: dict[str, int] = {}

    @reads(ProvisionalSent)
    def on_sent(self, sent: ProvisionalSent) -> None:
        numbers = sent.producer_id, sent.producer_epoch, sent.sequence
        self._batches[numbers] = sent.producer, sent.number
        self._producer_ids.add(sent.producer_id)
        self._sent[sent.producer] += 1

    # --- flushed there ---

    @reads(Flushed)
    def on_flushed(self, replica: Replica, effect: Flushed, _step: Stepped) -> None:
        """A leader's report of its own disk."""
        node, index = replica.node, effect.index
        if index > replica.flushed_index and not self._record.is_excused(node):
            text = f"node {node} reports entry {index}, only {replica.flushed_index} was flushed"
            self._findings.report(Invariant.I10, text)

    @reads(Persist)
    def on_persist(self, _replica: Replica, effect: Persist, _step: Stepped) -> None:
        """An entry may hold some of them; its body is known by now."""
        body = self._record.entries.bodies.get(effect.chain)
        if effect.header.kind != EntryKind.DATA or body is None or not self._producer_ids:
            return
        for batch in parse_body(effect.header.first_lsn, body):
            if batch.producer_id in self._producer_ids:
                numbers = batch.producer_id, batch.producer_epoch, batch.sequence
                self._chains[numbers].add(effect.chain)

    @reads(ProvisionalTold)
    def on_told(self, told: ProvisionalTold) -> None:
        """Its disk may be lost while the answer is on its way."""
        numbers = told.producer_id, told.producer_epoch, told.sequence
        chains = self._chains[numbers]
        own = [each for each in self._record.all_replicas if each.node == told.node]
        was_flushed = not all(chains.isdisjoint(each.flushed_once) for each in own)
        if not was_flushed and not self._record.is_excused(told.node):
            text = f"node {told.node} says that {numbers} is flushed, and never flushed it"
            self._findings.report(Invariant.I10, text)

    # --- in the log ---

    @reads(BatchFound)
    def on_batch(self, found: BatchFound) -> None:
        """A committed batch."""
        batch = found.batch
        known = self._batches.get((batch.producer_id, batch.producer_epoch, batch.sequence))
        if known is None or batch.first_lsn in self._found:
            return  # in the end every log is read once more
        self._found.add(batch.first_lsn)
        producer, number = known
        last = self._last.get(producer, -1)
        self._last[producer] = max(last, number)
        self._stored[producer] += 1
        if number <= last:
            text = f"batch {number} of {producer} is committed after its batch {last}"
            self._findings.report(Invariant.I7, text)

    @reads(LossesCounted)
    def on_counted(self, counted: LossesCounted) -> None:
        self._possibly_lost[counted.producer] = counted.possibly_lost

    @reads(Finished)
    def on_finished(self, _finished: Finished) -> None:
        """A producer that counted may have lost so many, and no more."""
        if not self._record.committed.has_batches:
            return
        for producer, counted in self._possibly_lost.items():
            lost = self._sent[producer] - self._stored[producer]
            if lost > counted:
                text = f"{lost} batches of {producer} are lost, it counts {counted}"
                self._findings.report(Invariant.I1, text)
