"""A learner behind a slow link: it stays one, the members go on at their pace, and an operator
reads how far behind it is (SAFETY section 12)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from benchmarks.namespaces import why_not
from benchmarks.shaped_network import CLIENT, ShapedNetwork
from logstore.errors import NotReady
from logstore.settings import ClusterSettings, NodeSettings, RaftSettings
from tests.faults.growing_cluster import GrowingCluster, Load
from tests.faults.quick_cluster import RECOVERY_TIMEOUT_S, quick_config

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]
LEARNER = 4
PORT = 7_100  # of every node: each has all ports for itself
BYTES_PER_S = 125_000  # 1 Mbit/s; the load is several times that
PAYLOAD_BYTES = 2_000
PATIENT = RaftSettings(heartbeat="200ms", election_timeout="2s")  # the leader stays the same


class ShapedGrowing(GrowingCluster):
    """Each of its replicas starts in its namespace."""

    def __init__(self, folder: Path, network: ShapedNetwork) -> None:
        self._network = network
        nodes = [
            NodeSettings(node=node, host=network.address(node), port=PORT) for node in network.nodes
        ]
        cluster = ClusterSettings(name="slow", insecure=True)
        self._all = msgspec.structs.replace(
            quick_config(ring="auto"), cluster=cluster, nodes=nodes, raft=PATIENT
        )
        founders = [each for each in nodes if each.node != LEARNER]
        super().__init__(folder, msgspec.structs.replace(self._all, nodes=founders))

    def name_learner(self) -> None:
        self.name_nodes(self._all)

    def start(self, node: int) -> None:
        with self._network.entered(node):
            super().start(node)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ShapedGrowing]:
    with (
        ShapedNetwork((1, 2, 3, LEARNER)) as network,
        network.entered(CLIENT),
        ShapedGrowing(tmp_path, network) as cluster,
    ):
        cluster.begin()
        network.shape_to(LEARNER, BYTES_PER_S)
        yield cluster


@pytest.mark.long
def test_a_learner_behind_a_slow_link_stays_one_and_can_be_removed(cluster: ShapedGrowing) -> None:
    said: list[str] = []
    cluster.name_learner()
    with Load(cluster, payload_bytes=PAYLOAD_BYTES) as load:
        with cluster.connect() as log:
            log.admin.add_member(LEARNER, *cluster.address(LEARNER))
        load.more(2_000)
        cluster.start(LEARNER)
        cluster.wait_for_role(LEARNER, "learner")
        load.more(1_000)
        with cluster.connect() as log:
            with pytest.raises(NotReady):
                log.admin.promote_member(LEARNER, timeout=5, on_wait=said.append)
            behind = log.admin.members().member(LEARNER)
        assert any("has not caught up: it " in each for each in said), said
        assert behind is not None
        assert behind.role == "learner"
        assert behind.entries_behind
        load.more()
        cluster.change(lambda admin: admin.remove_member(LEARNER))
        assert cluster.role(LEARNER) == ""
        cluster.kill(LEARNER)
        load.more()
    load.check()
    for node in (1, 2, 3):
        cluster.wait_until_caught_up(node)
    assert cluster.wait_for_leader(RECOVERY_TIMEOUT_S) in (1, 2, 3)
    cluster.check_equal()
