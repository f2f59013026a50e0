"""The answer to a client that looks up a session by its name has everything that was committed when
the client asked, and nothing that is not committed (I6, I10).

Owns the committed names, and the questions. `answers` checks that a row of the answer is committed,
`read_rounds` that the answer had a quorum round.
"""

from __future__ import annotations

from dataclasses import dataclass

from actors.simulation.checkers.client_facts import SessionAsked, SessionTold
from actors.simulation.checkers.consequences import SessionCommitted
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from logstore.errors import ErrorCode
from logstore.format.client_messages import ACK_ROW, SessionStateReply
from logstore.format.session_entries import OpenEntry
from logstore.model import SequenceMode


@dataclass(slots=True)
class _Question:
    """`opened`: producer id and epoch of the name by then; `last`: epoch and sequence of that
    producer's newest committed batch."""

    name: bytes
    asked_ns: int
    opened: tuple[int, int]
    last: tuple[int, int]


class Lookups:
    """Checks the answers to all lookups."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._findings = record.findings
        self._sessions = record.sessions
        self._committed = record.committed
        self._opened: dict[bytes, tuple[int, int]] = {}  # (producer id, epoch), committed
        self._names: dict[tuple[int, int], bytes] = {}  # of all that were ever committed
        self._questions: dict[int, _Question] = {}
        # By producer: its last batch when a session of it ended, whose window is gone.
        self._ended: dict[int, tuple[int, int]] = {}
        self._removed: set[int] = set()  # producers of which nothing is kept

    @reads(SessionCommitted)
    def on_session(self, committed: SessionCommitted) -> None:
        """When a session ends, only the numbers of a monotone one that was idle for too long are
        kept."""
        entry = committed.entry
        if isinstance(entry, OpenEntry):
            if entry.name:
                opened = entry.producer_id, entry.producer_epoch
                self._opened[entry.name] = opened
                self._names[opened] = entry.name
            return
        producer_id = entry.producer_id
        self._ended[producer_id] = self._committed.last_batch_of(producer_id)
        is_monotone = self._sessions.modes.get(producer_id) is SequenceMode.MONOTONE
        if not (entry.is_kept and is_monotone):
            self._removed.add(producer_id)
            for name in [name for name, each in self._opened.items() if each[0] == producer_id]:
                del self._opened[name]

    @reads(SessionAsked)
    def on_asked(self, asked: SessionAsked) -> None:
        opened = self._opened.get(asked.name, (0, 0))
        last = self._committed.last_batch_of(opened[0])
        self._questions[asked.number] = _Question(asked.name, self._record.now(), opened, last)

    @reads(SessionTold)
    def on_answer(self, answer: SessionTold) -> None:
        reply = answer.reply
        question, committed = self._questions[answer.number], self._committed
        if not committed.has_every_open or not self._record.is_replica_known:
            return
        answered = reply.producer_id, reply.producer_epoch
        text = f"the lookup of {question.name!r} at {question.asked_ns} is answered with {answered}"
        if reply.producer_id and self._names.get(answered) != question.name:
            self._findings.report(Invariant.I10, f"{text}, not committed")
        elif self._is_older(answered, question.opened):
            self._findings.report(Invariant.I6, f"{text}, after {question.opened}")
        elif reply.producer_id and committed.has_batches:
            if uncommitted := self._uncommitted_in(reply):
                self._findings.report(Invariant.I10, f"{text} and with {uncommitted}")
            elif answered[0] != question.opened[0]:
                pass  # no session had the name, or the one that had it ended meanwhile
            elif missing := self._missing_in(question, reply):
                self._findings.report(Invariant.I6, f"{text}, but not with {missing}")

    def _is_older(self, answered: tuple[int, int], opened: tuple[int, int]) -> bool:
        """Whether the answer was out of date when the question came: an earlier epoch; or no
        producer, or another one, though the session has not ended since."""
        if answered[0] == opened[0]:
            return answered[1] < opened[1]
        return opened[0] != 0 and opened[0] not in self._removed

    def _uncommitted_in(self, reply: SessionStateReply) -> str:
        """What the reply has and is not known to be committed; "": nothing. `answers` checks the
        rows with code OK."""
        for sequence, _, _, code, _ in ACK_ROW.iter_unpack(reply.rows):
            if code != ErrorCode.OK:
                return f"batch {sequence} with code {code}"
        before = reply.next_sequence - 1
        is_committed = any(
            each.producer_epoch == reply.producer_epoch or self._is_monotone(reply)
            for each in self._committed.batches_of(reply.producer_id, before)
        )
        return "" if is_committed or before < 0 else f"batch {before}, which is not committed"

    def _missing_in(self, question: _Question, reply: SessionStateReply) -> str:
        """What was committed when the question was asked, and the reply lacks; "": nothing."""
        epoch, sequence = question.last
        if epoch != reply.producer_epoch and not self._is_monotone(reply):
            return ""
        if question.last <= self._ended.get(reply.producer_id, (0, -1)):
            return "" if reply.next_sequence > sequence else f"batch {sequence}, committed"
        rows = [row[0] for row in ACK_ROW.iter_unpack(reply.rows)]
        if reply.next_sequence <= sequence or min(rows, default=0) <= sequence not in rows:
            return f"batch {sequence}, which was committed"
        return ""

    def _is_monotone(self, reply: SessionStateReply) -> bool:
        """Its sequences rise through all epochs."""
        return self._sessions.modes.get(reply.producer_id) is SequenceMode.MONOTONE
