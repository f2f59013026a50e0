"""A replica on an empty disk joins a simulated cluster (SAFETY L4)."""

from __future__ import annotations

from typing import Any

import pytest

from actors import topology
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
