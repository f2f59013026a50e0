"""The arithmetic of the benchmarks, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

import logstore
from benchmarks import load
from benchmarks.clients import ClientRun, compare_clients
from benchmarks.clients import summarise as summarise_clients
from benchmarks.compare import FIGURES, Pair, summarise
from benchmarks.environment import file_system_of, require_real_file_system
from benchmarks.floor import FLOOR_VARIABLE, FloorRow, find_floor
from benchmarks.idle import IdleRow
from benchmarks.load import LoadSpec, counted_from_schedule, make_batches
from benchmarks.saturate import Row, weighted_percentile
from logstore.errors import InvalidRequest

MS = 1_000_000


def product(**values: float) -> Row:
    facts = {"payload": 1_024, "batch": 1, "window_mb": 2.0, "seconds": 5.0, "rate": 0.0}
    rates = {"payloads_per_s": 1.0, "mb_per_s": 1.0, "p50_ms": 1.0, "p99_ms": 1.0}
    rest = {"payloads_per_group": 1.0, "disk_bytes_per_payload_byte": 1.0}
    return Row(**{**facts, **rates, **rest, "cpu_s": {}, "rss_mb": {}, **values})


def floor(**values: float) -> FloorRow:
    rates = {"frames_per_s": 1.0, "mb_per_s": 1.0, "p50_ms": 1.0, "p99_ms": 1.0}
    return FloorRow(**{"frame_bytes": 1_024, "fsync": True, "window_mb": 2.0, **rates, **values})


def test_memory_is_no_disk() -> None:
    assert file_system_of(Path("/dev/shm")) == "tmpfs"
    with pytest.raises(InvalidRequest, match="tmpfs"):
        require_real_file_system(Path("/dev/shm"))


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no folder"):
        require_real_file_system(tmp_path / "missing")


def test_without_a_floor_the_comparison_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FLOOR_VARIABLE, raising=False)
    with pytest.raises(InvalidRequest, match=FLOOR_VARIABLE):
        find_floor()


def test_percentiles_count_payloads_not_batches() -> None:
    latencies = np.array([10.0, 1.0, 5.0])
    weights = np.array([1, 97, 2], dtype=np.int64)
    assert weighted_percentile(latencies, weights, 0.50) == 1.0
    assert weighted_percentile(latencies, weights, 0.98) == 5.0
    assert weighted_percentile(latencies, weights, 1.0) == 10.0
    assert weighted_percentile(np.array([]), np.array([], dtype=np.int64), 0.5) == 0.0


def test_open_loop_latency_counts_from_when_a_payload_was_due() -> None:
    # 1,000 a second from 0 ms on; the third batch begins with payload 5, due at 5 ms
    rows = np.array([[3 * MS, 0, 2], [4 * MS, 0, 3], [9 * MS, 8 * MS, 1]], dtype=np.int64)
    counted = counted_from_schedule(rows, 0, 1_000.0)
    assert counted[:, 1].tolist() == [0, 2 * MS, 5 * MS]
    assert counted[:, 0].tolist() == rows[:, 0].tolist()


def test_an_open_loop_that_is_far_behind_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due and was not offered by then stays undone: it would take a thousand times as
    long."""
    now_ns = 0

    def pass_1_ms(*_: object) -> int:
        nonlocal now_ns
        now_ns += MS
        return now_ns

    monkeypatch.setattr(load, "monotonic_ns", pass_1_ms)
    producer = cast("logstore.Producer", SimpleNamespace(append=pass_1_ms))
    load.offer_at_rate(producer, [[b"payload"]], 0, 2_000 * MS, 1e6)
    assert 2_000 * MS <= now_ns <= (2_002 + load.OFFERS_PER_LOOK) * MS


def test_payloads_are_random_and_of_the_size_asked_for() -> None:
    spec = LoadSpec(
        endpoints=[],
        payload_bytes=1 << 16,
        batch=4,
        window_bytes=1,
        rate=0.0,
        seconds=1.0,
        samples="",
        parent_pid=0,
    )
    batches = make_batches(spec)
    assert {len(batch) for batch in batches} == {4}
    assert {len(payload) for batch in batches for payload in batch} == {1 << 16}
    assert len({payload for batch in batches for payload in batch}) == 4 * len(batches)


def test_the_median_of_the_pairs_decides_and_less_latency_is_better() -> None:
    singles, batches, one = FIGURES
    pairs = [
        Pair(singles.name, product(payloads_per_s=6.0), floor(frames_per_s=10.0), ratio)
        for ratio in (0.4, 0.6, 0.7)
    ]
    pairs += [Pair(batches.name, product(mb_per_s=5.0), floor(mb_per_s=10.0), 0.5)]
    pairs += [Pair(one.name, product(p50_ms=2.0), floor(p50_ms=1.0), 2.0)]
    summary = summarise(pairs, IdleRow(10.0, 0.06, {}))
    assert summary[singles.name]["median_ratio"] == 0.6
    assert summary[singles.name]["is_reached"]
    assert not summary[batches.name]["is_reached"]
    assert summary[one.name]["is_reached"]
    assert not summary["idle"]["is_reached"]


def test_clients_are_compared_pair_by_pair() -> None:
    rates = [(100.0, 100.0), (90.0, 100.0), (240.0, 200.0)]
    runs = [
        ClientRun("append", pair, is_ours, rate, 1e6 / rate)
        for pair, both in enumerate(rates)
        for is_ours, rate in zip((True, False), both, strict=True)
    ]
    found = summarise_clients(runs)["append"]
    assert found["payloads_per_s"] == {
        "ours": 100.0,
        "theirs": 100.0,
        "ratio": 1.0,
        "ratio_quartile_1": 0.9,
        "ratio_quartile_3": 1.2,
    }
    assert found["cpu_s_per_million"]["ratio"] == 1.0


def test_a_client_of_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="checkout"):
        compare_clients(tmp_path, tmp_path, pairs=1, say=print)
