"""Answers about a log without its batches: which LSN a time has, and how the bytes of a range are
spread (I5, I8).

Owns ends, timestamps and sizes of the committed entries. Must not know how a replica searches. An
answer must be right for what the replica showed at some moment between question and answer: at
least what it is known to have shown before, at most what is committed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import msgspec

from actors.simulation.checkers.client_facts import SpansTold, SurveyAsked, TimeTold
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from logstore.format.client_messages import SPAN, SpansRequest

# Disk and number: where a disk is lost, the incarnation is over before the next one has a number.
_Incarnation = tuple[int, int]


class _EntryEnd(msgspec.Struct, frozen=True, gc=False):
    """The end of a committed entry: the next LSN, the entry's timestamp, and the bytes of all
    bodies so far."""

    next_lsn: int
    timestamp_ns: int
    total: int


class Surveys:
    """Checks the answers of all replicas."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._findings = record.findings
        self._entries = record.entries
        self._committed = record.committed
        self._replicas = record.replicas
        self._ends: list[_EntryEnd] = []
        # By node: its incarnation when a client asked last; that, and the LSN that it showed.
        self._asked: dict[int, _Incarnation] = {}
        self._shown: dict[int, tuple[_Incarnation, int]] = {}

    @reads(SurveyAsked)
    def on_asked(self, _asked: SurveyAsked) -> None:
        self._asked = {node: _incarnation(each) for node, each in self._replicas.items()}

    @reads(TimeTold)
    def on_time(self, told: TimeTold) -> None:
        node, timestamp_ns, lsn = told.node, told.timestamp_ns, told.lsn
        ends = self._up_to_date()
        if not ends:
            return
        place = bisect_left(ends, timestamp_ns, key=_stamp)
        right = self._lsn_before(place)
        is_left_out = lsn > right or self._is_ahead(node, lsn - 1)
        if is_left_out and lsn in self._record.start_lsns:
            return  # the log of this replica begins there, perhaps above what it shows
        text = f"node {node} finds time {timestamp_ns} at LSN {lsn}"
        if lsn > right:
            self._report(Invariant.I8, f"{text}, it is at {right}")
        elif self._is_ahead(node, lsn - 1):
            self._report(Invariant.I8, f"{text}, and does not show it yet")
        elif lsn < self._committed.start_lsn or not self._is_boundary(lsn):
            self._report(Invariant.I5, f"{text}, where no entry begins")
        elif lsn < right and lsn <= self._shown_by(node):
            shown = self._shown_by(node)
            self._report(Invariant.I5, f"{text}: older, and {shown} is shown there")

    @reads(SpansTold)
    def on_spans(self, told: SpansTold) -> None:
        node, request, reply = told.node, told.request, told.reply
        ends = self._up_to_date()
        if not ends:
            return
        shown, starts = reply.visible_lsn, self._record.start_lsns
        text = f"node {node}, asked for {request}, tells of {reply}"
        if shown >= self._committed.next_lsn or not self._is_boundary(shown + 1):
            self._report(Invariant.I8, f"{text}: committed is no entry that ends there")
        elif self._is_ahead(node, shown):
            self._report(Invariant.I8, f"{text}, and does not show that yet")
        elif shown < self._shown_by(node) or reply.log_start_lsn not in starts:
            known = f"{' or '.join(map(str, sorted(starts)))} to {self._shown_by(node)} at least"
            self._report(Invariant.I5, f"{text}: {known} is shown there")
        elif (reply.timestamp_ns, reply.rows) != (right := self._spans(request, shown)):
            rows = list(SPAN.iter_unpack(right[1]))
            self._report(Invariant.I5, f"{text}: it is {right[0]}, {rows}")
        self._shown[node] = self._asked[node], shown

    def _spans(self, request: SpansRequest, shown_lsn: int) -> tuple[int, bytes]:
        """The right answer for a log that ends with `shown_lsn`: timestamp of the first entry, and
        rows; (0, b""): the range is empty."""
        ends, next_lsn = self._ends, int(request.first_lsn)
        last_lsn = min(request.last_lsn, shown_lsn)
        if next_lsn > last_lsn:
            return 0, b""
        place, last = self._place_of(next_lsn), self._place_of(last_lsn)
        timestamp_ns, before = ends[place].timestamp_ns, ends[place - 1].total if place else 0
        rows: list[bytes] = []
        while next_lsn <= last_lsn and len(rows) < request.limit:
            while place < last and (
                ends[place].total < before + request.step_bytes or ends[place].next_lsn <= next_lsn
            ):
                place += 1
            end = ends[place]
            next_lsn = min(end.next_lsn, last_lsn + 1)
            rows.append(SPAN.pack(next_lsn - 1, end.total - before, end.timestamp_ns))
            before = end.total
            place += 1
        return timestamp_ns, b"".join(rows)

    def _up_to_date(self) -> list[_EntryEnd]:
        """The ends of every committed entry."""
        ends, chains = self._ends, self._committed.chains
        total = ends[-1].total if ends else 0
        for chain in chains[len(ends) :]:
            header = self._entries.headers[chain]
            total += header.body_size
            ends.append(_EntryEnd(header.next_lsn, header.timestamp_ns, total))
        return ends

    def _shown_by(self, node: int) -> int:
        """What `node` is known to have shown before, in the same incarnation; 0: nothing."""
        incarnation, lsn = self._shown.get(node, (None, 0))
        return lsn if incarnation == self._asked[node] == _incarnation(self._replicas[node]) else 0

    def _is_ahead(self, node: int, lsn: int) -> bool:
        """Whether the raft of `node`, in the same incarnation, has not made `lsn` visible."""
        replica = self._replicas[node]
        return _incarnation(replica) == self._asked[node] and lsn > replica.visible_lsn

    def _lsn_before(self, place: int) -> int:
        return self._ends[place - 1].next_lsn if place else self._committed.start_lsn

    def _place_of(self, lsn: int) -> int:
        return bisect_right(self._ends, lsn, key=_next_lsn)

    def _is_boundary(self, lsn: int) -> bool:
        """Whether an entry ends right before `lsn`, or the log begins there."""
        return self._lsn_before(self._place_of(lsn)) == lsn

    def _report(self, invariant: Invariant, text: str) -> None:
        self._findings.report(invariant, text)


def _incarnation(replica: Replica) -> _Incarnation:
    return replica.disk, replica.incarnation


def _stamp(end: _EntryEnd) -> int:
    return end.timestamp_ns


def _next_lsn(end: _EntryEnd) -> int:
    return end.next_lsn
