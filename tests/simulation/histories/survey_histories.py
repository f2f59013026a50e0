"""Histories of answers: where a time is, or how the bytes of a range are distributed."""

from __future__ import annotations

from actors.simulation.checkers import client_facts, facts
from logstore.format.client_messages import LSN_MAX, SPAN, SpansReply, SpansRequest
from logstore.model import Lsn
from tests.simulation.histories import log_start_histories
from tests.simulation.histories.case import Collection
from tests.simulation.histories.stage import STAMP_NS, Stage, batch_of

SURVEYS = Collection()
breaks = SURVEYS.breaks

EVERYTHING = SpansRequest(Lsn(1), Lsn(LSN_MAX), 1, 9)
ENTRY_2_NS, ENTRY_3_NS = 2 * STAMP_NS, 3 * STAMP_NS


def begin(stage: Stage) -> None:
    """Entry 1 without LSNs, entry 2 with LSNs 1 and 2, entry 3 with LSN 3."""
    stage.elect_first()
    stage.write(1, 0, 1)
    stage.write(1, 2)


def rows_of(stage: Stage, *indexes: int, more_bytes: int = 0) -> bytes:
    """The spans of these entries, one each."""
    headers = [stage.nodes[1].rows[index - 1].header for index in indexes]
    return b"".join(
        SPAN.pack(each.next_lsn - 1, each.body_size + more_bytes, each.timestamp_ns)
        for each in headers
    )


def whole(stage: Stage) -> SpansReply:
    return SpansReply(Lsn(1), Lsn(3), ENTRY_2_NS, rows_of(stage, 2, 3))


def tell_spans(stage: Stage, reply: SpansReply, *, request: SpansRequest = EVERYTHING) -> None:
    stage.tell(client_facts.SurveyAsked())
    stage.tell(client_facts.SpansTold(2, request, reply))


def tell_time(stage: Stage, timestamp_ns: int, lsn: int) -> None:
    stage.tell(client_facts.SurveyAsked())
    stage.tell(client_facts.TimeTold(2, timestamp_ns, lsn))


@breaks("I8", says="finds time 20 at LSN 3, it is at 1")
def a_time_is_answered_with_older_entries_left_out(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    tell_time(stage, 1 + STAMP_NS, 1)
    tell_time(stage, ENTRY_2_NS, 3 if is_broken else 1)


@breaks("I5", says="finds time 30 at LSN 2, where no entry begins")
def a_time_is_answered_within_an_entry(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    tell_time(stage, ENTRY_3_NS, 2 if is_broken else 3)


@breaks("I5", says="finds time 31 at LSN 3: older, and 3 is shown there")
def a_time_is_answered_as_if_an_entry_that_is_shown_were_not_there(
    stage: Stage, is_broken: bool
) -> None:
    begin(stage)
    tell_time(stage, ENTRY_3_NS + 1, 3)  # right for a replica that does not show entry 3 yet
    tell_spans(stage, whole(stage))
    tell_time(stage, ENTRY_3_NS + 1, 3 if is_broken else 4)


@breaks("I5", says="finds time 31 at LSN 0, where no entry begins")
def a_time_is_answered_below_the_log(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    tell_time(stage, ENTRY_3_NS + 1, 0 if is_broken else 1)


@breaks("I8", says="committed is no entry that ends there")
def more_is_shown_than_is_committed(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    shown = Lsn(4 if is_broken else 3)
    reply = SpansReply(Lsn(1), shown, ENTRY_2_NS, rows_of(stage, 2, 3))
    tell_spans(stage, reply)


@breaks("I8", says="committed is no entry that ends there")
def an_entry_is_shown_in_part(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    rows = SPAN.pack(1, stage.nodes[1].rows[1].header.body_size, ENTRY_2_NS)
    reply = SpansReply(Lsn(1), Lsn(1 if is_broken else 3), ENTRY_2_NS, rows)
    tell_spans(stage, reply, request=SpansRequest(Lsn(1), Lsn(1), 1, 9))


def commit_entry_4(stage: Stage, *followers: int) -> None:
    """LSN 4, committed, and shown by node 1 and these."""
    stage.invoke(3)
    row = stage.data(1, batch_of(3))
    stage.replicate(row, 1, 2, 3)
    stage.flush()
    for node in (2, 3):
        stage.claim(node, 1, 4)
    stage.commit(1, 4)
    stage.follow(4, *followers)


@breaks("I8", says="and does not show that yet")
def spans_are_answered_before_they_are_shown(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    commit_entry_4(stage, *([] if is_broken else [2]))
    reply = SpansReply(Lsn(1), Lsn(4), ENTRY_2_NS, rows_of(stage, 2, 3, 4))
    tell_spans(stage, reply)


@breaks("I8", says="and does not show that yet")
def spans_are_answered_by_a_replica_whose_disk_is_lost_since(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    commit_entry_4(stage, *([] if is_broken else [2]))
    stage.tell(client_facts.SurveyAsked())
    if not is_broken:
        stage.tell(facts.DiskLost(2))
    reply = SpansReply(Lsn(1), Lsn(4), ENTRY_2_NS, rows_of(stage, 2, 3, 4))
    stage.tell(client_facts.SpansTold(2, EVERYTHING, reply))


@breaks("I8", says="finds time 41 at LSN 5, and does not show it yet")
def a_time_is_answered_beyond_what_is_shown(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    commit_entry_4(stage, *([] if is_broken else [2]))
    tell_time(stage, ENTRY_3_NS + STAMP_NS + 1, 5)


@breaks("I8", says="at LSN 3, and does not show it yet")
def a_time_is_answered_beyond_what_is_shown_where_no_log_begins(
    stage: Stage, is_broken: bool
) -> None:
    log_start_histories.begin(stage)
    if not is_broken:
        log_start_histories.trim(stage, log_start_histories.start_at(stage, 4))
    stage.boot(2)
    tell_time(stage, stage.nodes[1].rows[5].header.timestamp_ns, 3)


@breaks("I5", says="1 to 3 at least is shown there")
def less_is_shown_than_before(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    tell_spans(stage, whole(stage))
    if not is_broken:
        stage.boot(2)
        stage.follow(2, 2)  # it restarts, with what its leader reports as committed
    tell_spans(stage, SpansReply(Lsn(1), Lsn(2), ENTRY_2_NS, rows_of(stage, 2)))


@breaks("I5", says="it is 20, [(2, ")
def a_span_has_too_many_bytes(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    rows = rows_of(stage, 2, 3, more_bytes=1 if is_broken else 0)
    tell_spans(stage, SpansReply(Lsn(1), Lsn(3), ENTRY_2_NS, rows))


@breaks("I5", says="it is 20, [(2, ")
def a_range_ends_before_its_end(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    rows = rows_of(stage, 2) if is_broken else rows_of(stage, 2, 3)
    tell_spans(stage, SpansReply(Lsn(1), Lsn(3), ENTRY_2_NS, rows))


@breaks("I5", says="it is 0, []")
def spans_are_answered_for_an_empty_range(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    request = SpansRequest(Lsn(4), Lsn(LSN_MAX), 1, 9)
    reply = SpansReply(Lsn(1), Lsn(3), ENTRY_3_NS, rows_of(stage, 3))
    tell_spans(stage, reply if is_broken else SpansReply(Lsn(1), Lsn(3), 0, b""), request=request)


@breaks("I12", says="calls LSNs [0, 0] damaged, its disk is whole")
def a_search_reports_damage_that_is_not_there(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    if not is_broken:
        stage.rot(2, "frame")
    stage.tell(client_facts.DamageNamed(2, (0, 0), stage.now_ns))
