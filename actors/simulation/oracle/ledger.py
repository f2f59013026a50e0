"""The god's-eye list of what clients and replicas did, and the checkers that read it as it grows.

Owns nothing but the one door through which facts reach the checkers (FAULTS section 2). Whoever
runs a history, simulated or real, tells each fact once, at the moment it is true, with the time
`at_ns` of one clock. After each fact `violations` is complete: the first one should stop the run.
Facts that a harness cannot know are left out; what they would check is then not checked before
`final_log`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from actors.simulation.checkers.answers import Answers
from actors.simulation.checkers.bells import Bells, Giver
from actors.simulation.checkers.committed_log import CommittedLog, Holders
from actors.simulation.checkers.cursors import Cursors
from actors.simulation.checkers.damage import Damage
from actors.simulation.checkers.deliveries import Deliveries
from actors.simulation.checkers.disk_claims import DiskClaims
from actors.simulation.checkers.elections import Elections
from actors.simulation.checkers.final_logs import FinalLogs
from actors.simulation.checkers.invariant import Findings, Invariant, Violation
from actors.simulation.checkers.linear import TailRead
from actors.simulation.checkers.lookups import Lookups
from actors.simulation.checkers.operations import Operations
from actors.simulation.checkers.orders import Orders
from actors.simulation.checkers.ports import Core, Durability, ReadRing
from actors.simulation.checkers.processes import EGRESS, WHOLE_REPLICA, Liveness, Processes
from actors.simulation.checkers.producers import ProducerOrder, Sessions
from actors.simulation.checkers.replica import NEVER_NS, Replica
from actors.simulation.checkers.replicas import ReplicaSteps
from actors.simulation.checkers.ring_ranges import RingRanges
from actors.simulation.checkers.session_fold import SessionTables, TableLike
from actors.simulation.checkers.session_lists import SessionLists
from actors.simulation.checkers.shadow import KnownEntries
from actors.simulation.checkers.surveys import Surveys
from actors.simulation.checkers.term_talk import TermTalk
from actors.simulation.checkers.votes import VoteDelays
from logstore.format.client_messages import SessionStateReply
from logstore.format.cursor_entries import Cursor
from logstore.format.entry import EntryHeader
from logstore.format.peer_messages import Append
from logstore.model import SequenceMode
from logstore.raft.effects import Effect
from logstore.raft.events import Event
from logstore.raft.log_view import RecoveredLog


class Ledger:
    """One run's facts. `voters` are the configured nodes, `election_timeout_ns` is their patience;
    without the ports of the world what they would show is not checked."""

    def __init__(
        self,
        voters: Sequence[int],
        *,
        durability: Durability | None = None,
        read_ring: ReadRing | None = None,
        ring_bytes: int = 0,
        election_timeout_ns: int,
        session_expiry_ns: int = 0,
        save_within_ns: int = NEVER_NS,
    ) -> None:
        self._findings = findings = Findings()
        replicas = [Replica(node) for node in voters]
        majority = len(replicas) // 2 + 1
        known = KnownEntries(findings)
        self._claims = claims = DiskClaims(findings, replicas, durability)
        holders = Holders(majority=majority, count=claims.count_holders)
        self._sessions, self.stamps = Sessions(), known.stamps
        self._committed = CommittedLog(findings, known, ProducerOrder(self._sessions), holders)
        self._elections = Elections(findings, self._committed, durability, majority=majority)
        self._rings = RingRanges(findings, known, self._sessions, read_ring, ring_bytes)
        self._orders = Orders(findings)
        self._bells = Bells(findings)
        # Hot: a process put a message into a ring; it rang the receiver's bell; whom it owes one.
        self.offered = self._bells.on_offered
        self.rung, self.bells_owed = self._bells.on_rung, self._bells.owed
        self._talk = TermTalk(
            findings, self._committed, voters=len(voters), election_timeout_ns=election_timeout_ns
        )
        self._damage = Damage(findings, self._committed, durability)
        self.excuse_saves = (votes := VoteDelays(findings, save_within_ns)).excuse
        self._steps = ReplicaSteps(
            findings,
            known,
            replicas,
            committed=self._committed,
            elections=self._elections,
            claims=claims,
            damage=self._damage,
            rings=self._rings,
            orders=self._orders,
            talk=self._talk,
            votes=votes,
        )
        self._operations = Operations(findings, self._sessions, self._committed)
        self._cursors = Cursors(findings, self._committed)
        self._lookups = Lookups(findings, self._sessions, self._committed)
        surveys = Surveys(findings, known, self._committed, replicas)
        # Somebody asks, one thing at a time; what a node tells of a time, and of the bytes.
        self.survey_asked = surveys.asked
        self.time_told, self.spans_told = surveys.time_told, surveys.spans_told
        self.session_lists = SessionLists(findings, self._committed, self._talk)
        self._answers = Answers(findings, self._committed)
        self._deliveries = Deliveries(findings, self._committed)
        self._tables = SessionTables(
            findings, known, self._committed, session_expiry_ns=session_expiry_ns
        )
        self._steps.on_expire = self._tables.expired
        self._processes = Processes(findings)
        self.out_for_space = self._processes.out_for_space  # a process, of a full disk
        self._liveness = Liveness(findings)
        self._final = FinalLogs(
            findings,
            self._sessions,
            committed=self._committed,
            operations=self._operations,
            deliveries=self._deliveries,
            session_expiry_ns=session_expiry_ns,
        )
        self._is_replica_known = False

    @property
    def violations(self) -> list[Violation]:
        return self._findings.violations

    @property
    def committed_index(self) -> int:
        """The newest index that any leader has committed."""
        return self._committed.last_index

    @property
    def committed_lsn(self) -> int:
        """The newest LSN that any leader has committed."""
        return self._committed.next_lsn - 1

    # --- clients ---

    def session_opened(
        self, producer_id: int, producer_epoch: int, mode: SequenceMode, at_ns: int
    ) -> None:
        """A client was told that this producer epoch is its own (E8)."""
        next_lsn = self._committed.next_lsn if self._is_replica_known else 0
        fault = self._sessions.open(producer_id, producer_epoch, mode, next_lsn)
        if fault is not None:
            self._findings.report(Invariant.I7, fault, at_ns)
        if self._is_replica_known:
            self._answers.on_open("a client hears", producer_id, producer_epoch, at_ns)

    def invoked(
        self,
        operation: int,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        payloads: Sequence[bytes],
        at_ns: int,
    ) -> None:
        """An append began, `operation` is a new number (ValueError). Resending the same bytes under
        the same numbers is the same one."""
        self._operations.invoked(operation, producer_id, producer_epoch, sequence, payloads, at_ns)

    def acknowledged(self, operation: int, first_lsn: int, count: int, at_ns: int) -> None:
        """The client was told: committed, with these LSNs. Telling it again is no error."""
        self._operations.acknowledged(
            operation, first_lsn, count, at_ns, is_replica_known=self._is_replica_known
        )
        self._liveness.acknowledged(at_ns)

    def refused(self, operation: int, code: int, at_ns: int) -> None:
        """The client gave up; this code was the last word (`operations.FINAL_CODES`)."""
        self._operations.refused(operation, code, at_ns)

    def subscribed(self, consumer: str, next_lsn: int) -> None:
        """The consumer begins, or seeks to, `next_lsn`."""
        self._deliveries.subscribed(consumer, next_lsn)

    def delivered(
        self,
        consumer: str,
        node: int,
        first_lsn: int,
        batch: bytes,
        at_ns: int,
        *,
        handed: tuple[int, int] | None = None,
        is_whole: bool = True,
    ) -> None:
        """The consumer handed on a batch that `node` had served.

        Args:
          first_lsn: of the whole batch; `batch` is its bytes, header included, as they came.
          handed: [first, last] LSN that were handed on; None: all of it.
          is_whole: what the consumer was told; False: the limits it gave cut the batch.
        """
        self._deliveries.delivered(
            consumer,
            node,
            first_lsn,
            batch,
            at_ns,
            handed=handed,
            is_whole=is_whole,
            is_replica_known=self._is_replica_known,
        )

    def tail_read(
        self,
        invoked_ns: int,
        returned_ns: int,
        end_lsn: int,
        *,
        node: int | None,
        is_linearizable: bool,
    ) -> None:
        """A client was told, at `returned_ns` and by `node`, that `end_lsn` is the last LSN."""
        if is_linearizable:
            if node is not None and self._is_replica_known:
                self._talk.read(node, invoked_ns, returned_ns)
            self._final.tail_read(TailRead(end_lsn, invoked_ns, returned_ns))
        if self._is_replica_known:
            self._answers.on_end_told(end_lsn, returned_ns)

    def cursor_asked(
        self, number: int, change: Cursor | None, expected_lsn: int, at_ns: int
    ) -> None:
        """A client asks for a change of a cursor (LSN 0 deletes), None: for all cursors."""
        self._cursors.asked(number, change, expected_lsn, at_ns)

    def cursor_changed(self, number: int, previous_lsn: int, at_ns: int) -> None:
        """It was told: committed; where the cursor stood before."""
        if self._is_replica_known:
            self._cursors.changed(number, previous_lsn, at_ns)

    def cursor_moved(self, number: int, lsn: int, at_ns: int, *, node: int) -> None:
        """It was told by `node`: not changed, since the cursor stands at `lsn`."""
        if self._is_replica_known:
            self._talk.told(node, self._cursors.asked_ns(number), at_ns)
            self._cursors.moved(number, lsn, at_ns)

    def cursors_listed(
        self, number: int, cursors: Sequence[Cursor], at_ns: int, *, node: int
    ) -> None:
        """It was told by `node`: these are all."""
        if self._is_replica_known:
            self._talk.told(node, self._cursors.asked_ns(number), at_ns)
            self._cursors.listed(number, cursors, at_ns)

    def session_asked(self, number: int, name: bytes, at_ns: int) -> None:
        """A client asks what the session of this name has committed."""
        self._lookups.asked(number, name, at_ns)

    def session_told(self, number: int, reply: SessionStateReply, at_ns: int, *, node: int) -> None:
        """It was told so by `node`."""
        if self._is_replica_known:
            self._talk.told(node, self._lookups.asked_ns(number), at_ns)
            self._lookups.told(number, reply, at_ns)

    def verified(
        self, node: int, span: tuple[int, int], chain: int, named: Sequence[int], at_ns: int
    ) -> None:
        """A client had `node` verify the entries of `span`, [first, last]: `named` are damaged."""
        self._damage.on_verified(node, span, chain, named, at_ns)

    def damage_named(self, node: int, lsns: tuple[int, int], at_ns: int) -> None:
        """`node` refused a client the LSNs [first, last] as damaged; (0, 0): it met some damage."""
        self._damage.on_refused(node, lsns, at_ns)

    # --- replicas ---

    def started(self, node: int, incarnation: int, at_ns: int) -> None:
        """A new incarnation of the replica begins; every earlier one is over (M1, M3)."""
        self._is_replica_known = True
        self._steps.started(node, incarnation, at_ns)

    def recovered(self, node: int, log: RecoveredLog, at_ns: int) -> None:
        """Recovery of the present incarnation ended; `log` is what its core is made of."""
        self._steps.recovered(node, log, at_ns)

    def stepped(
        self,
        node: int,
        incarnation: int,
        core: Core,
        event: Event,
        effects: Sequence[Effect],
        at_ns: int,
    ) -> None:
        """`core.step(event)` gave `effects`; none of them is carried out yet. Hot."""
        self._steps.stepped(node, incarnation, core, event, effects, at_ns)

    def disk_lost(self, node: int) -> None:
        """The replica, a voter, has an empty disk from now on."""
        self._steps[node].is_lost = True

    def meta_written(self, node: int, copy: int, at_ns: int) -> None:
        """The writer of `node` begins to write this one of its two copies of META."""
        self._elections.on_meta_written(self._steps[node], copy, at_ns)

    def written(self, node: int, seq: int, at_ns: int) -> None:
        """Others see now that the writer of `node` has written everything up to `seq` (W4)."""
        self._claims.on_written(self._steps[node], seq, at_ns)

    def looked_ahead(self, node: int, term: int, place: str, at_ns: int) -> None:
        """A replicator of `node`, for `term`, read where no record is (W4)."""
        self._claims.on_looked_ahead(self._steps[node], term, place, at_ns)

    def sent(self, node: int, peer: int, append: Append, body: bytes, at_ns: int) -> None:
        """A replicator of `node` handed an entry for `peer` to the network."""
        self._rings.on_sent(node, append.header, body, at_ns)
        self._talk.sent(node, peer, append, at_ns)

    def told_committed(
        self, node: int, producer_id: int, sequence: int, place: tuple[int, int], at_ns: int
    ) -> None:
        """`node` says, whoever listens, that this batch is committed; `place`: first LSN, count."""
        self._answers.on_committed(node, producer_id, sequence, place, at_ns)

    def told_imported(self, node: int, place: tuple[int, int], at_ns: int) -> None:
        """The same of an import; whose batch it is, its importer knows."""
        self._answers.on_imported(node, place, at_ns)

    def told_open(self, node: int, producer_id: int, producer_epoch: int, at_ns: int) -> None:
        """`node` answers an OpenSession request with this producer epoch."""
        self._answers.on_open(f"node {node} says", producer_id, producer_epoch, at_ns)

    def published(self, node: int, at_ns: int) -> None:
        """`node` publishes a group, or a notice of one, on its tail feed."""
        self._answers.on_group(node, at_ns)

    def told_tip(self, node: int) -> None:
        """`node` publishes a Tip."""
        self._answers.on_tip(node)

    def table_rebuilt(self, node: int, gen: int, table: TableLike, at_ns: int) -> None:
        """Ingress begins `gen` with this table of sessions, of cursors, and of names kept."""
        self._tables.rebuilt(self._steps[node], gen, table, at_ns)

    def misplaced(self, node: int, how: str, at_ns: int) -> None:
        """The replica wrote frames over others (S7), into the sector of flushed ones (S6), or
        a header amid a flush (F6)."""
        self._claims.on_misplaced(node, how, at_ns)

    def died(self, node: int, process: str, incarnation: int) -> None:
        """This process of the incarnation is gone; "" is all of them."""
        self._processes.died(self._steps[node], process, incarnation)
        self._orders.on_death(self._steps[node], process)
        self._bells.on_death(node, process)
        if process in (WHOLE_REPLICA, EGRESS):
            self._answers.on_tip(node)

    def respawned(self, node: int, process: str, incarnation: int, at_ns: int) -> None:
        """A process that may restart alone is back in the same incarnation."""
        self._processes.respawned(self._steps[node], process, incarnation, at_ns)

    def acted(self, node: int, process: str, incarnation: int, at_ns: int) -> None:
        """This process did something that others can see: sent, answered, wrote, flushed."""
        self._processes.acted(self._steps[node], process, incarnation, at_ns)

    def worked(self, giver: Giver, at_ns: int) -> None:
        """A do_work of it is over."""
        self._bells.on_worked(giver, at_ns)

    def queue(self, name: str, length: int, bound: int, at_ns: int) -> None:
        """A bounded thing holds `length` of at most `bound`."""
        self._processes.queue(name, length, bound, at_ns)

    # --- the end ---

    def healed(self, at_ns: int, *, append_within_ns: int) -> None:
        """No more faults, a majority is well: an append must be acknowledged in time."""
        self._liveness.healed(at_ns, append_within_ns)

    def returned(self, at_ns: int, *, equal_within_ns: int) -> None:
        """Everybody is back: all replicas must be equal in time."""
        self._liveness.returned(at_ns, equal_within_ns)

    def converged(self, at_ns: int) -> None:
        """All replicas but excused ones hold and show the same, and nothing is under way."""
        self._liveness.converged(at_ns)
        self._steps.converged(at_ns)

    def final_damage(self, node: int, named: Sequence[tuple[int, int]], at_ns: int) -> None:
        """What the core of `node` calls damaged in the end: ranges of indexes."""
        self._damage.on_end(self._steps[node], named, at_ns)

    def final_log(
        self, node: int, entries: Iterable[tuple[EntryHeader, bytes]], at_ns: int
    ) -> None:
        """All committed entries of `node`, with their bodies, after convergence."""
        self._final.add(node, entries, at_ns)

    def finish(self, at_ns: int) -> None:
        """The run is over: what only the whole history can show."""
        self._liveness.finish(at_ns)
        self._final.finish(at_ns)
