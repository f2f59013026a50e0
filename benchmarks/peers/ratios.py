"""What the rows come to: medians with their spread, and ours over each peer with quartiles.

Owns the arithmetic. A ratio is made within a round, where both sides met the same machine, and the
median of the rounds decides. Above 1, this log is faster in rates and slower in latencies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median, quantiles
from typing import Any

from benchmarks.peers.failover import Failover
from benchmarks.peers.rounds import Failed, Row, Skipped, Start
from benchmarks.peers.timed_run import Run
from benchmarks.peers.warm_up import WarmUp

START = "start, s"
MEMORY = "memory after the start, MB"
FAILOVER = "failover, s"

# Told with their spread, and as ratios: of a load whose figure is a rate, or a latency.
COMPARED_RATES = ("payloads_per_s", "server_cpu_s_per_million")
COMPARED_LATENCIES = ("p50_ms", "p99_ms")
# Told as medians, unless they are told with their spread.
TOLD = (
    "payloads_per_s",
    "mb_per_s",
    "p50_ms",
    "p99_ms",
    "server_cpu_s_per_million",
    "client_cpu_s_per_million",
    "disk_bytes_per_payload_byte",
    "pss_mb",
)


def summarise(rows: Sequence[Row], missing: Mapping[str, str], *, ours: str) -> dict[str, Any]:
    """A line for each load and contender; for each system its starts, its memory then and its
    failovers; what is missing and why, failed, skipped, or was never warm. A run in which appends
    were refused is told, and counts in no median and no ratio."""
    lines = {
        f"{load}: {contender}": _line(runs, found.get(ours, []))
        for load, found in by_load(rows).items()
        for contender, runs in found.items()
    }
    for title, values in by_system(rows).items():
        lines |= {
            f"{title}, {system}": {**spread(found), "times": len(found)}
            for system, found in values.items()
        }
    return {
        **lines,
        "missing": [f"{system}: {reason}" for system, reason in missing.items()],
        "failed": [
            f"{row.system}, round {row.round}, {row.what}: {row.error}"
            for row in rows
            if isinstance(row, Failed)
        ],
        "with_errors": [
            f"{row.contender}, {row.load}, round {row.round}: {row.errors}, {row.error}"
            for row in rows
            if isinstance(row, Run) and row.errors
        ],
        "skipped": [f"{row.system}, round {row.round}" for row in rows if isinstance(row, Skipped)],
        "not_settled": [
            f"{row.contender}, round {row.round}"
            for row in rows
            if isinstance(row, WarmUp) and not row.is_settled
        ],
    }


def by_load(rows: Sequence[Row]) -> dict[str, dict[str, list[Run]]]:
    """Runs by load, then by contender, in the order of the rows; without those that had errors, of
    which no figure is made."""
    found: dict[str, dict[str, list[Run]]] = {}
    for row in rows:
        if isinstance(row, Run) and not row.errors:
            found.setdefault(row.load, {}).setdefault(row.contender, []).append(row)
    return found


def by_system(rows: Sequence[Row]) -> dict[str, dict[str, list[float]]]:
    """What is measured of a system whatever the load, by its name, then by system."""
    found: dict[str, dict[str, list[float]]] = {START: {}, MEMORY: {}, FAILOVER: {}}
    for row in rows:
        match row:
            case Start():
                found[START].setdefault(row.system, []).append(row.seconds)
                found[MEMORY].setdefault(row.system, []).append(row.pss_mb)
            case Failover():
                found[FAILOVER].setdefault(row.system, []).append(row.seconds)
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, lowest and highest."""
    return {"median": round(median(values), 3), "low": min(values), "high": max(values)}


def quartiles(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles; of one value, that value."""
    if len(values) < 2:
        values = [*values] * 2
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return {
        "median": round(middle, 4),
        "quartile_1": round(low, 4),
        "quartile_3": round(high, 4),
    }


def _line(theirs: Sequence[Run], mine: Sequence[Run]) -> dict[str, Any]:
    """One contender at one load, where our runs are `mine`."""
    compared = COMPARED_LATENCIES if theirs[0].is_for_latency else COMPARED_RATES
    told = [name for name in TOLD if name not in compared]
    ratios = {name: _ratios(theirs, mine, name) for name in compared}
    return {
        "durability": theirs[0].durability,
        "runs": len(theirs),
        **{name: spread([getattr(run, name) for run in theirs]) for name in compared},
        **{name: median(getattr(run, name) for run in theirs) for name in told},
        "ours_over_it": {name: quartiles(values) for name, values in ratios.items() if values},
    }


def _ratios(theirs: Sequence[Run], mine: Sequence[Run], name: str) -> list[float]:
    """Of the rounds that both have, where theirs is more than 0."""
    ours = {run.round: getattr(run, name) for run in mine}
    return [
        ours[run.round] / their
        for run in theirs
        if run.round in ours and (their := getattr(run, name))
    ]
