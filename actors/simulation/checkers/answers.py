"""What replicas say to clients, whoever hears it: true at the moment it leaves (I1, I10), and said
in time (I13).

Owns what each tail feed still owes its subscribers. What clients make of answers is `operations`'.
"""

from __future__ import annotations

from actors.simulation.checkers.committed_log import CommittedLog
from actors.simulation.checkers.invariant import Findings, Invariant

# SAFETY V8: a Tip within 50 ms of a burst; the clocks of nodes differ by some percent.
TIP_WITHIN_NS = 60_000_000


class Answers:
    """Acknowledgements and openings against the committed log; Tips against the groups before."""

    __slots__ = ("_burst_ns", "_committed", "_findings", "_late_ns")

    def __init__(self, findings: Findings, committed: CommittedLog) -> None:
        self._findings = findings
        self._committed = committed
        self._burst_ns: dict[int, int] = {}  # node → first group since the last Tip
        self._late_ns: dict[int, int] = {}  # node → a group too long after that one

    def on_committed(
        self, node: int, producer_id: int, sequence: int, place: tuple[int, int], at_ns: int
    ) -> None:
        """`node` says that this batch has `place`: its first LSN and how many."""
        committed, (first_lsn, count) = self._committed, place
        told = f"node {node} says that {sequence} of producer {producer_id} has {count} LSNs"
        if first_lsn + count > committed.next_lsn:
            text = f"{told} from {first_lsn} on, committed is up to {committed.next_lsn - 1}"
            self._findings.report(Invariant.I10, text, at_ns)
            return
        batch = committed.batches.get(first_lsn)
        if not committed.has_batches or (
            batch is not None
            and (batch.producer_id, batch.sequence, batch.count) == (producer_id, sequence, count)
        ):
            return
        text = f"{told} from {first_lsn} on: there is {batch}"
        self._findings.report(Invariant.I1, text, at_ns)

    def on_imported(self, node: int, place: tuple[int, int], at_ns: int) -> None:
        """`node` says that an import has `place`."""
        committed, (first_lsn, count) = self._committed, place
        told = f"node {node} says that an import has {count} LSNs from {first_lsn} on"
        if first_lsn + count > committed.next_lsn:
            text = f"{told}, committed is up to {committed.next_lsn - 1}"
            self._findings.report(Invariant.I10, text, at_ns)
            return
        batch = committed.batches.get(first_lsn)
        if committed.has_batches and (batch is None or batch.count != count):
            self._findings.report(Invariant.I1, f"{told}: there is {batch}", at_ns)

    def on_open(self, who: str, producer_id: int, producer_epoch: int, at_ns: int) -> None:
        """`who`, "node 1 says" for example: this producer epoch is open (E8)."""
        committed, opened = self._committed, (producer_id, producer_epoch)
        if committed.has_every_open and opened not in committed.opened:
            text = f"{who} that epoch {producer_epoch} of producer {producer_id} is open"
            self._findings.report(Invariant.I10, f"{text}, its OPEN is not committed", at_ns)

    def on_end_told(self, end_lsn: int, at_ns: int) -> None:
        """A client was told that this is the last LSN."""
        last_lsn = self._committed.next_lsn - 1
        if end_lsn > last_lsn:
            text = f"a client was told of LSN {end_lsn}, committed is up to {last_lsn}"
            self._findings.report(Invariant.I8, text, at_ns)

    # --- the tail feed ---

    def on_group(self, node: int, at_ns: int) -> None:
        """A group is published. The Tip that is due goes out in the same do_work, so one group at
        most is published after its time."""
        burst_ns = self._burst_ns.setdefault(node, at_ns)
        if at_ns - burst_ns < TIP_WITHIN_NS or self._late_ns.setdefault(node, at_ns) == at_ns:
            return
        text = f"node {node} publishes groups, and has told no Tip since {burst_ns} ns"
        self._findings.report(Invariant.I13, text, at_ns)

    def on_tip(self, node: int) -> None:
        """Whoever missed something knows now; also the end of whoever owed it."""
        self._burst_ns.pop(node, None)
        self._late_ns.pop(node, None)
