"""What each replica's log holds by the orders of its own raft: entries without a gap, none of which
is truncated once committed (I1, I2, I3, I9, I11, I15, I17).

Keeps the incarnations and the shadow logs of all replicas in step with what they do. `DiskClaims`
has what is flushed of a log, `Commits` what is committed.
"""

from __future__ import annotations

from actors.simulation.checkers.consequences import LogResumed
from actors.simulation.checkers.facts import CoreMade, DiskLost, DiskSwapped, Started, Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from logstore.raft.effects import Accepted, Admit, InstallLog, Persist, Truncate


class Logs:
    """Checks the logs of all replicas."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._committed = record.committed
        self._entries = record.entries
        self._report = record.findings.report

    # --- incarnations ---

    @reads(Started)
    def on_start(self, start: Started) -> None:
        node, incarnation = start.node, start.incarnation
        self._record.is_replica_known = True
        replica = self._record.replicas[node]
        if incarnation <= replica.incarnation:
            text = f"node {node} starts as incarnation {incarnation} after {replica.incarnation}"
            self._report(Invariant.I15, text)
        replica.begin(incarnation)

    @reads(DiskLost)
    def on_disk_lost(self, lost: DiskLost) -> None:
        """What starts there next is another replica (C6)."""
        self._record.replace(lost.node)

    @reads(DiskSwapped)
    def on_disk_swapped(self, swapped: DiskSwapped) -> None:
        self._record.swap(swapped.node, swapped.disk)

    @reads(CoreMade)
    def on_core(self, made: CoreMade) -> None:
        node, log = made.node, made.log
        replica = self._record.replicas[node]
        self._check_uuid(replica, made.uuid)
        self._committed.begin(log.start.index, log.start.next_lsn)
        unknown_index = replica.log.recover(log, self._entries)
        if unknown_index is not None:
            text = f"node {node} recovers an entry {unknown_index} that nobody ever wrote"
            self._report(Invariant.I11, text)
            return
        self._record.tell(LogResumed(replica, log))

    def _check_uuid(self, replica: Replica, uuid: bytes) -> None:
        """One replica has one uuid, and no other one has it (C6)."""
        known = {each.uuid: each for each in self._record.all_replicas if each.uuid}
        same = known.get(uuid, replica)
        if same is not replica or (uuid and replica.uuid not in (b"", uuid)):
            text = f"node {replica.node} takes part as replica {uuid.hex()}"
            if same is not replica:
                text = f"{text}, which lost its disk with its votes"
            self._report(Invariant.I9, text)
        replica.uuid = uuid

    # --- entries ---

    @reads(Persist)
    def on_persist(self, replica: Replica, persist: Persist, _step: Stepped) -> None:
        header, log = persist.header, replica.log
        before = log.last_index
        if header.index != before + 1 or header.prev_chain != log.chain_at(before):
            text = f"node {replica.node} writes {header} after entry {before}"
            self._report(Invariant.I3, text)
            return
        previous = self._entries.headers.get(header.prev_chain)
        next_lsn = log.start.next_lsn if previous is None else previous.next_lsn
        if header.first_lsn != next_lsn:
            text = f"node {replica.node} gives entry {header.index} LSN {header.first_lsn}"
            self._report(Invariant.I2, f"{text}, {next_lsn} is next")
        if self._entries.add(header, persist.chain):
            self._record.stamps.on_entry(header, previous, self._record.electorate(replica))
        log.append(header, persist.chain)

    @reads(Truncate)
    def on_truncate(self, replica: Replica, truncate: Truncate, _step: Stepped) -> None:
        first = truncate.first_index
        if first <= replica.commit:
            text = f"node {replica.node} truncates at {first}, and knows {replica.commit} committed"
            self._report(Invariant.I3, text)
        chain = self._committed.chain_at(first)
        if chain is not None and replica.log.chain_at(first) == chain:
            text = f"node {replica.node} truncates the committed entry {first}"
            self._report(Invariant.I1, text)
        replica.log.truncate(first)

    @reads(InstallLog)
    def on_install(self, replica: Replica, install: InstallLog, _step: Stepped) -> None:
        """A log is dropped only if it ends below the leader's log start, or has another entry there
        (G5); never what it knows committed there or above."""
        start, log = install.start.position, replica.log
        text = f"node {replica.node} drops its log for one that begins after entry {start.index}"
        if not start.index:
            if log.last_index:
                self._report(Invariant.I19, f"{text}, and it has entries")
            log.start_over(start)  # a replica that joined learns where the log begins (L4)
            return
        if start.index <= log.start.index or log.chain_at(start.index) == start.chain:
            self._report(Invariant.I19, f"{text}, which it has")
        if start.index <= replica.commit:
            self._report(Invariant.I3, f"{text}, and knows {replica.commit} committed")
        log.start_over(start)

    # --- what raft reports to ingress ---

    @reads(Admit)
    def on_admit(self, replica: Replica, admit: Admit, _step: Stepped) -> None:
        if admit.gen <= replica.gen:
            text = f"node {replica.node} opens gen {admit.gen} after gen {replica.gen}"
            self._report(Invariant.I17, text)
        replica.gen = admit.gen
        index = admit.last_index
        replica.opened_gens[admit.gen] = (index, replica.log.chain_at(index) or 0)

    @reads(Accepted)
    def on_accepted(self, replica: Replica, accepted: Accepted, _step: Stepped) -> None:
        chain = replica.log.chain_at(accepted.index)
        header = None if chain is None else self._entries.headers.get(chain)
        place = (accepted.term, accepted.first_lsn)
        if header is None or (header.term, header.first_lsn) != place:
            text = f"node {replica.node} tells {accepted} of {header}"
            self._report(Invariant.I2, text)
