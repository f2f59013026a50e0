"""Named cursors: their committed history, and what clients were told of it (I6, I10, I11).

Owns the history as places: place k is how all cursors stand after the k-th committed change. Every
answer is true of some place, and whoever asks after an answer came is shown no older one (I6). A
message may arrive twice, so a change may be made twice; an answer needs one that fits. Must not
know the session table, which has cursors of its own (I17).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from actors.simulation.checkers.committed_log import CommittedLog
from actors.simulation.checkers.invariant import Findings, Invariant
from logstore.errors import FormatError
from logstore.format.cursor_entries import ANY_LSN, NO_LSN, Cursor, decode_cursor

State = dict[bytes, Cursor]


@dataclass(slots=True)
class Question:
    """`change` None: a list of all. `floor`: an older place is not to be shown to it."""

    change: Cursor | None
    expected_lsn: int
    floor: int
    asked_ns: int


class Cursors:
    """Committed changes and questions, by number."""

    __slots__ = ("_changes", "_findings", "_floor", "_is_blind", "_questions", "_states")

    def __init__(self, findings: Findings, committed: CommittedLog) -> None:
        self._findings = findings
        committed.on_cursor = self.on_entry
        self._changes: list[Cursor] = []
        self._states: list[State] = [{}]
        self._questions: dict[int, Question] = {}
        self._floor = 0
        self._is_blind = False

    def on_entry(self, body: bytes | None, at_ns: int) -> None:
        """A CURSOR entry is committed; None: its bytes are not known, and nothing can be said."""
        if body is None:
            self._is_blind = True
            return
        try:
            cursor = decode_cursor(body)
        except FormatError as error:
            self._findings.report(Invariant.I11, f"a committed cursor: {error}", at_ns)
            return
        asked = [each.change for each in self._questions.values()]
        if asked and cursor not in asked:
            self._findings.report(Invariant.I11, f"{cursor} is committed, nobody asked", at_ns)
        self._changes.append(cursor)
        self._states.append(state_after(self._states[-1], cursor))

    # --- clients ---

    def asked(self, number: int, change: Cursor | None, expected_lsn: int, at_ns: int) -> None:
        """A client asks for a change, or for all cursors."""
        self._questions[number] = Question(change, expected_lsn, self._floor, at_ns)

    def asked_ns(self, number: int) -> int:
        """When it did."""
        return self._questions[number].asked_ns

    def changed(self, number: int, previous_lsn: int, at_ns: int) -> None:
        """It was told: committed, the cursor stood at `previous_lsn` before."""
        question = self._questions[number]
        change = question.change
        if change is None or self._is_blind:
            return
        told = f"{change} is told as set, at LSN {previous_lsn} before"
        if question.expected_lsn not in (previous_lsn, ANY_LSN):
            text = f"{told}; {question.expected_lsn} was expected"
            self._findings.report(Invariant.I6, text, at_ns)
        if change not in self._changes:
            self._findings.report(Invariant.I10, f"{told}, it is not committed", at_ns)
            return

        def is_it(place: int) -> bool:
            before = self._states[place - 1]
            return self._changes[place - 1] == change and _lsn(before, change) == previous_lsn

        self._stand(question, is_it, told, at_ns, first=question.floor + 1)

    def moved(self, number: int, lsn: int, at_ns: int) -> None:
        """It was told: the cursor stands at `lsn`, where it was not expected."""
        question = self._questions[number]
        change = question.change
        if change is None:
            return
        told = f"a change from LSN {question.expected_lsn} is refused, the cursor being at {lsn}"
        if question.expected_lsn in (lsn, ANY_LSN):
            self._findings.report(Invariant.I6, told, at_ns)
        self._stand(question, lambda place: _lsn(self._states[place], change) == lsn, told, at_ns)

    def listed(self, number: int, cursors: Iterable[Cursor], at_ns: int) -> None:
        """It was told: these are all."""
        found = {each.name: each for each in cursors}
        told = f"cursors {sorted((each.name, each.lsn) for each in found.values())} are listed"
        question = self._questions[number]
        self._stand(question, lambda place: self._states[place] == found, told, at_ns)

    def _stand(
        self,
        question: Question,
        is_it: Callable[[int], bool],
        told: str,
        at_ns: int,
        *,
        first: int | None = None,
    ) -> None:
        """The answer takes the lowest place that it can have, and nobody later a lower one."""
        if self._is_blind:
            return
        floor = question.floor
        for place in range(floor if first is None else first, len(self._states)):
            if is_it(place):
                self._floor = max(self._floor, place)
                return
        rows = sorted((each.name, each.lsn) for each in self._states[floor].values())
        text = f"{told}: never so since they stood at {rows}, which was known before"
        self._findings.report(Invariant.I6, text, at_ns)


def state_after(state: State, change: Cursor) -> State:
    """How cursors stand after one more change; LSN 0 deletes."""
    after = {name: cursor for name, cursor in state.items() if name != change.name}
    if change.lsn != NO_LSN:
        after[change.name] = change
    return after


def _lsn(state: State, change: Cursor) -> int:
    cursor = state.get(change.name)
    return NO_LSN if cursor is None else cursor.lsn
