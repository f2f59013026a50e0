"""What the figures of the log sharing paper are made of: bars, refusals, plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from matplotlib.figure import Figure

from benchmarks import fig7a, fig7b, fig7d
from benchmarks.measurement import Measurement, Site
from benchmarks.results import Result, as_read
from benchmarks.saturate import Row
from logstore.config import parse_config, render_config
from logstore.errors import InvalidRequest
from logstore.limits import KIB, MIB
from tests.unit.load_rows import product

SITE = Site(Path(), print)


def drawn(measurement: Measurement, runs: Sequence[Any]) -> dict[str, Figure]:
    assert measurement.draw is not None
    result = as_read(Result(measurement.name, {}, "", list(runs), {}))
    return dict(measurement.draw(result, []))


def labels(figure: Figure) -> set[str]:
    return {text.get_text() for text in figure.axes[0].texts}


# --- 7a ---

SMALL = fig7a.Case(128, 64 * KIB)
LARGE = fig7a.Case(1_024, 64 * KIB)


def disk_run(
    side: str, number: int, case: fig7a.Case, written: float, device: int | None = 3 * MIB
) -> fig7a.Run:
    """A run of 1 MiB of payloads on each of three replicas; `written` for each payload byte."""
    return fig7a.Run(
        side=side,
        round=number,
        case=case,
        attempts=1,
        payload_bytes=MIB,
        flush_bytes=64 * KIB,
        written=int(written * 3 * MIB),
        given=3 * MIB,
        device=device,
        space=6 * MIB,
        load=product(),
    )


def pairs(case: fig7a.Case, *written: float, device: int | None = 3 * MIB) -> list[fig7a.Run]:
    """A round for each figure of ours; the naive side writes two bytes, and begins every other."""
    runs = []
    for number, ours in enumerate(written, 1):
        both = [
            disk_run(fig7a.OURS, number, case, ours, device),
            disk_run(fig7a.NAIVE, number, case, 2.0, device),
        ]
        runs += both if number % 2 else both[::-1]
    return runs


def test_disk_bytes_are_compared_round_by_round_and_the_median_decides() -> None:
    summary = fig7a.summarise(pairs(LARGE, 1.2, 1.01, 1.0))
    assert summary["1 KiB in 64 KiB, written"] == {
        "measured": 0.505,
        "low": 0.5,
        "high": 0.6,
        "target": 0.51,
        "is_reached": True,
        "ours_per_payload_byte": 1.01,
        "naive_per_payload_byte": 2.0,
    }
    assert summary["1 KiB in 64 KiB, space"]["ours_per_payload_byte"] == 2.0
    assert "target" not in summary["1 KiB in 64 KiB, space"]
    missed = fig7a.summarise(pairs(LARGE, 1.2, 1.03, 1.0))
    assert not missed["1 KiB in 64 KiB, written"]["is_reached"]


def test_small_payloads_and_small_batches_have_no_bar() -> None:
    assert not SMALL.has_target
    assert not fig7a.Case(1_024, 32 * KIB).has_target
    found = fig7a.summarise(pairs(SMALL, 1.2))["128 B in 64 KiB, written"]
    assert found["median"] == 0.6
    assert "is_reached" not in found


def test_a_device_that_is_not_known_is_said_and_not_drawn() -> None:
    runs = pairs(LARGE, 1.0, device=None)
    assert "not known" in fig7a.summarise(runs)["1 KiB in 64 KiB, device"]
    figures = drawn(fig7a.FIG7A, runs)
    assert fig7a.COUNTED["device"] not in labels(figures["fig7a-64-kib-over-naive"])


def test_a_case_is_offered_as_batches_of_its_size() -> None:
    load = LARGE.settings(12.0, 7.0)
    assert (load.payload, load.batch, load.may_pack) == (1_024, 64, False)
    assert load.rate * load.payload == 12e6


@pytest.mark.parametrize(
    ("payloads", "batches_kib", "named"),
    [("65537", "64", "--payloads"), ("1024", "4096", "--batches-kib"), ("1024", "", "--batches")],
)
def test_batches_that_cannot_be_are_refused(payloads: str, batches_kib: str, named: str) -> None:
    with pytest.raises(InvalidRequest, match=named):
        fig7a.measure_fig7a(
            SITE, payloads=payloads, batches_kib=batches_kib, mb_per_s=1.0, seconds=1.0, rounds=1
        )


def test_each_size_of_batches_has_a_plot_with_the_papers_line() -> None:
    runs = [*pairs(SMALL, 1.1), *pairs(LARGE, 1.0), *pairs(fig7a.Case(512, 256 * KIB), 1.0)]
    figures = drawn(fig7a.FIG7A, runs)
    assert list(figures) == [
        "fig7a-64-kib-over-naive",
        "fig7a-64-kib-per-payload-byte",
        "fig7a-256-kib-over-naive",
        "fig7a-256-kib-per-payload-byte",
    ]
    over_naive, written = list(figures.values())[:2]
    assert labels(over_naive) == {
        *fig7a.COUNTED.values(), "paper: about 0.5", "at most 0.51"
    }  # fmt: skip
    assert labels(written) == {"ours", "naive", "payloads once", "twice"}
    ours = over_naive.axes[0].lines[0]
    assert list(ours.get_xdata()) == [128, 1_024]
    assert list(ours.get_ydata()) == [0.55, 0.5]


# --- 7b ---


def batch_run(batch: int, rate: float, number: int = 1) -> fig7b.Run:
    row = product(batch=batch, rate=10_000.0, payloads_per_s=rate, p50_ms=5.0, p99_ms=9.0)
    return fig7b.Run(number, 1, 0.5, row)


def test_batches_of_every_size_must_be_acknowledged_at_the_offered_rate() -> None:
    runs = [batch_run(1, 9_690.0), batch_run(1_024, 9_710.0), batch_run(1_024, 9_000.0, 2)]
    found = fig7b.summarise([*runs, batch_run(1, 9_710.0, 2), batch_run(1_024, 9_990.0, 3)])
    assert found["batches of 1"]["measured"] == 0.97
    assert found["batches of 1"]["is_reached"]
    assert found["batches of 1024"]["low"] == 0.9
    assert found["batches of 1"]["p99_ms"].median == 9.0
    assert not fig7b.summarise([batch_run(1, 9_690.0)])["batches of 1"]["is_reached"]


@pytest.mark.parametrize(
    ("rates", "is_reached"), [((9_800, 10_000), True), ((9_600, 10_000), False)]
)
def test_sizes_of_batches_must_lie_close_together(rates: tuple[int, ...], is_reached: bool) -> None:
    runs = [batch_run(4**at, rate) for at, rate in enumerate(rates)]
    between = fig7b.summarise(runs)["between_sizes"]
    assert (between.target, between.is_reached) == (0.03, is_reached)


def test_sizes_are_compared_within_a_round() -> None:
    rounds = [(10_000.0, 10_000.0), (9_000.0, 9_000.0), (0.0, 0.0)]
    runs = [
        batch_run(4**at, rate, n) for n, both in enumerate(rounds) for at, rate in enumerate(both)
    ]
    between = fig7b.summarise(runs)["between_sizes"]
    assert (between.measured, between.low, between.high) == (0.0, 0.0, 1.0)


def test_batches_above_what_the_product_takes_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="--batches"):
        fig7b.measure_fig7b(SITE, batches="1,4096", payload=1_024, rate=1.0, seconds=1.0, rounds=1)


def test_the_rate_is_drawn_beside_what_was_offered() -> None:
    figures = drawn(fig7b.FIG7B, [batch_run(1, 9_000.0), batch_run(4, 10_000.0)])
    assert list(figures) == ["fig7b-rate", "fig7b-latency"]
    rate = figures["fig7b-rate"].axes[0]
    assert labels(figures["fig7b-rate"]) == {"ours", "offered (paper: constant)"}
    assert list(rate.lines[0].get_ydata()) == [9_000.0, 10_000.0]
    assert list(rate.lines[1].get_ydata()) == [10_000.0, 10_000.0]
    assert rate.get_ylim() == (0.0, 12_500.0)
    assert labels(figures["fig7b-latency"]) == {"p50", "p99", "until a batch is full"}


# --- 7d ---


def replica_run(replicas: int, rate: float, *, sent: float | None = 65.0) -> fig7d.Run:
    row = product(payload=1_024, rate=32_000.0, payloads_per_s=rate, mb_per_s=rate * 1_024 / 1e6)
    own = msgspec.structs.replace(row, leader_sent_mb_per_s=sent, leader_disk_mb_per_s=33.0)
    return fig7d.Run(replicas, 1, 1, 0.5, own)


def test_each_number_of_replicas_must_acknowledge_what_is_offered() -> None:
    rates = {7: 30_000.0, 3: 31_000.0, 5: 34_000.0}  # a backlog that is caught up counts, too
    found = fig7d.summarise([replica_run(replicas, rate) for replicas, rate in rates.items()])
    assert list(found) == [f"{each} replicas, 32,000 x 1 KiB/s" for each in (3, 5, 7)]
    three, five, seven = found.values()
    found_rates = [each["acknowledged_over_offered"] for each in (three, five, seven)]
    assert found_rates == [0.9688, 1.0625, 0.9375]
    assert [each["measured"] for each in (three, five, seven)] == [0.0312, 0.0625, 0.0625]
    assert [each["is_reached"] for each in (three, five, seven)] == [True, False, False]
    assert three["leader_total_mb_per_s"].median == 98.0


def test_a_number_of_replicas_that_no_cluster_has_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="--replicas"):
        fig7d.measure_fig7d(SITE, replicas="3,10", seconds=1.0, rounds=1)


def test_a_network_that_cannot_be_counted_is_said_and_not_drawn() -> None:
    runs = [replica_run(3, 31_000.0, sent=None)]
    found = fig7d.summarise(runs)["3 replicas, 32,000 x 1 KiB/s"]
    assert found["leader_total_mb_per_s"] == found["leader_sent_mb_per_s"] == "unknown"
    assert found["leader_disk_mb_per_s"].median == 33.0
    figures = drawn(fig7d.FIG7D, runs)
    assert labels(figures["fig7d-leader"]) == {"offered x replicas"}
    assert labels(figures["fig7d-client"]) == {"32,000 x 1 KiB/s", "offered: 32.8 MB/s"}


def test_the_ring_has_room_for_every_number_of_replicas() -> None:
    for replicas in (*fig7d.REPLICAS, 9):
        config = fig7d.config_of(replicas)
        assert parse_config(render_config(config)).node_ids() == list(range(1, replicas + 1))


def test_rows_of_loads_are_read_back_as_they_were_written() -> None:
    row = product(payload=1_024)
    assert msgspec.convert(msgspec.to_builtins(row), Row) == row
