"""The sweep of figure 7c: where it stops, what it says, what it refuses, how it is drawn."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from benchmarks import namespaces
from benchmarks.bare_stream import StreamRow, frames_ahead
from benchmarks.charts import apart, write_chart
from benchmarks.fig7c import (
    FIG7C,
    Plan,
    Sweep,
    measure_fig7c,
    offer_until_saturated,
    rates_from,
)
from benchmarks.fig7c_plots import draw_fig7c
from benchmarks.fig7c_runs import (
    BAR_PAYLOAD,
    LINKS,
    LoadRun,
    Run,
    StreamRun,
    load_run,
    points_of,
    summarise,
)
from benchmarks.measurement import Site
from benchmarks.namespaces import tbf_words, why_not
from benchmarks.report import tables_of
from benchmarks.results import Result, as_read
from benchmarks.saturate import Row, Sample, Settings, thinned
from benchmarks.shaped_cluster import ShapedCluster
from logstore.errors import InvalidRequest
from logstore.limits import GROUP_MAX_BYTES

BAR = "shaped, 4 KiB, over a bare stream"


def load(payload: int, offered: float, acknowledged: float, **values: Any) -> LoadRun:
    given = {"round": 1, "links": "shaped", "p50_ms": 2.0, "p99_ms": 9.0, "cores": 1.5}
    given |= {"client_cores": 0.5, "attempts": 1}
    rates = {"payloads_per_s": acknowledged, "mb_per_s": acknowledged * payload / 1e6}
    facts = {"payload": payload, "offered": offered, "payloads_per_group": 10.0}
    return LoadRun(**{**given, **rates, **facts, **values})


def made_up_runs() -> list[Run]:
    """Three rounds; shaped, 4 KiB saturate at 20,000/s, 81.92 MB/s."""
    runs: list[Run] = []
    for number in (1, 2, 3):
        for links in LINKS:
            for payload in (128, 4_096):
                most = 20_000.0 * (number if links == "unshaped" else 1)
                for rate in (8_000.0, 16_000.0, 32_000.0, 64_000.0, 0.0):
                    found = min(rate or most, most)
                    runs.append(load(payload, rate, found, round=number, links=links))
                runs.append(StreamRun(number, links, payload, 40_960, 80.0 + number))
    return runs


def made_up_result() -> Result:
    runs = made_up_runs()
    return as_read(Result("fig7c", {}, "", runs, summarise(runs, link_mb_per_s=87.0)))


def test_rates_double_from_a_thousand_to_what_no_log_takes() -> None:
    rates = list(rates_from(2))
    assert rates[:8] == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000]
    assert rates[-1] == 4_096_000
    assert list(rates_from(8)) == [1_000, 8_000, 64_000, 512_000, 4_096_000]


def test_a_rate_is_raised_until_two_in_a_row_were_too_much() -> None:
    """One alone may be a hiccup."""
    acknowledged = {1_000: 850.0, 2_000: 2_000.0, 4_000: 3_600.0, 8_000: 7_199.0, 16_000: 14_000.0}
    offered = []

    def offer(rate: float) -> LoadRun:
        offered.append(rate)
        return load(4_096, rate, acknowledged[int(rate)])

    runs = offer_until_saturated(offer, rates_from(2), steps_min=0)
    assert offered == [1_000, 2_000, 4_000, 8_000, 16_000]
    assert [run.offered for run in runs] == offered


def test_a_sweep_that_is_never_saturated_ends_with_the_rates() -> None:
    runs = offer_until_saturated(lambda rate: load(128, rate, rate), rates_from(8), steps_min=0)
    assert runs[-1].offered == 4_096_000


def test_each_round_goes_at_least_as_far_and_begins_with_the_other_links() -> None:
    played = PlayedCluster()
    plan = Plan((4_096,), step=2, rounds=3, seconds=1.0, link_mb_per_s=87.0)
    sweep = Sweep(cast("ShapedCluster", played), plan, lambda _: None)
    for number, most in enumerate((100_000.0, 50_000.0, 200_000.0), 1):
        played.most = most
        sweep.measure_round(number)
    ends = [before for before, rate in pairwise(played.rates) if rate == 0.0]
    # the paper's 128,000/s at least
    assert ends == [256_000, 128_000, 128_000, 256_000, 512_000, 128_000]
    assert played.shaped == [None, 87_000_000, 87_000_000, None, None, 87_000_000]
    points = points_of(sweep.runs, "unshaped", 4_096)
    assert points[-1].offered == 256_000  # only the last round went further
    assert {sample["pair"] for sample in sweep.samples} == {1, 2, 3}
    assert "shaped, 4 KiB, 8,000/s offered" in {sample["figure"] for sample in sweep.samples}


class PlayedCluster:
    """Acknowledges `most` payloads/s, a tenth of it where links are shaped."""

    def __init__(self) -> None:
        self.most = 100_000.0
        self.rates: list[float] = []
        self.shaped: list[int | None] = []
        self.network = self

    def shape(self, bytes_per_s: int) -> None:
        self.shaped.append(bytes_per_s)

    def unshape(self) -> None:
        self.shaped.append(None)

    def load(self, settings: Settings) -> tuple[tuple[Row, list[Sample]], int]:
        self.rates.append(settings.rate)
        most = self.most / (1 if self.shaped[-1] is None else 10)
        return (
            row(settings, min(settings.rate or most, most), client=1.0),
            [Sample(1.0, 2.0, 3)],
        ), 1

    def stream(self, *, frame_bytes: int, seconds: float) -> StreamRow:
        return StreamRow(frame_bytes, seconds, 83.0)


def row(settings: Settings, acknowledged: float, **cpu_s: float) -> Row:
    """As `measure_load` gives it, whatever fields that has."""
    numbers = dict.fromkeys(Row.__struct_fields__, 1.0)
    facts = {**numbers, **msgspec.structs.asdict(settings), "cpu_s": cpu_s, "rss_mb": {}}
    mb_per_s = acknowledged * settings.payload / 1e6
    return Row(**{**facts, "payloads_per_s": acknowledged, "mb_per_s": mb_per_s})


def test_of_a_load_is_kept_what_all_processes_took_of_the_cores() -> None:
    made = row(Settings(4_096, 1, 16.0, 2.0, 500.0), 499.0, leader=1.0, client=0.5)
    run = load_run(3, "unshaped", made, attempts=2)
    assert run.cores == 0.75
    assert (run.round, run.links, run.payload, run.offered) == (3, "unshaped", 4_096, 500.0)
    assert (run.payloads_per_s, run.mb_per_s) == (499.0, 499.0 * 4_096 / 1e6)
    assert not run.is_saturated


def test_the_bar_is_the_median_of_the_rounds_ratios() -> None:
    bar = made_up_result().summary[BAR]
    assert bar == {
        "measured": round(81.92 / 82.0, 4),
        "low": round(81.92 / 83.0, 4),
        "high": round(81.92 / 81.0, 4),
        "target": 0.95,
        "is_reached": True,
        "paper": 0.77,
    }


def test_a_bar_that_is_missed_is_told() -> None:
    slow = [
        msgspec.structs.replace(run, mb_per_s=67.0) if isinstance(run, LoadRun) else run
        for run in made_up_runs()
    ]
    assert not summarise(slow, link_mb_per_s=87.0)[BAR]["is_reached"]


def test_without_its_payload_there_is_no_bar() -> None:
    runs = [run for run in made_up_runs() if run.payload != BAR_PAYLOAD]
    assert not [name for name in summarise(runs, link_mb_per_s=87.0) if "over" in name]


def test_points_are_medians_with_their_spread() -> None:
    points = {point.offered: point for point in points_of(made_up_runs(), "unshaped", 4_096)}
    assert [points[rate].is_saturated for rate in sorted(points)] == [False, False, False, True]
    found = points[64_000.0].mb_per_s
    assert (found.median, found.low, found.high) == (163.84, 81.92, 245.76)
    assert points[8_000.0].mb_per_s.low == points[8_000.0].mb_per_s.high


def test_the_summary_is_a_table_of_links_and_sizes() -> None:
    summary = made_up_result().summary
    assert summary["unshaped, 4 KiB"]["saturated_mb_per_s"]["median"] == 163.84
    assert summary["shaped, 4 KiB"]["bare_stream_mb_per_s"]["median"] == 82.0
    assert summary["shaped, 4 KiB"]["over_bare_stream"] == summary[BAR]["measured"]
    names = [[name for name, _ in table.rows] for table in tables_of(summary)]
    assert ["unshaped, 128 B", "unshaped, 4 KiB", "shaped, 128 B", "shaped, 4 KiB"] in names


def test_a_streams_frames_are_as_large_as_replications_groups() -> None:
    assert load(4_096, 0.0, 1.0, payloads_per_group=50.0).group_bytes == 204_800
    assert load(4_096, 0.0, 1.0, payloads_per_group=1e6).group_bytes == GROUP_MAX_BYTES
    assert load(4_096, 0.0, 1.0, payloads_per_group=0.0).group_bytes == 4_096
    assert frames_ahead(64) > frames_ahead(1 << 20) >= 4


def test_samples_are_thinned_evenly() -> None:
    samples = [Sample(float(at), 1.0, 1) for at in range(1_001)]
    kept = thinned(samples, 200)
    assert [sample.at_ms for sample in kept] == [float(at) for at in range(0, 1_001, 6)]
    assert sum(sample.payloads for sample in kept) == 1_001
    assert thinned(samples[:200], 200) == samples[:200]
    assert not thinned([], 200)


def test_a_token_bucket_counts_bits() -> None:
    assert tbf_words(87_000_000)[:2] == ["rate", "696000000bit"]


def test_without_root_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 1_000)
    assert "root" in why_not()
    with pytest.raises(InvalidRequest, match="root"):
        measure_fig7c(
            Site(tmp_path, print), payloads="4096", step=2, rounds=1, seconds=1.0, link_mb=87.0
        )
    assert not list(tmp_path.iterdir())


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 0)
    monkeypatch.setattr(namespaces.shutil, "which", lambda tool: None if tool == "tc" else tool)
    assert why_not() == "tc missing: install iproute2"


def test_a_container_that_allows_no_namespaces_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise PermissionError(1, "unshare: Operation not permitted")

    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 0)
    monkeypatch.setattr(namespaces.shutil, "which", lambda tool: tool)
    monkeypatch.setattr(namespaces, "Namespace", refuse)
    assert "Operation not permitted" in why_not()


def test_the_figure_is_drawn_with_the_papers_line_and_the_bare_streams(tmp_path: Path) -> None:
    charts = draw_fig7c(made_up_result(), [])
    assert set(charts) == {"fig7c-unshaped", "fig7c-shaped", "fig7c-latency"}
    texts = {
        name: {text.get_text() for text in chart.axes[0].texts} for name, chart in charts.items()
    }
    assert texts["fig7c-unshaped"] == {"128 B", "4 KiB"}
    assert texts["fig7c-shaped"] == {
        "128 B",
        "4 KiB",
        "bare ZeroMQ stream: 82",
        "paper at 4 KiB: 67",
    }
    assert texts["fig7c-latency"] == {
        f"{links}, {name}" for links in LINKS for name in ("p50", "p99")
    }
    ticks = [tick.get_text() for tick in charts["fig7c-shaped"].axes[0].get_xticklabels()]
    assert ticks == ["8", "16", "32", "64"]
    for stem, chart in charts.items():
        assert all(path.stat().st_size > 1_000 for path in write_chart(chart, tmp_path / stem))


def test_latency_is_drawn_up_to_saturation() -> None:
    """Beyond, it only says how long a run was."""
    [axes] = draw_fig7c(made_up_result(), [])["fig7c-latency"].axes
    assert {max(line.get_xdata()) for line in axes.lines} == {16.0, 32.0}


def test_labels_keep_apart_within_the_axes() -> None:
    placed = apart([0.1, 0.97, 0.98, 0.98, 0.99, 1.0])
    assert placed[0] == 0.1
    assert placed[-1] == 1.0
    assert all(above - below > 0.04 for below, above in pairwise(placed))
    assert apart([0.2, 0.2]) == [0.2, 0.245]
    assert apart([]) == []


def test_a_quick_look_measures_the_bars_payload() -> None:
    assert str(BAR_PAYLOAD) == FIG7C.quick["payloads"]
    assert FIG7C.quick["rounds"] == 1
