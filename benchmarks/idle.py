"""What a cluster of three costs while nobody uses it: processor time and memory of all its
processes."""

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
    """`core_share`: processor seconds of all processes per second; 0.05 is 5 % of one core.
    `pss_mb`: memory of each process, a page that several share divided among them; `pss_total_mb`:
    their sum, which is what the cluster takes."""

    seconds: float
    core_share: float
    cpu_s: dict[str, float]
    pss_mb: dict[str, float]
    pss_total_mb: float


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
            pss_mb = {
                name: round(process.memory_full_info().pss / 1e6, 1)
                for name, process in processes.items()
            }
    used = cpu_between(first, second)
    return IdleRow(
        seconds=seconds,
        core_share=round(sum(used.values()) / seconds, 4),
        cpu_s=used,
        pss_mb=pss_mb,
        pss_total_mb=round(sum(pss_mb.values()), 1),
    )


def _pass_time(seconds: float) -> None:
    poll_until(lambda: False, seconds, look_ms=1_000)
