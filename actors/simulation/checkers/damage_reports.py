"""The damage that replicas report, against their media (I11, I12; SAFETY section 4, Q1).

Owns which entries each replica must report as damaged. A start reads every record, and the frames
of the newest segment. An entry of which it reads something else than was written is repaired or
reported; it is dropped only if nothing on the medium shows that it was ever durable. A header that
one file of a pair lacks is restored. A replica whose medium is whole reports nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from actors.simulation.checkers.client_facts import DamageNamed, LogVerified
from actors.simulation.checkers.consequences import LogResumed
from actors.simulation.checkers.facts import DamageListed, Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from actors.simulation.checkers.world_view import Held
from logstore.format.peer_messages import HeartbeatReply
from logstore.raft.effects import Answer
from logstore.raft.events import ControlReceived, EntryRotted


class Damage:
    """Checks the damage of all replicas; without a `durability` port only that their reports agree
    with each other."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._findings = record.findings
        self._committed = record.committed
        self._durability = record.durability

    @reads(LogResumed)
    def on_resumed(self, log: LogResumed) -> None:
        """`DiskClaims` has set the replica's faulty entries to those that recovery found."""
        replica = log.replica
        port, node, named = self._durability, replica.node, set(replica.faulty)
        if port is None:
            return
        if named and not port.is_excused(node):
            self._report(f"node {node} calls entry {min(named)} damaged, its disk is whole")
        for number in port.segments_with_one_header(node):
            self._report(f"node {node} leaves segment {number} under one header")
        last, start = replica.log.last_index, log.recovered.start.index
        lost: list[Held] = []
        before: Held | None = None
        for held in port.held_at_start(node):
            if held.index <= start:
                continue
            if held.index > last:
                lost.append(held)
            elif held.chain == replica.log.chain_at(held.index):
                self._check_named(node, held, before, named)
            before = held
        if lost:
            self._check_lost(node, lost, last)

    def _check_named(self, node: int, held: Held, before: Held | None, named: set[int]) -> None:
        index = held.index
        if index in named:
            follows = before is not None and before.index == index - 1 and before.is_whole
            if held.is_frame_whole and follows:
                text = f"node {node} calls entry {index} damaged, its frame is whole"
                self._report(text)
        elif not held.is_frame_whole and (held.is_read_at_start or not held.is_record_whole):
            self._report(f"node {node} does not name entry {index}, which is damaged")

    def _check_lost(self, node: int, lost: Sequence[Held], last: int) -> None:
        """A record proves that its frame was durable (F2), and everything before it."""
        first = lost[0]
        whole = [held.index for held in lost if held.is_record_whole]
        if whole:
            text = f"node {node} recovers only {last}, its record of entry {whole[-1]} is whole"
            self._report(text)
        elif first.index == last + 1 and first.is_frame_whole:
            text = f"node {node} recovers only {last}, its frame of entry {first.index} is whole"
            self._report(text)

    @reads(EntryRotted)
    def on_rotted(self, replica: Replica, rot: EntryRotted, _step: Stepped) -> None:
        """A reader of this replica calls the entry damaged."""
        if self._durability is not None and not self._durability.is_excused(replica.node):
            text = f"a reader of node {replica.node} calls entry {rot.index} damaged"
            self._report(f"{text}, its disk is whole")

    @reads((Answer, HeartbeatReply))
    def on_beat_answered(self, replica: Replica, answer: Answer, step: Stepped) -> None:
        """An answer in the heartbeat's own step has the lowest damaged range, and nothing that is
        whole; one that had to wait for META has the damage that was known before."""
        reply = answer.message
        if type(reply) is not HeartbeatReply or type(step.event) is not ControlReceived:
            return
        first = last = min(replica.faulty, default=0)
        while last + 1 in replica.faulty:
            last += 1
        if (reply.faulty_first, reply.faulty_last) != (first, last):
            text = f"node {replica.node} tells of damage {reply.faulty_first}-{reply.faulty_last}"
            self._report(f"{text}, it is {first}-{last}")

    # --- readers ---

    @reads(LogVerified)
    def on_verified(self, told: LogVerified) -> None:
        node, named = told.node, told.named
        first, last = told.span
        first = max(first, self._record.highest_start + 1)  # where this log begins is not told
        for held in self._held_now(node, range(first, last + 1)):
            if held.is_whole == (held.index not in named):
                continue
            what = "is" if held.is_whole else "is not"
            text = f"node {node} verifies [{first}, {last}], and damaged is {sorted(named)}"
            self._report(f"{text}: entry {held.index} {what} whole")
            return
        if not named and told.chain != self._committed.chain_at(last):
            text = f"node {node} verifies [{first}, {last}] and has another chain there"
            self._findings.report(Invariant.I3, text)

    @reads(DamageNamed)
    def on_refused(self, told: DamageNamed) -> None:
        """Each of these LSNs is in one entry that is damaged. The answer may be on its way while
        another disk is put in."""
        node = told.node
        if told.asked_ns < self._record.replicas[node].put_in_ns:
            return
        first, last = told.lsns
        if self._durability is not None and not self._durability.is_excused(node):
            text = f"node {node} calls LSNs [{first}, {last}] damaged, its disk is whole"
            self._report(text)
            return
        for held in self._held_now(node, self._committed.indexes_of(first, last)):
            if held.is_whole:
                text = f"node {node} calls LSNs [{first}, {last}] damaged, entry {held.index} is"
                self._report(f"{text} whole")
                return

    @reads(DamageListed)
    def on_end(self, listed: DamageListed) -> None:
        replica = self._record.replicas[listed.node]
        told = [index for first, last in listed.named for index in range(first, last + 1)]
        if told != sorted(set(replica.faulty)):
            text = f"node {replica.node} calls {told} damaged, it was told of {replica.faulty}"
            self._report(text)

    def _held_now(self, node: int, indexes: Container[int]) -> Iterable[Held]:
        return () if self._durability is None else self._durability.held_now(node, indexes)

    def _report(self, text: str) -> None:
        self._findings.report(Invariant.I12, text)
