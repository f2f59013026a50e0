"""How plots of results look: lines that are labelled where they end, plain ticks with units, and
the figures of a paper or a target as dashed lines.

Owns the look alone. The same result gives the same bytes of SVG.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.medians import spread

SIZE_INCHES = (7.5, 4.4)
_DPI = 130
_PALETTE = ("#1b5e9b", "#c0541c", "#2e7d46", "#7b3f98", "#a3820f", "#4d4d4d", "#b03060")
_GREY = "#8a8a8a"
_MARKED_MAX = 40  # points of a line
_LABEL_GAP = 0.045  # of the height of the axes, between two labels


@dataclass(frozen=True)
class Axis:
    """An axis: what it shows with its unit, and how its values are written.

    Attributes:
      ticks: where ticks are; none: matplotlib chooses.
      is_log: base 2 if the ticks double, so that they stand evenly.
      most: where the y axis ends, to have room for names above its lines; none: where they do.
    """

    label: str
    ticks: Sequence[float] = ()
    is_log: bool = False
    from_zero: bool = True
    most: float | None = None


@dataclass(frozen=True)
class Line:
    """Medians over x, with the spread of the runs if `low` and `high` are given."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def line_of_runs(name: str, values: Mapping[int, Sequence[float]]) -> Line:
    """Of the values of all runs at each x."""
    spreads = {x: spread(each) for x, each in sorted(values.items())}
    return Line(
        name,
        list(spreads),
        [each.median for each in spreads.values()],
        [each.low for each in spreads.values()],
        [each.high for each in spreads.values()],
    )


def line_chart(
    title: str,
    x: Axis,
    y: Axis,
    lines: Sequence[Line],
    *,
    references: Mapping[str, float] | None = None,
    dashed: Sequence[Line] = (),
) -> Figure:
    """Lines with their names at their ends. `references` are level lines, by name; `dashed` are
    lines to compare with, such as a paper's."""
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    _dress(axes, title, x, y)
    ends = []
    for color, line in zip(_colors(), lines, strict=False):
        marker = "o" if len(line.x) <= _MARKED_MAX else ""
        axes.plot(line.x, line.y, color=color, marker=marker, markersize=3.5, linewidth=1.6)
        if line.low:
            axes.fill_between(line.x, line.low, line.high, color=color, alpha=0.15, linewidth=0)
        ends.append((line.x[-1], line.y[-1], line.name, color))
    for line in dashed:
        axes.plot(line.x, line.y, color=_GREY, linestyle="--", linewidth=1.2)
        ends.append((line.x[-1], line.y[-1], line.name, _GREY))
    for name, value in (references or {}).items():
        axes.axhline(value, color=_GREY, linestyle="--", linewidth=1.2)
        ends.append((axes.get_xlim()[1], value, name, _GREY))
    if y.from_zero and not y.is_log:
        axes.set_ylim(bottom=0)
    if y.most is not None:
        axes.set_ylim(top=y.most)
    if y.is_log and y.ticks:
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, *y.ticks), max(high, *y.ticks))
    _label_ends(axes, ends)
    return figure


