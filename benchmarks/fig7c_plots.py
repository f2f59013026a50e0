"""Figure 7c as plots: acknowledged over offered, a line a payload size, links unshaped and shaped;
and what latency that goes with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from benchmarks.charts import Axis, Line, line_chart, plain, size
from benchmarks.fig7c_runs import (
    BAR_PAYLOAD,
    LINKS,
    Links,
    Point,
    Run,
    bare,
    payloads_of,
    points_of,
    runs_of,
)
from benchmarks.results import Result

_LATENCY_TICKS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
_ROOM = 1.3  # above shaped links, all of which saturate at one height, for their names


def draw_fig7c(result: Result, _: Sequence[Any]) -> dict[str, Figure]:
    """A plot of throughput for each kind of links, and one of latency, by their files' stems."""
    runs = runs_of(result.rows)
    link, paper = (result.summary[name] for name in ("link_mb_per_s", "paper_mb_per_s"))
    stream = median(
        rate for payload in payloads_of(runs) for rate in bare(runs, "shaped", payload).values()
    )
    charts = {
        "fig7c-unshaped": _throughput("between nodes unshaped", runs, "unshaped"),
        "fig7c-shaped": _throughput(
            f"{plain(link)} MB/s for each stream between two nodes",
            runs,
            "shaped",
            most=_ROOM * link,
            references={
                f"bare ZeroMQ stream: {plain(stream)}": stream,
                f"paper at 4 KiB: {plain(paper)}": paper,
            },
        ),
    }
    if latency := _latency(runs):
        charts["fig7c-latency"] = latency
    return charts


def _throughput(
    title: str,
    runs: Sequence[Run],
    links: Links,
    *,
    most: float | None = None,
    references: Mapping[str, float] | None = None,
) -> Figure:
    lines = []
    for payload in payloads_of(runs):
        points = points_of(runs, links, payload)
        found = [point.mb_per_s for point in points]
        lines.append(
            Line(
                size(payload),
                _thousands(points),
                [each.median for each in found],
                [each.low for each in found],
                [each.high for each in found],
            )
        )
    return line_chart(
        f"Acknowledged over offered, {title}",
        _offered_axis(lines),
        Axis("acknowledged, MB/s", most=most),
        lines,
        references=references,
    )


def _latency(runs: Sequence[Run]) -> Figure | None:
    """Of the bar's payload, or the largest, at rates that are not saturated: beyond, latency only
    says how long a run was."""
    payloads = payloads_of(runs)
    payload = BAR_PAYLOAD if BAR_PAYLOAD in payloads else payloads[-1]
    lines = []
    for links in LINKS:
        points = [point for point in points_of(runs, links, payload) if not point.is_saturated]
        if points:
            offered = _thousands(points)
            lines.append(Line(f"{links}, p50", offered, [point.p50_ms for point in points]))
            lines.append(Line(f"{links}, p99", offered, [point.p99_ms for point in points]))
    if not lines:
        return None
    most = max(value for line in lines for value in line.y)
    return line_chart(
        f"Latency from when a payload of {size(payload)} was due, up to saturation",
        _offered_axis(lines),
        Axis("ms", [tick for tick in _LATENCY_TICKS_MS if tick <= most], is_log=True),
        lines,
    )


def _thousands(points: Sequence[Point]) -> list[float]:
    return [point.offered / 1_000 for point in points]


def _offered_axis(lines: Sequence[Line]) -> Axis:
    ticks = sorted({value for line in lines for value in line.x})
    return Axis("offered, thousand payloads/s", ticks, is_log=True)
