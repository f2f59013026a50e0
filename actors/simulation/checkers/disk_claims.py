"""What replicas report of their own disks, against the disks (I10, I12).

Owns the outstanding orders to each writer and what follows from its answers. When a `Persisted`
comes, the disk must hold the entry; after every crash the entry must be there, be listed as faulty,
or have been truncated since. An entry whose truncation is durable does not come back (S7).
"""

from __future__ import annotations

from actors.simulation.checkers.consequences import LogResumed
from actors.simulation.checkers.facts import (
    ForbiddenWrite,
    ReadAheadOfWriter,
    Stepped,
    WrittenPublished,
)
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Order, Replica
from logstore.format.peer_messages import AppendPersisted
from logstore.raft.effects import Answer, InstallLog, Persist, Truncate
from logstore.raft.events import EntryRotted, LogStartMoved, Persisted

_FEW = 4  # entries: mostly one flush group


class DiskClaims:
    """Checks the reports of all replicas; without a `durability` port they are not compared with
    the disks."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._findings = record.findings
        self._durability = record.durability

    @reads(ForbiddenWrite)
    def on_forbidden_write(self, write: ForbiddenWrite) -> None:
        self._findings.report(Invariant.I12, f"node {write.node} {write.how}")

    # --- orders and answers ---

    @reads(Persist)
    def on_persist(self, replica: Replica, effect: Persist, _step: Stepped) -> None:
        header = effect.header
        replica.unanswered.append(Order(effect.seq, header.index, effect.chain, effect.ring_start))
        replica.truncated.pop(effect.chain, None)

    @reads(Truncate)
    def on_truncate(self, replica: Replica, effect: Truncate, _step: Stepped) -> None:
        """The shadow log still has what is truncated."""
        first = effect.first_index
        for ordered in replica.unanswered:
            if ordered.index >= first:
                ordered.index = 0
        truncated = replica.log.chain_at(first) or 0
        replica.unanswered.append(Order(effect.seq, 0, 0, -1, first, truncated))
        if replica.flushed_index >= first:
            replica.flushed_index = first - 1
            replica.flushed_chain = replica.log.chain_at(first - 1) or 0
        replica.faulty = [index for index in replica.faulty if index < first]

    @reads(InstallLog)
    def on_install(self, replica: Replica, effect: InstallLog, _step: Stepped) -> None:
        """The shadow log still has what is dropped; what followed log start must not come back."""
        start, log = effect.start.position, replica.log
        for ordered in replica.unanswered:
            ordered.index = ordered.truncated_index = 0
        dropped = log.chain_at(start.index + 1) or 0
        first = start.index + 1 if dropped else 0
        replica.unanswered.append(Order(effect.seq, start.index, start.chain, -1, first, dropped))
        if replica.flushed_index >= start.index > 0:
            replica.flushed_index = start.index - 1
            replica.flushed_chain = log.chain_at(start.index - 1) or 0
        replica.faulty = []

    @reads(WrittenPublished)
    def on_written(self, written: WrittenPublished) -> None:
        """The writer sends readers to the files for everything up to `seq` (W4). Checked only if
        more entries wait than one group may hold, or something is truncated: otherwise all of them
        are one group."""
        port, node, seq = self._durability, written.node, written.seq
        ordered = self._record.replicas[node].unanswered
        if port is None or port.is_excused(node):
            return
        if len(ordered) <= _FEW and not any(each.truncated_index for each in ordered):
            return
        newest = None
        for each in ordered:
            if each.seq <= seq and each.index:
                newest = each
        if newest is not None and not port.is_written(node, newest.index, newest.chain):
            text = f"node {node} sends readers to entry {newest.index}, which its files do not have"
            self._findings.report(Invariant.I12, f"{text} (seq {seq})")

    @reads(ReadAheadOfWriter)
    def on_read_ahead(self, read: ReadAheadOfWriter) -> None:
        """A leader's files only grow, and its replicators know how far they are written."""
        port, node, term = self._durability, read.node, read.term
        replica = self._record.replicas[node]
        if term != replica.term or term != replica.led_term:
            return
        if port is not None and not port.is_excused(node):
            text = f"a replicator of node {node}, which leads term {term}, reads {read.place}"
            self._findings.report(Invariant.I12, f"{text}: nothing is written there")

    @reads(Persisted)
    def on_persisted(self, replica: Replica, persisted: Persisted, _step: Stepped) -> None:
        """The writer says that everything up to its `seq` is flushed."""
        while replica.unanswered and replica.unanswered[0].seq <= persisted.seq:
            done = replica.unanswered.popleft()
            replica.needed_ranges.discard(done.ring_start)
            if done.truncated_index:
                self._on_truncation_durable(replica, done)
            if done.index:
                self._on_flushed(replica, done)

    def _on_flushed(self, replica: Replica, done: Order) -> None:
        replica.flushed_once.add(done.chain)
        if not self._has(replica.node, done.index, done.chain):
            text = f"node {replica.node} calls entry {done.index} flushed, its disk does not"
            self._findings.report(Invariant.I10, f"{text} have it (seq {done.seq})")
        if done.index > replica.flushed_index:
            replica.flushed_index, replica.flushed_chain = done.index, done.chain

    @reads(EntryRotted)
    def on_rotted(self, replica: Replica, rot: EntryRotted, _step: Stepped) -> None:
        """A reader found damage; of an entry that is not there any more it says nothing, nor of one
        in a log that is being dropped, which readers still have."""
        start = max(replica.start.index, replica.log.start.index)
        if start < rot.index <= replica.log.last_index:
            replica.faulty.append(rot.index)

    @reads(LogStartMoved)
    def on_log_start(self, replica: Replica, moved: LogStartMoved, _step: Stepped) -> None:
        """What is no longer in the log is no damage of it."""
        replica.faulty = [index for index in replica.faulty if index > moved.start.position.index]

    def _on_truncation_durable(self, replica: Replica, truncate: Order) -> None:
        """The truncation is durable. An entry that was ordered again meanwhile is not truncated."""
        index, chain = truncate.truncated_index, truncate.truncated_chain
        if not chain or replica.log.chain_at(index) == chain:
            return
        replica.truncated[chain] = index
        port, node = self._durability, replica.node
        if port is None or port.is_excused(node) or port.has_dropped(node, index, chain):
            return
        text = f"node {node} calls entry {index} truncated, its disk still has it"
        self._findings.report(Invariant.I10, f"{text} (seq {truncate.seq})")

    # --- what is sent to the leader ---

    @reads((Answer, AppendPersisted))
    def on_match_told(self, replica: Replica, answer: Answer, step: Stepped) -> None:
        """Flushed up to there, and nothing uncommitted in it is damaged (Q1)."""
        index: int = answer.message.index  # type: ignore[union-attr]  # an AppendPersisted
        node, commit = replica.node, step.core.commit
        if index > replica.log.last_index:
            text = f"node {node} claims entry {index}, its log ends at {replica.log.last_index}"
            self._findings.report(Invariant.I12, text)
        elif index > replica.flushed_index:
            text = f"node {node} claims entry {index}, only {replica.flushed_index} was flushed"
            self._findings.report(Invariant.I10, text)
        damaged = [each for each in replica.faulty if commit < each <= index]
        if damaged:
            text = f"node {node} claims entry {index}, its uncommitted entry {damaged[0]} is faulty"
            self._findings.report(Invariant.I12, text)

    # --- after a crash ---

    @reads(LogResumed)
    def on_resumed(self, log: LogResumed) -> None:
        replica = log.replica
        node, last = replica.node, replica.log.last_index
        ranges = log.recovered.faulty
        faulty = [index for first, end in ranges for index in range(int(first), int(end) + 1)]
        if not self._record.is_excused(node):
            index, chain = replica.flushed_index, replica.flushed_chain
            if index > last:
                text = f"node {node} had flushed entry {index}, and recovers only {last}"
                self._findings.report(Invariant.I12, text)
            elif index > replica.log.start.index and not self._is_kept(replica, index, chain):
                text = f"node {node} had flushed entry {index}, and recovers another one"
                self._findings.report(Invariant.I12, text)
            self._check_truncated(replica)
            self._check_found(replica)
        replica.faulty = faulty
        replica.flushed_index = last
        replica.flushed_chain = replica.log.chain_at(last) or 0
        replica.truncated = {
            old: at for old, at in replica.truncated.items() if replica.log.chain_at(at) != old
        }

    def _is_kept(self, replica: Replica, index: int, chain: int) -> bool:
        return replica.log.chain_at(index) == chain and self._has(replica.node, index, chain)

    def _check_found(self, replica: Replica) -> None:
        """Recovery may find entries in the page cache that were never reported as flushed: it makes
        them durable before it reports them (SAFETY section 4)."""
        log = replica.log
        for index in range(max(replica.flushed_index, log.start.index) + 1, log.last_index + 1):
            chain = log.chain_at(index)
            if chain and not self._has(replica.node, index, chain):
                text = f"node {replica.node} recovers entry {index}, a power cut would lose it"
                self._findings.report(Invariant.I10, text)
                return

    def _check_truncated(self, replica: Replica) -> None:
        for chain, index in replica.truncated.items():
            if replica.log.chain_at(index) == chain:
                text = f"node {replica.node} recovers entry {index}, whose truncation was durable"
                self._findings.report(Invariant.I12, text)

    def _has(self, node: int, index: int, chain: int) -> bool:
        port = self._durability
        return port is None or port.has_entry(node, index, chain) or port.is_excused(node)
