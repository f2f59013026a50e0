"""A replica on an empty disk joins a simulated cluster (SAFETY L4)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from actors import topology
from logstore.config_layout import layout_of
from logstore.format.first_lsn import pack_first_lsn
from logstore.format.level import NEW_LOG_LEVEL
from logstore.format.peer_messages import InitStatus
from logstore.raft.bootstrap import Bootstrap
from tests.simulation.quiet_cluster import SECOND_NS, QuietCluster

TRIMMED = 500


@pytest.mark.parametrize("is_wrong", [True, False])
def test_it_begins_its_log_where_the_leader_does_whatever_it_heard(
    monkeypatch: pytest.MonkeyPatch, is_wrong: bool
) -> None:
    """All that it heard had trimmed theirs, and the leader had not."""

    def send_status(self: Any, peer: int) -> None:
        known = self._durable
        fields = (known.state, known.nonce, known.cluster_id)
        self._send(peer, InitStatus(*fields, pack_first_lsn(TRIMMED)))

    stage = QuietCluster(new_log_level=NEW_LOG_LEVEL)
    stage.run_for(4 * SECOND_NS)
    away = stage.follower
    if is_wrong:
        monkeypatch.setattr(Bootstrap, "_send_status", send_status)
    stage.replica(away).kill()
    stage.cluster.lose(away)
    stage.replica(away).start()
    stage.run_for(20 * SECOND_NS)
    cores = stage.cluster.observer.cores
    joined, leader = cores[away], cores[stage.leaders[0]]
    assert joined.log_start == leader.log_start
    assert joined.persisted == leader.commit
    raft: Any = stage.replica(away)._actors[topology.RAFT]
    assert raft._membership.refusal == ""
    assert stage.problems == []


def test_it_finds_a_leader_that_its_file_does_not_name() -> None:
    """As one that joined after the file was written."""
    stage = QuietCluster(new_log_level=NEW_LOG_LEVEL)
    stage.run_for(4 * SECOND_NS)
    [leader], away = stage.leaders, stage.follower
    replica: Any = stage.replica(away)
    replica.kill()
    nodes = [each for each in replica._config.nodes if each.node != leader]
    replica._config = msgspec.structs.replace(replica._config, nodes=nodes)
    replica.layout = layout_of(replica._config, away)
    stage.cluster.lose(away)
    replica.start()
    stage.run_for(20 * SECOND_NS)
    assert stage.leaders == [leader]
    cores = stage.cluster.observer.cores
    assert cores[away].persisted == cores[leader].commit
    assert stage.cluster.is_made_good(away)
    assert stage.problems == []
