"""Histories of log starts: how far a TRIM goes, when it is carried out, what is told of it."""

from __future__ import annotations

from typing import Any

import msgspec

from actors.simulation.checkers import client_facts, facts
from logstore.format.cursor_entries import Cursor, encode_cursor
from logstore.format.meta import LogStart
from logstore.format.trim_entry import TrimEntry, TrimReason, encode_trim
from logstore.model import EntryKind, Index, Lsn, Term
from logstore.raft.effects import ApplyTrim
from logstore.raft.events import LogStartMoved
from logstore.raft.log_view import Position, WholeLogStart
from tests.simulation.histories import level_histories
from tests.simulation.histories.case import Collection
from tests.simulation.histories.session_histories import open_session, table_of
from tests.simulation.histories.stage import Stage, batch_of
from tests.unit.session_logs import encode_snapshot

LOG_STARTS = Collection()
breaks = LOG_STARTS.breaks


def begin(stage: Stage) -> None:
    """Entries 1 to 8: no-op, session, LSN 1, LSN 2, snapshot, LSN 3, snapshot, level 2."""
    level_histories.begin(stage)
    open_session(stage)
    stage.write(1, 0)
    stage.write(1, 1)
    snapshot(stage)
    stage.write(1, 2)
    snapshot(stage)
    level_histories.raised(stage, 2)


@breaks("I21", says="writes TRIM 7, the committed log is at 1")
def a_trim_is_written_below_its_format_level(stage: Stage, is_broken: bool) -> None:
    level_histories.begin(stage)
    open_session(stage)
    stage.write(1, 0)
    stage.write(1, 1)
    snapshot(stage)
    raised = level_histories.appended(stage, 2)
    if is_broken:
        stage.replicate(raised, 1)
    else:
        stage.spread(1, raised)
    proposed(stage, start_at(stage, 3))


def snapshot(stage: Stage) -> None:
    stage.spread(1, stage.propose(1, EntryKind.SESSION, encode_snapshot(table_of(stage))))


def start_at(stage: Stage, index: int, *, at: int = 0) -> LogStart:
    """The log start after this entry; `at`: said of another one."""
    row = stage.nodes[1].rows[index - 1]
    header = row.header
    return LogStart(Index(at or index), header.term, row.chain, header.next_lsn)


def proposed(stage: Stage, start: LogStart, **changes: Any) -> Any:
    rows = stage.nodes[1].rows
    header = rows[min(int(start.index), len(rows)) - 1].header
    entry = TrimEntry(TrimReason.OPERATOR, start, header.cumulative_bytes, header.timestamp_ns)
    body = encode_trim(msgspec.structs.replace(entry, **changes))
    return stage.propose(1, EntryKind.TRIM, body)


def trim(stage: Stage, start: LogStart, **changes: Any) -> Index:
    """A TRIM is committed and shown everywhere; its index."""
    row = proposed(stage, start, **changes)
    stage.spread(1, row)
    return row.header.index


def commit_alone(stage: Stage, start: LogStart) -> None:
    """A TRIM is everywhere, and node 1 alone knows that it is committed."""
    row = proposed(stage, start)
    stage.replicate(row, 1, 2, 3)
    stage.flush()
    stage.claim(2, 1, int(row.header.index))
    stage.commit(1, int(row.header.index))


def carry_out(stage: Stage, node: int, start: LogStart, *, is_saved: bool = True) -> None:
    if is_saved:
        stage.nodes[node].start = start
    position = Position(start.index, start.term, start.next_lsn, start.chain)
    stage.step(node, LogStartMoved(WholeLogStart(position, 0, 0, 1)))


# --- what is decided ---


