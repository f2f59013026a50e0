"""Histories of named cursors: answers are right, and not older than earlier answers."""

from __future__ import annotations

from actors.messages import READS_OF_INGRESS
from actors.simulation.checkers import client_facts
from logstore.format.cursor_entries import ANY_LSN, Cursor, encode_cursor
from logstore.model import EntryKind, Lsn
from logstore.raft.effects import ReadIndexAnswered
from logstore.raft.events import ReadIndexRequested
from tests.simulation.histories.case import Collection
from tests.simulation.histories.session_histories import begin, rebuild, sessions_of, table_of
from tests.simulation.histories.stage import Stage
from tests.simulation.histories.term_histories import reply, round_of
from tests.unit.session_logs import encode_snapshot

CURSORS = Collection()
breaks = CURSORS.breaks


def at(lsn: int, *, is_held: bool = False) -> Cursor:
    return Cursor(b"archive", Lsn(lsn), is_held)


def commit(stage: Stage, cursor: Cursor) -> None:
    stage.spread(1, stage.propose(1, EntryKind.CURSOR, encode_cursor(cursor)))


def ask(stage: Stage, number: int, cursor: Cursor | None, expected_lsn: int = ANY_LSN) -> int:
    stage.tell(client_facts.CursorAsked(number, cursor, expected_lsn))
    return number


def confirm(stage: Stage, number: int, *, request: int = READS_OF_INGRESS) -> None:
    """Node 1 completes a quorum round."""
    stage.step(1, ReadIndexRequested(request + number), *round_of(number))
    reply(stage, 1, 2, number)
    lsn = Lsn(stage.record.committed.next_lsn - 1)
    stage.idle(1, ReadIndexAnswered(request + number, True, lsn))


def change(stage: Stage, number: int, lsn: int, previous_lsn: int) -> None:
    """A change from beginning to end."""
    ask(stage, number, at(lsn))
    commit(stage, at(lsn))
    stage.tell(client_facts.CursorChanged(number, previous_lsn))


def refuse(stage: Stage, number: int, lsn: int) -> None:
    """The change is not made: the cursor is at `lsn`."""
    confirm(stage, number)
    stage.tell(client_facts.CursorMoved(number, 1, lsn))


def listed(stage: Stage, number: int, *cursors: Cursor) -> None:
    ask(stage, number, None)
    confirm(stage, number)
    stage.tell(client_facts.CursorsListed(number, 1, cursors))


@breaks("I10", says="it is not committed")
def a_change_is_answered_as_done_before_its_commit(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    ask(stage, 1, at(7))
    if not is_broken:
        commit(stage, at(7))
    stage.tell(client_facts.CursorChanged(1, 0))


@breaks("I11", says="nobody asked")
def a_cursor_is_committed_that_no_client_asked_for(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    ask(stage, 1, at(7))
    commit(stage, at(7, is_held=is_broken))


@breaks("I6", says="9 was expected")
def a_change_is_made_though_another_lsn_was_expected(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    change(stage, 1, 7, 0)
    ask(stage, 2, at(8), 9 if is_broken else 7)
    commit(stage, at(8))
    stage.tell(client_facts.CursorChanged(2, 7))


@breaks("I6", says="at LSN 0 before: never so")
def a_change_is_answered_with_another_lsn_before_it(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    change(stage, 1, 7, 0)
    change(stage, 2, 8, 0 if is_broken else 7)


@breaks("I6", says="the cursor being at 7: never so")
def a_change_is_refused_with_an_old_lsn(stage: Stage, is_broken: bool) -> None:
    """A deposed leader does not know that the cursor has moved on."""
    stage.elect_first()
    change(stage, 1, 7, 0)
    change(stage, 2, 8, 7)
    ask(stage, 3, at(9), 5)
    refuse(stage, 3, 7 if is_broken else 8)


@breaks("I6", says="the cursor being at 7")
def a_change_is_refused_where_it_was_expected(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    change(stage, 1, 7, 0)
    ask(stage, 2, at(8), 7 if is_broken else 6)
    refuse(stage, 2, 7)


@breaks("I6", says="was answered by node 1 without a quorum round")
def a_list_is_answered_without_a_round(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    ask(stage, 1, None)
    if not is_broken:
        confirm(stage, 1)
    stage.tell(client_facts.CursorsListed(1, 1, []))


@breaks("I6", says="without a quorum round")
def a_list_is_answered_by_a_round_from_before_it_was_asked_for(
    stage: Stage, is_broken: bool
) -> None:
    stage.elect_first()
    if is_broken:
        confirm(stage, 1)
    ask(stage, 1, None)
    if not is_broken:
        confirm(stage, 1)
    stage.tell(client_facts.CursorsListed(1, 1, []))


@breaks("I6", says="without a quorum round")
def a_list_is_answered_by_the_round_of_a_tail_read(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    ask(stage, 1, None)
    confirm(stage, 1, request=0 if is_broken else READS_OF_INGRESS)
    stage.tell(client_facts.CursorsListed(1, 1, []))


@breaks("I6", says="without a quorum round")
def a_change_is_refused_by_the_round_of_a_list(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    change(stage, 1, 7, 0)
    ask(stage, 2, at(8), 6)
    listed(stage, 3, at(7))
    if not is_broken:
        confirm(stage, 4)
    stage.tell(client_facts.CursorMoved(2, 1, 7))


@breaks("I6", says="known before")
def a_list_lacks_a_change_that_was_answered_as_done(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    change(stage, 1, 7, 0)
    listed(stage, 2, *([] if is_broken else [at(7)]))


@breaks("I6", says="known before")
def a_list_is_older_than_one_before_it(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    for number in (1, 2):
        ask(stage, number, at(number))
        commit(stage, at(number))
    listed(stage, 3, at(2 if is_broken else 1))
    listed(stage, 4, at(1))


@breaks("I6", says="known before")
def a_list_shows_a_change_that_is_not_committed(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    ask(stage, 1, at(7))
    row = stage.propose(1, EntryKind.CURSOR, encode_cursor(at(7)))
    if not is_broken:
        stage.spread(1, row)
    listed(stage, 2, at(7))


@breaks("I6", says="known before")
def a_list_shows_a_cursor_that_was_deleted(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    change(stage, 1, 7, 0)
    change(stage, 2, 0, 7)
    listed(stage, 3, *([at(7)] if is_broken else []))


@breaks("I17", says="cursors {} are not the fold")
def a_table_has_lost_its_cursors(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    commit(stage, at(7))
    rebuild(stage, sessions_of(stage), [] if is_broken else [at(7)])


@breaks("I17", says="is not the fold of what precedes it")
def a_snapshot_is_without_a_cursor(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    commit(stage, at(7))
    table = table_of(stage)
    if is_broken:
        table.cursors.clear()
    stage.spread(1, stage.propose(1, EntryKind.SESSION, encode_snapshot(table)))
    rebuild(stage, sessions_of(stage), [at(7)])
