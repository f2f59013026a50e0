"""Every linearizable read has a quorum round of its own, begun after it came (V5, FAULTS R11).

Owns which rounds leaders began and which peers replied to them, and which client's read used which
read index: tail reads use those that egress requested from raft, answers about cursors and sessions
those of ingress, but not those of refused appends (`expected_lsns`). The whole history shows
whether I6 itself is broken; here the first answer without a round is a violation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from actors.messages import READS_OF_COMPARISONS, READS_OF_INGRESS
from actors.simulation.checkers import client_facts, facts
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from logstore.format.peer_messages import NO_ROUND, Heartbeat, HeartbeatReply
from logstore.model import Role
from logstore.raft.effects import Answer, ReadIndexAnswered, Send
from logstore.raft.events import ControlReceived, ReadIndexRequested

# No client waits this long for an answer, so no read uses an older read index.
FORGET_NS = 60_000_000_000


@dataclass(slots=True)
class _Requested:
    """A read index that was requested from raft."""

    at_ns: int
    newest_round: int  # that had begun before
    committed_lsn: int  # committed before, by any leader


@dataclass(slots=True)
class _Rounds:
    """The rounds of one leader in one term."""

    incarnation: int
    term: int
    newest: int = 0
    replied: dict[int, int] = field(default_factory=dict)  # peer -> newest round
    asked: dict[int, _Requested] = field(default_factory=dict)  # by request id


@dataclass(slots=True)
class _Heard:
    """The rounds of one term's leader that a follower received."""

    term: int
    rounds: set[int] = field(default_factory=set)


