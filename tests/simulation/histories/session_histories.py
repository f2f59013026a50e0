"""Histories of session tables: rebuilt from the log, they are its fold and nothing else."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from actors.simulation.checkers import client_facts, facts
from logstore.format import session_entries
from logstore.format.cursor_entries import Cursor
from logstore.format.session_entries import ExpireEntry, OpenEntry
from logstore.model import AckLevel, EntryKind, Lsn, SequenceMode
from logstore.session.grants import SessionLimits
from logstore.session.session import Session
from logstore.session.table import SessionTable
from tests.simulation.histories.case import Collection
from tests.simulation.histories.stage import PRODUCER, Stage, batch_of
from tests.unit.session_logs import encode_snapshot, fold_entry

SESSIONS = Collection()
breaks = SESSIONS.breaks


def open_session(
    stage: Stage,
    *,
    producer: int = PRODUCER,
    epoch: int = 1,
    mode: SequenceMode = SequenceMode.DENSE,
    name: bytes = b"",
) -> None:
    """An OPEN entry, committed and answered."""
    entry = OpenEntry(producer, epoch, mode, AckLevel.QUORUM, 16, 1 << 20, name)
    stage.spread(1, stage.propose(1, EntryKind.OPEN, session_entries.encode_open(entry)))
    stage.tell(client_facts.SessionOpened(producer, epoch, mode))


def table_of(stage: Stage, node: int = 1) -> SessionTable:
    """The product's own fold of everything a node's log holds."""
    table = SessionTable(SessionLimits())
    for row in stage.nodes[node].rows:
        header = row.header
        body = stage.bodies[row.chain]
        fold_entry(table, header.kind, header.index, header.first_lsn, body, header.timestamp_ns)
    return table


def begin(stage: Stage) -> None:
    stage.elect_first()
    open_session(stage)
    stage.write(1, 0, 1)


def rebuild(
    stage: Stage, sessions: list[Session], cursors: Sequence[Cursor] = (), gen: int = 1
) -> None:
    stage.admit(1, gen)
    stage.tell(facts.TableRebuilt(1, gen, (sessions, cursors, ()), 0, 0))


def expire(stage: Stage, *, is_kept: bool = False) -> None:
    body = session_entries.encode_expire(ExpireEntry(PRODUCER, 1, is_kept))
    stage.spread(1, stage.propose(1, EntryKind.EXPIRE, body))


def sessions_of(stage: Stage, node: int = 1) -> list[Session]:
    return list(table_of(stage, node).sessions())


@breaks("I17", says="sessions [7] are not the fold")
def a_table_lacks_the_uncommitted_tail(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    stage.invoke(2)
    before = sessions_of(stage)
    stage.data(1, batch_of(2))
    rebuild(stage, before if is_broken else sessions_of(stage))


@breaks("I17", says="sessions [7] are not the fold")
def a_table_holds_what_was_truncated(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    stage.invoke(2)
    stage.data(1, batch_of(2))
    stale = sessions_of(stage)
    stage.replicate(stage.elect(2, 2), 2, 1)
    stage.elect(1, 3)
    rebuild(stage, stale if is_broken else sessions_of(stage))


@breaks("I17", says="are not the fold")
def a_table_has_a_session_too_few(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    rebuild(stage, [] if is_broken else sessions_of(stage))


@breaks("I17", says="are not the fold")
def a_table_gives_a_batch_other_lsns(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    sessions = sessions_of(stage)
    if is_broken:
        rows = OrderedDict(sessions[0].rows)
        rows[1] = msgspec.structs.replace(rows[1], first_lsn=Lsn(5))
        sessions = [msgspec.structs.replace(sessions[0], rows=rows)]
    rebuild(stage, sessions)


@breaks("I17", says="is not the fold of what precedes it")
def a_snapshot_is_not_what_the_log_says(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    table = table_of(stage)
    if is_broken:
        table.apply_expire(ExpireEntry(PRODUCER, 1))
    stage.spread(1, stage.propose(1, EntryKind.SESSION, encode_snapshot(table)))
    rebuild(stage, sessions_of(stage))


@breaks("I17", says="opens gen 1 after gen 1")
def a_gen_is_opened_twice(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    stage.admit(1, 1)
    stage.admit(1, 1 if is_broken else 2)


@breaks("I17", says="which raft never opened")
def a_table_is_built_for_no_gen(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    stage.admit(1, 1)
    gen = 2 if is_broken else 1
    stage.tell(facts.TableRebuilt(1, gen, (sessions_of(stage), (), ()), 0, 0))


@breaks("I7", says="entry 5 has a batch of producer 7, whose session ended with entry 4")
def a_batch_follows_the_expiry_of_its_session(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    if is_broken:
        expire(stage)
    stage.write(1, 2)
    stage.end()


@breaks("I7", says="a newer epoch had been opened before it")
def a_fenced_producer_appends_after_the_fence(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    open_session(stage, epoch=2)
    epoch = 1 if is_broken else 2
    sequence = 2 if is_broken else 0
    stage.invoke(sequence, epoch=epoch)
    stage.spread(1, stage.data(1, batch_of(sequence, epoch=epoch)))


@breaks("I7", says="out of order")
def a_retry_passes_a_table_that_forgot_its_first_copy(stage: Stage, is_broken: bool) -> None:
    """FAULTS K2, at the moment of commit."""
    begin(stage)
    stage.invoke(2)
    stage.spread(1, stage.data(1, batch_of(2)))
    if is_broken:
        stage.spread(1, stage.data(1, batch_of(2)))


@breaks("I7", says="3 is missing")
def a_gap_passes_the_table(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    stage.write(1, 2)
    later = 4 if is_broken else 3
    stage.invoke(later)
    stage.spread(1, stage.data(1, batch_of(later)))


@breaks("I7", says="was refused for good")
def a_refused_batch_is_committed_later(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    number = stage.invoke(2)
    if is_broken:
        stage.tell(client_facts.AppendRefused(number, 5))
    stage.spread(1, stage.data(1, batch_of(2)))


@breaks("I17", says="in the end: snapshot 4 is not the fold")
def a_snapshot_that_was_never_read_lacks_a_session(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    table = SessionTable(SessionLimits()) if is_broken else table_of(stage)
    stage.spread(1, stage.propose(1, EntryKind.SESSION, encode_snapshot(table)))
    stage.end()


# --- sessions that are given up ---


@breaks("I17", says="entry 3 of 30 ns ends PlainSession")
def a_session_with_a_name_is_given_up(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    open_session(stage, name=b"asked for again" if is_broken else b"")
    expire(stage, is_kept=is_broken)


@breaks("I17", says="follows None")
def a_session_is_given_up_twice(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    for _ in range(1 + is_broken):
        expire(stage)


@breaks("I7", says="gives up producer 7, whose batch at LSN 3 is not committed")
def a_session_with_a_batch_under_way_is_given_up(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    stage.invoke(2)
    row = stage.data(1, batch_of(2))
    if not is_broken:
        stage.spread(1, row)
    stage.propose(1, EntryKind.EXPIRE, session_entries.encode_expire(ExpireEntry(PRODUCER, 1)))
