"""All results that are kept, as one page for a browser.

Owns what the page says and how: each measurement's question, its summary, its plots, the machine
and the commit. The same results give the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from benchmarks.charts import plain, svg_of
from benchmarks.measurement import Measurement
from benchmarks.results import RESULTS, Result, read_result, read_samples

PAGE = Path("docs/benchmarks.html")
_TEMPLATE = "report.html"


class Table(msgspec.Struct, frozen=True):
    """Lines of a summary that have the same columns; a line without a value has "" there."""

    columns: list[str]
    rows: list[tuple[str, list[str]]]


class Section(msgspec.Struct, frozen=True):
    """A measurement of the page; `charts` are SVG."""

    name: str
    question: str
    commit: str
    machine: str
    command: str
    tables: list[Table]
    charts: list[Markup]


def page_of(measurements: Sequence[Measurement], root: Path) -> str:
    """The page of every measurement whose result is kept below `root`, in their order.

    Raises:
      InvalidRequest: a result cannot be read.
    """
    environment = Environment(
        loader=PackageLoader("benchmarks", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections = [
        _section(measurement, path)
        for measurement in measurements
        if (path := root / RESULTS / f"{measurement.name}.json").exists()
    ]
    return environment.get_template(_TEMPLATE).render(sections=sections)


def tables_of(summary: Mapping[str, Any]) -> list[Table]:
    """The summary as tables: what has parts is a line with a column for each, what has none a line
    with one value. Lines of the same columns stand together."""
    found: dict[tuple[str, ...], Table] = {}
    for name, value in summary.items():
        line = dict(_flat(value)) if isinstance(value, dict) else {"": _told(value)}
        columns = tuple(line)
        table = found.setdefault(columns, Table(list(columns), []))
        table.rows.append((_words(name), list(line.values())))
    return list(found.values())


def _flat(parts: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in parts.items():
        words = f"{before}{_words(name)}"
        if isinstance(value, dict):
            yield from _flat(value, f"{words}, ")
        else:
            yield words, _told(value)


def _told(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return plain(value)
        case list():
            return ", ".join(map(_told, value))
        case _:
            return _words(str(value))


def _words(name: str) -> str:
    return name.replace("_per_s", "/s").replace("_", " ")


def _section(measurement: Measurement, path: Path) -> Section:
    result = read_result(path)
    charts: Mapping[str, Figure] = {}
    if measurement.draw is not None:
        charts = measurement.draw(result, read_samples(path))
    return Section(
        name=measurement.name,
        question=measurement.question,
        commit=_short(result.commit),
        machine=_machine(result),
        command=str(result.environment.get("command", f"python -m benchmarks {measurement.name}")),
        tables=tables_of(result.summary),
        charts=[Markup(_inline(figure)) for figure in charts.values()],
    )


def _short(commit: str) -> str:
    """A hash in twelve letters; what says that files had been changed stays."""
    name = commit.removesuffix("+")
    return name[:12] + commit[len(name) :]


def _machine(result: Result) -> str:
    of = result.environment
    memory_gb = float(of["memory_mb"]) / 1_000
    return (
        f"{of['cpu_count']} cores{f' of {cpu}' if (cpu := of.get('cpu_model')) else ''}, "
        f"{memory_gb:.0f} GB, {of['file_system']}, Linux {of['kernel']}, Python {of['python']}"
    )


def _inline(figure: Figure) -> str:
    """The chart without XML's head, which has no place inside a page."""
    buffer = io.BytesIO()
    svg_of(figure, buffer)
    text = buffer.getvalue().decode()
    return text[text.index("<svg") :]
