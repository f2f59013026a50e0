"""The one committed log: an entry is added once, when a leader first commits it.

Owns its entries and, where bodies are known, its batches. Checks that it is gap-free (I2), the same
everywhere (I3), made of whole batches (I4), with each sequence once and in order (I7), and that a
majority had each entry flushed when it was committed (I10).
"""

from __future__ import annotations

from collections.abc import Callable

from actors.simulation.checkers.batches import StoredBatch, parse_body
from actors.simulation.checkers.consequences import (
    BatchFound,
    ConfigCommitted,
    CursorCommitted,
    LevelCommitted,
    SessionCommitted,
    SnapshotPartCommitted,
    TrimCommitted,
)
from actors.simulation.checkers.electorates import Electorate
from actors.simulation.checkers.facts import Fact
from actors.simulation.checkers.holders import Holders
from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.producers import ProducerOrder
from actors.simulation.checkers.shadow import KnownEntries
from logstore.errors import FormatError
from logstore.format.entry import EntryHeader, takes_lsns
from logstore.format.level import level_of
from logstore.format.session_entries import decode_expire, decode_open
from logstore.model import FIRST_LSN, EntryKind


class CommittedLog:
    """The committed entries from `start_index` + 1 on."""

    __slots__ = (
        "_by_sequence", "_commit_terms", "_findings", "_holders", "_known", "_order", "_tell",
        "batches", "chains", "expired", "has_every_open", "next_lsn", "opened", "start_index",
        "start_lsn",
    )  # fmt: skip

    def __init__(
        self,
        findings: Findings,
        known: KnownEntries,
        order: ProducerOrder,
        holders: Holders,
        tell: Callable[[Fact], None],
    ) -> None:
        self._findings = findings
        self._known = known
        self._order = order
        self._holders = holders
        self._tell = tell
        self.start_index = 0
        self.chains: list[int] = []
        self._commit_terms: list[int] = []
        self.opened: set[tuple[int, int]] = set()  # (producer id, epoch)
        self.expired: dict[int, int] = {}  # producer id -> index of its EXPIRE
        self.has_every_open = True
        self.start_lsn = self.next_lsn = int(FIRST_LSN)
        self.batches: dict[int, StoredBatch] = {}  # by first LSN
        self._by_sequence: dict[tuple[int, int], list[StoredBatch]] = {}

    @property
    def last_index(self) -> int:
        return self.start_index + len(self.chains)

    @property
    def has_batches(self) -> bool:
        """Whether the bodies of entries are known."""
        return bool(self.batches)

    def batches_of(self, producer_id: int, sequence: int) -> list[StoredBatch]:
        """Committed batches under this sequence: one in each producer epoch at most."""
        return self._by_sequence.get((producer_id, sequence), [])

    def last_batch_of(self, producer_id: int) -> tuple[int, int]:
        """Producer epoch and sequence of its newest committed batch; (0, -1): it has none."""
        return self._order.last(producer_id)

    def begin(self, start_index: int, next_lsn: int) -> None:
        """Where the first replica's log begins; later ones begin there too."""
        if not self.chains:
            self.start_index = start_index
            self.start_lsn = self.next_lsn = next_lsn

    def chain_at(self, index: int) -> int | None:
        place = index - self.start_index - 1
        return self.chains[place] if 0 <= place < len(self.chains) else None

    def lsns_at(self, index: int) -> tuple[int, int] | None:
        """[first, last] LSN of a committed entry that has any."""
        chain = self.chain_at(index)
        header = None if chain is None else self._known.headers.get(chain)
        if header is None or header.next_lsn == header.first_lsn:
            return None
        return header.first_lsn, header.next_lsn - 1

    def indexes_of(self, first_lsn: int, last_lsn: int) -> set[int]:
        """Committed entries with some of these LSNs."""
        spans = {
            index: self.lsns_at(index) for index in range(self.start_index + 1, self.last_index + 1)
        }
        return {
            index
            for index, span in spans.items()
            if span is not None and span[0] <= last_lsn and span[1] >= first_lsn
        }

    def end_lsn_at(self, index: int) -> int:
        """The last LSN up to `index`, which is committed, or the start."""
        if index <= self.start_index:
            return self.start_lsn - 1
        return self._known.headers[self.chains[index - self.start_index - 1]].next_lsn - 1

    def newest_before_term(self, term: int) -> tuple[int, int] | None:
        """(index, chain) of the newest entry that a leader of an earlier term than `term`
        committed."""
        for place in range(len(self.chains) - 1, -1, -1):
            if self._commit_terms[place] < term:
                return self.start_index + 1 + place, self.chains[place]
        return None

    def commit(
        self, node: int, index: int, chain: int, *, leader_term: int, electorate: Electorate
    ) -> None:
        """`node`, where these are the voters, commits the entry; `leader_term` 0: it follows its
        leader's commit index."""
        place = index - self.start_index - 1
        if place < len(self.chains):
            if place >= 0 and self.chains[place] != chain:
                self._findings.report(
                    Invariant.I3,
                    f"node {node} has another entry {index} committed: {self._name(chain)} "
                    f"instead of {self._name(self.chains[place])}",
                )
            return
        if not leader_term:
            self._findings.report(
                Invariant.I8,
                f"node {node} calls entry {index} committed, which no leader has committed",
            )
            return
        self._append(node, index, chain, leader_term, electorate)

    def _append(
        self, node: int, index: int, chain: int, leader_term: int, electorate: Electorate
    ) -> None:
        report = self._findings.report
        header = self._known.headers[chain]
        if self.chains and header.prev_chain != self.chains[-1]:
            text = f"entry {index} of node {node} does not follow the committed entry before it"
            report(Invariant.I3, text)
        if header.first_lsn != self.next_lsn:
            text = f"entry {index} begins at LSN {header.first_lsn}, {self.next_lsn} is next"
            report(Invariant.I2, text)
        held = self._holders.fewer_than_majority(electorate, index, chain)
        if held is not None:
            text = f"node {node} commits entry {index}, which only nodes {held} have flushed"
            report(Invariant.I10, text)
        self.chains.append(chain)
        self._commit_terms.append(leader_term)
        self.next_lsn = header.next_lsn
        if takes_lsns(header.kind):
            self._add_batches(header, chain)
        elif header.kind == EntryKind.OPEN:
            self._add_open(chain)
        elif header.kind == EntryKind.EXPIRE:
            self._add_expire(index, chain)
        elif header.kind == EntryKind.CURSOR:
            self._tell(CursorCommitted(self._known.bodies.get(chain)))
        elif level := level_of(header.kind):
            self._tell(LevelCommitted(index, level))
        elif header.kind == EntryKind.SESSION:
            self._tell(SnapshotPartCommitted(index, self._known.bodies.get(chain)))
        elif header.kind == EntryKind.TRIM:
            self._tell(TrimCommitted(index, self._known.bodies.get(chain)))
        elif header.kind == EntryKind.CONFIG:
            self._tell(ConfigCommitted(index, chain))

    def _add_open(self, chain: int) -> None:
        body = self._known.bodies.get(chain)
        if body is None:
            self.has_every_open = False
            return
        entry = decode_open(body)
        self.expired.pop(entry.producer_id, None)  # of a producer whose name was kept
        self.opened.add((entry.producer_id, entry.producer_epoch))
        self._tell(SessionCommitted(entry))

    def _add_expire(self, index: int, chain: int) -> None:
        body = self._known.bodies.get(chain)
        if body is None:
            self.has_every_open = False  # which sessions are left is not known either
            return
        entry = decode_expire(body)
        self.expired[entry.producer_id] = index
        self._tell(SessionCommitted(entry))

    def _add_batches(self, header: EntryHeader, chain: int) -> None:
        body = self._known.bodies.get(chain)
        if body is None:
            return
        try:
            batches = parse_body(header.first_lsn, body)
        except FormatError as error:
            text = f"entry {header.index} is not made of whole batches: {error}"
            self._findings.report(Invariant.I4, text)
            return
        if sum(batch.count for batch in batches) != header.count:
            text = f"entry {header.index} has {header.count} LSNs, its batches have others"
            self._findings.report(Invariant.I4, text)
        for batch in batches:
            fault = self._order.add(batch)
            if fault is not None:
                self._findings.report(Invariant.I7, fault)
            if batch.producer_id in self.expired:
                text = f"entry {header.index} has a batch of producer {batch.producer_id}"
                text = f"{text}, whose session ended with entry {self.expired[batch.producer_id]}"
                self._findings.report(Invariant.I7, text)
            self.batches[batch.first_lsn] = batch
            numbers = (batch.producer_id, batch.sequence)
            self._by_sequence.setdefault(numbers, []).append(batch)
            self._tell(BatchFound(batch))

    def _name(self, chain: int) -> str:
        header = self._known.headers.get(chain)
        return f"{chain:#x}" if header is None else f"{header}"
