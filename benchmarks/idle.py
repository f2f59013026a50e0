"""What a cluster of three costs while nobody uses it: processor time of all its processes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from random import Random

import msgspec

from benchmarks.usage import cpu_between, take_mark
from logstore.cli.embedded import EmbeddedCluster, make_config, poll_until

REPLICAS = 3
SETTLE_S = 3.0


class IdleRow(msgspec.Struct, frozen=True):
    """`core_share`: processor seconds of all processes per second; 0.05 is 5 % of one core."""

    seconds: float
    core_share: float
    cpu_s: dict[str, float]


def measure_idle(seconds: float, folder: Path) -> IdleRow:
    """Start a cluster, let it settle, and count for `seconds`."""
    with tempfile.TemporaryDirectory(prefix="idle-", dir=folder) as own:
        config = make_config(REPLICAS, Random(os.urandom(8)))
        with EmbeddedCluster(Path(own), config) as cluster:
            cluster.start_all()
            leader = cluster.wait_for_leader()
            _pass_time(SETTLE_S)
            processes = cluster.all_processes()
            first = take_mark(cluster, processes, leader)
            _pass_time(seconds)
            second = take_mark(cluster, processes, leader)
    used = cpu_between(first, second)
    return IdleRow(seconds, round(sum(used.values()) / seconds, 4), used)


def _pass_time(seconds: float) -> None:
    poll_until(lambda: False, seconds, look_ms=1_000)
