"""Runs of measurements as plots, in SVG.

Owns what they look like. The same runs give the same bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.figures import STEP_MS, Run, percents

_SIZE_INCHES = (7.0, 4.0)


def write_plots(runs: Sequence[Run], folder: str) -> list[str]:
    """Latency and throughput of each figure, a line a run; the files' paths."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.file, run.figure), []).append(run)
    paths = []
    for (file, name), group in groups.items():
        title = f"{file}: {name}" if name else file
        stem = os.path.join(folder, _slug(title))
        paths += [
            _write(_latency_plot(group, title), f"{stem}-latency.svg"),
            _write(_throughput_plot(group, title), f"{stem}-throughput.svg"),
        ]
    return paths


def _latency_plot(runs: Sequence[Run], title: str) -> Figure:
    """Quantiles against latency: how much came within which time."""
    figure, axes = _axes(title, "latency in ms", "payloads acknowledged within, %")
    for run in runs:
        axes.plot(run.latency_ms, percents(), label=f"run {run.pair}")
    if all(run.latency_ms[0] > 0 for run in runs):
        axes.set_xscale("log")
    axes.legend(loc="lower right")
    return figure


def _throughput_plot(runs: Sequence[Run], title: str) -> Figure:
    figure, axes = _axes(title, "seconds", "payloads/s")
    for run in runs:
        times = [step * STEP_MS / 1_000 for step in range(len(run.rates))]
        axes.plot(times, run.rates, label=f"run {run.pair}")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower right")
    return figure


def _axes(title: str, x_label: str, y_label: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    axes.grid(visible=True, alpha=0.3)
    return figure, axes


def _write(figure: Figure, path: str) -> str:
    with matplotlib.rc_context({"svg.hashsalt": "logstore"}):
        figure.savefig(path, format="svg", metadata={"Date": None})
    return path


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
