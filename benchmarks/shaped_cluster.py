"""Three replicas whose replication runs over links that can be shaped, and the loads on them.

Owns where replicas, loads and bare streams begin (each in its namespace of a `ShapedNetwork`), and
that every run begins with equal replicas. Must not know what is compared. Replicas share the file
system with us, so who leads and how far each has come is read from their counters, as on one host.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.bare_stream import StreamRow, measure_stream
from benchmarks.namespaces import require_namespaces
from benchmarks.saturate import (
    REPLICAS,
    Row,
    Sample,
    Settings,
    measure_load,
    try_again,
    wait_until_equal,
)
from benchmarks.shaped_network import CLIENT, ShapedNetwork
from logstore.cli.embedded import EmbeddedCluster
from logstore.config import Config
from logstore.settings import ClusterSettings, NodeSettings, RetentionSettings

PORT = 7_100  # of every node: each has all ports for itself
# Hours of loads, but no more disk than this and two segments a node.
KEPT = RetentionSettings(bytes="512MiB")


class ShapedCluster:
    """A running cluster in its network. `say` is told when a load is repeated."""

    def __init__(
        self, network: ShapedNetwork, cluster: EmbeddedCluster, say: Callable[[str], None]
    ) -> None:
        self.network = network
        self.cluster = cluster
        self._say = say

    def load(self, settings: Settings) -> tuple[tuple[Row, list[Sample]], int]:
        """One load from the client's place, on replicas that all have everything before it; and in
        which attempt.

        Raises:
          LogStoreError: as `try_again`.
        """
        return try_again(partial(self._load_once, settings), self._say)

    def stream(self, *, frame_bytes: int, seconds: float) -> StreamRow:
        """A bare stream from the leader to a follower, while nobody appends.

        Raises: as `measure_stream`.
        """
        leader = wait_until_equal(self.cluster)
        follower = next(node for node in self.cluster.nodes if node != leader)
        return measure_stream(
            self.network, leader, follower, frame_bytes=frame_bytes, seconds=seconds
        )

    def _load_once(self, settings: Settings) -> tuple[Row, list[Sample]]:
        leader = wait_until_equal(self.cluster)
        with self.network.entered(CLIENT):
            return measure_load(settings, self.cluster, leader, self.cluster.folder / "samples")


@contextmanager
def shaped_cluster(folder: Path, say: Callable[[str], None]) -> Iterator[ShapedCluster]:
    """A cluster that has a leader, with its data in a folder of its own below `folder`.

    Raises:
      InvalidRequest: this machine can make no such network, with what is missing.
      LogStoreError: the cluster does not start.
    """
    require_namespaces()
    nodes = range(1, REPLICAS + 1)
    with (
        ShapedNetwork(nodes) as network,
        tempfile.TemporaryDirectory(prefix="shaped-", dir=folder) as own,
        EmbeddedCluster(Path(own), make_shaped_config(network)) as cluster,
    ):
        for node in nodes:
            with network.entered(node):
                cluster.start(node)
        cluster.wait_for_leader()
        yield ShapedCluster(network, cluster, say)


def make_shaped_config(network: ShapedNetwork) -> Config:
    """Nodes at the addresses of a network that nobody else reaches, everything but retention as it
    ships."""
    nodes = [
        NodeSettings(node=node, host=network.address(node), port=PORT) for node in network.nodes
    ]
    return Config(
        cluster=ClusterSettings(name="shaped", insecure=True), nodes=nodes, retention=KEPT
    )