class ReadRounds:
    """Checks the rounds of all leaders, and that every read uses a read index of its own."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._report = record.findings.report
        self._rounds: dict[int, _Rounds] = {}
        self._heard: dict[int, _Heard] = {}
        self._asked_ns: dict[int, int] = {}  # by the number of a client's question
        # by node: when the answered read indexes were requested, in the order of the answers
        self._unused_egress: dict[int, list[int]] = {}
        self._unused_ingress: dict[int, list[int]] = {}

    # --- leaders ---

    @reads((Send, Heartbeat))
    def on_heartbeat(self, replica: Replica, send: Send, step: facts.Stepped) -> None:
        """The heartbeat of a round goes to each peer, once (W8); checked at the first of them."""
        heartbeat = send.message
        if not isinstance(heartbeat, Heartbeat) or heartbeat.round == NO_ROUND:
            return
        receivers = [
            int(each.peer)
            for each in step.effects
            if type(each) is Send and _is_of_round(each.message, heartbeat)
        ]
        if receivers[0] != send.peer:
            return
        rounds = self._rounds_of(replica, heartbeat.term)
        rounds.newest = max(rounds.newest, heartbeat.round)
        peers = self._record.electorate(replica).members - {replica.node}
        if not peers.issubset(receivers) or len(set(receivers)) != len(receivers):
            text = f"node {replica.node} begins round {heartbeat.round} of term {heartbeat.term}"
            text = f"{text} and tells {receivers}, not each of {sorted(peers)} once"
            self._report(Invariant.I13, text)

    @reads((ControlReceived, HeartbeatReply))
    def on_replied(self, replica: Replica, event: ControlReceived, step: facts.Stepped) -> None:
        """A leader receives a peer's reply in its term."""
        reply = event.message
        if isinstance(reply, HeartbeatReply) and step.leads(reply.term):
            replied = self._rounds_of(replica, reply.term).replied
            replied[event.sender] = max(replied.get(event.sender, 0), reply.round)

    @reads((ControlReceived, Heartbeat))
    def on_heard(self, replica: Replica, event: ControlReceived, step: facts.Stepped) -> None:
        """A follower receives a heartbeat of its term."""
        heartbeat = event.message
        if isinstance(heartbeat, Heartbeat) and heartbeat.term == step.core.term:
            heard = self._heard.get(replica.node)
            if heard is None or heard.term != heartbeat.term:
                heard = self._heard[replica.node] = _Heard(heartbeat.term)
            heard.rounds.add(heartbeat.round)

    @reads((Answer, HeartbeatReply))
    def on_reply(self, replica: Replica, answer: Answer, step: facts.Stepped) -> None:
        """A follower answers a round: of the term that it says. An answer for an older term had to
        wait for META."""
        reply = answer.message
        if not isinstance(reply, HeartbeatReply) or reply.round == NO_ROUND:
            return
        heard = self._heard.get(replica.node)
        if reply.term == step.core.term and (
            heard is None or heard.term != reply.term or reply.round not in heard.rounds
        ):
            text = f"node {replica.node} answers round {reply.round} of term {reply.term}, in which"
            self._report(Invariant.I6, f"{text} it heard no such heartbeat")

    @reads(ReadIndexRequested)
    def on_requested(
        self, replica: Replica, event: ReadIndexRequested, step: facts.Stepped
    ) -> None:
        """Egress or ingress requests a read index from a leader."""
        if step.core.role is Role.LEADER:
            rounds = self._rounds_of(replica, step.core.term)
            committed_lsn = self._record.committed.next_lsn - 1
            asked = _Requested(self._record.now(), rounds.newest, committed_lsn)
            rounds.asked[event.request_id] = asked

    @reads(ReadIndexAnswered)
    def on_answered(self, replica: Replica, answer: ReadIndexAnswered, step: facts.Stepped) -> None:
        """The leader answers with a read index: a read that shows it is linearizable."""
        term = step.core.term
        if not answer.is_leader:
            return
        rounds = self._rounds_of(replica, term)
        asked = rounds.asked.pop(answer.request_id, None)
        text = f"node {replica.node} answers a read in term {term}"
        if asked is None:
            self._report(Invariant.I6, f"{text}, which was not requested then")
            return
        after = [peer for peer, each in rounds.replied.items() if each > asked.newest_round]
        if not self._record.electorate(replica).is_majority_of((replica.node, *after)):
            text = f"{text}, and nodes {after} replied to a round that was begun after it came"
            self._report(Invariant.I6, text)
        elif answer.lsn < asked.committed_lsn:
            text = f"{text} with LSN {answer.lsn}: {asked.committed_lsn} was committed before"
            self._report(Invariant.I6, text)
        if answer.request_id >= READS_OF_COMPARISONS:
            return
        is_of_ingress = answer.request_id >= READS_OF_INGRESS
        answered = self._unused_ingress if is_of_ingress else self._unused_egress
        answered.setdefault(replica.node, []).append(asked.at_ns)

    # --- clients ---

    @reads(client_facts.EndTold)
    def on_tail_read(self, answer: client_facts.EndTold) -> None:
        """A tail read is answered."""
        node, begun_ns, now_ns = answer.node, answer.invoked_ns, self._record.now()
        if node is None or not answer.is_linearizable or not self._record.is_replica_known:
            return
        if not _use_earliest(self._unused_egress.get(node, []), begun_ns, now_ns):
            text = f"a read that began at {begun_ns} was answered by node {node} without its own"
            self._report(Invariant.I6, f"{text} quorum round")

    @reads(client_facts.Question)
    def on_question(self, question: client_facts.Question) -> None:
        self._asked_ns[question.number] = self._record.now()

    @reads(client_facts.Told)
    def on_answer(self, answer: client_facts.Told) -> None:
        """A question about cursors or sessions is answered: a list, or why a change is refused."""
        node, begun_ns, now_ns = answer.node, self._asked_ns[answer.number], self._record.now()
        if not self._record.is_replica_known:
            return
        if not _use_earliest(self._unused_ingress.get(node, []), begun_ns, now_ns):
            text = f"a question that began at {begun_ns} was answered by node {node}"
            self._report(Invariant.I6, f"{text} without a quorum round")

    def _rounds_of(self, replica: Replica, term: int) -> _Rounds:
        rounds = self._rounds.get(replica.node)
        if rounds is None or (rounds.incarnation, rounds.term) != (replica.incarnation, term):
            rounds = self._rounds[replica.node] = _Rounds(replica.incarnation, term)
        return rounds


def _is_of_round(message: object, heartbeat: Heartbeat) -> bool:
    return isinstance(message, Heartbeat) and (message.term, message.round) == (
        heartbeat.term, heartbeat.round,
    )  # fmt: skip


def _use_earliest(answered: list[int], invoked_ns: int, returned_ns: int) -> bool:
    """Each read uses the earliest read index that was requested after it began: reads that began
    later may need the later ones."""
    while answered and answered[0] < returned_ns - FORGET_NS:
        answered.pop(0)
    for place, asked_ns in enumerate(answered):
        if asked_ns >= invoked_ns:
            del answered[place]
            return True
    return False
