"""What the processes of a cluster use between two marks: processor time, memory, bytes to disk.

Owns the reading of it, from the kernel and from the replicas' counters.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import psutil

from logstore.cli.embedded import EmbeddedCluster
from logstore.errors import Unreachable

DISK_COUNTERS = ("disk_bytes_data", "disk_bytes_raft", "disk_bytes_meta")


class Mark(msgspec.Struct, frozen=True):
    """One look. Processes by name, "1.writer" or "client"; counters are the leader's."""

    leader: int
    cpu_s: dict[str, float]
    rss_mb: dict[str, float]
    counters: dict[str, int]


def take_mark(
    cluster: EmbeddedCluster, processes: Mapping[str, psutil.Process], leader: int
) -> Mark:
    """Look now.

    Raises:
        Unreachable: a process is gone, or the leader is another: the figures would mean nothing.
    """
    cpu_s: dict[str, float] = {}
    rss_mb: dict[str, float] = {}
    try:
        for name, process in processes.items():
            with process.oneshot():
                times = process.cpu_times()
                cpu_s[name] = times.user + times.system
                rss_mb[name] = round(process.memory_info().rss / 1e6, 1)
    except psutil.NoSuchProcess as error:
        raise Unreachable(f"process {error.pid} ended while it was measured") from error
    if cluster.leader() != leader:
        raise Unreachable("leadership changed while it was measured: measure again")
    return Mark(leader, cpu_s, rss_mb, cluster.counters(leader))


def cpu_between(first: Mark, second: Mark) -> dict[str, float]:
    """Processor seconds of each process."""
    return {name: round(used - first.cpu_s[name], 3) for name, used in second.cpu_s.items()}


def disk_bytes_per_payload_byte(first: Mark, second: Mark) -> float:
    """Bytes the leader's writer handed to pwrite, over payload bytes it acknowledged."""
    written = sum(second.counters[name] - first.counters[name] for name in DISK_COUNTERS)
    name = "payload_bytes_acknowledged"
    return round(written / max(1, second.counters[name] - first.counters[name]), 4)


def payloads_per_group(first: Mark, second: Mark) -> float:
    groups = second.counters["groups_committed"] - first.counters["groups_committed"]
    name = "payloads_acknowledged"
    return round((second.counters[name] - first.counters[name]) / max(1, groups), 2)
