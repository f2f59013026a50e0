"""What the figures of latency are made of, and how they are drawn."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from benchmarks import latency
from benchmarks.latency import (
    IDLE,
    LOADS,
    SATURATED,
    SHARES,
    LatencyRow,
    Level,
    draw_latency,
    levels,
    make_row,
    summarise,
)
from benchmarks.results import Result, as_read
from benchmarks.saturate import Row, Sample, Settings
from tests.unit.load_rows import product

SINGLES, BATCHES = LOADS


def samples(*latencies_ms: float, payloads: int = 1) -> list[Sample]:
    return [Sample(float(at), each, payloads) for at, each in enumerate(latencies_ms)]


def test_the_levels_are_one_in_flight_and_the_shares_of_saturation() -> None:
    assert [level.name for level in levels()] == [IDLE, "10%", "25%", "50%", "75%", "90%"]
    assert [level.share for level in levels()[1:]] == list(SHARES)
    assert [bool(level.window_mb) for level in levels()] == [True] + 5 * [False]


def test_a_batch_is_due_when_its_last_payload_is() -> None:
    # 64 payloads at 1,000 a second fill up in 63 ms after the first is due
    row = make_row(
        BATCHES, Level("10%", 0.1), 1, product(rate=1_000.0), samples(70.0, 68.0, payloads=64)
    )
    assert (row.p50_ms, row.most_ms, row.appends) == (5.0, 7.0, 2)
    single = make_row(SINGLES, Level("10%", 0.1), 1, product(rate=1_000.0), samples(7.0))
    assert single.p50_ms == 7.0
    closed = make_row(BATCHES, Level(SATURATED, 1.0), 1, product(), samples(70.0, payloads=64))
    assert closed.p50_ms == 70.0


def test_percentiles_are_those_of_their_names() -> None:
    raw = samples(*(float(each) for each in range(1, 2_001)))
    row = make_row(SINGLES, Level(IDLE, 0.0), 1, product(), raw)
    assert (row.p50_ms, row.p90_ms, row.p99_ms, row.p999_ms, row.most_ms) == (
        1_000.0, 1_800.0, 1_980.0, 1_998.0, 2_000.0,
    )  # fmt: skip


def rows() -> list[LatencyRow]:
    found = []
    for number, factor in ((1, 1.0), (2, 3.0), (3, 2.0)):
        for load in LOADS:
            for level in (Level(SATURATED, 1.0), *levels()):
                raw = samples(*(factor * (1 + level.share) * each for each in range(1, 101)))
                rate = level.share * 1_000
                found.append(make_row(load, level, number, product(rate=rate), raw))
    return found


def test_the_median_of_the_rounds_is_told_with_their_spread() -> None:
    found = summarise(rows())
    names = [SATURATED, *(level.name for level in levels())]
    assert list(found) == [f"{load.name}, {name}" for load in LOADS for name in names]
    idle = found["singles, idle"]
    assert (idle["p50_ms"], idle["p50_spread_ms"]) == (100.0, [50.0, 150.0])
    assert found["singles, 50%"]["offered_per_s"] == 500.0


def test_each_load_has_a_chart_with_a_line_for_each_percentile() -> None:
    result = as_read(Result("latency", {}, "", rows(), summarise(rows())))
    figures = draw_latency(result, [])
    assert list(figures) == ["latency-singles", "latency-batches-of-64"]
    axes = figures["latency-singles"].axes[0]
    assert [text.get_text() for text in axes.texts] == ["p50", "p90", "p99", "p99.9"]
    line = axes.get_lines()[0]
    assert list(line.get_xdata()) == [0.0, 10.0, 25.0, 50.0, 75.0, 90.0]
    assert line.get_ydata()[0] == 100.0


class Cluster:
    """Notes which rates are offered; every closed loop takes 2,000 a second."""

    def __init__(self) -> None:
        self.offered: list[tuple[float, float]] = []

    def start_all(self) -> None:
        pass

    def wait_for_leader(self) -> int:
        return 1

    def run(self, _: object, settings: Settings) -> tuple[Row, list[Sample]]:
        self.offered.append((settings.window_mb, settings.rate))
        return product(rate=settings.rate, payloads_per_s=2_000.0), samples(1.0)


@pytest.mark.parametrize(("number", "first"), [(1, 0), (3, 2), (7, 0)])
def test_shares_are_of_the_saturation_found_in_their_round_and_take_turns(
    monkeypatch: pytest.MonkeyPatch, number: int, first: int
) -> None:
    cluster = Cluster()
    monkeypatch.setattr(latency, "_run", cluster.run)
    monkeypatch.setattr(latency, "temporary_cluster", lambda *_: nullcontext(cluster))
    found = [row for row, _ in latency._measure_round(Path(), SINGLES, number, 1.0, print)]
    names = [level.name for level in levels()]
    assert [row.level for row in found] == [SATURATED, *names[first:], *names[:first]]
    rates = [0.0, *(share * 2_000.0 for share in SHARES)]
    assert [rate for _, rate in cluster.offered[2:]] == rates[first:] + rates[:first]
