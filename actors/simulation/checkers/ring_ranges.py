"""Ranges of the payload rings are settled once each, not before they are written, their bytes
unharmed.

Owns each range from the event that brings it to the Settle that gives it back (SAFETY M4; I14), and
the bytes of entries, read from the ring when their write is ordered (I11). A range that is not
written is given back in the step that brought it; only an append whose term is not durable yet may
wait.
"""

from __future__ import annotations

from crc32c import crc32c

from actors.simulation.checkers.consequences import SessionOrdered
from actors.simulation.checkers.facts import Converged, EntrySent, Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads, reads_after
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from logstore.format.entry import EntryHeader
from logstore.format.session_entries import decode_expire, decode_open
from logstore.model import EntryKind
from logstore.raft.effects import Persist, Settle
from logstore.raft.events import AppendReceived, Proposed

Brought = Proposed | AppendReceived


class RingRanges:
    """Checks the rings of all replicas."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._findings = record.findings
        self._ring_bytes = record.ring_bytes  # 0: not known

    @reads(Proposed, AppendReceived)
    def on_range(self, replica: Replica, event: Brought, _step: Stepped) -> None:
        """A proposal or an append of a peer brings a range."""
        start, end = event.ring_start, event.ring_end
        if end <= start:
            return
        ranges = replica.ranges
        ranges[start] = end
        oldest = next(iter(ranges))  # they come in the order of their positions
        if 0 < self._ring_bytes < end - oldest:
            text = f"node {replica.node} overwrites [{oldest}, {ranges[oldest]}) of its ring"
            self._findings.report(Invariant.I11, f"{text} with [{start}, {end})")

    @reads_after(Proposed, AppendReceived)
    def on_brought(self, replica: Replica, event: Brought, _step: Stepped) -> None:
        """After the step that brought the range."""
        start = event.ring_start
        if start not in replica.ranges or start in replica.needed_ranges:
            return
        if type(event) is AppendReceived and event.append.term == replica.term:
            if event.append.term > replica.saved_term:
                return
        text = f"node {replica.node} neither writes nor gives back what came with {event}"
        self._findings.report(Invariant.I14, text)

    @reads(Persist)
    def on_persist(self, replica: Replica, effect: Persist, _step: Stepped) -> None:
        start, end = effect.ring_start, effect.ring_end
        if end <= start:
            return
        replica.needed_ranges.add(start)
        read_ring = self._record.read_ring
        body = None if read_ring is None else read_ring(replica.node, start, end)
        if body is None:
            return
        bodies = self._record.entries.bodies
        known = bodies.get(effect.chain)
        if known is None:
            if is_sound(effect.header, body):
                bodies[effect.chain] = body
                if effect.header.kind == EntryKind.OPEN:
                    self._record.tell(SessionOrdered(decode_open(body)))
                elif effect.header.kind == EntryKind.EXPIRE:
                    self._record.tell(SessionOrdered(decode_expire(body)))
                return
        elif known == body:
            return
        text = f"node {replica.node} stores entry {effect.header.index} with other bytes"
        self._findings.report(Invariant.I11, text)

    @reads(Settle)
    def on_settle(self, replica: Replica, effect: Settle, _step: Stepped) -> None:
        start = effect.ring_start
        if replica.ranges.pop(start, None) != effect.ring_end:
            text = f"node {replica.node} settles what is no open range of its ring: {effect}"
            self._findings.report(Invariant.I14, text)
        elif start in replica.needed_ranges:
            text = f"node {replica.node} gives a range back that its writer still reads: {effect}"
            self._findings.report(Invariant.I11, text)

    @reads(Converged)
    def on_converged(self, _converged: Converged) -> None:
        """No range is left, since nothing is under way any more, except at replicas whose media
        rotted: the run does not wait for those."""
        for node, replica in self._record.replicas.items():
            if replica.is_running and replica.ranges and not self._record.is_excused(node):
                text = f"node {node} never settled {len(replica.ranges)} ranges of its ring"
                self._findings.report(Invariant.I14, text)

    @reads(EntrySent)
    def on_sent(self, sent: EntrySent) -> None:
        header = sent.append.header
        if not is_sound(header, sent.body):
            text = f"node {sent.node} sends entry {header.index} with other bytes than it has"
            self._findings.report(Invariant.I11, text)


def is_sound(header: EntryHeader, body: bytes) -> bool:
    """Whether these bytes are the body of this entry."""
    return len(body) == header.body_size and crc32c(body) == header.body_crc
