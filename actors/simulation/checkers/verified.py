"""A follower reports entries only if its leader has them too, and named them in this term (V2, F4,
W1), and rejects only streams that it was sent in this term.

Owns, for each follower, the streams of its term's leader, and the highest index that an append or a
heartbeat of that named since the follower started or the term began. Above that, and above its
commit index, the follower does not know whether its entries are the leader's: they may be another
leader's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from actors.simulation.checkers.facts import Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from logstore.format.peer_messages import (
    NO_STREAM,
    AppendAccepted,
    AppendPersisted,
    AppendReject,
    Heartbeat,
)
from logstore.raft.effects import Answer
from logstore.raft.events import AppendReceived, ControlReceived

NOBODY = 0


@dataclass(slots=True)
class _Shown:
    """The highest index that the leader named to one incarnation in one term, and its streams."""

    incarnation: int
    term: int
    index: int = 0
    streams: set[int] = field(default_factory=set)


class Verified:
    """Checks all followers."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._shown: dict[int, _Shown] = {}

    @reads(AppendReceived)
    def on_append(self, replica: Replica, event: AppendReceived, step: Stepped) -> None:
        append = event.append
        self._on_shown(replica, append.term, append.header.index, step)
        if append.term == step.core.term:
            self._shown_to(replica, append.term).streams.add(append.stream)

    @reads((ControlReceived, Heartbeat))
    def on_heartbeat(self, replica: Replica, event: ControlReceived, step: Stepped) -> None:
        heartbeat = event.message
        if isinstance(heartbeat, Heartbeat):
            self._on_shown(replica, heartbeat.term, heartbeat.prev_index, step)

    def _on_shown(self, replica: Replica, term: int, index: int, step: Stepped) -> None:
        """The leader of `term` names an entry; it counts if the follower is in that term. Hot."""
        if term == step.core.term:
            shown = self._shown_to(replica, term)
            shown.index = max(shown.index, index)

    @reads((Answer, AppendAccepted), (Answer, AppendPersisted))
    def on_answer(self, replica: Replica, answer: Answer, step: Stepped) -> None:
        """An answer for an older term had to wait, and was right in that term."""
        report, core = answer.message, step.core
        if not isinstance(report, AppendAccepted | AppendPersisted):
            return
        self._check_same(replica, report)
        if report.term != core.term:
            return
        shown = self._shown_to(replica, report.term)
        if report.index > max(shown.index, core.commit):
            text = f"node {replica.node} says {report}, and was shown {shown.index} in this term"
            self._record.findings.report(Invariant.I12, text)

    @reads((Answer, AppendReject))
    def on_reject(self, replica: Replica, answer: Answer, step: Stepped) -> None:
        """A follower rejects a stream: one of the term that it says."""
        reject = answer.message
        if not isinstance(reject, AppendReject) or reject.stream == NO_STREAM:
            return
        term = step.core.term
        if reject.term == term and reject.stream not in self._shown_to(replica, term).streams:
            text = f"node {replica.node} says {reject}, and was sent no such stream in this term"
            self._record.findings.report(Invariant.I12, text)

    def _check_same(self, replica: Replica, report: AppendPersisted | AppendAccepted) -> None:
        """The entry that a follower reports is the one that the leader of that term has, if that
        one has not heard of a later term: then it may have truncated its own."""
        leader = self._record.leaders.get(report.term)
        if leader is None or not leader.is_running:
            return
        if not leader.led_term == leader.term == report.term:
            return
        chain = leader.log.chain_at(report.index)
        if report.index > leader.log.start.index and replica.log.chain_at(report.index) != chain:
            text = f"node {replica.node} says {report}, and has another entry there than its leader"
            self._record.findings.report(Invariant.I12, text)

    def _shown_to(self, replica: Replica, term: int) -> _Shown:
        shown = self._shown.get(replica.node)
        if shown is None or (shown.incarnation, shown.term) != (replica.incarnation, term):
            shown = self._shown[replica.node] = _Shown(replica.incarnation, term)
        return shown
