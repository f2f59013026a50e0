"""The record of one run: what more than one checker needs, and ports to read the world.

Owns the findings, the replicas, every entry, the committed log, the sessions, and the appends and
deliveries of clients. Must not know the checkers: it passes consequences on through `tell`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from actors.simulation.checkers.batches import StoredBatch
from actors.simulation.checkers.committed_log import CommittedLog
from actors.simulation.checkers.electorates import Electorate, Electorates
from actors.simulation.checkers.facts import Fact
from actors.simulation.checkers.holders import Holders
from actors.simulation.checkers.invariant import Findings
from actors.simulation.checkers.operations import Operations
from actors.simulation.checkers.producers import ProducerOrder, Sessions
from actors.simulation.checkers.replica_promises import NEVER_NS, Replica
from actors.simulation.checkers.shadow import KnownEntries
from actors.simulation.checkers.stamps import Stamps
from actors.simulation.checkers.world_view import Durability, Kept, ReadRing
from logstore.format.meta import LogStart
from logstore.raft.log_view import Position


class Record:
    """`nodes` are all machines, and `founders` those of the configuration file, if not all of them.
    `election_timeout_ns` is their shortest election timeout;
    `now` reads the time of the world; `read_clocks` reads the wall clocks of all replicas, also of
    those that are down; `read_clock_gaps` reads by how much each node's wall clock is ahead of its
    monotonic one. What only a missing port could show is not checked."""

    def __init__(
        self,
        nodes: Sequence[int],
        now: Callable[[], int],
        *,
        durability: Durability | None = None,
        read_ring: ReadRing | None = None,
        read_clocks: Callable[[], Mapping[int, int]] = dict,
        read_clock_gaps: Callable[[], Mapping[int, int]] = dict,
        kept: Kept | None = None,
        ring_bytes: int = 0,
        election_timeout_ns: int,
        session_expiry_ns: int = 0,
        save_within_ns: int = NEVER_NS,
        founders: Sequence[int] | None = None,
    ) -> None:
        self.now = now
        self.durability = durability
        self.read_ring = read_ring
        self.read_clock_gaps = read_clock_gaps
        self.kept = kept
        self.ring_bytes = ring_bytes
        self.election_timeout_ns = election_timeout_ns
        self.session_expiry_ns = session_expiry_ns
        self.save_within_ns = save_within_ns
        self.findings = findings = Findings(now)
        self.replicas = {node: Replica(node) for node in nodes}  # the newest one of each node
        self.gone: list[Replica] = []  # with their disks
        self.electorates = Electorates(nodes if founders is None else founders)
        self.is_replica_known = False  # facts of replicas are told, not of clients alone
        self.entries = KnownEntries(findings)
        self.stamps = Stamps(findings, now, read_clocks)
        self.sessions = Sessions()
        self.newest_committed = self.newest_proposed = self.electorates.first  # configurations
        self.committed = CommittedLog(
            findings,
            self.entries,
            ProducerOrder(self.sessions),
            Holders(lambda: self.all_replicas, durability),
            self.tell,
        )
        self.leaders: dict[int, Replica] = {}  # by term
        self.operations = Operations(self.sessions)
        self.delivered: dict[int, StoredBatch] = {}  # the first content seen, by first LSN
        self._trims: dict[int, LogStart] = {}  # that committed TRIMs made, by index
        self._tell: Callable[[Fact], None] = _nobody

    @property
    def all_replicas(self) -> list[Replica]:
        """Also those whose disks were lost."""
        return [*self.replicas.values(), *self.gone]

    def replace(self, node: int) -> None:
        """The node's replica is gone: what starts there next is another one, on a disk that was
        never in."""
        old = self.replicas[node]
        old.is_gone, old.is_running = True, False
        self.gone.append(old)
        disk = sum(each.node == node for each in self.gone)  # an old one may have been in
        self.replicas[node] = new = Replica(node, disk)
        new.incarnation, new.put_in_ns = old.incarnation, self.now()

    def swap(self, node: int, disk: int) -> None:
        """Another disk is in the node's machine, with its replica."""
        old = self.replicas[node]
        new = next(each for each in self.gone if each.key == (node, disk))
        self.gone.remove(new)
        self.gone.append(old)
        old.is_gone, old.is_running, new.is_gone = True, False, False
        self.replicas[node] = new
        new.incarnation, new.put_in_ns = old.incarnation, self.now()

    def electorates_in_force(self) -> list[Electorate]:
        """Of all configurations that may decide: the newest committed one, and those of all logs
        of its members."""
        members = [each for each in self.replicas.values() if self.newest_committed.has(each)]
        return list(
            {
                id(each): each
                for each in (self.newest_committed, *map(self.electorates.of, members))
            }.values()
        )

    @property
    def is_joint_under_way(self) -> bool:
        """The newest configuration that a leader appended is a joint one, and none that follows it
        is committed."""
        proposed = self.newest_proposed.configuration
        return bool(proposed.incoming) and proposed.id >= self.newest_committed.configuration.id

    def is_member(self, node: int) -> bool:
        """The node's replica is in the newest committed configuration."""
        return self.newest_committed.has(self.replicas[node])

    def electorate(self, replica: Replica) -> Electorate:
        """Whose majority decides, by this replica's log. Hot."""
        return self.electorates.of(replica)

    def open(self, tell: Callable[[Fact], None]) -> None:
        """Set the function that gives a fact to the checkers."""
        self._tell = tell

    def tell(self, fact: Fact) -> None:
        """Give a consequence to the checkers."""
        self._tell(fact)

    def trimmed_to(self, start: LogStart) -> None:
        """A committed TRIM makes the log begin there."""
        self._trims[start.index] = start

    def is_start(self, start: Position) -> bool:
        """A replica's log may begin there: no TRIM moved it, or one did."""
        trim = self._trims.get(start.index)
        if trim is None:
            return self.starts.get(start.index) == start.next_lsn
        return (start.term, start.chain, start.next_lsn) == (trim.term, trim.chain, trim.next_lsn)

    @property
    def starts(self) -> dict[int, int]:
        """Every log start that a replica may have, and the first LSN that it keeps."""
        trims = {int(index): int(each.next_lsn) for index, each in self._trims.items()}
        return {self.committed.start_index: self.committed.start_lsn} | trims

    @property
    def start_lsns(self) -> set[int]:
        """The first LSNs of these."""
        return set(self.starts.values())

    @property
    def highest_start(self) -> int:
        """The index of the highest log start that any replica may have."""
        return max(self._trims, default=self.committed.start_index)

    def is_excused(self, node: int) -> bool:
        """Its medium lied or rotted."""
        return self.durability is not None and self.durability.is_excused(node)


def _nobody(_fact: Fact) -> None:
    """Before `open` no checker reads."""
