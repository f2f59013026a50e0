"""The comparison as bars: each load, starts, failovers, memory, a bar for each system or setting.

Owns which figures are drawn. What is missing or failed has no bar, and what is missing is in the
titles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import msgspec
from matplotlib.figure import Figure

from benchmarks.charts import bar_chart, plain
from benchmarks.peers.loads import FLUSHED_IN_SYNC, FLUSHED_ON_MAJORITY
from benchmarks.peers.ratios import FAILOVER, MEMORY, START, by_load, by_system
from benchmarks.peers.rounds import Row
from benchmarks.peers.timed_run import Run
from benchmarks.results import Result

_BY_SYSTEM = {
    START: ("peers-start", "Start of three nodes", "s until the first acknowledgement"),
    FAILOVER: ("peers-failover", "SIGKILL of the leader", "s until appends go on"),
    MEMORY: ("peers-memory", "Three nodes after their start", "MB (PSS)"),
}
Contenders = Mapping[str, Sequence[Run]]


def draw_peers(result: Result, _: Sequence[Any]) -> dict[str, Figure]:
    """By stems of files: a chart for each load, two where rates and processor time both tell."""
    rows = msgspec.convert(result.rows, list[Row])
    absent = ", ".join(line.partition(":")[0] for line in result.summary["missing"])
    about = f" (missing: {absent})" if absent else ""
    figures = {}
    for load, contenders in by_load(rows).items():
        stem = "peers-" + re.sub(r"[^a-z0-9]+", "-", load.lower())
        if next(iter(contenders.values()))[0].is_for_latency:
            figures[stem] = _latency_chart(load + about, contenders)
        else:
            figures[stem] = _rate_chart(load + about, contenders)
            figures[f"{stem}-cpu"] = _cpu_chart(load + about, contenders)
    for name, found in by_system(rows).items():
        if found:
            stem, title, label = _BY_SYSTEM[name]
            bars = {system: median(values) for system, values in found.items()}
            notes = {system: _range(values) for system, values in found.items()}
            figures[stem] = bar_chart(title + about, label, bars, notes=notes)
    return figures


def _rate_chart(title: str, contenders: Contenders) -> Figure:
    return _chart(
        title,
        "payloads/s",
        contenders,
        lambda run: run.payloads_per_s,
        lambda runs: _range([run.payloads_per_s for run in runs]),
    )


def _latency_chart(title: str, contenders: Contenders) -> Figure:
    return _chart(
        title,
        "p50, ms",
        contenders,
        lambda run: run.p50_ms,
        lambda runs: f"(p99 {plain(median(run.p99_ms for run in runs))})",
    )


def _cpu_chart(title: str, contenders: Contenders) -> Figure:
    def of_client(runs: Sequence[Run]) -> str:
        return f"and {plain(median(run.client_cpu_s_per_million for run in runs))} of the client"

    label = "processor s of the servers, a million payloads"
    return _chart(title, label, contenders, lambda run: run.server_cpu_s_per_million, of_client)


def _chart(
    title: str,
    label: str,
    contenders: Contenders,
    figure: Callable[[Run], float],
    note: Callable[[Sequence[Run]], str],
) -> Figure:
    """Medians from the highest to the lowest; what is only in the page cache is grey."""
    bars = {name: median(map(figure, runs)) for name, runs in contenders.items()}
    notes = {name: f"{note(runs)}, {_durability(runs)}" for name, runs in contenders.items()}
    return bar_chart(
        title,
        label,
        dict(sorted(bars.items(), key=lambda bar: -bar[1])),
        notes=notes,
        greyed=[name for name, runs in contenders.items() if not are_flushed(runs)],
    )


def _range(values: Sequence[float]) -> str:
    return f"({plain(min(values))} to {plain(max(values))})"


def _durability(runs: Sequence[Run]) -> str:
    return "flushed" if are_flushed(runs) else "page cache"


def are_flushed(runs: Sequence[Run]) -> bool:
    """Before the acknowledgement."""
    return runs[0].durability in (FLUSHED_ON_MAJORITY, FLUSHED_IN_SYNC)