def bar_chart(
    title: str,
    label: str,
    bars: Mapping[str, float],
    *,
    notes: Mapping[str, str] | None = None,
    greyed: Collection[str] = (),
    references: Mapping[str, float] | None = None,
) -> Figure:
    """Bars from top to bottom with their values; `notes` stand behind the value. Those of `greyed`
    are of another kind, which their notes should name. `references` are values to compare with, by
    name."""
    figure = Figure(figsize=(SIZE_INCHES[0], 0.9 + 0.42 * len(bars)), layout="constrained")
    axes = figure.add_subplot()
    names = list(bars)[::-1]
    values = [bars[name] for name in names]
    colors = [_GREY if name in greyed else _PALETTE[0] for name in names]
    axes.barh(names, values, color=colors, height=0.62)
    for at, name in enumerate(names):
        note = (notes or {}).get(name, "")
        axes.annotate(
            f"{plain(bars[name])}{f'  {note}' if note else ''}",
            (bars[name], at),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    for name, value in (references or {}).items():
        axes.axvline(value, color=_GREY, linestyle="--", linewidth=1.2)
        axes.annotate(
            f" {name}", (value, 1.0), xycoords=("data", "axes fraction"), color=_GREY, fontsize=9
        )
    axes.set(title=title, xlabel=label)
    axes.set_xlim(0, max([*values, *(references or {}).values()], default=1) * 1.3 or 1)
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(_write_plain)
    axes.tick_params(length=0)
    _unframe(axes)
    return figure


def stacked_bar_chart(
    title: str,
    label: str,
    bars: Mapping[str, Mapping[str, float]],
    *,
    notes: Mapping[str, str] | None = None,
) -> Figure:
    """Bars from top to bottom, each of the same parts in the same order, whose names and colors are
    above; `notes` stand behind the bars."""
    figure = Figure(figsize=(SIZE_INCHES[0], 1.3 + 0.42 * len(bars)), layout="constrained")
    axes = figure.add_subplot()
    names = list(bars)[::-1]
    ends = dict.fromkeys(names, 0.0)
    parts = dict.fromkeys(part for values in bars.values() for part in values)
    for color, part in zip(_colors(), parts, strict=False):
        values = [bars[name].get(part, 0.0) for name in names]
        axes.barh(names, values, left=list(ends.values()), color=color, height=0.62, label=part)
        ends = {name: ends[name] + value for name, value in zip(names, values, strict=True)}
    for at, name in enumerate(names):
        axes.annotate(
            (notes or {}).get(name, plain(ends[name])),
            (ends[name], at),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    figure.suptitle(title, fontsize="large")
    axes.set(xlabel=label)
    axes.set_xlim(0, max(ends.values(), default=1) * 1.4 or 1)
    axes.xaxis.set_major_formatter(_write_plain)
    axes.tick_params(length=0)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(parts), frameon=False)
    _unframe(axes)
    return figure


def write_chart(figure: Figure, stem: Path) -> list[Path]:
    """Write it as PNG and SVG beside each other."""
    svg, png = (stem.with_name(f"{stem.name}.{kind}") for kind in ("svg", "png"))
    with open(svg, "wb") as file:
        svg_of(figure, file)
    figure.savefig(png, format="png", dpi=_DPI, metadata={"Software": None})
    return [svg, png]


def svg_of(figure: Figure, file: BinaryIO) -> None:
    """Write it as SVG whose letters are shapes, so that it looks alike everywhere."""
    with matplotlib.rc_context({"svg.hashsalt": "logstore", "svg.fonttype": "path"}):
        figure.savefig(file, format="svg", metadata={"Date": None})


def log_ticks(values: Iterable[float]) -> list[float]:
    """1, 2 and 5 of the decades that the values touch, from the last tick below them to the first
    one above; what is not above 0 has no place on a logarithmic axis."""
    shown = [value for value in values if value > 0]
    if not shown:
        return []
    low, high = min(shown), max(shown)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks = [part * 10.0**decade for decade in range(first, last + 1) for part in (1, 2, 5)]
    begin = max(at for at, tick in enumerate(ticks) if tick <= low)
    end = min(at for at, tick in enumerate(ticks) if tick >= high)
    return ticks[begin : end + 1]


def plain(value: float) -> str:
    """A figure as a person writes it: 12,500, 87, 3.4, 0.051."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}".removesuffix(".0")
    return f"{value:.2g}" if abs(value) < 1 else f"{value:.2f}".rstrip("0").rstrip(".")


def size(bytes_: float) -> str:
    """128 B, 4 KiB, 1 MiB."""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes_ >= factor:
            return f"{plain(bytes_ / factor)} {unit}"
    return f"{plain(bytes_)} B"


def _dress(axes: Axes, title: str, x: Axis, y: Axis) -> None:
    axes.set(title=title, xlabel=x.label, ylabel=y.label)
    for axis, spec, setter in ((axes.xaxis, x, axes.set_xscale), (axes.yaxis, y, axes.set_yscale)):
        if spec.is_log:
            setter("log", base=2 if _doubles(spec.ticks) else 10)
        if spec.ticks:
            axis.set_ticks(list(spec.ticks))
        axis.set_major_formatter(_write_size if spec.label.endswith("size") else _write_plain)
        axis.set_minor_formatter(lambda *_: "")
    axes.grid(visible=True, axis="y", alpha=0.25)
    _unframe(axes)


def _write_size(value: float, _: object) -> str:
    return size(value)


def _write_plain(value: float, _: object) -> str:
    return plain(value)


def _doubles(ticks: Sequence[float]) -> bool:
    return len(ticks) > 1 and all(after / before in (2, 4, 8) for before, after in pairwise(ticks))


def _unframe(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _colors() -> Iterable[str]:
    while True:
        yield from _PALETTE


def _label_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Names beside the last points, moved apart where they would overlap."""
    axes.get_ylim()  # takes the lines' limits in, which `transData` alone does not
    to_axes = axes.transData + axes.transAxes.inverted()
    placed = sorted(
        (float(to_axes.transform((x, y))[1]), name, color) for x, y, name, color in ends
    )
    for at, (_, name, color) in zip(apart([row[0] for row in placed]), placed, strict=True):
        axes.annotate(
            name,
            (1.01, at),
            xycoords="axes fraction",
            va="center",
            ha="left",
            color=color,
            fontsize=9,
            annotation_clip=False,
        )


def apart(heights: Sequence[float]) -> list[float]:
    """Ascending heights of labels, as shares of the axes, moved up until none covers the next, and
    down again where they would leave at the top."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + _LABEL_GAP) if placed else height)
    ceiling = 1.0
    for at in reversed(range(len(placed))):
        placed[at] = min(placed[at], ceiling)
        ceiling = placed[at] - _LABEL_GAP
    return placed
