"""Messages without room in a command ring: orders go first, the newest descriptor is offered
again."""

from __future__ import annotations

from random import Random

import pytest

from actors import messages
from actors.simulation.world.refused_messages import RefusedMessages
from actors.simulation.world.rings import CommandRingSender, SimulatedCommandRing, StoreBuffer
from actors.station import Outbox
from logstore.format.entry import EntryHeader
from logstore.format.peer_messages import Heartbeat
from logstore.model import EntryKind, Index, Lsn, NodeId, Term
from logstore.raft.effects import Describe, Send, StopLeading
from tests.simulation.process_stage import Clocked

RING_BYTES = 256


def describe(index: int) -> bytes:
    header = EntryHeader(EntryKind.NOOP, 0, Term(1), Index(index), Term(1), Lsn(1), 0, 0, 0, 0, 0)
    return messages.encode(Describe(Term(1), header, 0, 0, index, Index(0)))


def order(term: int) -> bytes:
    return messages.encode(StopLeading(Term(term)))


def beat() -> bytes:
    message = Heartbeat(Term(1), Index(0), 1, Index(0), Term(0), Lsn(1), 1)
    return messages.encode(Send(NodeId(2), message))


class Stage:
    """A sender, its full ring, and the reported violations."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.ring = SimulatedCommandRing(RING_BYTES)
        full = RefusedMessages("1.raft>replicator-2", self.complaints.append)
        self.sender = CommandRingSender(self.ring, StoreBuffer(Clocked(), Random(1), 0), full)

    def drain(self) -> None:
        self.ring.messages.clear()
        self.ring.free_bytes = RING_BYTES


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    while stage.sender.offer(order(1)):
        pass
    stage.sender.drop_refused()
    return stage


def test_no_message_passes_an_order_that_waits(stage: Stage) -> None:
    assert not stage.sender.offer(order(2))
    stage.drain()
    assert stage.sender.offer(order(3))
    assert "StopLeading(term=3, peer=0) passes StopLeading(term=2, peer=0)" in stage.complaints[0]


def test_what_waits_goes_first_and_others_after_it(stage: Stage) -> None:
    assert not stage.sender.offer(order(2))
    assert not stage.sender.offer(order(2))
    stage.drain()
    assert [stage.sender.offer(order(term)) for term in (2, 3)] == [True, True]
    assert stage.complaints == []


def test_what_timers_send_again_may_be_lost(stage: Stage) -> None:
    assert not stage.sender.offer(beat())
    stage.drain()
    assert stage.sender.offer(order(2))
    for _ in range(4):
        stage.sender.on_work_done()
    assert stage.complaints == []


def test_a_descriptor_without_room_has_to_be_offered_again(stage: Stage) -> None:
    assert not stage.sender.offer(describe(4))
    for _ in range(3):
        stage.sender.on_work_done()
    assert stage.complaints == []  # there is no room
    stage.drain()
    stage.sender.on_work_done()
    assert stage.complaints == []  # its sender may have had orders to offer first
    stage.sender.on_work_done()
    assert "is not offered again" in stage.complaints[0]


@pytest.mark.parametrize("index", [4, 5])
def test_a_newer_descriptor_is_as_good(stage: Stage, index: int) -> None:
    assert not stage.sender.offer(describe(4))
    stage.drain()
    assert stage.sender.offer(describe(index))
    for _ in range(3):
        stage.sender.on_work_done()
    assert stage.complaints == []


def test_nothing_of_the_stream_is_owed_to_another_peer(stage: Stage) -> None:
    assert not stage.sender.offer(describe(7))
    stage.drain()
    assert stage.sender.offer(messages.encode(messages.PeerIs(NodeId(0), b"", "", 0, 1)))
    for _ in range(3):
        stage.sender.on_work_done()
    assert stage.complaints == []


def test_an_order_that_waits_keeps_a_descriptor_waiting(stage: Stage) -> None:
    assert not stage.sender.offer(describe(4))
    assert not stage.sender.offer(order(2))
    stage.drain()
    for _ in range(3):
        stage.sender.on_work_done()
    assert stage.complaints == []


def test_nothing_waits_for_an_ended_process(stage: Stage) -> None:
    assert not stage.sender.offer(order(2))
    assert not stage.sender.offer(describe(4))
    stage.sender.drop_refused()
    stage.drain()
    assert stage.sender.offer(order(3))
    for _ in range(3):
        stage.sender.on_work_done()
    assert stage.complaints == []


def test_an_outbox_keeps_the_rules(stage: Stage) -> None:
    class Bell:
        def ring(self) -> None: ...

    outbox = Outbox(stage.sender, Bell())  # type: ignore[arg-type]
    for term in (2, 3, 4):
        outbox.send_encoded(order(term))
    stage.drain()
    outbox.send_encoded(order(5))
    outbox.flush()
    kept = [messages.decode(message) for _, _, message in stage.ring.messages]
    assert [each.term for each in kept] == [2, 3, 4, 5]
    assert stage.complaints == []
