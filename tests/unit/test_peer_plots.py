"""Charts of the comparison with peers, of made-up rows."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.charts import write_chart
from benchmarks.peers.failover import Failover
from benchmarks.peers.loads import AT_A_RATE, CACHED_ON_MAJORITY, FLUSHED_ON_MAJORITY, SINGLES, Load
from benchmarks.peers.peer_plots import draw_peers
from benchmarks.peers.ratios import summarise
from benchmarks.peers.rounds import Row, Start
from benchmarks.peers.timed_run import Run
from benchmarks.results import Result, as_read

ZEROS = dict.fromkeys(Run.__struct_fields__, 0)


def run(contender: str, load: Load, rate: float, durability: str) -> Run:
    facts = {"contender": contender, "load": load.name, "durability": durability, "error": ""}
    figures = {"payloads_per_s": rate, "p50_ms": 1e3 / rate, "p99_ms": 2e3 / rate}
    facts |= {"rate": load.rate, "window_bytes": load.window_bytes}
    return msgspec.convert({**ZEROS, **facts, **figures, "kind": "run", "system": "s"}, Run)


ROWS: list[Row] = [
    run("logstore", SINGLES, 1_000.0, FLUSHED_ON_MAJORITY),
    run("NATS", SINGLES, 4_000.0, CACHED_ON_MAJORITY),
    run("logstore", AT_A_RATE, 1_000.0, FLUSHED_ON_MAJORITY),
    Start(1, "logstore", FLUSHED_ON_MAJORITY, 5.0, 400.0),
    Start(2, "logstore", FLUSHED_ON_MAJORITY, 7.0, 410.0),
    Failover("logstore", FLUSHED_ON_MAJORITY, 1, 2, 1.5),
]


def draw(rows: list[Row], missing: dict[str, str]) -> dict[str, Figure]:
    summary = summarise(rows, missing, ours="logstore")
    return draw_peers(as_read(Result("peers", {}, "commit", list(rows), summary)), [])


def axes_of(figure: Figure) -> Axes:
    return figure.axes[0]


def test_every_load_and_figure_has_a_chart() -> None:
    assert set(draw(ROWS, {})) == {
        "peers-1-kib-singles",
        "peers-1-kib-singles-cpu",
        "peers-1-kib-at-1000-s",
        "peers-start",
        "peers-failover",
        "peers-memory",
    }


def test_bars_fall_and_name_their_durability() -> None:
    axes = axes_of(draw(ROWS, {})["peers-1-kib-singles"])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["logstore", "NATS"]  # upwards
    assert [bar.get_width() for bar in axes.patches] == [1_000.0, 4_000.0]  # type: ignore[attr-defined]
    notes = [text.get_text() for text in axes.texts]
    assert notes[0].endswith(", flushed")
    assert notes[1].endswith(", page cache")
    assert axes.patches[0].get_facecolor() != axes.patches[1].get_facecolor()


def test_latency_is_drawn_where_it_is_the_figure() -> None:
    axes = axes_of(draw(ROWS, {})["peers-1-kib-at-1000-s"])
    assert axes.get_xlabel() == "p50, ms"
    assert axes.texts[0].get_text().startswith("1  (p99 2)")


def test_what_is_missing_is_in_the_titles() -> None:
    titles = {
        axes_of(figure).get_title() for figure in draw(ROWS, {"kafka": "needs a JDK"}).values()
    }
    assert all(title.endswith("(missing: kafka)") for title in titles)
    assert draw([], {"kafka": "needs a JDK"}) == {}


@pytest.mark.slow
def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    written = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        figure = draw(ROWS, {})["peers-start"]
        written.append([path.read_bytes() for path in write_chart(figure, tmp_path / name / "x")])
    assert written[0] == written[1]
    assert ElementTree.fromstring(written[0][0]).tag.endswith("svg")