@breaks("I19", says="the newest snapshot begins at 7")
def a_trim_goes_above_the_newest_snapshot(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    trim(stage, start_at(stage, 7 if is_broken else 6))


@breaks("I19", says="holds more")
def a_trim_takes_what_a_cursor_holds(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    cursor = Cursor(b"archive", Lsn(2), True)
    stage.tell(client_facts.CursorAsked(1, cursor, 0))
    stage.spread(1, stage.propose(1, EntryKind.CURSOR, encode_cursor(cursor)))
    trim(stage, start_at(stage, 4 if is_broken else 3))


@breaks("I19", says="is to hold what a TRIM gave up before it")
def a_cursor_holds_what_is_gone(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    trim(stage, start_at(stage, 4))
    cursor = Cursor(b"archive", Lsn(2 if is_broken else 3), True)
    stage.tell(client_facts.CursorAsked(1, cursor, 0))
    stage.spread(1, stage.propose(1, EntryKind.CURSOR, encode_cursor(cursor)))


@breaks("I19", says="no such entry is committed before it")
def a_trim_goes_beyond_itself(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    trim(stage, start_at(stage, 4, at=9 if is_broken else 4))


@breaks("I19", says="of that entry, it is")
def a_trim_tells_wrong_bytes(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    start = start_at(stage, 4)
    if is_broken:
        trim(stage, start, cumulative_bytes=1 << 30)
    else:
        trim(stage, start)


@breaks("I19", says="of that entry, it is")
def a_trim_tells_a_wrong_lsn(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    start = start_at(stage, 4)
    trim(stage, msgspec.structs.replace(start, next_lsn=Lsn(start.next_lsn + is_broken)))


@breaks("I11", says="TRIM 9:")
def a_trim_is_no_trim(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    body = encode_trim(TrimEntry(TrimReason.AGE, start_at(stage, 3), 0, 30))
    header = stage.nodes[1].rows[2].header
    whole = encode_trim(
        TrimEntry(TrimReason.AGE, start_at(stage, 3), header.cumulative_bytes, header.timestamp_ns)
    )
    stage.spread(1, stage.propose(1, EntryKind.TRIM, body[:-8] if is_broken else whole))


# --- when it is carried out ---


@breaks("I19", says="carries out TRIM 9, which is not committed")
def a_trim_acts_before_its_commit(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    row = proposed(stage, start_at(stage, 4))
    stage.replicate(row, 1, 2, 3)
    stage.flush()
    if not is_broken:
        stage.claim(2, 1, 9)
        stage.commit(1, 9)
    else:
        stage.idle(1, ApplyTrim(row.header.index))


@breaks("I19", says="carries out TRIM 9, which is not flushed there")
def a_trim_acts_before_it_is_flushed(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    row = proposed(stage, start_at(stage, 4))
    stage.replicate(row, 1, 2, 3)
    stage.flush(1, 2)
    stage.claim(2, 1, 9)
    stage.commit(1, 9)
    if not is_broken:
        stage.flush(3)
    stage.nodes[3].core.commit = 9
    stage.idle(3, ApplyTrim(row.header.index))


@breaks("I19", says="node 2 shows entry 9, and does not carry out TRIM 9")
def a_trim_is_shown_and_does_not_act(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    if is_broken:
        stage.unaware.add(2)
    trim(stage, start_at(stage, 4))


@breaks("I19", says="carries out TRIM 7, which is no TRIM")
def another_entry_is_carried_out(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    index = trim(stage, start_at(stage, 4))
    stage.idle(1, ApplyTrim(Index(7) if is_broken else index))


@breaks("I19", says="begins after entry 4, and keeps segment 1")
def a_pair_below_the_log_start_is_kept(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    trim(stage, start_at(stage, 4))
    stage.nodes[2].kept_below = [1] if is_broken else []
    carry_out(stage, 2, start_at(stage, 4))


@breaks("I19", says="begins after entry 4, and keeps segment 1")
def a_start_keeps_a_pair_below_the_log_start(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    trim(stage, start_at(stage, 4))
    stage.nodes[2].start = start_at(stage, 4)
    stage.nodes[2].kept_below = [1] if is_broken else []
    stage.boot(2)


@breaks("I19", says="no committed TRIM says so")
def a_replica_begins_where_no_trim_says(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    trim(stage, start_at(stage, 4))
    carry_out(stage, 2, start_at(stage, 3 if is_broken else 4))


@breaks("I19", says="no committed TRIM says so")
def a_log_start_has_another_chain(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    start = start_at(stage, 4)
    trim(stage, start)
    carry_out(stage, 2, msgspec.structs.replace(start, chain=start.chain ^ is_broken))


@breaks("I19", says="and did after 4")
def a_log_start_goes_back(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    low, high = start_at(stage, 3), start_at(stage, 4)
    trim(stage, low)
    trim(stage, high)
    for start in (high, low) if is_broken else (low, high):
        carry_out(stage, 2, start)


@breaks("I19", says="which its META forgets")
def a_log_start_is_told_before_meta_has_it(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    trim(stage, start_at(stage, 4))
    carry_out(stage, 2, start_at(stage, 4), is_saved=not is_broken)


@breaks("I19", says="begins after entry 0, and did after 4")
def a_start_forgets_the_log_start(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    trim(stage, start_at(stage, 4))
    carry_out(stage, 2, start_at(stage, 4))
    if is_broken:
        stage.nodes[2].start = LogStart(Index(0), Term(0), 0, Lsn(1))
    stage.boot(2)


@breaks("I19", says="removes segment 1, which has entry 4; in META its log begins after 0")
def a_pair_is_removed_before_meta_has_the_log_start(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    trim(stage, start_at(stage, 4))
    stage.nodes[2].segments[1] = 4
    if not is_broken:
        stage.nodes[2].start = start_at(stage, 4)
    stage.tell(facts.PairRemoved(2, 1))


@breaks("I19", says="which has entry 5")
def a_pair_is_removed_that_is_not_wholly_below(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    trim(stage, start_at(stage, 4))
    stage.nodes[2].segments[1] = 5 if is_broken else 4
    stage.nodes[2].start = start_at(stage, 4)
    stage.tell(facts.PairRemoved(2, 1))


@breaks("I19", says="node 3 begins after entry 0 in the end")
def a_trim_is_never_carried_out(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    trim(stage, start_at(stage, 4))
    for node in (1, 2) if is_broken else (1, 2, 3):
        carry_out(stage, node, start_at(stage, 4))
    stage.tell(facts.Converged())


@breaks("I19", says="begins with entry 4 at LSN 2, no committed TRIM says so")
def a_log_lacks_what_no_trim_gave_up(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    trim(stage, start_at(stage, 4))
    for node in stage.nodes:
        carry_out(stage, node, start_at(stage, 4))
    kept = [stage.entries(node)[4:] for node in stage.nodes]
    stage.end(node1=kept[0], node2=stage.entries(2)[3:] if is_broken else kept[1], node3=kept[2])


@breaks("I3", says="lacks entry 10, which was committed")
def a_log_lacks_what_was_committed_above_its_start(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    trim(stage, start_at(stage, 4))
    stage.write(1, 3)
    for node in stage.nodes:
        carry_out(stage, node, start_at(stage, 4))
    kept = [stage.entries(node)[4:] for node in stage.nodes]
    stage.end(node1=kept[0][:-1] if is_broken else kept[0], node2=kept[1], node3=kept[2])


# --- what is told ---


@breaks("I19", says="no committed TRIM does")
def a_reader_tells_of_a_log_start_that_is_none(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    trim(stage, start_at(stage, 4))
    carry_out(stage, 2, start_at(stage, 4))
    stage.tell(client_facts.LogStartTold(2, 2 if is_broken else 3))


@breaks("I19", says="no TRIM has acted there that says so")
def a_reader_tells_of_a_log_start_to_come(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    commit_alone(stage, start_at(stage, 4))
    if not is_broken:
        stage.follow(9, 2)
    stage.tell(client_facts.LogStartTold(2, 3))


@breaks("I19", says="no TRIM has acted there that says so")
def a_reader_tells_of_a_log_start_and_its_disk_is_lost_meanwhile(
    stage: Stage, is_broken: bool
) -> None:
    begin(stage)
    commit_alone(stage, start_at(stage, 4))
    stage.tell(facts.DiskLost(2))
    stage.tell(client_facts.LogStartTold(2, 3 if is_broken else 1))


@breaks("I10", says="begins at LSN 3 from now on, no committed TRIM does")
def a_trim_is_answered_before_its_commit(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    row = proposed(stage, start_at(stage, 4))
    if not is_broken:
        stage.spread(1, row)
    stage.tell(client_facts.TrimTold(1, 3))


@breaks("I5", says="1 was next")
def a_consumer_of_all_that_is_kept_begins_above_the_log_start(
    stage: Stage, is_broken: bool
) -> None:
    begin(stage)
    stage.tell(client_facts.Subscribed("reader", 1, is_earliest=True))
    trim(stage, start_at(stage, 3))
    lsn = 3 if is_broken else 2
    stage.deliver("reader", lsn, batch_of(lsn - 1))


@breaks("I5", says="2 was next")
def a_consumer_leaves_out_what_was_trimmed_after_its_first_batch(
    stage: Stage, is_broken: bool
) -> None:
    begin(stage)
    stage.tell(client_facts.Subscribed("reader", 1, is_earliest=True))
    stage.deliver("reader", 1, batch_of(0))
    trim(stage, start_at(stage, 4))
    lsn = 3 if is_broken else 2
    stage.deliver("reader", lsn, batch_of(lsn - 1))
