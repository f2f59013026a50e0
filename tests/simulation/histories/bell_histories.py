"""Histories of bells: a process that publishes for another rings afterwards (I13, SAFETY M7)."""

from __future__ import annotations

from tests.simulation.histories.case import Collection
from tests.simulation.histories.stage import Stage

BELLS = Collection()
breaks = BELLS.breaks

RAFT = (1, "raft")


@breaks("I13", says="1.raft publishes for writer and does not ring afterwards")
def a_message_that_waited_for_room_is_published_after_the_bell(
    stage: Stage, is_broken: bool
) -> None:
    stage.boot()
    stage.offer(RAFT, "writer")
    if is_broken:
        stage.ring(RAFT, "writer")
    stage.offer(RAFT, "writer")
    if not is_broken:
        stage.ring(RAFT, "writer")
    stage.end_work(RAFT)


@breaks("I13", says="1.raft publishes for ingress and does not ring afterwards")
def the_bell_of_another_is_rung(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    stage.offer(RAFT, "writer")
    stage.offer(RAFT, "ingress")
    stage.ring(RAFT, "writer")
    if not is_broken:
        stage.ring(RAFT, "ingress")
    stage.end_work(RAFT)


@breaks("I13", says="1.raft publishes for writer and does not ring afterwards")
def a_bell_that_another_process_rang_is_not_its_own(stage: Stage, is_broken: bool) -> None:
    """What that one woke the writer for may have been taken before this is published."""
    stage.boot()
    stage.offer(RAFT, "writer")
    stage.ring((1, "supervisor") if is_broken else RAFT, "writer")
    stage.end_work(RAFT)
