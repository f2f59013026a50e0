"""Histories of logs that a leader sends its log start: those that are dropped for it, where they
start over, what is on disk when that is answered; and those that keep what follows (SAFETY G5).
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from actors.simulation.checkers.client_facts import LogStartTold
from logstore.format.entry import Row
from logstore.format.meta import LogStart
from logstore.format.peer_messages import HeartbeatReply
from logstore.model import EntryKind, Index, NodeId, Term
from logstore.raft.effects import Answer, InstallLog, MoveLogStart
from logstore.raft.events import EntryRotted, Persisted, Tick
from logstore.raft.log_view import Position, WholeLogStart
from tests.simulation.histories.case import Collection
from tests.simulation.histories.log_start_histories import begin, proposed, start_at
from tests.simulation.histories.session_histories import table_of
from tests.simulation.histories.stage import Stage, batch_of
from tests.unit.session_logs import encode_snapshot

INSTALLS = Collection()
breaks = INSTALLS.breaks


def begin_without_3(stage: Stage) -> LogStart:
    """Node 3 ends at entry 8. The others have LSN 4, a snapshot, and a TRIM that makes entry 9,
    with LSN 4, the log start. It is committed; node 2 does not know yet how far."""
    begin(stage)
    operation = stage.invoke(3)
    row = stage.data(1, batch_of(3))
    spread_to_2(stage, row)
    stage.acknowledge(operation, row.header.first_lsn)
    spread_to_2(stage, stage.propose(1, EntryKind.SESSION, encode_snapshot(table_of(stage))))
    start = start_at(stage, 9)
    spread_to_2(stage, proposed(stage, start))
    return start


def spread_to_2(stage: Stage, row: Row) -> None:
    stage.replicate(row, 1, 2)
    stage.flush(1, 2)
    stage.claim(2, 1, int(row.header.index))
    stage.commit(1, int(row.header.index))


def whole_of(stage: Stage, start: LogStart) -> WholeLogStart:
    header = stage.nodes[1].rows[int(start.index) - 1].header
    position = Position(start.index, start.term, start.next_lsn, start.chain)
    return WholeLogStart(position, header.cumulative_bytes, header.timestamp_ns, 2)


def install(
    stage: Stage, node: int, start: LogStart, *, is_saved: bool = True, **changes: Any
) -> None:
    """The node drops its log for this log start, and its writer answers."""
    each = stage.nodes[node]
    each.seq += 1
    whole = replace(whole_of(stage, start), **changes)
    stage.step(node, Tick(stage.now_ns), InstallLog(each.seq, whole))
    if is_saved:
        each.start = start
        each.disk, each.rows = [], []
    stage.step(node, Persisted(each.seq))


@breaks("I19", says="node 2 drops its log for one that begins after entry 9, which it has")
def a_log_is_dropped_that_has_the_entry(stage: Stage, is_broken: bool) -> None:
    start = begin_without_3(stage)
    install(stage, 2 if is_broken else 3, start)


@breaks("I3", says="and knows 8 committed")
def a_log_is_dropped_for_one_that_begins_where_it_is_committed(
    stage: Stage, is_broken: bool
) -> None:
    start = begin_without_3(stage)
    if is_broken:
        start = start_at(stage, 8)
        start = replace(start, chain=start.chain ^ 1)
    install(stage, 3, start)


@breaks("I19", says="no committed TRIM says so")
def a_log_begins_anew_where_no_trim_says(stage: Stage, is_broken: bool) -> None:
    start = begin_without_3(stage)
    install(stage, 3, start_at(stage, 10) if is_broken else start)


@breaks("I19", says="bytes lie before it")
def a_log_begins_anew_with_other_bytes(stage: Stage, is_broken: bool) -> None:
    start = begin_without_3(stage)
    install(stage, 3, start, **({"cumulative_bytes": 7} if is_broken else {}))


@breaks("I19", says="that entry is of")
def a_log_begins_anew_at_another_time(stage: Stage, is_broken: bool) -> None:
    start = begin_without_3(stage)
    install(stage, 3, start, timestamp_ns=7 if is_broken else 0)


@breaks("I10", says="node 3 calls entry 9 flushed, its disk does not have it")
def an_install_is_answered_before_meta_has_it(stage: Stage, is_broken: bool) -> None:
    start = begin_without_3(stage)
    install(stage, 3, start, is_saved=not is_broken)


@breaks("I19", says="its META still has the mark")
def an_install_is_answered_under_the_mark(stage: Stage, is_broken: bool) -> None:
    start = begin_without_3(stage)
    stage.nodes[3].is_installing = is_broken
    install(stage, 3, start)


@breaks("I19", says="begins after entry 9, and keeps segment 1")
def an_install_keeps_the_old_segments(stage: Stage, is_broken: bool) -> None:
    start = begin_without_3(stage)
    stage.nodes[3].kept_below = [1] if is_broken else []
    install(stage, 3, start)


@breaks("I19", says="no TRIM has acted there that says so")
def a_reader_tells_of_a_log_start_that_a_power_cut_takes_back(
    stage: Stage, is_broken: bool
) -> None:
    """It read META before that was flushed, and its answer comes after the next start."""
    start = begin_without_3(stage)
    each = stage.nodes[3]
    if not is_broken:
        stage.step(3, Tick(stage.now_ns), InstallLog(each.seq + 1, whole_of(stage, start)))
    stage.boot(3)
    stage.tell(LogStartTold(3, int(start.next_lsn)))


@breaks("I12", says="node 3 tells of damage 5-5, it is 0-0")
def damage_is_found_in_a_log_that_is_being_dropped(stage: Stage, is_broken: bool) -> None:
    """It is none of the log that begins at log start."""
    start = begin_without_3(stage)
    each = stage.nodes[3]
    each.is_excused = True
    stage.step(3, Tick(stage.now_ns), InstallLog(each.seq + 1, whole_of(stage, start)))
    stage.step(3, EntryRotted(Index(5)))
    damaged = Index(5 if is_broken else 0)
    reply = HeartbeatReply(Term(1), 1, start.index, damaged, damaged)
    stage.beat(3, 1, 0, Answer(NodeId(1), reply))


# --- the log has the entry, and keeps what follows ---


def without_the_trim(stage: Stage, *, is_flushed: bool = True) -> LogStart:
    """As `begin_without_3`, but node 3 has entry 9 as well."""
    start = begin_without_3(stage)
    stage.replicate(stage.nodes[1].rows[8], 1, 3)
    if is_flushed:
        stage.flush(3)
    return start


def take(stage: Stage, node: int, whole: WholeLogStart) -> None:
    stage.step(node, Tick(stage.now_ns), MoveLogStart(whole))


@breaks("I19", says="no committed TRIM says so")
def a_log_start_is_taken_that_no_trim_says(stage: Stage, is_broken: bool) -> None:
    start = without_the_trim(stage)
    take(stage, 3, whole_of(stage, start_at(stage, 8) if is_broken else start))


@breaks("I19", says="bytes lie before it")
def a_log_start_is_taken_with_other_bytes(stage: Stage, is_broken: bool) -> None:
    whole = whole_of(stage, without_the_trim(stage))
    take(stage, 3, replace(whole, cumulative_bytes=7) if is_broken else whole)


@breaks("I19", says="that entry is not flushed there")
def a_log_start_is_taken_before_its_entry_is_flushed(stage: Stage, is_broken: bool) -> None:
    start = without_the_trim(stage, is_flushed=not is_broken)
    take(stage, 3, whole_of(stage, start))


@breaks("I19", says="no TRIM has acted there that says so")
def a_reader_is_told_of_a_log_start_that_was_not_taken(stage: Stage, is_broken: bool) -> None:
    start = without_the_trim(stage)
    if not is_broken:
        take(stage, 3, whole_of(stage, start))
    stage.tell(LogStartTold(3, int(start.next_lsn)))
