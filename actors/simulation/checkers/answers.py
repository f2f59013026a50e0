"""What replicas send to clients is true when it is sent, received or not (I1, I10), and Tips are
sent in time (I13).

Owns since when each tail feed owes its subscribers a Tip. `acknowledgements` checks what clients
receive.
"""

from __future__ import annotations

from actors.simulation.checkers import client_facts, facts
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.processes import EGRESS, WHOLE_REPLICA
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record

# SAFETY V8: a Tip within 50 ms of a burst; the clocks of nodes differ by some percent.
TIP_WITHIN_NS = 60_000_000


class Answers:
    """Checks acknowledgements and opened sessions against the committed log, and Tips against the
    groups before them."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._findings = record.findings
        self._committed = record.committed
        self._burst_began_ns: dict[int, int] = {}  # node → first group since the last Tip
        self._overdue_ns: dict[int, int] = {}  # node → a group too long after that one

    @reads(facts.AckSent)
    def on_committed(self, fact: facts.AckSent) -> None:
        committed, (first_lsn, count) = self._committed, fact.place
        producer_id, sequence = fact.producer_id, fact.sequence
        claim = f"node {fact.node} says that {sequence} of producer {producer_id} has {count} LSNs"
        if first_lsn + count > committed.next_lsn:
            text = f"{claim} from {first_lsn} on, committed is up to {committed.next_lsn - 1}"
            self._findings.report(Invariant.I10, text)
            return
        batch = committed.batches.get(first_lsn)
        if not committed.has_batches or (
            batch is not None
            and (batch.producer_id, batch.sequence, batch.count) == (producer_id, sequence, count)
        ):
            return
        text = f"{claim} from {first_lsn} on: there is {batch}"
        self._findings.report(Invariant.I1, text)

    @reads(facts.ImportAckSent)
    def on_imported(self, fact: facts.ImportAckSent) -> None:
        committed, (first_lsn, count) = self._committed, fact.place
        claim = f"node {fact.node} says that an import has {count} LSNs from {first_lsn} on"
        if first_lsn + count > committed.next_lsn:
            text = f"{claim}, committed is up to {committed.next_lsn - 1}"
            self._findings.report(Invariant.I10, text)
            return
        batch = committed.batches.get(first_lsn)
        if committed.has_batches and (batch is None or batch.count != count):
            self._findings.report(Invariant.I1, f"{claim}: there is {batch}")

    @reads(facts.OpenReplySent)
    def on_open(self, answer: facts.OpenReplySent) -> None:
        subject = f"node {answer.node} says"
        self._check_open(subject, answer.producer_id, answer.producer_epoch)

    @reads(client_facts.SessionOpened)
    def on_opened(self, answer: client_facts.SessionOpened) -> None:
        if self._record.is_replica_known:
            subject = "a client hears"
            self._check_open(subject, answer.producer_id, answer.producer_epoch)

    def _check_open(self, subject: str, producer_id: int, producer_epoch: int) -> None:
        """The OPEN of this producer epoch is committed (E8)."""
        committed, opened = self._committed, (producer_id, producer_epoch)
        if committed.has_every_open and opened not in committed.opened:
            text = f"{subject} that epoch {producer_epoch} of producer {producer_id} is open"
            self._findings.report(Invariant.I10, f"{text}, its OPEN is not committed")

    @reads(client_facts.EndTold)
    def on_end_told(self, answer: client_facts.EndTold) -> None:
        last_lsn = self._committed.next_lsn - 1
        if answer.end_lsn > last_lsn and self._record.is_replica_known:
            text = f"a client was told of LSN {answer.end_lsn}, committed is up to {last_lsn}"
            self._findings.report(Invariant.I8, text)

    # --- the tail feed ---

    @reads(facts.GroupPublished)
    def on_group(self, group: facts.GroupPublished) -> None:
        """A Tip that is due is sent in the same do_work, so at most one group is published after
        the Tip's deadline."""
        node, at_ns = group.node, self._record.now()
        burst_ns = self._burst_began_ns.setdefault(node, at_ns)
        if at_ns - burst_ns < TIP_WITHIN_NS or self._overdue_ns.setdefault(node, at_ns) == at_ns:
            return
        text = f"node {node} publishes groups, and has sent no Tip since {burst_ns} ns"
        self._findings.report(Invariant.I13, text)

    @reads(facts.TipPublished)
    def on_tip(self, tip: facts.TipPublished) -> None:
        """A Tip lets every subscriber see which groups it has missed."""
        self._forget(tip.node)

    @reads(facts.ProcessDied)
    def on_death(self, died: facts.ProcessDied) -> None:
        if died.process in (WHOLE_REPLICA, EGRESS):
            self._forget(died.node)

    def _forget(self, node: int) -> None:
        self._burst_began_ns.pop(node, None)
        self._overdue_ns.pop(node, None)
