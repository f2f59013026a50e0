"""A producer of level `leader` or `none` that opens its session again: whose epoch is it, and
when does it end (SAFETY E10)?"""

from __future__ import annotations

from typing import Any

import pytest

from logstore.client.core.reopening import IN_DOUBT_MAX
from logstore.errors import (
    ErrorCode,
    Fenced,
    OutcomeUnknown,
    UnknownProducer,
)
from logstore.format.batch import read_batch_header
from logstore.format.client_messages import (
    ErrorReply,
    OpenSessionRequest,
    SessionStateRequest,
    WatermarksRequest,
)
from logstore.model import AckLevel
from tests.unit.provisional_stage import Leaders, Producing


@pytest.fixture
def world() -> Leaders:
    return Leaders()


def test_a_refusal_makes_it_open_again(world: Leaders) -> None:
    producing = Producing(world, AckLevel.NONE)
    producing.append(2)
    producing.run_for(0.1)
    world.lead(2)
    lost = producing.append(1)
    producing.run_for(1)
    producing.append(1)
    producing.run_for(1)
    assert lost[0].outcome == "handed over"
    assert producing.stored == [0, 1, 3]
    assert producing.told.possibly_lost_batches == 1


def test_a_deposed_leader_that_is_silent_is_left(world: Leaders) -> None:
    """Nothing comes back at level none; but the question how much has arrived gets no answer."""
    producing = Producing(world, AckLevel.NONE)
    producing.append(1)
    producing.run_for(2)
    answers = world.on[SessionStateRequest]
    world.on[SessionStateRequest] = lambda node, each: None if node == 1 else answers(node, each)
    world.leader, world.term = 2, 2
    world.on_push = lambda node, *rest: None if node == 1 else world.push(node, *rest)
    producing.append(1)
    producing.run_for(4)
    producing.append(1)
    producing.run_for(1)
    assert producing.stored == [0, 2]
    assert (producing.told.reopened, producing.told.possibly_lost_batches) == (1, 1)


def test_nothing_sent_is_no_reason_to_open_again(world: Leaders) -> None:
    producing = Producing(world, AckLevel.NONE)
    producing.run_for(0.1)
    world.stop(1)
    packs = producing.append(2)
    producing.run_for(2)
    world.lead(2)
    producing.run_for(3)
    assert [pack.outcome for pack in packs] == ["handed over"] * 2
    assert producing.told.reopened == 0
    assert producing.stored == [0, 1]


def test_an_open_without_an_answer_is_tried_again(world: Leaders) -> None:
    producing = Producing(world, AckLevel.LEADER)
    producing.append(2)
    producing.run_for(0.1)
    world.loses_opens = 1
    world.stop(1)
    world.lead(2)
    producing.append(1)
    producing.run_for(6)
    assert producing.stored == [0, 1, 2]
    assert producing.machine.session.producer_epoch == 3
    assert producing.told.possibly_lost_batches == 0


def test_an_open_that_the_next_leader_commits_is_not_taken_for_another_producers(
    world: Leaders,
) -> None:
    """Its leader had it and lost its term: that is an outcome that is not known, no refusal."""
    producing = Producing(world, AckLevel.LEADER)
    producing.append(2)
    producing.run_for(0.1)
    opens = world.on[OpenSessionRequest]

    def of_an_ended_term(node: int, request: OpenSessionRequest) -> Any:
        opens(node, request)
        world.on[OpenSessionRequest] = opens
        return ErrorReply(ErrorCode.OUTCOME_UNKNOWN, 0, 0, 0, b"")

    world.on[OpenSessionRequest] = of_an_ended_term
    world.stop(1)
    world.lead(2)
    producing.append(1)
    producing.run_for(6)
    assert producing.stored == [0, 1, 2]
    assert producing.machine.session.producer_epoch == 3


def test_an_open_that_is_read_late_is_not_taken_for_another_producers(world: Leaders) -> None:
    """A leader that stood still reads it after the one that was sent next, in whose epoch the
    producer is by then. The epoch rises once more."""
    producing = Producing(world, AckLevel.LEADER)
    producing.append(2)
    producing.run_for(0.1)
    opens = world.on[OpenSessionRequest]

    def stand_still(_node: int, _request: OpenSessionRequest) -> None:
        world.on[OpenSessionRequest] = opens

    world.on[OpenSessionRequest] = stand_still
    world.stop(1)
    world.lead(2)
    producing.append(1)
    producing.run_for(6)
    assert producing.machine.session.producer_epoch == 2
    world.epoch += 1  # now it is read
    producing.append(1)
    producing.run_for(6)
    assert producing.machine.session.producer_epoch == 4
    producing.append(1)
    producing.run_for(1)
    assert producing.stored == [0, 1, 2, 4]
    assert producing.told.possibly_lost_batches == 1


