"""What replicas say of their own damage, against their media (I11, I12; SAFETY section 4, Q1).

Owns which entries each replica has to name. A start reads every record, and the frames of the
newest segment: what of them does not read as it was written is an entry with its bytes back, or
named; it is dropped only where nothing on the medium shows that it was ever durable. A header that
one file of a pair lacks is there again. A replica whose medium is whole names nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from actors.simulation.checkers.committed_log import CommittedLog
from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.ports import Durability, Held
from actors.simulation.checkers.replica import Replica
from logstore.format.peer_messages import HeartbeatReply


class Damage:
    """The damage of all replicas; without a `durability` port only what they tell is checked."""

    __slots__ = ("_committed", "_durability", "_findings")

    def __init__(
        self, findings: Findings, committed: CommittedLog, durability: Durability | None
    ) -> None:
        self._findings = findings
        self._committed = committed
        self._durability = durability

    def on_recovered(self, replica: Replica, at_ns: int) -> None:
        """`replica` has its log and its faulty entries as recovery found them."""
        port, node, named = self._durability, replica.node, set(replica.faulty)
        if port is None:
            return
        if named and not port.is_excused(node):
            self._report(f"node {node} calls entry {min(named)} damaged, its disk is whole", at_ns)
        for number in port.half_headed(node):
            self._report(f"node {node} leaves segment {number} under one header", at_ns)
        last = replica.log.last_index
        lost: list[Held] = []
        before: Held | None = None
        for held in port.held_at_start(node):
            if held.index > last:
                lost.append(held)
            elif held.chain == replica.log.chain_at(held.index):
                self._check_named(node, held, before, named, at_ns)
            before = held
        if lost:
            self._check_lost(node, lost, last, at_ns)

    def _check_named(
        self, node: int, held: Held, before: Held | None, named: set[int], at_ns: int
    ) -> None:
        index = held.index
        if index in named:
            follows = before is not None and before.index == index - 1 and before.is_whole
            if held.is_frame_whole and follows:
                text = f"node {node} calls entry {index} damaged, its frame is whole"
                self._report(text, at_ns)
        elif not held.is_frame_whole and (held.is_read_at_start or not held.is_record_whole):
            self._report(f"node {node} does not name entry {index}, which is damaged", at_ns)

    def _check_lost(self, node: int, lost: Sequence[Held], last: int, at_ns: int) -> None:
        """A record proves that its frame was durable (F2), and everything before it."""
        first = lost[0]
        whole = [held.index for held in lost if held.is_record_whole]
        if whole:
            text = f"node {node} recovers only {last}, its record of entry {whole[-1]} is whole"
            self._report(text, at_ns)
        elif first.index == last + 1 and first.is_frame_whole:
            text = f"node {node} recovers only {last}, its frame of entry {first.index} is whole"
            self._report(text, at_ns)

    def on_rotted(self, replica: Replica, index: int, at_ns: int) -> None:
        """A reader of this replica calls the entry damaged."""
        if self._durability is not None and not self._durability.is_excused(replica.node):
            text = f"a reader of node {replica.node} calls entry {index} damaged"
            self._report(f"{text}, its disk is whole", at_ns)

    def on_beat_answered(self, replica: Replica, reply: HeartbeatReply, at_ns: int) -> None:
        """The answer, given at once, names the lowest damaged range, and nothing that is whole."""
        first = last = min(replica.faulty, default=0)
        while last + 1 in replica.faulty:
            last += 1
        if (reply.faulty_first, reply.faulty_last) != (first, last):
            text = f"node {replica.node} tells of damage {reply.faulty_first}-{reply.faulty_last}"
            self._report(f"{text}, it is {first}-{last}", at_ns)

    # --- readers ---

    def on_verified(
        self, node: int, span: tuple[int, int], chain: int, named: Sequence[int], at_ns: int
    ) -> None:
        """A reader was told that of [first, last] these entries are damaged, and no others; `chain`
        is the one at the last, 0 where damage hides it."""
        first, last = span
        for held in self._held_now(node, range(first, last + 1)):
            if held.is_whole == (held.index not in named):
                continue
            what = "is" if held.is_whole else "is not"
            text = f"node {node} verifies [{first}, {last}], and damaged is {sorted(named)}"
            self._report(f"{text}: entry {held.index} {what} whole", at_ns)
            return
        if not named and chain != self._committed.chain_at(last):
            text = f"node {node} verifies [{first}, {last}] and has another chain there"
            self._findings.report(Invariant.I3, text, at_ns)

    def on_refused(self, node: int, lsns: tuple[int, int], at_ns: int) -> None:
        """A reader was told that these LSNs, [first, last], are damaged: each is in one entry that
        is. (0, 0): that there is damage somewhere."""
        first, last = lsns
        if self._durability is not None and not self._durability.is_excused(node):
            text = f"node {node} calls LSNs [{first}, {last}] damaged, its disk is whole"
            self._report(text, at_ns)
            return
        for held in self._held_now(node, self._committed.indexes_of(first, last)):
            if held.is_whole:
                text = f"node {node} calls LSNs [{first}, {last}] damaged, entry {held.index} is"
                self._report(f"{text} whole", at_ns)
                return

    def on_end(self, replica: Replica, named: Sequence[tuple[int, int]], at_ns: int) -> None:
        """What a replica's core calls damaged when the run is over, as ranges."""
        told = [index for first, last in named for index in range(first, last + 1)]
        if told != sorted(set(replica.faulty)):
            text = f"node {replica.node} calls {told} damaged, it was told of {replica.faulty}"
            self._report(text, at_ns)

    def _held_now(self, node: int, indexes: Container[int]) -> Iterable[Held]:
        return () if self._durability is None else self._durability.held_now(node, indexes)

    def _report(self, text: str, at_ns: int) -> None:
        self._findings.report(Invariant.I12, text, at_ns)
