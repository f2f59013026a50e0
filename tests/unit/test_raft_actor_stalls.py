"""The raft actor watches its ingress (SAFETY V6)."""

from __future__ import annotations

import pytest

from actors import topology
from actors.messages import Identity, ProcessGone, RecoveryDelayed
from actors.station import RING_RETRY_NS
from actors.topology import Counter
from logstore.raft.effects import StopLeading
from tests.unit.raft_stage import RaftStage

REPLICATOR = "replicator-2"
MESSAGE = RecoveryDelayed("no room")


@pytest.fixture
def raft(tmp_path):
    return RaftStage(tmp_path)


def test_v6_a_leader_whose_ingress_stands_still_steps_down(raft):
    raft.recover()
    raft.lead_and_commit()
    patience = 2 * raft.stage.config.raft.election_timeout_ns
    for _ in range(2 * patience // 20_000_000):
        raft.pass_time(20_000_000, is_ingress_alive=False)
        for peer in (2, 3):
            raft.match(peer, 1)
    assert raft.slots[Counter.IS_LEADER] == 0


def test_m7_whoever_hears_that_the_term_ends_is_woken_in_the_same_work(raft):
    """The look at ingress comes behind the bells of a do_work."""
    raft.recover()
    raft.lead_and_commit()
    for _ in range(1_000):
        raft.match(2, 1)
        for bell in raft.stage.bells.values():
            bell.clear()
        raft.pass_time(20_000_000, is_ingress_alive=False)
        if raft.slots[Counter.IS_LEADER] == 0:
            break
    assert any(isinstance(each, StopLeading) for each in raft.heard(REPLICATOR))
    assert raft.stage.bells[REPLICATOR].is_ringing
    assert raft.stage.bells[topology.INGRESS].is_ringing


@pytest.mark.parametrize("target", [topology.WRITER, topology.INGRESS, topology.EGRESS])
def test_m8_what_found_no_room_in_a_ring_of_raft_is_offered_again_soon(tmp_path, target):
    """Nothing rings when the receiver has made room."""
    raft = RaftStage(tmp_path)
    routes = raft.raft._routes
    outbox = {
        topology.WRITER: routes._writer,
        topology.INGRESS: routes.ingress._outbox,
        topology.EGRESS: routes._egress,
    }[target]
    while not outbox.is_congested:
        outbox.send(MESSAGE)
    raft.stage.work(raft.raft)
    assert raft.raft.next_timer_ns() <= raft.stage.now_ns + RING_RETRY_NS
    while raft.stage.heard(topology.RAFT, target):
        pass
    raft.stage.work(raft.raft)
    assert raft.stage.heard(topology.RAFT, target) == [MESSAGE]
    assert raft.raft.next_timer_ns() > raft.stage.now_ns + RING_RETRY_NS


def test_m3_an_egress_that_dies_again_and_again_costs_raft_nothing(tmp_path):
    """What it never reads does not pile up, and is not offered a thousand times a second."""
    raft = RaftStage(tmp_path)
    raft.recover()
    outbox = raft.raft._routes._egress
    while not outbox.is_congested:
        outbox.send(MESSAGE)
    for _ in range(100):
        raft.say(topology.SUPERVISOR, ProcessGone(topology.EGRESS))
    assert len(outbox._spill) == 1
    assert raft.raft.next_timer_ns() > raft.stage.now_ns + RING_RETRY_NS
    while received := raft.stage.heard(topology.RAFT, topology.EGRESS):
        assert received[-1] == MESSAGE
    raft.stage.work(raft.raft)
    [identity] = raft.stage.heard(topology.RAFT, topology.EGRESS)
    assert isinstance(identity, Identity)
