"""Answers about sessions, to operators and producers, agree with the committed log (I6, I10).

Owns the history as versions: version k has the sessions that are there after the k-th committed
OPEN or EXPIRE. An answer must equal some version, none older than the newest one when it was asked
for. No session is opened under a name that another one has, and none ends twice. Must not know the
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
    """A session, by the OPEN and EXPIRE entries of the log."""

    producer_epoch: int
    name: bytes
    mode: int
    state: int


State = dict[int, Known]  # by producer id
Page = tuple[int, int]  # after, limit


@dataclass(slots=True)
class Question:
    """A request for a `page` of the sessions, or, with None, for the end of `producer_id`. When it
    was asked, `floor` was the newest version, and `last` had epoch and sequence of each producer's
    newest committed batch."""

    page: Page | None
    producer_id: int
    floor: int
    last: dict[int, tuple[int, int]]


class SessionLists:
    """Checks all answers about sessions."""

    def __init__(self, record: Record) -> None:
        self._findings = record.findings
        self._committed = record.committed
        self._states: list[State] = [{}]
        self._questions: dict[int, Question] = {}
        self._removed: set[int] = set()  # producers of which nothing is kept
        self._answered_as_ended: set[int] = set()

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
        """A session ends by its age; or an operator ended it, if it has a name of which nothing is
        kept."""
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
    def on_denied(self, denied: client_facts.SessionDenied) -> None:
        """The session has ended by a committed EXPIRE or OPEN."""
        known = self._states[-1].get(denied.producer_id)
        if self._lacks_entries or known is None or known.state != SessionState.OPEN:
            return
        if known.producer_epoch == denied.producer_epoch:
            text = f"session {denied.producer_id}/{denied.producer_epoch} is refused as over"
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
        claim = f"the session of producer {producer_id} is answered as ended"
        if producer_id not in self._removed:
            self._findings.report(Invariant.I10, f"{claim}, which is not committed")
            return
        if producer_id in self._answered_as_ended:
            self._findings.report(Invariant.I7, f"{claim} a second time")
        self._answered_as_ended.add(producer_id)
        self._check_answer(number, lambda state: producer_id not in state, claim)

    @reads(client_facts.SessionUnknown)
    def on_unknown(self, answer: client_facts.SessionUnknown) -> None:
        producer_id = self._questions[answer.number].producer_id
        if self._lacks_entries:
            return
        claim = f"there is no session of producer {producer_id}"
        self._check_answer(answer.number, lambda state: producer_id not in state, claim)

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
        claim = f"page {page} of the sessions is answered as {found}, next after {next_after}"
        self._check_answer(number, lambda state: page_of(state, page) == (found, next_after), claim)
        for row in rows:
            self._check_sequence(question, row)

    # --- what is right ---

    @property
    def _lacks_entries(self) -> bool:
        """The entries are not known, so that their sessions are not either."""
        return not self._committed.has_every_open or not self._committed.last_index

    def _check_sequence(self, question: Question, row: ListedSession) -> None:
        """The next sequence of a row counts all that was committed when the page was asked for, and
        nothing uncommitted."""
        if not self._committed.has_batches:
            return
        before, epoch = row.next_sequence - 1, row.producer_epoch
        is_monotone = row.mode == SequenceMode.MONOTONE
        is_committed = any(
            is_monotone or each.producer_epoch == epoch
            for each in self._committed.batches_of(row.producer_id, before)
        )
        claim = f"session {row.producer_id}/{epoch} has next sequence {row.next_sequence}"
        if before >= 0 and not is_committed:
            self._findings.report(Invariant.I10, f"{claim}, {before} is not committed")
        last_epoch, last = question.last.get(row.producer_id, (0, -1))
        if (is_monotone or last_epoch == epoch) and before < last:
            self._findings.report(Invariant.I6, f"{claim}, after {last} was committed")

    def _check_answer(self, number: int, fits: Callable[[State], bool], claim: str) -> None:
        """Some version since the question fits the answer."""
        floor = self._questions[number].floor
        if not any(map(fits, self._states[floor:])):
            there = sorted(self._states[floor])
            text = f"{claim}: never so since there were {there}, which was before it was asked for"
            self._findings.report(Invariant.I6, text)


def page_of(state: State, page: Page) -> tuple[list[tuple[int, Known]], int]:
    """The sessions of a page, and the `after` of the next page; 0: there is none."""
    after, limit = page
    size = min(limit or SESSIONS_PAGE_MAX, SESSIONS_PAGE_MAX)
    ids = sorted(producer_id for producer_id in state if producer_id > after)
    return [(each, state[each]) for each in ids[:size]], ids[size - 1] if len(ids) > size else 0
