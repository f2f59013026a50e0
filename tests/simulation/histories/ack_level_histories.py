"""Histories of producers of level `leader` and `none`: flushed where it is said, stored once, in
order, and no more lost than counted."""

from __future__ import annotations

from actors.simulation.checkers import client_facts, facts
from logstore.model import Index, Term
from logstore.raft.effects import Flushed
from tests.simulation.histories.case import Collection
from tests.simulation.histories.session_histories import open_session
from tests.simulation.histories.stage import PRODUCER, Stage, batch_of

ACK_LEVELS = Collection()
breaks = ACK_LEVELS.breaks
NAME = "provisional"


def begin(stage: Stage) -> None:
    stage.elect_first()
    open_session(stage)


def send(stage: Stage, number: int, sequence: int, *, epoch: int = 1) -> None:
    stage.invoke(sequence, b"%d" % number, epoch=epoch)
    stage.tell(client_facts.ProvisionalSent(NAME, number, PRODUCER, epoch, sequence))


def store(stage: Stage, number: int, sequence: int, *, epoch: int = 1) -> None:
    """Sent, and committed."""
    send(stage, number, sequence, epoch=epoch)
    batch = batch_of(sequence, b"%d" % number, epoch=epoch)
    stage.spread(1, stage.data(1, batch))


@breaks("I10", says="is flushed, and never flushed it")
def a_batch_is_provisional_before_its_leader_has_flushed_it(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    send(stage, 0, 0)
    stage.data(1, batch_of(0, b"0"))
    if not is_broken:
        stage.flush(1)
    stage.tell(client_facts.ProvisionalTold(1, PRODUCER, 1, 0))


@breaks("I10", says="is flushed, and never flushed it")
def a_batch_is_provisional_and_its_leaders_disk_is_lost_meanwhile(
    stage: Stage, is_broken: bool
) -> None:
    begin(stage)
    send(stage, 0, 0)
    stage.data(1, batch_of(0, b"0"))
    if not is_broken:
        stage.flush(1)
    stage.tell(facts.DiskLost(1))
    stage.tell(client_facts.ProvisionalTold(1, PRODUCER, 1, 0))


@breaks("I10", says="was flushed")
def a_leader_reports_a_flush_that_did_not_end(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    send(stage, 0, 0)
    row = stage.data(1, batch_of(0, b"0"))
    if not is_broken:
        stage.flush(1)
    stage.idle(1, Flushed(Term(1), Index(row.header.index)))


@breaks("I7", says="is committed after its batch 1")
def a_batch_is_sent_again_in_the_next_epoch(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    store(stage, 0, 0)
    store(stage, 1, 1)
    open_session(stage, epoch=2)
    store(stage, 1 if is_broken else 2, 0, epoch=2)


@breaks("I7", says="is committed after its batch 2")
def a_batch_is_stored_behind_what_was_sent_after_it(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    store(stage, 0, 0)
    store(stage, 2 if is_broken else 1, 1)
    store(stage, 1 if is_broken else 2, 2)


@breaks("I1", says="batches of provisional are lost, it counts 0")
def more_is_lost_than_is_counted(stage: Stage, is_broken: bool) -> None:
    begin(stage)
    store(stage, 0, 0)
    send(stage, 1, 1)
    stage.tell(client_facts.LossesCounted(NAME, 0 if is_broken else 1))
    stage.end()
