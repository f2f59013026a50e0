"""What a replica's own status and metrics say of lost entries and of clocks."""

from __future__ import annotations

import pytest

from actors import topology
from actors.topology import Counter
from logstore.format.peer_messages import Heartbeat, HeartbeatReply
from tests.unit.raft_stage import START_CHAIN, RaftStage


@pytest.fixture
def raft(tmp_path):
    return RaftStage(tmp_path)


def test_a_replica_that_lost_what_it_had_flushed_shows_it_itself(raft):
    """FAULTS D14, O4: a folder put back from an older copy."""
    raft.recover()
    assert raft.status()["lost_flushed"] is None
    raft.hear(2, Heartbeat(3, 9, 1, 9, 3, 1, START_CHAIN))
    raft.time_out()
    assert raft.status()["lost_flushed"] == {"first_index": 1, "last_index": 9, "term": 3}
    assert raft.slots[Counter.FLUSHED_LOST] == 9


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
