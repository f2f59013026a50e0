"""What clients are told of a session that they look up by its name: everything that was committed
when they asked, and nothing that is not (I6, I10).

Owns the committed names, and the questions. That a row called committed is, `answers` hears; that
the answer had a quorum round, `read_rounds`.
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
    """Names and questions, by number."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._findings = record.findings
        self._sessions = record.sessions
        self._committed = record.committed
        self._opened: dict[bytes, tuple[int, int]] = {}  # (producer id, epoch), committed
        self._names: dict[tuple[int, int], bytes] = {}  # of all that were ever committed
        self._questions: dict[int, _Question] = {}
        # By producer: its last batch as a session of it ended, whose window is gone.
        self._ended: dict[int, tuple[int, int]] = {}
        self._removed: set[int] = set()  # of whom nothing is kept

    @reads(SessionCommitted)
    def on_session(self, committed: SessionCommitted) -> None:
        """Of a monotone session that was idle for too long the numbers stay, of others nothing."""
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
    def on_told(self, answer: SessionTold) -> None:
        reply = answer.reply
        question, committed = self._questions[answer.number], self._committed
        if not committed.has_every_open or not self._record.is_replica_known:
            return
        told = reply.producer_id, reply.producer_epoch
        text = f"whoever asked for {question.name!r} at {question.asked_ns} is told of {told}"
        if reply.producer_id and self._names.get(told) != question.name:
            self._findings.report(Invariant.I10, f"{text}, not committed")
        elif self._is_older(told, question.opened):
            self._findings.report(Invariant.I6, f"{text}, after {question.opened}")
        elif reply.producer_id and committed.has_batches:
            if uncommitted := self._uncommitted_in(reply):
                self._findings.report(Invariant.I10, f"{text} and of {uncommitted}")
            elif told[0] != question.opened[0]:
                pass  # nobody had the name, or the one who had it ended meanwhile
            elif missing := self._missing_in(question, reply):
                self._findings.report(Invariant.I6, f"{text}, but not of {missing}")

    def _is_older(self, told: tuple[int, int], opened: tuple[int, int]) -> bool:
        """Whether this was over when the question came: an earlier epoch, or nobody, or somebody of
        another producer id, though the session has not ended since."""
        if told[0] == opened[0]:
            return told[1] < opened[1]
        return opened[0] != 0 and opened[0] not in self._removed

    def _uncommitted_in(self, reply: SessionStateReply) -> str:
        """What is told, and is not known to be committed; "": nothing. Rows that are called
        committed are `answers`' to judge."""
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
        """What was committed when the question was asked, and is not told; "": nothing."""
        epoch, sequence = question.last
        if epoch != reply.producer_epoch and not self._is_monotone(reply):
            return ""
        if question.last <= self._ended.get(reply.producer_id, (0, -1)):
            return "" if reply.next_sequence > sequence else f"batch {sequence}, committed"
        told = [row[0] for row in ACK_ROW.iter_unpack(reply.rows)]
        if reply.next_sequence <= sequence or min(told, default=0) <= sequence not in told:
            return f"batch {sequence}, which was committed"
        return ""

    def _is_monotone(self, reply: SessionStateReply) -> bool:
        """Its batches are one order through all epochs."""
        return self._sessions.modes.get(reply.producer_id) is SequenceMode.MONOTONE
