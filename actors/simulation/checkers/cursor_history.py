"""Named cursors: their committed history, and the answers about it (I6, I10, I11).

Owns the history as versions: version k has all cursors after the k-th committed change. Every
answer must equal some version, and a request that begins after an answer came must not get an older
version (I6). A message may arrive twice, so a change may be made twice; an answer needs one version
that fits. Must not know the session table, which has cursors of its own (I17).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from actors.simulation.checkers import client_facts, consequences
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from logstore.errors import FormatError
from logstore.format.cursor_entries import ANY_LSN, NO_LSN, Cursor, decode_cursor

State = dict[bytes, Cursor]


@dataclass(slots=True)
class Question:
    """`change` None: a list of all. `floor`: an older version is not to be shown to it."""

    change: Cursor | None
    expected_lsn: int
    floor: int


class Cursors:
    """Committed changes and questions, by number."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._findings = record.findings
        self._changes: list[Cursor] = []
        self._states: list[State] = [{}]
        self._questions: dict[int, Question] = {}
        self._floor = 0
        self._lacks_entries = False

    @reads(consequences.CursorCommitted)
    def on_entry(self, entry: consequences.CursorCommitted) -> None:
        body = entry.body
        if body is None:
            self._lacks_entries = True
            return
        try:
            cursor = decode_cursor(body)
        except FormatError as error:
            self._findings.report(Invariant.I11, f"a committed cursor: {error}")
            return
        asked = [each.change for each in self._questions.values()]
        if asked and cursor not in asked:
            self._findings.report(Invariant.I11, f"{cursor} is committed, nobody asked")
        self._changes.append(cursor)
        self._states.append(state_after(self._states[-1], cursor))

    # --- clients ---

    @reads(client_facts.CursorAsked)
    def on_asked(self, asked: client_facts.CursorAsked) -> None:
        self._questions[asked.number] = Question(asked.change, asked.expected_lsn, self._floor)

    @reads(client_facts.CursorChanged)
    def on_changed(self, answer: client_facts.CursorChanged) -> None:
        question = self._questions[answer.number]
        change, previous_lsn = question.change, answer.previous_lsn
        if change is None or self._cannot_judge:
            return
        claim = f"{change} is answered as set, at LSN {previous_lsn} before"
        if question.expected_lsn not in (previous_lsn, ANY_LSN):
            text = f"{claim}; {question.expected_lsn} was expected"
            self._findings.report(Invariant.I6, text)
        if change not in self._changes:
            self._findings.report(Invariant.I10, f"{claim}, it is not committed")
            return

        def fits(version: int) -> bool:
            before = self._states[version - 1]
            return self._changes[version - 1] == change and _lsn(before, change) == previous_lsn

        self._check_answer(question, fits, claim, first=question.floor + 1)

    @reads(client_facts.CursorMoved)
    def on_moved(self, answer: client_facts.CursorMoved) -> None:
        question = self._questions[answer.number]
        change, lsn = question.change, answer.lsn
        if change is None or not self._record.is_replica_known:
            return
        claim = f"a change from LSN {question.expected_lsn} is refused, the cursor being at {lsn}"
        if question.expected_lsn in (lsn, ANY_LSN):
            self._findings.report(Invariant.I6, claim)
        self._check_answer(question, lambda at: _lsn(self._states[at], change) == lsn, claim)

    @reads(client_facts.CursorsListed)
    def on_listed(self, answer: client_facts.CursorsListed) -> None:
        found = {each.name: each for each in answer.cursors}
        claim = f"cursors {sorted((each.name, each.lsn) for each in found.values())} are listed"
        question = self._questions[answer.number]
        self._check_answer(question, lambda at: self._states[at] == found, claim)

    @property
    def _cannot_judge(self) -> bool:
        return self._lacks_entries or not self._record.is_replica_known

    def _check_answer(
        self,
        question: Question,
        fits: Callable[[int], bool],
        claim: str,
        *,
        first: int | None = None,
    ) -> None:
        """Some version fits the answer; requests that begin later must not get a lower one than the
        lowest that fits."""
        if self._cannot_judge:
            return
        floor = question.floor
        for version in range(floor if first is None else first, len(self._states)):
            if fits(version):
                self._floor = max(self._floor, version)
                return
        rows = sorted((each.name, each.lsn) for each in self._states[floor].values())
        text = f"{claim}: never so since they stood at {rows}, which was known before"
        self._findings.report(Invariant.I6, text)


def state_after(state: State, change: Cursor) -> State:
    """How cursors stand after one more change; LSN 0 deletes."""
    after = {name: cursor for name, cursor in state.items() if name != change.name}
    if change.lsn != NO_LSN:
        after[change.name] = change
    return after


def _lsn(state: State, change: Cursor) -> int:
    cursor = state.get(change.name)
    return NO_LSN if cursor is None else cursor.lsn
