"""How long an append takes at a given load: from one append in flight to 90 % of saturation.

Owns the levels of load, their rounds, and what is told of them. Each round finds saturation anew,
in a closed loop on a cluster of its own, and offers shares of it in an open loop: what the machine
takes drifts, and a share of an older figure would be another load. The levels begin at another
one in each round, so that none always comes first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click
import msgspec
import numpy as np

from benchmarks.measurement import Measured, Measurement, Site, option
from benchmarks.medians import Spread, spread
from benchmarks.results import Result
from benchmarks.saturate import (
    REPLICAS,
    Row,
    Sample,
    Settings,
    measure_load,
    named_samples,
    temporary_cluster,
    thinned,
    try_again,
    weighted_percentiles,
)
from logstore.cli.embedded import EmbeddedCluster, make_config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAYLOAD_BYTES = 1_024
SAMPLES_MAX = 1_000  # kept of a run; its row is made of all of them
WARM_UP_SECONDS = 1.0  # of a load that does not count, beside the warm-up of every run
IDLE, SATURATED = "idle", "saturated"
ONE_IN_FLIGHT_MB = 1e-6
SHARES = (0.10, 0.25, 0.50, 0.75, 0.90)
PERCENTILES = {"p50_ms": 0.50, "p90_ms": 0.90, "p99_ms": 0.99, "p999_ms": 0.999, "most_ms": 1.0}
_LABELS = {"p50_ms": "p50", "p90_ms": "p90", "p99_ms": "p99", "p999_ms": "p99.9"}


class Load(msgspec.Struct, frozen=True):
    """Payloads of PAYLOAD_BYTES, `batch` an append; `window_mb` as in `compare`."""

    name: str
    batch: int
    window_mb: float


LOADS = (Load("singles", 1, 2.0), Load("batches of 64", 64, 16.0))


class Level(msgspec.Struct, frozen=True):
    """Offered load. `share` of saturation in the open loop; 0: a closed loop with `window_mb`."""

    name: str
    share: float
    window_mb: float = 0.0


class LatencyRow(msgspec.Struct, frozen=True):
    """One run. `rate`: payloads offered a second, 0 in a closed loop. `appends`: acknowledged
    batches, on which the percentiles rest."""

    load: str
    level: str
    share: float
    round: int
    rate: float
    payloads_per_s: float
    appends: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    most_ms: float
    cpu_s: dict[str, float]


def levels() -> tuple[Level, ...]:
    """Without saturation, which comes first."""
    shares = (Level(f"{share:.0%}", share) for share in SHARES)
    return (Level(IDLE, 0.0, ONE_IN_FLIGHT_MB), *shares)


def measure_latency(
    folder: Path, *, rounds: int, seconds: float, say: Callable[[str], None]
) -> tuple[list[LatencyRow], list[dict[str, Any]]]:
    """Every level of both loads, `rounds` times in turn; rows and thinned samples.

    Raises:
      LogStoreError: a run failed.
    """
    rows: list[LatencyRow] = []
    samples: list[dict[str, Any]] = []
    for number in range(1, rounds + 1):
        for load in LOADS:
            for row, raw in _measure_round(folder, load, number, seconds, say):
                rows.append(row)
                kept = thinned(raw, SAMPLES_MAX)
                samples += named_samples(f"{row.load}, {row.level}", number, kept)
                say(
                    f"{row.load}, {row.level}, round {number} of {rounds}: "
                    f"{row.payloads_per_s:,.0f}/s, p50 {row.p50_ms} ms, p99.9 {row.p999_ms} ms"
                )
    return rows, samples


def summarise(rows: Sequence[LatencyRow]) -> dict[str, Any]:
    """For each load and level the medians of the rounds; spreads are the lowest and the highest."""
    groups: dict[str, list[LatencyRow]] = {}
    for row in rows:
        groups.setdefault(f"{row.load}, {row.level}", []).append(row)
    return {name: _figures(group) for name, group in groups.items()}


def _figures(rows: Sequence[LatencyRow]) -> dict[str, Any]:
    def of(name: str) -> Spread:
        return spread([getattr(row, name) for row in rows])

    figures: dict[str, Any] = {
        "offered_per_s": of("rate").median,
        "acknowledged_per_s": of("payloads_per_s").median,
    }
    for name in PERCENTILES:
        figures[name] = of(name).median
    for name in ("p50_ms", "p99_ms", "p999_ms"):
        figures[f"{name.removesuffix('_ms')}_spread_ms"] = [of(name).low, of(name).high]
    return figures


# --- one round ---


def _measure_round(
    folder: Path, load: Load, number: int, seconds: float, say: Callable[[str], None]
) -> Iterator[tuple[LatencyRow, list[Sample]]]:

    def run(load_seconds: float, window_mb: float, rate: float) -> tuple[Row, list[Sample]]:
        settings = Settings(PAYLOAD_BYTES, load.batch, window_mb, load_seconds, rate)
        found, _ = try_again(lambda: _run(cluster, settings), say)
        return found

    with temporary_cluster(folder, make_config(REPLICAS, Random(os.urandom(8)))) as cluster:
        cluster.start_all()
        cluster.wait_for_leader()
        run(WARM_UP_SECONDS, load.window_mb, 0.0)
        full, samples = run(seconds, load.window_mb, 0.0)
        yield make_row(load, Level(SATURATED, 1.0), number, full, samples), samples
        for level in _turned(levels(), number):
            rate = level.share * full.payloads_per_s
            row, samples = run(seconds, level.window_mb or load.window_mb, rate)
            yield make_row(load, level, number, row, samples), samples


def _turned(all_levels: Sequence[Level], number: int) -> list[Level]:
    begin = (number - 1) % len(all_levels)
    return [*all_levels[begin:], *all_levels[:begin]]


def make_row(
    load: Load, level: Level, number: int, row: Row, samples: Sequence[Sample]
) -> LatencyRow:
    """The figures of a run. A batch is due when the last of its payloads is: a sample counts from
    the first one, and the time in which a batch fills up by the schedule is none of the log's."""
    filling_ms = (load.batch - 1) / row.rate * 1e3 if row.rate else 0.0
    latencies = np.array([sample.latency_ms for sample in samples], dtype=np.float64) - filling_ms
    payloads = np.array([sample.payloads for sample in samples], dtype=np.int64)
    percentiles = weighted_percentiles(latencies, payloads, list(PERCENTILES.values()))
    return LatencyRow(
        load=load.name,
        level=level.name,
        share=level.share,
        round=number,
        rate=round(row.rate, 1),
        payloads_per_s=row.payloads_per_s,
        appends=len(samples),
        cpu_s=row.cpu_s,
        **dict(zip(PERCENTILES, percentiles, strict=True)),
    )


