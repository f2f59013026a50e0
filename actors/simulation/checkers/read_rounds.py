"""That every linearizable read has a quorum round of its own, begun after it came (V5, FAULTS R11).

Owns which rounds leaders began and who replied to them, and which client's read used which read
index: tail reads those that egress asked raft for, answers about cursors and sessions those of
ingress. I6 itself is judged from the whole history; here the first answer without a round is
enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from actors.messages import READS_OF_INGRESS
from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.replica import Replica
from logstore.raft.effects import ReadIndexAnswered

# No client waits this long for an answer, so older read indexes are nobody's any more.
FORGET_NS = 60_000_000_000


@dataclass(slots=True)
class _Asked:
    """A read index that raft was asked for."""

    at_ns: int
    newest_round: int  # begun by then, so not after it
    committed_lsn: int  # by then, by any leader


@dataclass(slots=True)
class _Rounds:
    """Of one leader in one term."""

    incarnation: int
    term: int
    newest: int = 0
    replied: dict[int, int] = field(default_factory=dict)  # peer -> newest round
    asked: dict[int, _Asked] = field(default_factory=dict)  # by request id


class ReadRounds:
    """All leaders' rounds, and the read indexes that no client's read has used."""

    __slots__ = ("_findings", "_majority", "_of_egress", "_of_ingress", "_peers", "_rounds")

    def __init__(self, findings: Findings, *, voters: int) -> None:
        self._findings = findings
        self._peers = voters - 1
        self._majority = voters // 2 + 1
        self._rounds: dict[int, _Rounds] = {}
        # node -> when raft was asked for what it answered, in that order
        self._of_egress: dict[int, list[int]] = {}
        self._of_ingress: dict[int, list[int]] = {}

    def on_begun(
        self, replica: Replica, term: int, round_: int, peers: Sequence[int], at_ns: int
    ) -> None:
        """A heartbeat of this round leaves for each of `peers`: for all of them, once (W8)."""
        rounds = self._of(replica, term)
        rounds.newest = max(rounds.newest, round_)
        if len(peers) != self._peers or len(set(peers)) != self._peers:
            text = f"node {replica.node} begins round {round_} of term {term} and tells {peers}"
            self._findings.report(Invariant.I13, f"{text}, not each of {self._peers}", at_ns)

    def on_replied(self, replica: Replica, term: int, peer: int, round_: int) -> None:
        """A peer's reply in the leader's term came in."""
        replied = self._of(replica, term).replied
        replied[peer] = max(replied.get(peer, 0), round_)

    def on_asked(
        self, replica: Replica, term: int, request_id: int, committed_lsn: int, at_ns: int
    ) -> None:
        """Egress or ingress asks a leader for a read index."""
        rounds = self._of(replica, term)
        rounds.asked[request_id] = _Asked(at_ns, rounds.newest, committed_lsn)

    def on_answered(
        self, replica: Replica, term: int, answer: ReadIndexAnswered, at_ns: int
    ) -> None:
        """The leader says from which LSN on a read is linearizable."""
        if not answer.is_leader:
            return
        rounds = self._of(replica, term)
        asked = rounds.asked.pop(answer.request_id, None)
        text = f"node {replica.node} answers a read in term {term}"
        if asked is None:
            self._findings.report(Invariant.I6, f"{text}, which nobody asked for then", at_ns)
            return
        after = sum(each > asked.newest_round for each in rounds.replied.values())
        if after + 1 < self._majority:
            text = f"{text}, and {after} peers replied to a round that was begun after it came"
            self._findings.report(Invariant.I6, text, at_ns)
        elif answer.lsn < asked.committed_lsn:
            text = f"{text} with LSN {answer.lsn}: {asked.committed_lsn} was committed before"
            self._findings.report(Invariant.I6, text, at_ns)
        is_of_ingress = answer.request_id >= READS_OF_INGRESS
        answered = self._of_ingress if is_of_ingress else self._of_egress
        answered.setdefault(replica.node, []).append(asked.at_ns)

    def on_read(self, node: int, invoked_ns: int, returned_ns: int) -> None:
        """A client's tail read was answered by `node`."""
        if not _use(self._of_egress.get(node, []), invoked_ns, returned_ns):
            text = f"a read that began at {invoked_ns} was answered by node {node} without its own"
            self._findings.report(Invariant.I6, f"{text} quorum round", returned_ns)

    def on_told(self, node: int, invoked_ns: int, returned_ns: int) -> None:
        """A client was told by `node` how cursors stand (a list, or why its change is refused), or
        what a session has committed."""
        if not _use(self._of_ingress.get(node, []), invoked_ns, returned_ns):
            text = f"a question that began at {invoked_ns} was answered by node {node}"
            self._findings.report(Invariant.I6, f"{text} without a quorum round", returned_ns)

    def _of(self, replica: Replica, term: int) -> _Rounds:
        rounds = self._rounds.get(replica.node)
        if rounds is None or (rounds.incarnation, rounds.term) != (replica.incarnation, term):
            rounds = self._rounds[replica.node] = _Rounds(replica.incarnation, term)
        return rounds


def _use(answered: list[int], invoked_ns: int, returned_ns: int) -> bool:
    """Each read uses the earliest read index that was asked for after it began: later ones may
    serve those that began later."""
    while answered and answered[0] < returned_ns - FORGET_NS:
        answered.pop(0)
    for place, asked_ns in enumerate(answered):
        if asked_ns >= invoked_ns:
            del answered[place]
            return True
    return False
