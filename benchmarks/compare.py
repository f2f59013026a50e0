"""Product against floor: pairs in turn in one go, so that both meet the same machine; medians
decide.

Owns the figures that are compared and their targets. Must not know how either side works.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from benchmarks.floor import FloorRow, find_floor, run_floor
from benchmarks.idle import IdleRow, measure_idle
from benchmarks.saturate import Row, Sample, Settings, named_samples, saturate, thinned

IDLE_SECONDS = 20.0
IDLE_TARGET = 0.015
P99_TARGET = 2.0  # of one append in flight, over the floor's
CPU_TARGET_MS = 1.5  # of all processes and the client, one append in flight
SAMPLES_MAX = 2_000  # kept of a run; its row is made of all of them


class Figure(msgspec.Struct, frozen=True):
    """One comparison: `of` is what is compared, `target` the ratio of product to floor that is
    wanted.
    """

    name: str
    payload: int
    batch: int
    window_mb: float
    of: str
    is_lower_better: bool
    target: float


ONE_IN_FLIGHT = "one append in flight"
FIGURES = (
    Figure("1 KiB, one at a time", 1_024, 1, 2.0, "frames_per_s", False, 1.0),
    Figure("64 x 1 KiB batches", 1_024, 64, 16.0, "mb_per_s", False, 1.0),
    Figure(ONE_IN_FLIGHT, 1_024, 1, 0.001, "p50_ms", True, 1.4),
)


class Pair(msgspec.Struct, frozen=True):
    """One run of each, one after the other. `ratio`: product over floor."""

    figure: str
    product: Row
    floor: FloorRow
    ratio: float


class Comparison(msgspec.Struct, frozen=True):
    """All pairs, the idle cluster, and per figure {median_ratio, target, is_reached, …}."""

    pairs: list[Pair]
    idle: IdleRow
    summary: dict[str, Any]
    samples: list[dict[str, Any]]


def compare(folder: Path, *, pairs: int, seconds: float, say: Callable[[str], None]) -> Comparison:
    """Measure the idle cluster, on a machine that rests, then every figure on both sides in turn.

    Raises:
        InvalidRequest: there is no floor to compare with.
        LogStoreError: a run failed.
    """
    script = find_floor()
    idle = measure_idle(IDLE_SECONDS, folder)
    rows: list[Pair] = []
    samples: list[dict[str, Any]] = []
    for number in range(pairs):
        for figure in FIGURES:
            pair, raw = _measure_pair(figure, script, folder, seconds)
            rows.append(pair)
            samples += named_samples(figure.name, number + 1, thinned(raw, SAMPLES_MAX))
            say(f"{figure.name}, pair {number + 1} of {pairs}: {pair.ratio}")
    return Comparison(rows, idle, summarise(rows, idle), samples)


def summarise(pairs: list[Pair], idle: IdleRow) -> dict[str, Any]:
    """Per figure the median ratio and whether it reaches the target."""
    summary: dict[str, Any] = {}
    for figure in FIGURES:
        mine = [pair for pair in pairs if pair.figure == figure.name]
        if not mine:
            continue
        ratio = median(pair.ratio for pair in mine)
        summary[figure.name] = {
            "of": figure.of,
            "median_ratio": round(ratio, 3),
            "target": figure.target,
            "is_reached": ratio <= figure.target
            if figure.is_lower_better
            else ratio >= figure.target,
            "median_product": median(_product_value(figure, pair.product) for pair in mine),
            "median_floor": median(_floor_value(figure, pair.floor) for pair in mine),
        }
    alone = [pair for pair in pairs if pair.figure == ONE_IN_FLIGHT]
    if alone:
        summary |= _of_one_in_flight(alone)
    summary["idle"] = {
        "of": "core_share",
        "core_share": idle.core_share,
        "target": IDLE_TARGET,
        "is_reached": idle.core_share < IDLE_TARGET,
    }
    return summary


def _of_one_in_flight(pairs: list[Pair]) -> dict[str, Any]:
    """What else its runs say: their slowest appends, and the processor time of one."""
    ratio = median(pair.product.p99_ms / pair.floor.p99_ms for pair in pairs)
    rows = [pair.product for pair in pairs]
    cpu_ms = median(
        1e3 * sum(row.cpu_s.values()) / (row.payloads_per_s * row.seconds) for row in rows
    )
    return {
        f"{ONE_IN_FLIGHT}, p99": {
            "of": "p99_ms",
            "median_ratio": round(ratio, 3),
            "target": P99_TARGET,
            "is_reached": ratio <= P99_TARGET,
        },
        f"{ONE_IN_FLIGHT}, processor time": {
            "of": "cpu_s",
            "median_cpu_ms": round(cpu_ms, 3),
            "target": CPU_TARGET_MS,
            "is_reached": cpu_ms <= CPU_TARGET_MS,
        },
    }


def _measure_pair(
    figure: Figure, script: Path, folder: Path, seconds: float
) -> tuple[Pair, list[Sample]]:
    """Floor, then product, at the same window; a batch of the product is a frame of the floor."""
    floor = run_floor(
        script,
        folder,
        frame_bytes=figure.payload * figure.batch,
        window_mb=figure.window_mb,
        seconds=seconds,
    )
    settings = Settings(figure.payload, figure.batch, figure.window_mb, seconds)
    product, samples = saturate(settings, folder)
    ratio = _product_value(figure, product) / _floor_value(figure, floor)
    return Pair(figure.name, product, floor, round(ratio, 4)), samples


def _product_value(figure: Figure, row: Row) -> float:
    """The floor counts frames; where a frame is one payload, payloads are what compares."""
    name = "payloads_per_s" if figure.of == "frames_per_s" else figure.of
    return float(getattr(row, name))


def _floor_value(figure: Figure, row: FloorRow) -> float:
    return float(getattr(row, figure.of))
