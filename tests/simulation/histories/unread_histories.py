"""Histories of messages left unread: batches that wait while requests are taken, and control lanes
(I13, SAFETY E6, W7); and of violations that an observer reports."""

from __future__ import annotations

from actors.simulation.checkers import facts
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.turns import TAKEN_MAX
from logstore.model import EntryKind, Index, Term
from logstore.raft.effects import Admit
from logstore.raft.events import DiskFullChanged
from tests.simulation.histories.case import Collection
from tests.simulation.histories.stage import Stage

UNREAD = Collection()
breaks = UNREAD.breaks

FIRST, SECOND = [b"a message"], [b"a message"]  # equal, and not the same
TOO_MANY = f"node 1 took {TAKEN_MAX + 1} requests while a batch waited to be read"


def leave_batch(stage: Stage, node: int, oldest: object) -> None:
    stage.tell(facts.BatchUnread(node, oldest))


def take_requests(stage: Stage, node: int, count: int) -> None:
    for _ in range(count):
        stage.propose(node, EntryKind.CURSOR, b"a cursor")


def leave_message(stage: Stage, process: str, endpoint: str, oldest: object) -> None:
    stage.tell(facts.ControlLaneUnread(process, endpoint, oldest))


@breaks("I13", says=TOO_MANY)
def one_batch_waits_while_too_many_requests_are_taken(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    leave_batch(stage, 1, FIRST)
    take_requests(stage, 1, TAKEN_MAX)
    leave_batch(stage, 1, FIRST)
    take_requests(stage, 1, int(is_broken))
    leave_batch(stage, 1, FIRST)


@breaks("I13", says=TOO_MANY)
def a_batch_that_is_read_resets_the_count(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    leave_batch(stage, 1, FIRST)
    for unread in (SECOND, None, None):
        take_requests(stage, 1, TAKEN_MAX + 1)
        leave_batch(stage, 1, FIRST if is_broken else unread)


@breaks("I13", says=TOO_MANY)
def each_leader_has_its_own_count(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    leave_batch(stage, 1, FIRST)
    leave_batch(stage, 2, FIRST)
    take_requests(stage, 1, TAKEN_MAX + 1)
    leave_batch(stage, 1 if is_broken else 2, FIRST)


@breaks("I13", says=TOO_MANY)
def a_gen_that_takes_batches_takes_requests_alone(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    for gen, takes_batches in ((2, True), (3, is_broken)):
        admit = Admit(Term(1), gen, Index(1), 0, takes_batches=takes_batches)
        stage.step(1, DiskFullChanged(not takes_batches), admit)
    leave_batch(stage, 1, FIRST)
    take_requests(stage, 1, TAKEN_MAX + 1)
    leave_batch(stage, 1, FIRST)


@breaks("I13", says="1.ingress does not read control, a control lane")
def a_message_is_left_by_two_loops(stage: Stage, is_broken: bool) -> None:
    leave_message(stage, "1.ingress", "control", FIRST)
    leave_message(stage, "1.ingress", "control", FIRST if is_broken else SECOND)


@breaks("I13", says="1.ingress does not read control, a control lane")
def lanes_and_processes_are_distinguished(stage: Stage, is_broken: bool) -> None:
    leave_message(stage, "1.ingress", "control", FIRST)
    leave_message(stage, "2.ingress", "control", FIRST)
    leave_message(stage, "1.ingress", "control" if is_broken else "peer control", FIRST)


@breaks("I17", says="client-1: state of another session")
def a_client_is_answered_with_what_breaks_the_protocol(stage: Stage, is_broken: bool) -> None:
    if is_broken:
        text = "client-1: state of another session"
        stage.tell(facts.PromiseBroken(Invariant.I17, text))
