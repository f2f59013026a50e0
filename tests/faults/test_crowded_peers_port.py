"""Strangers on a leader's port for peers do not cost it its office (SAFETY C1, W6)."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from actors import topology
from logstore.cli.embedded import poll_until
from logstore.limits import PEER_CONNECTIONS_MAX
from logstore.settings import PortOffset, ProcessSettings
from tests.faults.quick_cluster import ELECTION_TIMEOUT_S, quick_cluster, quick_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
PATIENCE_S = 60.0
ROUNDS = 5


@pytest.mark.long
def test_c1_strangers_on_the_port_for_peers_depose_no_leader(tmp_path: Path) -> None:
    """A follower sends its leader no message over a connection that it has just made again. Such
    connections were as silent as those of strangers, and older, so they were ended first, and all
    followers counted the leader as gone."""
    config = quick_config(process=ProcessSettings(mode="processes"))
    with quick_cluster(tmp_path, config) as cluster:
        leader = cluster.wait_for_leader()
        name = topology.replicator(leader)
        for follower in cluster.followers():
            before = cluster.pid_of(follower, name)
            cluster.kill_process(follower, name)
            assert poll_until(
                lambda f=follower, b=before: cluster.pid_of(f, name) not in (0, b), PATIENCE_S
            )
        # they connect; and in its first election timeout no leader is given up (C1)
        poll_until(lambda: False, 3 * ELECTION_TIMEOUT_S)
        counters = cluster.counters(leader)
        term, refused = counters["term"], counters["ingress_connections_refused"]
        address = config.node(leader).host, config.node(leader).port + PortOffset.PEER_CONTROL
        for _ in range(ROUNDS):
            with ExitStack() as strangers:
                for _ in range(2 * PEER_CONNECTIONS_MAX):
                    strangers.enter_context(socket.create_connection(address, PATIENCE_S))
                poll_until(lambda: cluster.counters(leader)["term"] != term, ELECTION_TIMEOUT_S)
        assert cluster.counters(leader)["ingress_connections_refused"] > refused
        assert cluster.counters(leader)["term"] == term
        assert cluster.leader() == leader
