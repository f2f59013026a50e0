"""The tail feed: what becomes visible is published once, in order; tips; nothing spins (V8)."""

from __future__ import annotations

import pytest
import zmq

from actors import topology
from actors.egress.tail import PUBLISH_MAX, SUBSCRIPTIONS_MAX, TIP_EVERY_NS
from actors.messages import ReadersWaiting
from actors.station import RING_RETRY_NS
from actors.topology import Counter
from logstore.format.client_messages import PIECE, TailGroup, TailNotice, Tip, Welcome
from logstore.format.message import decode_message
from tests.unit.actor_stage import receive_all
from tests.unit.egress_stage import EgressStage, messages_of

MS = 1_000_000


@pytest.fixture
def egress(tmp_path, monkeypatch):
    stage = EgressStage(tmp_path, monkeypatch)
    yield stage
    stage.close()


def groups_of(socket):
    """First LSNs of the groups that came, and the other messages."""
    lsns, others = [], []
    for frames in receive_all(socket):
        message = decode_message(frames[0])[1]
        if isinstance(message, TailGroup):
            lsns.append(PIECE.unpack_from(frames[1])[0])
        else:
            others.append(message)
    return lsns, others


def test_a_group_is_published_when_it_becomes_visible_and_a_tip_follows(egress):
    egress.append(0, 100)
    egress.show()
    socket = egress.subscribe()
    assert messages_of(socket) == [Welcome(1), Tip(1)]
    egress.append(200)
    egress.work()
    assert messages_of(socket) == []
    egress.show()
    assert groups_of(socket) == ([2], [])
    assert egress.egress.next_timer_ns() <= egress.stage.now_ns + 50 * MS
    egress.stage.now_ns = egress.egress.next_timer_ns()
    egress.work()
    assert messages_of(socket) == [Tip(2)]
    assert egress.egress.next_timer_ns() == egress.stage.now_ns + TIP_EVERY_NS


def test_under_load_tips_go_on_though_every_look_finds_something_new(egress):
    egress.append(*[8] * 30)
    egress.show(1)
    socket = egress.subscribe()
    messages_of(socket)
    for index in range(2, 31):
        egress.stage.now_ns += 5 * MS
        egress.show(index)
    lsns, tips = groups_of(socket)
    assert lsns == list(range(2, 31))
    assert len(tips) >= 145 // 50


def test_a_subscriber_of_a_replica_that_is_not_ready_costs_no_busy_loop(egress):
    socket = egress.subscribe()
    assert messages_of(socket) == [Welcome(0)]
    assert not egress.stage.is_busy_loop(egress.egress)
    egress.append(8)
    egress.show()
    assert messages_of(socket) == [Tip(1)]


def test_an_index_loaded_ahead_of_its_lsn_loses_no_group(egress):
    """raft stores VISIBLE_INDEX first, egress may load between the two stores (V7)."""
    egress.append(8, 8, 8)
    egress.show(1)
    socket = egress.subscribe()
    messages_of(socket)
    egress.slots[Counter.VISIBLE_INDEX] = 3
    egress.work()
    assert groups_of(socket) == ([], [])
    egress.show(3)
    assert groups_of(socket)[0] == [2, 3]


def test_a_backlog_is_published_in_bounded_steps(egress):
    egress.append(*[8] * (PUBLISH_MAX + 5))
    egress.show(1)
    socket = egress.subscribe()
    messages_of(socket)
    egress.reveal()
    assert egress.egress.do_work(egress.stage.now_ns) >= PUBLISH_MAX
    assert len(groups_of(socket)[0]) == PUBLISH_MAX
    egress.work()
    assert len(groups_of(socket)[0]) == 4


def test_a_backlog_that_goes_on_behind_a_tip_is_followed_by_another(egress):
    egress.append(*[8] * 3 * PUBLISH_MAX)
    egress.show(1)
    socket = egress.subscribe()
    messages_of(socket)
    egress.reveal()
    egress.egress.do_work(egress.stage.now_ns)
    late = egress.stage.network.connect(zmq.SUB, egress.tail_at, topics=[b""])
    egress.egress.do_work(egress.stage.now_ns)
    lsns, others = groups_of(late)
    assert (len(lsns), others[-1]) == (PUBLISH_MAX, Tip(3 * PUBLISH_MAX))
    egress.work()
    assert len(groups_of(late)[0]) > 0
    assert egress.egress.next_timer_ns() <= egress.stage.now_ns + 50 * MS


def test_a_flood_of_subscriptions_is_taken_in_bounded_steps_with_one_welcome_each(egress):
    egress.append(8)
    egress.show()
    sockets = [
        egress.stage.network.connect(zmq.SUB, egress.tail_at, topics=[b""]) for _ in range(3)
    ]
    for socket in sockets:
        socket.topics += [b"L%d" % number for number in range(SUBSCRIPTIONS_MAX)]
        egress.stage.network.cut(egress.tail_at)
    egress.stage.network.heal(egress.tail_at)
    assert egress.egress.do_work(egress.stage.now_ns) > 0
    assert messages_of(sockets[0]) == [Welcome(1), Tip(1)]
    egress.work()
    assert len(messages_of(sockets[0])) < 3 * SUBSCRIPTIONS_MAX / 8


def test_a_group_larger_than_the_tail_takes_is_a_notice(egress, monkeypatch):
    monkeypatch.setattr("actors.egress.tail.TAIL_GROUP_MAX_BYTES", 1_000)
    egress.append(8)
    egress.show()
    socket = egress.subscribe()
    messages_of(socket)
    egress.append(2_000, 8)
    egress.show()
    assert groups_of(socket) == ([3], [TailNotice(2, 2)])


def test_a_damaged_group_is_left_out_and_the_next_one_comes(egress):
    egress.append(8)
    egress.show()
    socket = egress.subscribe()
    messages_of(socket)
    egress.append(512, 8)
    [data] = sorted(egress.stage.folder.glob("data/*1.data"))
    raw = bytearray(data.read_bytes())
    raw[4_096 + 512 + 200] ^= 1
    data.write_bytes(raw)
    egress.show()
    assert groups_of(socket)[0] == [3]


def test_m8_what_found_no_room_in_the_ring_to_raft_is_offered_again_soon(egress):
    """Nothing rings when raft has made room."""
    outbox = egress.egress._to_raft
    while not outbox.is_congested:
        outbox.send(ReadersWaiting(True))
    egress.work()
    assert egress.egress.next_timer_ns() <= egress.stage.now_ns + RING_RETRY_NS
    while egress.stage.heard(topology.EGRESS, topology.RAFT):
        pass
    egress.work()
    assert egress.stage.heard(topology.EGRESS, topology.RAFT) == [ReadersWaiting(True)]
    assert egress.egress.next_timer_ns() > egress.stage.now_ns + RING_RETRY_NS
