"""Ranges of the payload rings: each settled once, none before its time, its bytes unharmed.

Owns the account of one range from the event that brings it to the Settle that gives it back
(SAFETY M4; I14), and the bytes of entries, read from the ring when their write is ordered (I11).
What is not written is given back in the step that brought it; only an append whose term is not
durable yet may wait.
"""

from __future__ import annotations

from crc32c import crc32c

from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.ports import ReadRing
from actors.simulation.checkers.producers import Sessions
from actors.simulation.checkers.replica import Replica
from actors.simulation.checkers.shadow import KnownEntries
from logstore.format.entry import EntryHeader
from logstore.format.session_entries import decode_open
from logstore.model import EntryKind
from logstore.raft.effects import Persist, Settle
from logstore.raft.events import AppendReceived, Proposed

Brought = Proposed | AppendReceived


class RingRanges:
    """All replicas' rings."""

    __slots__ = ("_findings", "_known", "_read_ring", "_ring_bytes", "_sessions")

    def __init__(
        self,
        findings: Findings,
        known: KnownEntries,
        sessions: Sessions,
        read_ring: ReadRing | None,
        ring_bytes: int,
    ) -> None:
        self._findings = findings
        self._known = known
        self._sessions = sessions
        self._read_ring = read_ring
        self._ring_bytes = ring_bytes  # 0: not known

    def on_range(self, replica: Replica, event: Brought, at_ns: int) -> None:
        """A proposal or an append of a peer brings a range."""
        start, end = event.ring_start, event.ring_end
        if end <= start:
            return
        ranges = replica.ranges
        ranges[start] = end
        oldest = next(iter(ranges))  # they come in the order of their positions
        if 0 < self._ring_bytes < end - oldest:
            text = f"node {replica.node} overwrites [{oldest}, {ranges[oldest]}) of its ring"
            self._findings.report(Invariant.I11, f"{text} with [{start}, {end})", at_ns)

    def on_brought(self, replica: Replica, event: Brought, at_ns: int) -> None:
        """The step that the range came with is over."""
        start = event.ring_start
        if start not in replica.ranges or start in replica.needed_ranges:
            return
        if type(event) is AppendReceived and event.append.term == replica.term:
            if event.append.term > replica.saved_term:
                return
        text = f"node {replica.node} neither writes nor gives back what came with {event}"
        self._findings.report(Invariant.I14, text, at_ns)

    def on_persist(self, replica: Replica, effect: Persist, at_ns: int) -> None:
        start, end = effect.ring_start, effect.ring_end
        if end <= start:
            return
        replica.needed_ranges.add(start)
        if self._read_ring is None:
            return
        body = self._read_ring(replica.node, start, end)
        if body is None:
            return
        bodies = self._known.bodies
        known = bodies.get(effect.chain)
        if known is None:
            if is_sound(effect.header, body):
                bodies[effect.chain] = body
                if effect.header.kind == EntryKind.OPEN:
                    self._sessions.order(decode_open(body))
                return
        elif known == body:
            return
        text = f"node {replica.node} stores entry {effect.header.index} with other bytes"
        self._findings.report(Invariant.I11, text, at_ns)

    def on_settle(self, replica: Replica, effect: Settle, at_ns: int) -> None:
        start = effect.ring_start
        if replica.ranges.pop(start, None) != effect.ring_end:
            text = f"node {replica.node} settles what is no open range of its ring: {effect}"
            self._findings.report(Invariant.I14, text, at_ns)
        elif start in replica.needed_ranges:
            text = f"node {replica.node} gives a range back that its writer still reads: {effect}"
            self._findings.report(Invariant.I11, text, at_ns)

    def on_converged(self, replica: Replica, at_ns: int) -> None:
        """Nothing is under way any more: no range is left."""
        if replica.is_running and replica.ranges:
            text = f"node {replica.node} never settled {len(replica.ranges)} ranges of its ring"
            self._findings.report(Invariant.I14, text, at_ns)

    def on_sent(self, node: int, header: EntryHeader, body: bytes, at_ns: int) -> None:
        """An entry leaves for a follower."""
        if not is_sound(header, body):
            text = f"node {node} sends entry {header.index} with other bytes than it has"
            self._findings.report(Invariant.I11, text, at_ns)


def is_sound(header: EntryHeader, body: bytes) -> bool:
    """The bytes are this entry's."""
    return len(body) == header.body_size and crc32c(body) == header.body_crc
