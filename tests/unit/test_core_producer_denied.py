"""The core's producer and replicas that say that its session is over: only a confirmed leader is
believed."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.errors import ErrorCode, Fenced, Gap, LogStoreError, UnknownProducer
from logstore.format.client_messages import (
    ACK_ROW,
    Acks,
    ErrorReply,
    SessionStateReply,
    SessionStateRequest,
    WatermarksRequest,
)
from logstore.settings import PortOffset
from tests.property.test_core_producer_model import Producing
from tests.unit.core_stage import PRODUCER, World

UNKNOWN = ErrorReply(ErrorCode.UNKNOWN_PRODUCER, 0, 0, 0, b"unknown")
FENCED = ErrorReply(ErrorCode.FENCED, 0, 2, 0, b"producer epoch 2 of this producer exists")
OF_THE_SESSION = pytest.mark.parametrize(
    ("denial", "error"), [(UNKNOWN, UnknownProducer), (FENCED, Fenced)]
)
NOT_READY = ErrorReply(ErrorCode.NOT_READY, 0, 0, 0, b"no majority answers")


def stale_leader(state: Any) -> World:
    """Node 1 says that it leads, and `state` of every session; no majority follows it."""
    world = World()
    told, marks = world.on[SessionStateRequest], world.on[WatermarksRequest]
    world.on[SessionStateRequest] = lambda node, asked: state if node == 1 else told(node, asked)
    world.on[WatermarksRequest] = lambda node, asked: NOT_READY if node == 1 else marks(node, asked)
    return world


@OF_THE_SESSION
def test_a_deposed_leader_that_calls_the_session_over_ends_no_producer(
    denial: ErrorReply, error: type[LogStoreError]
) -> None:
    del error
    world = stale_leader(denial)
    producing = Producing(world)
    pack = producing.append()
    producing.run_for(3.0)
    assert not producing.task.is_done
    world.lead(2)
    producing.run_for(3.0)
    assert pack.outcome == (1, 1)


@OF_THE_SESSION
def test_a_confirmed_leader_that_calls_the_session_over_ends_the_producer(
    denial: ErrorReply, error: type[LogStoreError]
) -> None:
    world = World()
    world.on[SessionStateRequest] = lambda *_: denial
    producing = Producing(world)
    with pytest.raises(error):
        producing.run_for(3.0)
    kinds = world.kinds_asked(1)
    assert (kinds.count(SessionStateRequest), kinds.count(WatermarksRequest)) == (2, 1)


def test_a_batch_that_is_fenced_ends_the_producer_in_the_next_round() -> None:
    world = World()
    producing = Producing(world)
    producing.run_for(0.5)
    world.on[SessionStateRequest] = lambda *_: FENCED

    def refuse(_: int, round_number: int, __: bytes) -> None:
        row = ACK_ROW.pack(0, 0, 1, ErrorCode.FENCED, 2)
        world.publish(PortOffset.ACKS, Acks(PRODUCER, 1, round_number, row))

    world.on_push = refuse
    producing.append()
    with pytest.raises(Fenced):
        producing.run_for(0.1)
    kinds = world.kinds_asked(1)
    assert (kinds.count(SessionStateRequest), kinds.count(WatermarksRequest)) == (2, 1)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_PRODUCER, ErrorCode.FENCED])
def test_a_batch_that_a_deposed_leader_refuses_goes_to_the_next_one(code: ErrorCode) -> None:
    world = World()
    refused: list[int] = []

    def refuse(_: int, round_number: int, __: bytes) -> None:
        refused.append(round_number)
        row = ACK_ROW.pack(0, 0, 1, code, 0)
        world.publish(PortOffset.ACKS, Acks(PRODUCER, 1, round_number, row))

    world.on_push = refuse
    producing = Producing(world)
    producing.run_for(0.5)
    pack = producing.append()
    producing.run_for(0.5)
    assert refused
    assert not producing.task.is_done
    world.on_push = world.append
    producing.run_for(3.0)
    assert pack.outcome == (1, 1)


def test_a_deposed_leader_that_lacks_what_was_acknowledged_ends_no_producer() -> None:
    world = World()
    producing = Producing(world)
    first = producing.append()
    producing.run_for(0.5)
    assert first.outcome == (1, 1)
    empty = SessionStateReply(PRODUCER, 1, 0, b"")
    world.on[SessionStateRequest] = lambda *_: empty
    world.on[WatermarksRequest] = lambda *_: NOT_READY
    world.lead(2)
    world.stop(1)
    world.start(1)
    second = producing.append()
    producing.run_for(3.0)
    assert not producing.task.is_done
    world.on[SessionStateRequest] = world.session_state
    world.on[WatermarksRequest] = world.watermarks
    producing.run_for(3.0)
    assert second.outcome == (2, 1)


def test_a_confirmed_leader_that_lacks_what_was_acknowledged_ends_the_producer() -> None:
    world = World()
    producing = Producing(world)
    producing.append()
    producing.run_for(0.5)
    world.on[SessionStateRequest] = lambda *_: SessionStateReply(PRODUCER, 1, 0, b"")
    world.stop(1)
    producing.run_for(0.1)
    world.start(1)
    with pytest.raises(Gap):
        producing.run_for(3.0)
