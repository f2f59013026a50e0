"""A soak as plots over time: disk, memory and descriptors of each replica, and the log's bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from benchmarks.charts import Axis, Line, line_chart
from benchmarks.results import Result


def draw_soak(_: Result, samples: Sequence[Mapping[str, Any]]) -> dict[str, Figure]:
    """One plot for each of them, by its file's stem."""
    at_s = [float(each["at_s"]) for each in samples]
    figures = {
        f"soak-{what}": line_chart(
            f"Soak: {what}",
            Axis("seconds"),
            Axis(label),
            [
                Line(f"node {node}", at_s, [_of_node(each[field], node) for each in samples])
                for node in sorted(samples[0]["disk_mb"])
            ],
        )
        for what, label, field in (
            ("disk", "MB on the disk", "disk_mb"),
            ("memory", "MB of memory, shared pages in each process", "rss_mb"),
            ("descriptors", "open descriptors", "descriptors"),
        )
    }
    bounds = {"newest": "visible_lsn", "log start": "log_start_lsn"}
    lines = [
        Line(name, at_s, [float(each[field]) for each in samples]) for name, field in bounds.items()
    ]
    return {
        **figures,
        "soak-lsns": line_chart("Soak: the log", Axis("seconds"), Axis("LSN"), lines),
    }


def _of_node(values: Mapping[str, float], node: str) -> float:
    """What all processes of a node have; disks have one value a node."""
    return sum(value for name, value in values.items() if name.partition(".")[0] == node)
