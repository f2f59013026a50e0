"""What a leader gives up by itself exceeds a bound of its configuration (I19; SAFETY G1, G2).

Owns what was committed when each TRIM was written, and whether its leader's two clocks agreed then.
Must not know segments: a leader may always keep more.
"""

from __future__ import annotations

import msgspec

from actors.simulation.checkers.consequences import LeaderBegan, TrimRead
from actors.simulation.checkers.facts import Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from logstore.format.entry import EntryHeader
from logstore.format.trim_entry import TrimReason
from logstore.model import EntryKind
from logstore.raft.effects import Persist

# A minute by the rule; the rest is drift of the clocks.
APART_MAX_NS = 62_000_000_000
# A TRIM that is written was decided no longer ago, or its leader's term is over: election timeouts.
DECIDED_WITHIN = 2


class _Written(msgspec.Struct, frozen=True):
    """A TRIM as it was written."""

    node: int
    newest: EntryHeader | None  # of what is committed
    are_clocks_apart: bool


class Retention:
    """All leaders'. Without a configuration, or clocks, what they say is not checked."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._decided_within_ns = DECIDED_WITHIN * record.election_timeout_ns
        self._written: dict[int, _Written] = {}  # by chain
        self._gaps: dict[int, int] = {}  # node → wall clock less the other one, as it began
        self._apart_ns: dict[int, int] = {}  # node → since when they have been apart

    @reads(LeaderBegan)
    def on_leader(self, began: LeaderBegan) -> None:
        node, gap_ns = began.replica.node, self._gap_of(began.replica.node)
        self._apart_ns.pop(node, None)
        if gap_ns is not None:
            self._gaps[node] = gap_ns

    @reads(Persist)
    def on_entry(self, replica: Replica, persist: Persist, step: Stepped) -> None:
        """Hot. A leader writes an entry."""
        header = persist.header
        if header.term != step.core.term or not step.leads(header.term):
            return
        self._look_at_clocks(replica.node)
        if header.kind == EntryKind.TRIM:
            now_ns, node, committed = self._record.now(), replica.node, self._record.committed
            newest = committed.chain_at(committed.last_index)
            self._written[persist.chain] = _Written(
                node,
                None if newest is None else self._record.entries.headers[newest],
                now_ns - self._apart_ns.get(node, now_ns) >= self._decided_within_ns,
            )

    @reads(TrimRead)
    def on_trim(self, trim: TrimRead) -> None:
        entry, kept = trim.entry, self._record.kept
        chain = self._record.committed.chain_at(trim.index)
        written = self._written.get(chain) if chain is not None else None
        if entry.reason is TrimReason.OPERATOR or kept is None or written is None:
            return
        text = f"node {written.node} gives up by TRIM {trim.index}, for {entry.reason.name},"
        if written.are_clocks_apart and entry.reason is TrimReason.AGE:
            self._report(f"{text} while its clock was set")
        newest = written.newest
        if newest is None:
            return
        bound, left = {
            TrimReason.AGE: (kept.age_ns + 1, newest.timestamp_ns - entry.timestamp_ns),
            TrimReason.BYTES: (kept.size_bytes, newest.cumulative_bytes - entry.cumulative_bytes),
            TrimReason.PAYLOADS: (kept.payloads, newest.next_lsn - entry.start.next_lsn),
        }[entry.reason]
        if not bound or left < bound:
            self._report(f"{text} and keeps {left} of what is committed, at least {bound} is kept")

    def _look_at_clocks(self, node: int) -> None:
        gap_ns, then_ns = self._gap_of(node), self._gaps.get(node)
        if gap_ns is None or then_ns is None:
            return
        if abs(gap_ns - then_ns) > APART_MAX_NS:
            self._apart_ns.setdefault(node, self._record.now())
        else:
            self._apart_ns.pop(node, None)

    def _gap_of(self, node: int) -> int | None:
        return self._record.read_clock_gaps().get(node)

    def _report(self, text: str) -> None:
        self._record.findings.report(Invariant.I19, text)
