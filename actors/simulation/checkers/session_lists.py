"""Which sessions there are, as the committed log says, and what operators and producers were told
(I6, I10).

Owns the history as versions: version k is which sessions there are after the k-th committed OPEN or
EXPIRE. An answer is true of some version, none older than the newest one when it was asked for.
Nobody opens a name that is somebody's, and what ended has not ended before. Must not know the
session table, which has sessions of its own (I17).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from actors.simulation.checkers import client_facts, consequences
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from logstore.format.session_entries import ExpireEntry, OpenEntry
from logstore.format.session_list import ListedSession, SessionState
from logstore.limits import SESSIONS_PAGE_MAX
from logstore.model import SequenceMode


class Known(NamedTuple):
    """A session, as OPEN and EXPIRE entries say."""

    producer_epoch: int
    name: bytes
    mode: int
    state: int


State = dict[int, Known]  # by producer id
Page = tuple[int, int]  # after, limit


@dataclass(slots=True)
class Question:
    """`page` None: to end `producer_id`. `floor`: the newest version by then. `last`: epoch and
    sequence of each producer's newest committed batch by then."""

    page: Page | None
    producer_id: int
    floor: int
    last: dict[int, tuple[int, int]]


class SessionLists:
    """Committed sessions, and questions by number."""

    def __init__(self, record: Record) -> None:
        self._findings = record.findings
        self._committed = record.committed
        self._states: list[State] = [{}]
        self._questions: dict[int, Question] = {}
        self._removed: set[int] = set()  # of whom nothing is kept
        self._told_ended: set[int] = set()

    @reads(consequences.SessionCommitted)
    def on_session(self, committed: consequences.SessionCommitted) -> None:
        entry = committed.entry
        after = self._states[-1] | {}
        if isinstance(entry, ExpireEntry):
            self._expire(after, entry)
        else:
            self._open(after, entry)
        self._states.append(after)

    def _open(self, state: State, entry: OpenEntry) -> None:
        others = [
            producer_id
            for producer_id, known in state.items()
            if entry.name and known.name == entry.name and producer_id != entry.producer_id
        ]
        if others:
            text = f"{entry} opens the name of producer {others[0]}"
            self._findings.report(Invariant.I7, text)
        state[entry.producer_id] = Known(
            entry.producer_epoch, entry.name, entry.mode, SessionState.OPEN
        )

    def _expire(self, state: State, entry: ExpireEntry) -> None:
        """By its age; or, if it has a name of which nothing is kept, by an operator."""
        producer_id = entry.producer_id
        known = state.pop(producer_id, None)
        if known is None or known.producer_epoch != entry.producer_epoch:
            self._findings.report(Invariant.I17, f"{entry} follows {known}")
            return
        asked = {each.producer_id for each in self._questions.values()}
        if known.name and not entry.is_kept and asked and producer_id not in asked:
            self._findings.report(Invariant.I11, f"{entry} is committed, nobody asked")
        if entry.is_kept and known.mode == SequenceMode.MONOTONE:
            state[producer_id] = known._replace(state=SessionState.KEPT)
        else:
            self._removed.add(producer_id)

    @reads(client_facts.SessionDenied)
    def on_denied(self, told: client_facts.SessionDenied) -> None:
        """An EXPIRE or OPEN that is committed has ended it."""
        known = self._states[-1].get(told.producer_id)
        if self._lacks_entries or known is None or known.state != SessionState.OPEN:
            return
        if known.producer_epoch == told.producer_epoch:
            text = f"session {told.producer_id}/{told.producer_epoch} is told as over"
            self._findings.report(Invariant.I10, f"{text}, which is not committed")

    # --- operators ---

    @reads(client_facts.SessionsAsked)
    def on_asked(self, asked: client_facts.SessionsAsked) -> None:
        last = {key: self._committed.last_batch_of(key) for key in self._states[-1]}
        floor = len(self._states) - 1
        self._questions[asked.number] = Question(asked.page, asked.producer_id, floor, last)

    @reads(client_facts.SessionEnded)
    def on_ended(self, answer: client_facts.SessionEnded) -> None:
        number = answer.number
        producer_id = self._questions[number].producer_id
        if self._lacks_entries:
            return
        told = f"the session of producer {producer_id} is told as ended"
        if producer_id not in self._removed:
            self._findings.report(Invariant.I10, f"{told}, which is not committed")
            return
        if producer_id in self._told_ended:
            self._findings.report(Invariant.I7, f"{told} a second time")
        self._told_ended.add(producer_id)
        self._check_answer(number, lambda state: producer_id not in state, told)

    @reads(client_facts.SessionUnknown)
    def on_unknown(self, answer: client_facts.SessionUnknown) -> None:
        producer_id = self._questions[answer.number].producer_id
        if self._lacks_entries:
            return
        told = f"there is no session of producer {producer_id}"
        self._check_answer(answer.number, lambda state: producer_id not in state, told)

    @reads(client_facts.SessionsListed)
    def on_listed(self, answer: client_facts.SessionsListed) -> None:
        number, rows = answer.number, answer.rows
        question, next_after = self._questions[number], answer.next_after
        if self._lacks_entries or question.page is None:
            return
        page = question.page
        found = [
            (row.producer_id, Known(row.producer_epoch, row.name, row.mode, row.state))
            for row in rows
        ]
        told = f"page {page} of the sessions is told as {found}, the next one after {next_after}"
        self._check_answer(number, lambda state: page_of(state, page) == (found, next_after), told)
        for row in rows:
            self._check_sequence(question, row)

    # --- what is right ---

    @property
    def _lacks_entries(self) -> bool:
        """Nothing can be said of what only the replicas' entries show."""
        return not self._committed.has_every_open or not self._committed.last_index

    def _check_sequence(self, question: Question, row: ListedSession) -> None:
        """All that was committed by then counts, and nothing that is not."""
        if not self._committed.has_batches:
            return
        before, epoch = row.next_sequence - 1, row.producer_epoch
        is_monotone = row.mode == SequenceMode.MONOTONE
        is_committed = any(
            is_monotone or each.producer_epoch == epoch
            for each in self._committed.batches_of(row.producer_id, before)
        )
        told = f"session {row.producer_id}/{epoch} is listed with next sequence {row.next_sequence}"
        if before >= 0 and not is_committed:
            self._findings.report(Invariant.I10, f"{told}, {before} is not committed")
        last_epoch, last = question.last.get(row.producer_id, (0, -1))
        if (is_monotone or last_epoch == epoch) and before < last:
            self._findings.report(Invariant.I6, f"{told}, after {last} was committed")

    def _check_answer(self, number: int, fits: Callable[[State], bool], told: str) -> None:
        """Some version that it may have been told of."""
        floor = self._questions[number].floor
        if not any(map(fits, self._states[floor:])):
            there = sorted(self._states[floor])
            text = f"{told}: never so since there were {there}, which was before it was asked for"
            self._findings.report(Invariant.I6, text)


def page_of(state: State, page: Page) -> tuple[list[tuple[int, Known]], int]:
    """The sessions of a page, and what the next one is asked for with."""
    after, limit = page
    size = min(limit or SESSIONS_PAGE_MAX, SESSIONS_PAGE_MAX)
    ids = sorted(producer_id for producer_id in state if producer_id > after)
    return [(each, state[each]) for each in ids[:size]], ids[size - 1] if len(ids) > size else 0
