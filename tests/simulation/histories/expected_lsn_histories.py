"""Histories of appends that expect an LSN: where they are stored, and what refusals rest on."""

from __future__ import annotations

from actors.messages import READS_OF_COMPARISONS, READS_OF_INGRESS
from actors.simulation.checkers import client_facts, facts
from logstore.errors import ErrorCode
from tests.simulation.histories import level_histories
from tests.simulation.histories.case import Collection
from tests.simulation.histories.cursor_histories import confirm
from tests.simulation.histories.stage import PRODUCER, Stage, batch_of, log_of

EXPECTED_LSNS = Collection()
breaks = EXPECTED_LSNS.breaks


def compare(stage: Stage, sequence: int, expected_lsn: int, *, producer: int = PRODUCER) -> int:
    """An append that expects an LSN begins; its number."""
    stage.operations += 1
    payloads = (b"%d/1/%d" % (producer, sequence),)
    stage.tell(
        client_facts.AppendInvoked(
            stage.operations, producer, 1, sequence, payloads, expected_lsn=expected_lsn
        )
    )
    return stage.operations


def refuse(stage: Stage, operation: int, next_lsn: int) -> None:
    """It was refused: the log ended before this LSN."""
    stage.tell(client_facts.ComparisonRefused(operation, next_lsn))
    stage.tell(client_facts.AppendRefused(operation, ErrorCode.NEXT_LSN_IS))


def begin(stage: Stage) -> None:
    """A log at level 3, in which producer 7 has appended LSN 1."""
    level_histories.begin(stage)
    for level in (2, 3):
        level_histories.raised(stage, level)
    stage.write(1, 0)


@breaks("I22", says="which expects LSN 2, has LSN 1")
def an_append_is_acknowledged_at_another_lsn_than_it_expects(stage: Stage, is_broken: bool) -> None:
    stage.acknowledge(compare(stage, 0, 2 if is_broken else 1), 1)
    stage.end(node1=log_of((1, batch_of(0))))


@breaks("I22", says="which expects LSN 1, is stored at LSN 2")
def of_two_that_expect_the_same_lsn_both_are_stored(stage: Stage, is_broken: bool) -> None:
    first, second = compare(stage, 0, 1), compare(stage, 0, 1, producer=8)
    stage.acknowledge(first, 1)
    if not is_broken:
        refuse(stage, second, 2)
    batches = [batch_of(0), *([batch_of(0, producer=8)] if is_broken else [])]
    stage.end(node1=log_of(*((1, batch) for batch in batches)))


@breaks("I7", says="was refused for good")
def a_late_copy_of_a_refused_append_is_stored(stage: Stage, is_broken: bool) -> None:
    refused = compare(stage, 0, 2)
    refuse(stage, refused, 1)
    stage.acknowledge(stage.invoke(0, producer=8), 1)
    log = [(1, batch_of(0, producer=8)), *([(1, batch_of(0))] if is_broken else [])]
    stage.end(node1=log_of(*log))


@breaks("I22", says="the next LSN is 2: without a reason")
def an_append_is_refused_where_it_expects_the_log_to_end(stage: Stage, is_broken: bool) -> None:
    stage.acknowledge(stage.invoke(0), 1)
    refuse(stage, compare(stage, 1, 2 if is_broken else 3), 2)
    stage.end(node1=log_of((1, batch_of(0))))


@breaks("I22", says="says that the next LSN is 3, committed is up to 1")
def a_refusal_is_told_before_what_it_saw_is_committed(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    compare(stage, 1, 2, producer=8)
    stage.invoke(1)
    row = stage.data(1, batch_of(1))
    if not is_broken:
        stage.spread(1, row)
    stage.tell(facts.NextLsnSent(1, 3))


@breaks("I22", says="1 was committed before it began")
def a_deposed_leader_refuses_by_a_log_that_has_gone_on(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    append = compare(stage, 1, 5)
    confirm(stage, 1, request=READS_OF_COMPARISONS)
    refuse(stage, append, 1 if is_broken else 2)


@breaks("I22", says="the next LSN is 2: without a quorum round")
def an_append_is_refused_without_a_quorum_round_of_its_own(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    append = compare(stage, 1, 5)
    request = READS_OF_COMPARISONS if not is_broken else READS_OF_INGRESS
    confirm(stage, 1, request=request)
    refuse(stage, append, 2)


@breaks("I21", says="is stored in a log at level 1")
def an_append_that_expects_an_lsn_is_taken_below_the_level(stage: Stage, is_broken: bool) -> None:
    level_histories.begin(stage)
    if not is_broken:
        for level in (2, 3):
            level_histories.raised(stage, level)
    compare(stage, 0, 1)
    stage.spread(1, stage.data(1, batch_of(0)))
