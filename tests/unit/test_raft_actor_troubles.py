"""What a replica's own status and metrics say of clocks."""

from __future__ import annotations

import pytest

from actors import topology
from logstore.format.peer_messages import HeartbeatReply
from tests.unit.raft_stage import RaftStage


@pytest.fixture
def raft(tmp_path):
    return RaftStage(tmp_path)


def test_a_leader_shows_whose_clock_is_off(raft):
    """SAFETY G2."""
    raft.recover()
    term = raft.lead_and_commit()
    ours_ns = raft.stage.station(topology.RAFT).host.clock.wall_ns()
    raft.hear(2, HeartbeatReply(term, 1, 1, 0, 0, ours_ns + 3_600_000_000_000))
    raft.hear(3, HeartbeatReply(term, 1, 1, 0, 0, ours_ns - 10_000_000_000))
    raft.pass_time(10_000_000)
    skews = raft.status()["clock_skew_ms"]
    assert skews["1"] == 0
    assert 3_595_000 < skews["2"] <= 3_600_100
    assert -15_000 < skews["3"] <= -9_000
    station = raft.stage.station(topology.RAFT)
    shown_ms = raft.slots[station.slot(topology.clock_slot(3))] - topology.SKEW_ZERO_MS
    assert -15_000 < shown_ms <= -9_000
    raft.hear_heartbeat(2, term + 1)
    raft.time_out()
    assert raft.status()["clock_skew_ms"] == {}
    assert raft.slots[station.slot(topology.clock_slot(3))] == 0
