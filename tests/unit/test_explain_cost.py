"""What `logstore explain` costs: the sum of its parts, ratios to another checkout, the chart."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.charts import write_chart
from benchmarks.explain_cost import (
    CLOCK,
    EXPLAIN_COST,
    PASSED,
    PUBLICATION,
    STAMP,
    WAKE,
    CostRun,
    Share,
    Unit,
    cost_run,
    draw_explain_cost,
    measure_explain_cost,
    ratios,
    share_of,
    summarise,
)
from benchmarks.measurement import Site
from benchmarks.results import Result
from logstore.errors import InvalidRequest
from tests.unit.explain_stage import Times, busy, readings

UNITS = [
    Unit(what, warm_ns, cold_ns)
    for what, warm_ns, cold_ns in (
        (STAMP, 100.0, 1_000.0),
        (PASSED, 10.0, 100.0),
        (CLOCK, 50.0, 50.0),
        (WAKE, 20.0, 200.0),
        (PUBLICATION, 1_000.0, 10_000.0),
    )
]


def share(cold: float) -> Share:
    return Share("load", 1.0, 0.5, {}, warm_share=cold / 10, cold_share=cold)


def run(number: int, is_ours: bool, payloads_per_s: float, cpu_ms: float = 1.0) -> CostRun:
    return CostRun("load", number, is_ours, payloads_per_s, 1.0, cpu_ms)


def test_the_share_is_what_all_parts_take_over_the_processor_time() -> None:
    times = Times()
    for number in range(10):
        times.append(11 + 11 * number, at_ms=50 * number)
    use = {1: {"raft": busy(0.5, cpu=0.3, bell_wakes=200)}, 2: {"writer": busy(0.5, cpu=0.1)}}
    found = share_of(
        "load", 9.0, UNITS, readings(times, counters={1: {"groups_committed": 220}}, use=use)
    )
    # 13 points of the leader, 8 of each follower, 10 entries, 2 s; 110 entries a second
    stamps, asked, clocks, wakes, published = 145.0, 110 * 20.0, 110 * 14.0, 100.0, 18.0
    assert found.rates == {
        STAMP: stamps, PASSED: asked, CLOCK: clocks, WAKE: wakes, PUBLICATION: published,
    }  # fmt: skip
    assert found.cores == 0.4
    warm = 100 * stamps + 10 * asked + 50 * clocks + 20 * wakes + 1_000 * published
    cold = 1_000 * stamps + 100 * asked + 50 * clocks + 200 * wakes + 10_000 * published
    assert found.warm_share == pytest.approx(warm / 1e9 / 0.4, abs=1e-6)
    assert found.cold_share == pytest.approx(cold / 1e9 / 0.4, abs=1e-6)


@pytest.mark.parametrize(("cold", "is_reached"), [(0.009, True), (0.0101, False)])
def test_the_worst_case_is_held_against_one_percent(cold: float, is_reached: bool) -> None:
    (found,) = summarise([share(cold)], []).values()
    assert found == {"measured": cold, "warm": cold / 10, "target": 0.01, "is_reached": is_reached}


def test_throughput_is_compared_round_by_round_and_the_median_decides() -> None:
    rates = [(100.0, 100.0), (97.0, 100.0), (240.0, 200.0)]
    runs = [
        run(number, is_ours, rate)
        for number, both in enumerate(rates)
        for is_ours, rate in zip((True, False), both, strict=True)
    ]
    summary = summarise([], runs)
    assert summary["load, throughput over the other's"] == {
        "measured": 1.0, "quartile_1": 0.985, "quartile_3": 1.1, "ours": 100.0, "theirs": 100.0,
        "target": 0.99, "is_reached": True,
    }  # fmt: skip
    assert summary["load, processor time of a payload over the other's"]["measured"] == 1.0
    slower = summarise([], [run(0, True, 98.0), run(0, False, 100.0)])
    assert not slower["load, throughput over the other's"]["is_reached"]


def test_one_round_has_no_spread() -> None:
    found = ratios([run(0, False, 2.0), run(0, True, 3.0)], "payloads_per_s")
    assert found["measured"] == found["quartile_1"] == found["quartile_3"] == 1.5


def test_processor_time_is_that_of_the_replicas() -> None:
    row = {"cpu_s": {"1.raft": 1.5, "2.writer": 0.5, "client": 9.0}, "p50_ms": 3.0}
    found = cost_run("load", 2, True, row | {"payloads_per_s": 500.0, "seconds": 2.0})
    assert found == CostRun("load", 2, True, 500.0, 3.0, 2.0)


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="another checkout"):
        measure_explain_cost(Site(tmp_path, print), other=tmp_path, rounds=1, seconds=1.0)


def test_the_chart_has_a_bar_for_each_load_warm_and_cold(tmp_path: Path) -> None:
    rows = [
        {"what": STAMP, "warm_ns": 1.0, "cold_ns": 2.0},
        {"load": "a load", "warm_share": 0.001, "cold_share": 0.004},
        {"load": "a load", "is_ours": True, "payloads_per_s": 1.0},
    ]
    result = Result("explain_cost", {}, "abc", rows, {})
    (figure,) = draw_explain_cost(result, []).values()
    (axes,) = figure.axes
    bars = [label.get_text() for label in axes.get_yticklabels()]
    assert bars == ["a load, cold", "a load, warm"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([0.4, 0.1])
    assert axes.get_xlim()[1] > 1, "what it may be is on the chart"
    assert all(path.stat().st_size for path in write_chart(figure, tmp_path / "chart"))
    assert EXPLAIN_COST.draw is draw_explain_cost