def _run(cluster: EmbeddedCluster, settings: Settings) -> tuple[Row, list[Sample]]:
    samples = cluster.folder / "samples"
    return measure_load(settings, cluster, cluster.wait_for_leader(), samples)


# --- the measurement ---


def _measure(site: Site, *, rounds: int, seconds: float) -> Measured:
    rows, samples = measure_latency(site.folder, rounds=rounds, seconds=seconds, say=site.say)
    return Measured(rows, summarise(rows), samples)


def draw_latency(result: Result, _: Sequence[Any]) -> dict[str, Figure]:
    """A chart for each load: latency by offered load, a line a percentile."""
    return {
        f"latency-{load.name.replace(' ', '-')}": _draw(
            load, [row for row in result.rows if row["load"] == load.name]
        )
        for load in LOADS
    }


def _draw(load: Load, rows: Sequence[Mapping[str, Any]]) -> Figure:
    from benchmarks.charts import Axis, line_chart, line_of_runs, log_ticks

    percents: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["level"] != SATURATED:
            percents.setdefault(round(100 * row["share"]), []).append(row)
    lines = [
        line_of_runs(
            label, {percent: [row[name] for row in each] for percent, each in percents.items()}
        )
        for name, label in _LABELS.items()
    ]
    ends = [value for line in lines for value in (*line.low, *line.high)]
    return line_chart(
        f"Appends of 1 KiB payloads, {load.name}",
        Axis("offered, % of saturation (0: one append in flight)", lines[0].x),
        Axis("ms until acknowledged by a quorum", log_ticks(ends), is_log=True),
        lines,
    )


LATENCY = Measurement(
    "latency",
    "How long does an append take, from one in flight to 90 % of saturation?",
    12,
    _measure,
    [
        option("--rounds", type=click.IntRange(1, 99), default=5),
        option("--seconds", type=click.FloatRange(0.5, 3_600.0), default=5.0),
    ],
    {"rounds": 1, "seconds": 0.5},
    draw_latency,
)
