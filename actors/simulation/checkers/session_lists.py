"""Which sessions there are, as the committed log says, and what operators were told (I6, I10).

Owns the history as places: place k is which sessions there are after the k-th committed OPEN or
EXPIRE. An answer is true of some place, none older than the newest one when it was asked for.
Nobody opens a name that is somebody's, and what ended has not ended before. Must not know the
session table, which has sessions of its own (I17).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from actors.simulation.checkers.committed_log import CommittedLog
from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.term_talk import TermTalk
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
    """`page` None: to end `producer_id`. `floor`: the newest place by then. `last`: epoch and
    sequence of each producer's newest committed batch by then."""

    page: Page | None
    producer_id: int
    floor: int
    asked_ns: int
    last: dict[int, tuple[int, int]]


class SessionLists:
    """Committed sessions, and questions by number."""

    __slots__ = (
        "_committed",
        "_findings",
        "_gone",
        "_questions",
        "_states",
        "_talk",
        "_told_ended",
    )

    def __init__(self, findings: Findings, committed: CommittedLog, talk: TermTalk) -> None:
        self._findings = findings
        self._committed = committed
        self._talk = talk
        self._states: list[State] = [{}]
        self._questions: dict[int, Question] = {}
        self._gone: set[int] = set()  # of whom nothing is kept
        self._told_ended: set[int] = set()
        committed.on_session.append(self.on_session)

    def on_session(self, entry: OpenEntry | ExpireEntry, at_ns: int) -> None:
        """An OPEN or EXPIRE entry is committed."""
        after = self._states[-1] | {}
        if isinstance(entry, ExpireEntry):
            self._expire(after, entry, at_ns)
        else:
            self._open(after, entry, at_ns)
        self._states.append(after)

    def _open(self, state: State, entry: OpenEntry, at_ns: int) -> None:
        others = [
            producer_id
            for producer_id, known in state.items()
            if entry.name and known.name == entry.name and producer_id != entry.producer_id
        ]
        if others:
            text = f"{entry} opens the name of producer {others[0]}"
            self._findings.report(Invariant.I7, text, at_ns)
        state[entry.producer_id] = Known(
            entry.producer_epoch, entry.name, entry.mode, SessionState.OPEN
        )

    def _expire(self, state: State, entry: ExpireEntry, at_ns: int) -> None:
        """By its age; or, if it has a name of which nothing is kept, by an operator."""
        producer_id = entry.producer_id
        known = state.pop(producer_id, None)
        if known is None or known.producer_epoch != entry.producer_epoch:
            self._findings.report(Invariant.I17, f"{entry} follows {known}", at_ns)
            return
        asked = {each.producer_id for each in self._questions.values()}
        if known.name and not entry.is_kept and asked and producer_id not in asked:
            self._findings.report(Invariant.I11, f"{entry} is committed, nobody asked", at_ns)
        if entry.is_kept and known.mode == SequenceMode.MONOTONE:
            state[producer_id] = known._replace(state=SessionState.KEPT)
        else:
            self._gone.add(producer_id)

    # --- operators ---

    def asked(self, number: int, page: Page | None, producer_id: int, at_ns: int) -> None:
        """Somebody asks for a page, or to end a session."""
        last = {key: self._committed.last_batch_of(key) for key in self._states[-1]}
        self._questions[number] = Question(page, producer_id, len(self._states) - 1, at_ns, last)

    def ended(self, number: int, at_ns: int) -> None:
        """It was told: the session is ended, which is committed."""
        producer_id = self._questions[number].producer_id
        if self._is_blind:
            return
        told = f"the session of producer {producer_id} is told as ended"
        if producer_id not in self._gone:
            self._findings.report(Invariant.I10, f"{told}, which is not committed", at_ns)
            return
        if producer_id in self._told_ended:
            self._findings.report(Invariant.I7, f"{told} a second time", at_ns)
        self._told_ended.add(producer_id)
        self._stand(number, lambda state: producer_id not in state, told, at_ns)

    def unknown(self, number: int, at_ns: int, *, node: int) -> None:
        """It was told by `node`: there is no such session."""
        question = self._questions[number]
        if self._is_blind:
            return
        self._talk.told(node, question.asked_ns, at_ns)
        told = f"there is no session of producer {question.producer_id}"
        self._stand(number, lambda state: question.producer_id not in state, told, at_ns)

    def listed(
        self,
        number: int,
        rows: Sequence[ListedSession],
        next_after: int,
        at_ns: int,
        *,
        node: int,
    ) -> None:
        """It was told by `node`: these are the sessions of the page."""
        question = self._questions[number]
        if self._is_blind or question.page is None:
            return
        self._talk.told(node, question.asked_ns, at_ns)
        page = question.page
        found = [
            (row.producer_id, Known(row.producer_epoch, row.name, row.mode, row.state))
            for row in rows
        ]
        told = f"page {page} of the sessions is told as {found}, the next one after {next_after}"
        self._stand(number, lambda state: page_of(state, page) == (found, next_after), told, at_ns)
        for row in rows:
            self._check_sequence(question, row, at_ns)

    # --- what is right ---

    @property
    def _is_blind(self) -> bool:
        """Nothing can be said of what only the replicas' entries show."""
        return not self._committed.has_every_open or not self._committed.last_index

    def _check_sequence(self, question: Question, row: ListedSession, at_ns: int) -> None:
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
            self._findings.report(Invariant.I10, f"{told}, {before} is not committed", at_ns)
        last_epoch, last = question.last.get(row.producer_id, (0, -1))
        if (is_monotone or last_epoch == epoch) and before < last:
            self._findings.report(Invariant.I6, f"{told}, after {last} was committed", at_ns)

    def _stand(self, number: int, is_it: Callable[[State], bool], told: str, at_ns: int) -> None:
        """Some place that it may have been told of."""
        floor = self._questions[number].floor
        if not any(map(is_it, self._states[floor:])):
            there = sorted(self._states[floor])
            text = f"{told}: never so since there were {there}, which was before it was asked for"
            self._findings.report(Invariant.I6, text, at_ns)


def page_of(state: State, page: Page) -> tuple[list[tuple[int, Known]], int]:
    """The sessions of a page, and what the next one is asked for with."""
    after, limit = page
    size = min(limit or SESSIONS_PAGE_MAX, SESSIONS_PAGE_MAX)
    ids = sorted(producer_id for producer_id in state if producer_id > after)
    return [(each, state[each]) for each in ids[:size]], ids[size - 1] if len(ids) > size else 0
