"""A station's ends of the rings: order, full rings, bells, also of groups."""

from __future__ import annotations

import pytest

from actors import station as station_module
from actors import topology
from actors.messages import InitSaved, StatusReported
from logstore.errors import InvariantViolated
from tests.unit.actor_stage import ActorStage


@pytest.fixture
def stage(tmp_path):
    return ActorStage(tmp_path, command_ring_bytes=256)


@pytest.fixture
def outbox(stage):
    return stage.station(topology.WRITER).outbox(topology.RAFT)


def numbers(stage):
    return [message.seq for message in stage.heard(topology.WRITER, topology.RAFT)]


def test_what_finds_no_room_waits_and_keeps_its_order(stage, outbox):
    for number in range(100):
        outbox.send(InitSaved(number))
    assert outbox.is_congested
    heard = numbers(stage)
    assert 0 < len(heard) < 100
    while outbox.is_congested:
        outbox.flush()
        heard += numbers(stage)
    assert heard == list(range(100))


def test_what_may_be_left_out_never_overtakes_what_waits(stage, outbox):
    while not outbox.is_congested:
        outbox.send(InitSaved(1))
    numbers(stage)
    assert not outbox.try_send_encoded(b"late")
    outbox.flush()
    assert outbox.try_send_encoded(b"late")


def test_m7_a_flush_rings_once_for_news_and_again_only_while_something_waits(stage, outbox):
    bell = stage.bells[topology.RAFT]
    outbox.send(InitSaved(1))
    assert not bell.is_ringing
    outbox.flush()
    assert bell.is_ringing
    bell.clear()
    outbox.flush()
    assert not bell.is_ringing


def test_m8_a_reader_that_never_reads_is_an_invariant_violated(stage, outbox, monkeypatch):
    monkeypatch.setattr(station_module, "SPILL_MAX", 10)
    while len(outbox._spill) < 10:
        outbox.send(InitSaved(1))
    with pytest.raises(InvariantViolated, match="behind"):
        outbox.send(InitSaved(1))


def long_status(size):
    return StatusReported(7, bytes(number % 251 for number in range(size)))


def receive_all(stage, outbox):
    """What raft's reader gets while the writer flushes again and again."""
    heard = []
    while True:
        heard += stage.heard(topology.WRITER, topology.RAFT)
        if not outbox.is_congested:
            return heard + stage.heard(topology.WRITER, topology.RAFT)
        outbox.flush()


@pytest.mark.parametrize("size", [90, 104, 120, 121, 5_000])
def test_m8_a_message_above_the_rings_bound_crosses_in_pieces_between_its_neighbours(
    stage, outbox, size
):
    """A ring of 256 bytes takes messages of 120; nobody waits for room in it."""
    messages = [InitSaved(1), long_status(size), long_status(size), InitSaved(2)]
    for message in messages:
        outbox.send(message)
    assert receive_all(stage, outbox) == messages


def test_what_a_sender_left_unfinished_is_dropped_with_its_rest(stage, outbox):
    """SAFETY M3: a replicator or egress is started again and writes into the same ring."""
    outbox.send(long_status(500))
    assert stage.heard(topology.WRITER, topology.RAFT) == []
    outbox.drop_unsent()
    messages = [InitSaved(3), long_status(500)]
    for message in messages:
        outbox.send(message)
    assert receive_all(stage, outbox) == messages


def test_a_reader_that_begins_amid_a_message_takes_the_next_one(stage, outbox):
    outbox.send(long_status(500))
    stage.station(topology.RAFT).inbox(topology.WRITER).receive()
    outbox.send(InitSaved(3))
    assert receive_all(stage, outbox) == [InitSaved(3)]


def test_what_a_dead_reader_left_can_be_forgotten(stage, outbox):
    while not outbox.is_congested:
        outbox.send(InitSaved(1))
    outbox.drop_unsent()
    assert not outbox.is_congested
    assert set(numbers(stage)) == {1}


def test_an_actor_of_a_group_has_a_bell_of_its_own_and_the_loop_counter_of_its_process(tmp_path):
    stage = ActorStage(tmp_path, groups={"core": ["ingress", "raft"]})
    raft = stage.station(topology.RAFT)
    assert raft.loops_slot(topology.INGRESS) == raft.slot("core.loops")
    assert raft.loops_slot(topology.EGRESS) == raft.slot("egress.loops")
    assert (raft.process, raft.actor) == ("core", "raft")
    with pytest.raises(KeyError):
        raft.slot("raft.loops")
    stage.send(topology.WRITER, topology.RAFT, InitSaved(1))
    assert stage.bells["raft"].is_ringing
    assert not stage.bells["ingress"].is_ringing
