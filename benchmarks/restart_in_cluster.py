"""How long a killed follower takes to be back, by how much the log holds.

Owns the rounds, and what "back" means: it follows the leader's term, and shows what the others
show. Two clusters of three replicas, one with little and one with much in its log, rest beside each
other while the follower of either is killed and started in turn, with its files in the page cache
and without.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

import logstore
from benchmarks.medians import spread_s
from benchmarks.restart import COLD, WARM, forget_pages, read_pages
from benchmarks.saturate import REPLICAS, temporary_cluster
from logstore.cli.embedded import EmbeddedCluster, make_config, poll_until
from logstore.client.clock import monotonic_ns
from logstore.errors import LogStoreError, Unreachable
from logstore.limits import MIB

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAYLOAD_BYTES = 1_024
FLUSH_EVERY = 16_384  # appends between two looks whether all is well
TIMEOUT_S = 180.0
LOOK_MS = 5


class Return(msgspec.Struct, frozen=True):
    """One start of a follower, in seconds. `files`: where they are."""

    log_mib: int
    files: str
    round: int
    seconds: float


def measure_returns(
    folder: Path, sizes_mib: Sequence[int], *, rounds: int, say: Callable[[str], None]
) -> list[Return]:
    """Kill and start a follower of each log, warm and cold, `rounds` times in turn.

    Raises:
      LogStoreError: an append failed, or the follower did not come back in time.
    """
    returns: list[Return] = []
    with ExitStack() as stack:
        clusters = {size_mib: _cluster(stack, folder) for size_mib in sizes_mib}
        for size_mib, cluster in clusters.items():
            _fill(cluster, size_mib)
            say(f"a log of {size_mib} MiB is there")
        for number in range(1, rounds + 1):
            for size_mib, cluster in clusters.items():
                for files in (WARM, COLD):
                    seconds = _return_s(cluster, files)
                    returns.append(Return(size_mib, files, number, seconds))
                    say(f"{size_mib} MiB, {files}, round {number} of {rounds}: {seconds:.2f} s")
    return returns


def summarise(returns: Sequence[Return]) -> dict[str, dict[str, float]]:
    """Of each log the median of the rounds, with the lowest and the highest."""
    values: dict[str, list[float]] = {}
    for each in returns:
        values.setdefault(f"follower, {each.log_mib} MiB {each.files}", []).append(each.seconds)
    return {name: spread_s(each) for name, each in values.items()}


def _cluster(stack: ExitStack, folder: Path) -> EmbeddedCluster:
    config = make_config(REPLICAS, Random(os.urandom(8)))
    cluster = stack.enter_context(temporary_cluster(folder, config))
    cluster.start_all()
    cluster.wait_for_leader()
    return cluster


def _fill(cluster: EmbeddedCluster, size_mib: int) -> None:
    """Append payloads one by one, which the client packs.

    Raises:
      LogStoreError: an append failed.
    """
    pool = [os.urandom(PAYLOAD_BYTES) for _ in range(FLUSH_EVERY)]
    count = size_mib * MIB // PAYLOAD_BYTES
    with logstore.connect(cluster.endpoints, timeout=TIMEOUT_S) as log, log.producer() as producer:
        for first in range(0, count, FLUSH_EVERY):
            futures = [producer.append(payload) for payload in pool[: count - first]]
            futures[-1].result(TIMEOUT_S)
        last_lsn = log.admin.commit_lsn()
    if last_lsn < count:
        raise LogStoreError(f"{count} payloads were appended, the log ends at LSN {last_lsn}")
    for node in cluster.nodes:
        cluster.wait_until_visible(node, last_lsn, TIMEOUT_S)


def _return_s(cluster: EmbeddedCluster, files: str) -> float:
    leader = cluster.wait_for_leader()
    node = next(each for each in cluster.nodes if each != leader)
    cluster.kill(node)
    (read_pages if files == WARM else forget_pages)(cluster.node_folder(node))
    shown = cluster.visible_lsn(leader)
    began_ns = monotonic_ns()
    cluster.start(node)

    def is_back() -> bool:
        counters = cluster.counters(node)
        follows = counters.get("term") == cluster.counters(leader).get("term", 0)
        return follows and cluster.visible_lsn(node) >= shown

    if not poll_until(is_back, TIMEOUT_S, look_ms=LOOK_MS):
        raise Unreachable(f"node {node} is not back after {TIMEOUT_S} s")
    return round((monotonic_ns() - began_ns) / 1e9, 3)


def draw_returns(summary: Mapping[str, Any]) -> dict[str, Figure]:
    """A bar for each log and place of its files; nothing of a result that has none."""
    from benchmarks.charts import bar_chart, plain

    found = {name: each for name, each in summary.items() if name.startswith("follower, ")}
    if not found:
        return {}
    chart = bar_chart(
        "A killed follower is back",
        "seconds from its start until it shows what others show, medians",
        {name: each["median_s"] for name, each in found.items()},
        notes={
            name: f"({plain(each['low_s'])} to {plain(each['high_s'])})"
            for name, each in found.items()
        },
    )
    return {"restart-in-cluster": chart}
