"""Histories of sessions that are listed and ended: answers are committed and up to date."""

from __future__ import annotations

from actors.simulation.checkers import client_facts
from logstore.format import session_entries
from logstore.format.session_entries import ExpireEntry, OpenEntry
from logstore.format.session_list import ListedSession, SessionState
from logstore.model import AckLevel, EntryKind, SequenceMode
from tests.simulation.histories.case import Collection
from tests.simulation.histories.cursor_histories import confirm
from tests.simulation.histories.session_histories import open_session
from tests.simulation.histories.stage import PRODUCER, Stage, batch_of

SESSION_LISTS = Collection()
breaks = SESSION_LISTS.breaks

OTHER = PRODUCER + 1


def row(producer_id: int = PRODUCER, *, epoch: int = 1, next_sequence: int = 0) -> ListedSession:
    return ListedSession(
        producer_id, epoch, SequenceMode.DENSE, SessionState.OPEN, 16, 1 << 20, next_sequence, 0,
        b"a" if producer_id == PRODUCER else b"",
    )  # fmt: skip


def begin(stage: Stage) -> None:
    """Two sessions, one with a name."""
    stage.elect_first()
    open_session(stage, name=b"a")
    open_session(stage, producer=OTHER)


def end(stage: Stage, producer_id: int = PRODUCER, *, is_kept: bool = False) -> None:
    """A committed EXPIRE."""
    body = session_entries.encode_expire(ExpireEntry(producer_id, 1, is_kept))
    stage.spread(1, stage.propose(1, EntryKind.EXPIRE, body))


def list_page(
    stage: Stage, *rows: ListedSession, limit: int = 0, next_after: int = 0, number: int = 1
) -> None:
    """A page from beginning to end."""
    stage.tell(client_facts.SessionsAsked(number, (0, limit), 0))
    confirm(stage, number)
    stage.tell(client_facts.SessionsListed(number, 1, rows, next_after))


def ask_end(stage: Stage, number: int, producer_id: int = PRODUCER) -> None:
    stage.tell(client_facts.SessionsAsked(number, None, producer_id))


@breaks("I6", says="without a quorum round")
def sessions_are_listed_without_a_round(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    stage.tell(client_facts.SessionsAsked(1, (0, 0), 0))
    if not is_broken:
        confirm(stage, 1)
    stage.tell(client_facts.SessionsListed(1, 1, (row(), row(OTHER)), 0))


@breaks("I6", says="never so since there were [7, 8]")
def a_session_is_left_out(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    list_page(stage, row(), row(OTHER))
    list_page(stage, *((row(),) if is_broken else (row(), row(OTHER))), number=2)


@breaks("I6", says="never so")
def a_page_ends_too_early(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    list_page(stage, row(), limit=1, next_after=0 if is_broken else PRODUCER)


@breaks("I6", says="never so since there were [8]")
def a_session_is_listed_after_its_end_was_answered(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    ask_end(stage, 1)
    end(stage)
    stage.tell(client_facts.SessionEnded(1))
    list_page(stage, *((row(), row(OTHER)) if is_broken else (row(OTHER),)), number=2)


@breaks("I6", says="never so")
def a_session_is_listed_before_its_open_is_committed(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    entry = OpenEntry(PRODUCER, 1, SequenceMode.DENSE, AckLevel.QUORUM, 16, 1 << 20, b"a")
    proposed = stage.propose(1, EntryKind.OPEN, session_entries.encode_open(entry))
    if not is_broken:
        stage.spread(1, proposed)
    list_page(stage, row())


@breaks("I10", says="0 is not committed")
def a_session_is_listed_with_what_is_under_way(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    open_session(stage, name=b"a")
    stage.write(1, 0)
    open_session(stage, epoch=2, name=b"a")
    stage.invoke(0, epoch=2)
    stage.data(1, batch_of(0, epoch=2))
    list_page(stage, row(epoch=2, next_sequence=1 if is_broken else 0))


@breaks("I6", says="after 1 was committed")
def a_session_is_listed_as_it_was(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    open_session(stage, name=b"a")
    stage.write(1, 0)
    stage.write(1, 1)
    list_page(stage, row(next_sequence=1 if is_broken else 2))


@breaks("I10", says="which is not committed")
def an_end_is_answered_before_its_commit(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    ask_end(stage, 1)
    body = session_entries.encode_expire(ExpireEntry(PRODUCER, 1))
    proposed = stage.propose(1, EntryKind.EXPIRE, body)
    if not is_broken:
        stage.spread(1, proposed)
    stage.tell(client_facts.SessionEnded(1))


@breaks("I10", says="7/1 is refused as over, which is not committed")
def a_producer_is_refused_before_the_end_of_its_session_is_committed(
    stage: Stage, is_broken: bool
) -> None:
    begin(stage)
    body = session_entries.encode_expire(ExpireEntry(PRODUCER, 1))
    proposed = stage.propose(1, EntryKind.EXPIRE, body)
    if not is_broken:
        stage.spread(1, proposed)
    stage.tell(client_facts.SessionDenied(PRODUCER, 1))


@breaks("I10", says="7/1 is refused as over, which is not committed")
def a_producer_is_fenced_before_the_commit_of_the_opening(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    entry = OpenEntry(PRODUCER, 2, SequenceMode.DENSE, AckLevel.QUORUM, 16, 1 << 20, b"a")
    proposed = stage.propose(1, EntryKind.OPEN, session_entries.encode_open(entry))
    if not is_broken:
        stage.spread(1, proposed)
    stage.tell(client_facts.SessionDenied(PRODUCER, 1))


@breaks("I7", says="a second time")
def an_end_is_answered_twice(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    ask_end(stage, 1)
    end(stage)
    stage.tell(client_facts.SessionEnded(1))
    ask_end(stage, 2)
    confirm(stage, 2)
    if is_broken:
        stage.tell(client_facts.SessionEnded(2))
    else:
        stage.tell(client_facts.SessionUnknown(2, 1))


@breaks("I17", says="follows None")
def a_session_ends_twice(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    end(stage)
    end(stage, PRODUCER if is_broken else OTHER)


@breaks("I6", says="there is no session of producer 7: never so")
def a_session_that_is_there_is_answered_as_unknown(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    ask_end(stage, 1)
    confirm(stage, 1)
    if not is_broken:
        end(stage)
    stage.tell(client_facts.SessionUnknown(1, 1))


@breaks("I7", says="opens the name of producer 7")
def a_name_is_opened_by_another_producer(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    open_session(stage, name=b"a")
    if not is_broken:
        end(stage)
    open_session(stage, producer=OTHER, name=b"a")


@breaks("I6", says="never so")
def a_session_that_is_only_kept_is_listed_as_open(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    open_session(stage, mode=SequenceMode.MONOTONE, name=b"a")
    for _ in range(100):  # 1,000 ns, the age at which sessions end here
        stage.spread(1, stage.propose(1, EntryKind.NOOP, b""))
    end(stage, is_kept=True)
    state = SessionState.OPEN if is_broken else SessionState.KEPT
    list_page(stage, ListedSession(PRODUCER, 1, SequenceMode.MONOTONE, state, 0, 0, 0, 0, b"a"))


@breaks("I11", says="is committed, nobody asked")
def a_session_ends_for_good_without_a_request(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    ask_end(stage, 1, OTHER if is_broken else PRODUCER)
    end(stage)