def test_a_first_open_that_is_read_late_is_not_taken_for_another_producers(world: Leaders) -> None:
    """Two were sent, and the second one was granted; then the first one comes."""
    producing = Producing(world, AckLevel.LEADER, opens_in_doubt=1)
    producing.append(1)
    producing.run_for(0.1)
    world.epoch += 1
    producing.append(1)
    producing.run_for(6)
    assert producing.machine.session.producer_epoch == 3
    producing.append(1)
    producing.run_for(1)
    assert producing.stored == [0, 2]
    world.epoch += 1
    producing.append(1)
    with pytest.raises(Fenced):
        producing.run_for(5)


def test_an_epoch_that_no_open_of_its_own_explains_ends_it(world: Leaders) -> None:
    """Each OPEN in doubt explains one epoch, once."""
    producing = Producing(world, AckLevel.LEADER)
    producing.append(1)
    producing.run_for(0.1)
    world.loses_opens = 1
    world.stop(1)
    world.lead(2)
    producing.append(1)
    producing.run_for(6)
    assert producing.machine.session.producer_epoch == 3
    world.epoch += 1
    producing.append(1)
    with pytest.raises(Fenced):
        producing.run_for(5)


def test_opens_in_doubt_are_bounded(world: Leaders) -> None:
    producing = Producing(world, AckLevel.LEADER)
    producing.append(1)
    producing.run_for(0.1)
    opens = world.on[OpenSessionRequest]
    world.on[OpenSessionRequest] = lambda *_: None
    world.stop(1)
    world.lead(2)
    producing.run_for(3 * IN_DOUBT_MAX)
    asked = [each for _, each in world.requests if isinstance(each, OpenSessionRequest)]
    assert len(asked) > IN_DOUBT_MAX
    world.on[OpenSessionRequest] = opens
    producing.run_for(3)
    world.epoch += IN_DOUBT_MAX + 1
    producing.append(1)
    with pytest.raises(Fenced):
        producing.run_for(5)


@pytest.mark.parametrize("level", [AckLevel.LEADER, AckLevel.NONE])
def test_a_session_that_was_ended_ends_its_producer(world: Leaders, level: AckLevel) -> None:
    """By an operator, or it was idle for too long. A newer producer may have its name by now."""
    producing = Producing(world, level)
    producing.append(2)
    producing.run_for(0.1)
    gone = ErrorReply(ErrorCode.UNKNOWN_PRODUCER, 0, 0, 0, b"")
    world.on[SessionStateRequest] = world.on[OpenSessionRequest] = lambda *_: gone
    world.on_push = lambda _, round_, batch: world.row(
        round_, read_batch_header(batch), ErrorCode.UNKNOWN_PRODUCER
    )
    producing.append(1)
    with pytest.raises(UnknownProducer):
        producing.run_for(5)
    assert [type(each) for _, each in world.requests if isinstance(each, WatermarksRequest)] != []
    opened = [each for _, each in world.requests if isinstance(each, OpenSessionRequest)]
    assert [each.name for each in opened if not each.producer_id] == []


def test_a_deposed_leader_that_knows_no_session_ends_nothing(world: Leaders) -> None:
    producing = Producing(world, AckLevel.LEADER)
    producing.append(1)
    producing.run_for(0.1)
    states = world.on[SessionStateRequest]

    def once_unknown(_node: int, _request: SessionStateRequest) -> Any:
        world.on[SessionStateRequest] = states
        return ErrorReply(ErrorCode.UNKNOWN_PRODUCER, 0, 0, 0, b"")

    world.on[SessionStateRequest] = once_unknown
    world.stop(1)
    world.lead(2)
    producing.append(1)
    producing.run_for(5)
    assert producing.stored == [0, 1]


def test_another_opener_ends_it(world: Leaders) -> None:
    producing = Producing(world, AckLevel.LEADER)
    producing.append(2)
    producing.run_for(0.1)
    world.epoch += 1
    lost = producing.append(1)
    with pytest.raises(Fenced):
        producing.run_for(5)
    producing.machine.settle_rest(Fenced("it is"))
    assert isinstance(lost[0].outcome, OutcomeUnknown)
    assert producing.told.possibly_lost_batches == 1
    assert producing.source.size_bytes == 0


def test_one_that_is_stopped_says_that_it_was_fenced(world: Leaders) -> None:
    """What it sent last was refused, and no later append is there to be told so."""
    producing = Producing(world, AckLevel.NONE)
    world.reads = False
    producing.append(1)
    producing.run_for(0.1)
    world.epoch += 1
    producing.machine.stop()
    with pytest.raises(Fenced):
        producing.run_for(10)
    assert [each for _, each in world.requests if isinstance(each, WatermarksRequest)] != []


def test_two_openers_at_once_both_end(world: Leaders) -> None:
    """Its own OPEN came after another one: that producer is fenced, and it must not go on."""
    producing = Producing(world, AckLevel.LEADER)
    producing.append(1)
    producing.run_for(0.1)
    opens = world.on[OpenSessionRequest]

    def after_another(node: int, request: OpenSessionRequest) -> Any:
        world.epoch += node == world.leader
        return opens(node, request)

    world.on[OpenSessionRequest] = after_another
    world.stop(1)
    world.lead(2)
    with pytest.raises(Fenced, match="at the same time"):
        producing.run_for(5)
