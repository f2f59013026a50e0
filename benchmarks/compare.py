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
IDLE_TARGET = 0.05
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


FIGURES = (
    Figure("1 KiB, one at a time", 1_024, 1, 2.0, "frames_per_s", False, 0.5),
    Figure("64 x 1 KiB batches", 1_024, 64, 16.0, "mb_per_s", False, 0.6),
    Figure("one append in flight", 1_024, 1, 0.001, "p50_ms", True, 2.5),
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
    summary["idle"] = {
        "of": "core_share",
        "core_share": idle.core_share,
        "target": IDLE_TARGET,
        "is_reached": idle.core_share < IDLE_TARGET,
    }
    return summary


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
