"""What the figures of readers are made of: due times, lags, shares, fetches a core."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks.medians import Verdict
from benchmarks.range_fetch import Fetch
from benchmarks.readers import (
    AT_RATE,
    COLD,
    SATURATED,
    WARM,
    Found,
    Plan,
    TailRow,
    draw_reads,
    due_ns,
    kept,
    make_fetch_row,
    make_tail_row,
    summarise,
)
from benchmarks.results import Result, as_read
from benchmarks.saturate import WARM_UP_S
from benchmarks.tail_consumers import Seen, TailConsumers, cpu_between
from logstore.errors import Unreachable
from tests.unit.load_rows import product

MS = 1_000_000
# acknowledged, due, payloads: 1,000 a second in batches of 10, from 0 on
APPENDED = np.array([[(at + 1) * 10 * MS, at * 10 * MS, 10] for at in range(400)], dtype=np.int64)
LOG_END = 500  # before the load


def test_a_batch_is_due_when_its_last_payload_is() -> None:
    payloads = np.array([10, 20, 4_000])
    assert due_ns(APPENDED, payloads, 1_000.0).tolist() == [9 * MS, 19 * MS, 3_999 * MS]
    assert due_ns(APPENDED, payloads, 0.0).tolist() == [0, 10 * MS, 3_990 * MS]


def seen(consumers: int) -> Seen:
    """Each consumer has each batch 30 ms after it was due, the last consumer only every second."""
    rows = [
        (consumer, (10 * at + 9 + 30) * MS, LOG_END + 10 * (at + 1), 10)
        for consumer in range(consumers)
        for at in range(0, 400, 2 if consumer == consumers - 1 else 1)
    ]
    cpu = np.array([[0, 0], [10_000 * MS, 5_000 * MS]], dtype=np.int64)
    return Seen(np.array(rows, dtype=np.int64).reshape(-1, 4), [cpu] if consumers else [])


def test_lag_runs_from_due_to_seen_within_the_measured_seconds() -> None:
    load = product(
        rate=1_000.0, seconds=1.0, payloads_per_s=950.0, cpu_s={"1.egress": 0.2, "2.egress": 0.1}
    )
    row, samples = make_tail_row(load, APPENDED, seen(3), LOG_END, consumers=3, number=2)
    assert (row.producers, row.consumers, row.processes, row.round) == (AT_RATE, 3, 1, 2)
    assert (row.lag_p50_ms, row.lag_p99_ms, row.lag_most_ms) == (30.0, 30.0, 30.0)
    assert (row.delivered_per_s, row.delivered_least_per_s) == (1_000.0, 500.0)
    assert row.acknowledged_share == 0.95
    assert (row.egress_cores, row.consumer_cores) == (0.3, 0.5)
    assert {each.latency_ms for each in samples} == {30.0}
    assert all(0 <= each.at_ms < 1_000 for each in samples)
    assert sum(each.payloads for each in samples) == 1_000


def test_consumers_that_get_less_than_there_is_have_no_lag() -> None:
    """They are later the longer a run is."""
    load = product(rate=1_000.0, seconds=1.0, payloads_per_s=1_000.0)
    row, _ = make_tail_row(load, APPENDED, seen(1), LOG_END, consumers=1, number=1)
    assert row.delivered_share == 0.5
    assert (row.lag_p50_ms, row.lag_p99_ms, row.lag_most_ms) == (None, None, None)


def test_without_consumers_nothing_is_delivered() -> None:
    load = product(rate=1_000.0, seconds=1.0)
    row, samples = make_tail_row(load, APPENDED, seen(0), LOG_END, consumers=0, number=1)
    assert (row.delivered_per_s, row.delivered_share, samples) == (0.0, 0.0, [])
    assert row.lag_p50_ms is None


def test_the_warm_up_is_that_of_the_load() -> None:
    load = product(rate=1_000.0, seconds=0.01)
    _, samples = make_tail_row(load, APPENDED, seen(2), LOG_END, consumers=2, number=1)
    # the batch that is due at 1,979 ms is seen at 2,009 ms
    assert [(each.at_ms, each.payloads) for each in samples] == [(2_009 - 1_000 * WARM_UP_S, 10)]


def test_processor_time_between_two_moments_is_interpolated() -> None:
    cpu = np.array([[0, 0], [100 * MS, 50 * MS], [200 * MS, 250 * MS]], dtype=np.int64)
    assert cpu_between(cpu, 50 * MS, 150 * MS) == pytest.approx(0.125)


def tail(number: int, consumers: int, acknowledged: float, *, rate: float = 10_000.0) -> TailRow:
    load = product(rate=rate, seconds=1.0, payloads_per_s=acknowledged)
    appended = APPENDED if rate else APPENDED.copy()
    row, _ = make_tail_row(
        load, appended, seen(consumers), LOG_END, consumers=consumers, number=number
    )
    return msgspec.structs.replace(
        row,
        lag_p50_ms=10.0 * number,
        lag_p99_ms=20.0 * number,
        egress_cores=0.1,
        consumer_cores=0.2,
    )


def found() -> Found:
    tails = [
        *(tail(at, 0, 10_000.0) for at in (1, 2, 3)),
        *(tail(at, 1, each) for at, each in ((1, 9_000.0), (2, 10_000.0), (3, 8_000.0))),
        *(tail(at, 10, 5_000.0) for at in (1, 2, 3)),
        tail(1, 10, 1_000.0, rate=1_000.0),
        tail(1, 0, 100_000.0, rate=0.0),
        tail(1, 1, 80_000.0, rate=0.0),
    ]
    fetches = [
        make_fetch_row(Fetch(1_000_000_000, 2.0, 0.5, 0.5), WARM, 1),
        make_fetch_row(Fetch(1_000_000_000, 4.0, 1.0, 1.0), COLD, 1),
    ]
    return Found(tails, fetches, [])


def test_producers_are_held_against_their_own_round_without_consumers() -> None:
    assert kept(found().tails, AT_RATE, 1) == [0.9, 1.0, 0.8]
    assert kept(found().tails, AT_RATE, 10) == [0.5, 0.5, 0.5]
    assert kept(found().tails, SATURATED, 1) == [0.8]


def test_figures_with_a_target_say_whether_it_is_reached() -> None:
    summary = summarise(found())
    at_rate = summary["one consumer, producers at a rate keep"]
    assert at_rate == Verdict(0.9, 0.8, 1.0, target=0.85, is_reached=True)
    assert not summary["one consumer, saturated producers keep"].is_reached
    fetch = summary["fetch in the page cache, GB a core second"]
    assert (fetch.measured, fetch.is_reached) == (1.0, True)
    assert summary["fetch from the disk"] == {"gb_per_s": 0.25, "gb_per_core_s": 0.5}
    assert summary["1 consumer, 10,000/s"]["acknowledged_per_s"] == 9_000.0
    assert list(summary)[:6] == [
        "no consumer, 10,000/s",
        "1 consumer, 10,000/s",
        "10 consumers, 10,000/s",
        "10 consumers, 1,000/s",
        "no consumer, saturated",
        "1 consumer, saturated",
    ]


def test_lag_is_drawn_by_the_number_of_consumers_at_the_full_rate() -> None:
    rows = [*found().tails, *found().fetches]
    result = as_read(Result("reads", {}, "", rows, summarise(found())))
    figures = draw_reads(result, [])
    assert set(figures) == {"reads-lag", "reads-cores", "reads-fetch"}
    p50, p99 = figures["reads-lag"].axes[0].get_lines()
    assert list(p50.get_xdata()) == [1, 10]
    assert list(p50.get_ydata()) == [20.0, 20.0]
    assert list(p99.get_ydata()) == [40.0, 40.0]


def test_no_lag_is_drawn_of_consumers_that_did_not_follow_in_some_run() -> None:
    """The median of the runs in which they did would be told as that of all."""
    mixed = found()
    mixed.tails.append(tail(4, 10, 5_000.0))
    mixed.tails[-1] = msgspec.structs.replace(mixed.tails[-1], lag_p50_ms=None, lag_p99_ms=None)
    result = as_read(Result("reads", {}, "", [*mixed.tails, *mixed.fetches], summarise(mixed)))
    p50, _ = draw_reads(result, [])["reads-lag"].axes[0].get_lines()
    assert list(p50.get_xdata()) == [1]
    assert result.summary["10 consumers, 10,000/s"]["lag_p50_ms"] is None


def test_the_largest_number_of_consumers_follows_a_slower_producer_too() -> None:
    plan = Plan(rounds=1, seconds=1.0, rate=10_000.0, consumers_most=100, fetch_mib=1)
    numbers = [(0, 10_000.0), (1, 10_000.0), (10, 10_000.0), (100, 10_000.0), (100, 1_000.0)]
    assert plan.offers() == numbers
    assert msgspec.structs.replace(plan, consumers_most=1).offers() == numbers[:2]


@pytest.mark.slow
def test_a_consumer_that_reaches_no_cluster_fails_and_leaves_no_process(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="ended"):
        TailConsumers(["no endpoint"], [1], tmp_path)
