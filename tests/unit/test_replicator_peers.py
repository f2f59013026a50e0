"""Whom a replicator talks to, as raft says (SAFETY M6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from actors.messages import PeerIs, PeerTaken
from actors.replicator import ReplicatorActor
from actors.topology import Counter
from logstore.format.peer_messages import AppendPersisted, Heartbeat, HeartbeatReply
from logstore.model import NO_NODE
from logstore.raft.effects import Lead, Send
from logstore.raft.events import ConnectionLost, ControlReceived
from logstore.settings import PortOffset
from tests.unit.actor_stage import PEER_UUID
from tests.unit.replicator_stage import PEER, STREAM, ReplicatorStage
from transport import link
from transport.errors import LinkError

BEAT = Heartbeat(1, 0, 1, 0, 0, 1, 0)
REPLY = HeartbeatReply(1, 1, 0, 0, 0)
OTHER_UUID = b"o" * 16
HOST, PORT = "127.0.0.1", 7100
OTHER_PORT = 7700


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReplicatorStage]:
    made = ReplicatorStage(tmp_path, monkeypatch)
    made.identify()
    yield made
    made.close()


def bind(stage: ReplicatorStage, uuid: bytes, *, node: int = PEER, port: int = PORT) -> None:
    stage.tell(PeerIs(node, uuid, HOST, port, 7))
    taken = [each for each in stage.heard() if not isinstance(each, ConnectionLost)]
    assert taken == [PeerTaken(7)]


def sockets(stage: ReplicatorStage) -> object:
    return stage.replicator._sockets


def test_the_replica_that_was_heard_may_be_named_and_keeps_its_connections(
    stage: ReplicatorStage,
) -> None:
    stage.tell(Send(PEER, BEAT))
    stage.answer(REPLY, is_bulk=False)
    assert stage.heard() == [ControlReceived(PEER, 1, REPLY)]
    before = sockets(stage)
    bind(stage, PEER_UUID)
    bind(stage, PEER_UUID)
    assert sockets(stage) is before
    stage.answer(REPLY, is_bulk=False)
    assert stage.heard() == [ControlReceived(PEER, 1, REPLY)]


def test_answers_of_another_uuid_than_the_named_one_are_dropped(stage: ReplicatorStage) -> None:
    bind(stage, OTHER_UUID)
    stage.tell(Send(PEER, BEAT))
    stage.answer(REPLY, is_bulk=False)
    assert stage.heard() == []
    assert stage.slots[Counter.FRAMES_FOREIGN] == 1
    stage.answer(REPLY, is_bulk=False, uuid=OTHER_UUID)
    assert stage.heard() == [ControlReceived(PEER, 1, REPLY)]


@pytest.mark.parametrize(
    ("uuid", "port"), [(OTHER_UUID, PORT), (PEER_UUID, OTHER_PORT), (b"", OTHER_PORT)]
)
def test_another_uuid_or_address_begins_anew_and_the_stream_with_it(
    stage: ReplicatorStage, uuid: bytes, port: int
) -> None:
    stage.tell(Send(PEER, BEAT))
    stage.answer(REPLY, is_bulk=False)
    stage.append(80)
    stage.write()
    stage.lead()
    assert stage.indexes() == [1]
    stage.heard()
    bind(stage, uuid, port=port)
    stage.append(80)
    stage.write()
    at = {offset: f"tcp://{HOST}:{port + offset}" for offset in stage.ports}
    if port != PORT:
        stage.ports = {each: stage.stage.network.bind(zmq.ROUTER, at[each]) for each in at}
    stage.work()
    assert stage.appends() == []  # no order to lead since then
    stage.lead(stream=STREAM)  # of the same term: what the stream was before is forgotten
    assert [index for _, index, _ in stage.appends()] == [1, 2]


def test_what_one_replica_flushed_is_not_skipped_for_the_next(stage: ReplicatorStage) -> None:
    stage.append(80)
    stage.append(80)
    stage.write()
    stage.lead()
    stage.appends()
    stage.answer(AppendPersisted(1, 2))
    stage.heard()
    bind(stage, OTHER_UUID)
    stage.lead(stream=STREAM + 1)
    assert stage.indexes() == [1, 2]


def test_without_a_peer_it_has_no_connection_and_nothing_to_do(stage: ReplicatorStage) -> None:
    stage.append(80)
    stage.write()
    stage.lead()
    stage.appends()
    bind(stage, b"", node=NO_NODE)
    assert sockets(stage) is None
    assert stage.replicator.wait_on() == ()
    stage.tell(Send(PEER, BEAT))
    assert stage.slots[Counter.SENDS_DROPPED] == 1
    assert stage.replicator.next_timer_ns() == 1 << 62
    bind(stage, b"")
    stage.tell(Send(PEER, BEAT))
    assert stage.controls() == [BEAT]


def test_a_spare_talks_to_nothing_until_it_is_told_and_to_any_number_then(
    stage: ReplicatorStage,
) -> None:
    spare = ReplicatorActor(stage.stage.station("spare-2"))
    spare.on_start()
    stage.stage.work(spare)
    assert spare.wait_on() == ()
    ports = {
        each: stage.stage.network.bind(zmq.ROUTER, f"tcp://{HOST}:{OTHER_PORT + each}")
        for each in (PortOffset.PEER_CONTROL, PortOffset.PEER_BULK)
    }
    stage.append(80)
    stage.write()
    identity = stage.replicator._identity
    assert identity is not None
    last = len(stage.log.rows) - 1
    orders = (
        identity,
        PeerIs(9, OTHER_UUID, HOST, OTHER_PORT, 1),
        Lead(9, 1, STREAM, 1, last, stage.log.seq, 0),
        Send(9, BEAT),
    )
    stage.stage.send("raft", "spare-2", *orders)
    stage.stage.work(spare)
    stage.replicator, own = spare, stage.replicator
    stage.ports = ports
    assert stage.controls() == [BEAT]
    assert stage.indexes() == [1]
    stage.answer(REPLY, is_bulk=False, node=9, uuid=OTHER_UUID)
    assert stage.stage.heard("spare-2", "raft") == [PeerTaken(1), ControlReceived(9, 1, REPLY)]
    spare.on_close()
    stage.replicator = own


def test_an_address_that_is_none_ends_no_process_and_is_tried_again(
    stage: ReplicatorStage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every replica has it from the log, and in a shared process raft with it."""
    connect, watch = link.dealer_connect, link.watch_connection

    def refuse(at: str, **options: object) -> object:
        if at.endswith(f":{OTHER_PORT + PortOffset.PEER_BULK}"):
            raise LinkError(f"cannot connect to {at!r}")
        return connect(at, **options)

    monkeypatch.setattr(link, "dealer_connect", refuse)
    bind(stage, b"", port=OTHER_PORT)
    assert sockets(stage) is None
    stage.stage.now_ns = stage.replicator.next_timer_ns()
    stage.work()
    assert not stage.stage.is_busy_loop(stage.replicator)
    assert len([each for each in caplog.records if "cannot be connected to" in each.message]) == 1
    monkeypatch.setattr(link, "dealer_connect", connect)

    def refuse_watch(socket: object) -> object:
        raise LinkError("cannot watch a connection: Too many open files")

    monkeypatch.setattr(link, "watch_connection", refuse_watch)
    stage.stage.now_ns = stage.replicator.next_timer_ns()
    stage.work()
    assert sockets(stage) is None
    monkeypatch.setattr(link, "watch_connection", watch)
    stage.stage.now_ns = stage.replicator.next_timer_ns()
    stage.work()
    assert sockets(stage) is not None
    bind(stage, b"", node=NO_NODE)
    assert stage.replicator.next_timer_ns() == 1 << 62
