"""What an append of each acknowledgement level waits for: one in flight, on one cluster, in turn.

Owns the rounds and what is wanted. Each round begins with another level, so that none always comes
first.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any, get_args

import click
import msgspec

import logstore
from benchmarks.measurement import Measured, Measurement, Site, option
from benchmarks.medians import at_most, spread
from logstore.cli.embedded import EmbeddedCluster, make_config, poll_until
from logstore.client.producer_options import Acks
from logstore.errors import Unreachable
from logstore.format.level import ACK_LEVELS_LEVEL

REPLICAS = 3
PAYLOAD = bytes(1_024)
WARM_UP = 100  # appends that do not count
LEVELS: tuple[Acks, ...] = get_args(Acks)
# The leader's own flush against a majority's, in the middle of all appends.
LEADER_TARGET = 0.7
_TIMEOUT_S = 30.0


class LevelRow(msgspec.Struct, frozen=True):
    """One level in one round. `possibly_lost`: of the producer's statistics, 0 without a fault."""

    acks: str
    round: int
    appends: int
    p50_ms: float
    p99_ms: float
    possibly_lost: int


def _measure(site: Site, *, rounds: int, appends: int) -> Measured:
    rows: list[LevelRow] = []
    samples: list[dict[str, Any]] = []
    config = make_config(REPLICAS, Random(os.urandom(8)))
    with (
        tempfile.TemporaryDirectory(prefix="levels-", dir=site.folder) as own,
        EmbeddedCluster(Path(own), config) as cluster,
    ):
        cluster.start_all()
        cluster.wait_for_leader()
        _wait_for_level(cluster)
        for number in range(1, rounds + 1):
            begin = (number - 1) % len(LEVELS)
            for acks in (*LEVELS[begin:], *LEVELS[:begin]):
                row, latencies = _run(cluster, acks, number, appends)
                rows.append(row)
                samples.append({"acks": acks, "round": number, "ms": latencies})
                site.say(f"{acks}, round {number} of {rounds}: p50 {row.p50_ms} ms")
    return Measured(rows, summarise(rows), samples)


def _wait_for_level(cluster: EmbeddedCluster) -> None:
    def is_there() -> bool:
        levels = [cluster.counters(node).get("format_level", 0) for node in cluster.nodes]
        return min(levels) >= ACK_LEVELS_LEVEL

    if not poll_until(is_there, _TIMEOUT_S):
        raise Unreachable(f"the new log did not come to format level {ACK_LEVELS_LEVEL}")


def _run(
    cluster: EmbeddedCluster, acks: Acks, number: int, appends: int
) -> tuple[LevelRow, list[float]]:
    latencies = []
    with logstore.connect(cluster.endpoints, timeout=_TIMEOUT_S) as log:
        producer = log.producer(logstore.ProducerOptions(acks=acks))
        for place in range(WARM_UP + appends):
            began_ns = time.perf_counter_ns()
            producer.append(PAYLOAD).result(_TIMEOUT_S)
            if place >= WARM_UP:
                latencies.append(round((time.perf_counter_ns() - began_ns) / 1e6, 4))
        producer.close()
        lost = producer.statistics().possibly_lost_payloads
    ordered = sorted(latencies)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    p50 = round(statistics.median(ordered), 4)
    return LevelRow(acks, number, appends, p50, p99, lost), latencies


def summarise(rows: list[LevelRow]) -> dict[str, Any]:
    """Of each level its percentiles; of leader and none their p50 over quorum's, round by round."""

    def p50s(acks: str) -> list[float]:
        return [row.p50_ms for row in rows if row.acks == acks]

    def ratios(acks: str) -> list[float]:
        return [ours / theirs for ours, theirs in zip(p50s(acks), p50s("quorum"), strict=True)]

    summary: dict[str, Any] = {
        acks: {
            "p50_ms": spread(p50s(acks)),
            "p99_ms": spread([row.p99_ms for row in rows if row.acks == acks]),
            "possibly_lost": sum(row.possibly_lost for row in rows if row.acks == acks),
        }
        for acks in LEVELS
    }
    summary["p50 of leader over quorum"] = at_most(LEADER_TARGET, ratios("leader"))
    summary["p50 of none over quorum"] = spread(ratios("none"))
    plain: dict[str, Any] = msgspec.to_builtins(summary)
    return plain


ACK_LEVELS = Measurement(
    "levels",
    "What does an append of each acknowledgement level wait for, one in flight?",
    2,
    _measure,
    [
        option("--rounds", type=click.IntRange(1, 99), default=5),
        option("--appends", type=click.IntRange(10, 1_000_000), default=2_000),
    ],
    {"rounds": 1, "appends": 200},
)
