"""What replicas say of their own disks, against the disks (I10, I12).

Owns the outstanding orders to each writer and what follows from its answers. A `Persisted` is
believed only if the disk holds the entry; what it proves must be there after every crash, be
listed as faulty, or have been truncated since. A truncation that is durable stays one (S7).
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.ports import Durability
from actors.simulation.checkers.replica import Ordered, Replica
from logstore.raft.effects import Persist, Truncate
from logstore.raft.log_view import RecoveredLog

_FEW = 4  # entries: mostly one flush group


class DiskClaims:
    """The claims of all replicas; without a `durability` port nothing of them is checked."""

    __slots__ = ("_durability", "_findings", "_replicas")

    def __init__(
        self,
        findings: Findings,
        replicas: Sequence[Replica],
        durability: Durability | None,
    ) -> None:
        self._findings = findings
        self._replicas = replicas
        self._durability = durability

    def on_misplaced(self, node: int, what: str, at_ns: int) -> None:
        """The replica writes frames where none may be written (S6, S7), or a header when none may
        be (F6)."""
        self._findings.report(Invariant.I12, f"node {node} {what}", at_ns)

    # --- orders and answers ---

    def on_persist(self, replica: Replica, effect: Persist) -> None:
        header = effect.header
        replica.ordered.append(Ordered(effect.seq, header.index, effect.chain, effect.ring_start))
        replica.dead.pop(effect.chain, None)

    def on_truncate(self, replica: Replica, effect: Truncate) -> None:
        """The shadow log still has what is truncated."""
        first = effect.first_index
        for ordered in replica.ordered:
            if ordered.index >= first:
                ordered.index = 0
        dead = replica.log.chain_at(first) or 0
        replica.ordered.append(Ordered(effect.seq, 0, 0, -1, first, dead))
        if replica.claim_index >= first:
            replica.claim_index = first - 1
            replica.claim_chain = replica.log.chain_at(first - 1) or 0
        replica.faulty = [index for index in replica.faulty if index < first]

    def on_written(self, replica: Replica, seq: int, at_ns: int) -> None:
        """WRITTEN sends readers to the files for everything up to `seq` (W4). Looked at where more
        waits than a group may hold, or something is truncated: else they are all one group."""
        port, node, ordered = self._durability, replica.node, replica.ordered
        if port is None or port.is_excused(node):
            return
        if len(ordered) <= _FEW and not any(each.dead_index for each in ordered):
            return
        newest = None
        for each in ordered:
            if each.seq <= seq and each.index:
                newest = each
        if newest is not None and not port.is_written(node, newest.index, newest.chain):
            text = f"node {node} sends readers to entry {newest.index}, which its files do not have"
            self._findings.report(Invariant.I12, f"{text} (seq {seq})", at_ns)

    def on_looked_ahead(self, replica: Replica, term: int, place: str, at_ns: int) -> None:
        """The files of whoever leads only grow, and its replicators know how far."""
        port, node = self._durability, replica.node
        if term != replica.term or term != replica.led_term:
            return
        if port is not None and not port.is_excused(node):
            text = f"a replicator of node {node}, which leads term {term}, reads {place}"
            self._findings.report(Invariant.I12, f"{text}: nothing is written there", at_ns)

    def on_persisted(self, replica: Replica, seq: int, at_ns: int) -> None:
        """The writer's word that everything up to `seq` is flushed."""
        while replica.ordered and replica.ordered[0].seq <= seq:
            done = replica.ordered.popleft()
            replica.needed_ranges.discard(done.ring_start)
            if done.dead_index:
                self._bury(replica, done, at_ns)
            elif done.index:
                self._flushed(replica, done, at_ns)

    def _flushed(self, replica: Replica, done: Ordered, at_ns: int) -> None:
        replica.once_held.add(done.chain)
        if not self._has(replica.node, done.index, done.chain):
            text = f"node {replica.node} calls entry {done.index} flushed, its disk does not"
            self._findings.report(Invariant.I10, f"{text} have it (seq {done.seq})", at_ns)
        if done.index > replica.claim_index:
            replica.claim_index, replica.claim_chain = done.index, done.chain

    def on_rotted(self, replica: Replica, index: int) -> None:
        """A reader found damage; of an entry that is not there any more it says nothing."""
        if replica.log.start.index < index <= replica.log.last_index:
            replica.faulty.append(index)

    def _bury(self, replica: Replica, truncate: Ordered, at_ns: int) -> None:
        """The truncation is durable. An entry that was ordered again meanwhile is not dead."""
        index, chain = truncate.dead_index, truncate.dead_chain
        if not chain or replica.log.chain_at(index) == chain:
            return
        replica.dead[chain] = index
        port, node = self._durability, replica.node
        if port is None or port.is_excused(node) or port.has_dropped(node, index, chain):
            return
        text = f"node {node} calls entry {index} truncated, its disk still has it"
        self._findings.report(Invariant.I10, f"{text} (seq {truncate.seq})", at_ns)

    # --- what others are told ---

    def on_match_told(self, replica: Replica, index: int, commit: int, at_ns: int) -> None:
        """AppendPersisted(index): flushed, and nothing uncommitted in it is damaged (Q1)."""
        node = replica.node
        if index > replica.log.last_index:
            text = f"node {node} claims entry {index}, its log ends at {replica.log.last_index}"
            self._findings.report(Invariant.I12, text, at_ns)
        elif index > replica.claim_index:
            text = f"node {node} claims entry {index}, only {replica.claim_index} was flushed"
            self._findings.report(Invariant.I10, text, at_ns)
        damaged = [each for each in replica.faulty if commit < each <= index]
        if damaged:
            text = f"node {node} claims entry {index}, its uncommitted entry {damaged[0]} is faulty"
            self._findings.report(Invariant.I12, text, at_ns)

    def count_holders(self, index: int, chain: int) -> int:
        """Replicas with this entry on disk, a majority at least if there is one. Who claimed it was
        looked up then, and a crash that loses it is found there; the others are looked up now."""
        count = 0
        others = []
        for replica in self._replicas:
            if replica.claim_index >= index and replica.log.chain_at(index) == chain:
                count += 1
            else:
                others.append(replica)
        if count <= len(self._replicas) // 2:
            count += sum(self._has_quietly(each, index, chain) for each in others)
        return count

    def _has_quietly(self, replica: Replica, index: int, chain: int) -> bool:
        """The disk has it though nobody was told; one that was excused counts if it once had it."""
        port = self._durability
        return port is None or (
            port.has_entry(replica.node, index, chain)
            or (chain in replica.once_held and port.is_excused(replica.node))
        )

    # --- after a crash ---

    def on_recovered(self, replica: Replica, recovered: RecoveredLog, at_ns: int) -> None:
        """The shadow log has been brought in line with `recovered`."""
        node, last = replica.node, replica.log.last_index
        faulty = [
            index for first, end in recovered.faulty for index in range(int(first), int(end) + 1)
        ]
        if not self.is_excused(replica):
            index, chain = replica.claim_index, replica.claim_chain
            if index > last:
                text = f"node {node} had flushed entry {index}, and recovers only {last}"
                self._findings.report(Invariant.I12, text, at_ns)
            elif index > replica.log.start.index and not self._is_kept(replica, index, chain):
                text = f"node {node} had flushed entry {index}, and recovers another one"
                self._findings.report(Invariant.I12, text, at_ns)
            self._check_dead(replica, at_ns)
            self._check_found(replica, at_ns)
        replica.faulty = faulty
        replica.claim_index = last
        replica.claim_chain = replica.log.chain_at(last) or 0
        replica.dead = {
            chain: at for chain, at in replica.dead.items() if replica.log.chain_at(at) != chain
        }

    def is_excused(self, replica: Replica) -> bool:
        """Its medium lied or rotted."""
        return self._durability is not None and self._durability.is_excused(replica.node)

    def _is_kept(self, replica: Replica, index: int, chain: int) -> bool:
        return replica.log.chain_at(index) == chain and self._has(replica.node, index, chain)

    def _check_found(self, replica: Replica, at_ns: int) -> None:
        """Recovery may find more than was ever claimed, in the page cache: it makes that durable
        before it speaks of it (SAFETY section 4)."""
        log = replica.log
        for index in range(max(replica.claim_index, log.start.index) + 1, log.last_index + 1):
            chain = log.chain_at(index)
            if chain and not self._has(replica.node, index, chain):
                text = f"node {replica.node} recovers entry {index}, a power cut would lose it"
                self._findings.report(Invariant.I10, text, at_ns)
                return

    def _check_dead(self, replica: Replica, at_ns: int) -> None:
        for chain, index in replica.dead.items():
            if replica.log.chain_at(index) == chain:
                text = f"node {replica.node} recovers entry {index}, whose truncation was durable"
                self._findings.report(Invariant.I12, text, at_ns)

    def _has(self, node: int, index: int, chain: int) -> bool:
        port = self._durability
        return port is None or port.has_entry(node, index, chain) or port.is_excused(node)
