"""The arithmetic of the benchmarks, and what they refuse."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from benchmarks import load, usage
from benchmarks.charts import line_of_runs
from benchmarks.clients import ClientRun, compare_clients
from benchmarks.clients import summarise as summarise_clients
from benchmarks.compare import FIGURES, Pair, summarise
from benchmarks.environment import file_system_of, require_real_file_system
from benchmarks.floor import FLOOR_VARIABLE, FloorRow, find_floor
from benchmarks.idle import IdleRow
from benchmarks.load import LoadSpec, counted_from_schedule, is_packed, make_batches
from benchmarks.measurement import parse_numbers
from benchmarks.medians import at_least, at_most, spread
from benchmarks.saturate import (
    ATTEMPTS,
    Sample,
    named_samples,
    try_again,
    weighted_percentile,
)
from benchmarks.usage import Mark, device_bytes_written, sent_bytes_between
from logstore.cli.embedded import poll_until
from logstore.errors import InvalidRequest, LogStoreError, Unreachable
from tests.unit.load_rows import product

MS = 1_000_000


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


def test_what_was_appended_and_not_acknowledged_is_an_error() -> None:
    assert load.report_of(5, 5) == load.LoadReport(5, 0, "")
    assert load.report_of(5, 3) == load.LoadReport(5, 2, "2 of 5 payloads were not acknowledged")


def test_an_open_loop_that_is_far_behind_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due and was not offered by then stays undone: it would take a thousand times as
    long."""
    now_ns = 0

    def pass_1_ms(*_: object) -> int:
        nonlocal now_ns
        now_ns += MS
        return now_ns

    monkeypatch.setattr(load, "monotonic_ns", pass_1_ms)
    load.offer_at_rate(pass_1_ms, [[b"payload"]], 0, 2_000 * MS, 1e6)
    assert 2_000 * MS <= now_ns <= (2_002 + 2 * load.OFFERS_PER_LOOK) * MS


def test_what_was_due_in_time_is_offered_after_a_stall_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = iter([10 * MS, 2_150 * MS])
    monkeypatch.setattr(load, "monotonic_ns", lambda: next(looks))
    monkeypatch.setattr(load, "poll_until", lambda *_, **__: True)
    appended: list[object] = []
    assert load.offer_at_rate(appended.append, [[b"payload"]], 0, 100 * MS, 1_000.0) == 100
    assert len(appended) == 100


def load_spec(*, payload_bytes: int = 1, batch: int, may_pack: bool = True) -> LoadSpec:
    return LoadSpec(
        endpoints=[],
        payload_bytes=payload_bytes,
        batch=batch,
        may_pack=may_pack,
        window_bytes=1,
        rate=0.0,
        seconds=1.0,
        samples="",
        parent_pid=0,
    )


def test_only_payloads_that_are_appended_one_at_a_time_are_packed() -> None:
    assert is_packed(load_spec(batch=1))
    assert not is_packed(load_spec(batch=1, may_pack=False))
    assert not is_packed(load_spec(batch=2))


def test_payloads_are_random_and_of_the_size_asked_for() -> None:
    batches = make_batches(load_spec(payload_bytes=1 << 16, batch=4))
    assert {len(batch) for batch in batches} == {4}
    assert {len(payload) for batch in batches for payload in batch} == {1 << 16}
    assert len({payload for batch in batches for payload in batch}) == 4 * len(batches)


def test_the_median_of_the_pairs_decides_and_less_latency_is_better() -> None:
    singles, batches, one = FIGURES
    pairs = [
        Pair(singles.name, product(payloads_per_s=6.0), floor(frames_per_s=10.0), ratio)
        for ratio in (0.9, 1.1, 1.2)
    ]
    pairs += [Pair(batches.name, product(mb_per_s=5.0), floor(mb_per_s=10.0), 0.5)]
    alone = product(
        p50_ms=1.2, p99_ms=3.0, cpu_s={"1.raft": 1.0, "client": 0.5}, payloads_per_s=100.0,
        seconds=10.0,
    )  # fmt: skip
    pairs += [Pair(one.name, alone, floor(p50_ms=1.0, p99_ms=1.0), 1.2)]
    summary = summarise(pairs, IdleRow(10.0, 0.06, {}, {}, 0.0))
    assert summary[singles.name]["median_ratio"] == 1.1
    assert summary[singles.name]["is_reached"]
    assert not summary[batches.name]["is_reached"]
    assert summary[one.name]["is_reached"]
    assert summary[f"{one.name}, p99"]["median_ratio"] == 3.0
    assert not summary[f"{one.name}, p99"]["is_reached"]
    assert summary[f"{one.name}, processor time"]["median_cpu_ms"] == 1.5
    assert summary[f"{one.name}, processor time"]["is_reached"]
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


def test_several_numbers_are_given_with_commas_each_once() -> None:
    assert parse_numbers("4096, 128,128", key="--payloads", most=4_096) == (128, 4_096)
    for wrong in ("", "4096,", "0", "-1", "4KiB", "4097"):
        with pytest.raises(InvalidRequest, match="--payloads"):
            parse_numbers(wrong, key="--payloads", most=4_096)


def test_samples_are_kept_with_what_they_are_of() -> None:
    assert list(named_samples("f", 2, [Sample(1.0, 10.0, 2)])) == [
        {"figure": "f", "pair": 2, "at_ms": 1.0, "latency_ms": 10.0, "payloads": 2}
    ]


def test_a_run_in_which_leadership_changed_is_made_again_a_few_times() -> None:
    told: list[str] = []

    def run_that_fails(times: int, error: Exception) -> Callable[[], str]:
        left = iter([error] * times)

        def run() -> str:
            if (failure := next(left, None)) is not None:
                raise failure
            return "done"

        return run

    changed = Unreachable("leadership changed")
    assert try_again(run_that_fails(0, changed), told.append) == ("done", 1)
    assert told == []
    assert try_again(run_that_fails(ATTEMPTS - 1, changed), told.append) == ("done", ATTEMPTS)
    assert told == ["measured again: leadership changed"] * (ATTEMPTS - 1)
    with pytest.raises(Unreachable):
        try_again(run_that_fails(ATTEMPTS, changed), told.append)
    with pytest.raises(LogStoreError, match="other"):
        try_again(run_that_fails(1, LogStoreError("other")), told.append)


def test_medians_are_told_with_their_spread_and_their_target() -> None:
    found = at_most(2.0, [3.0, 1.0, 2.0])
    assert (found.measured, found.low, found.high) == (2.0, 1.0, 3.0)
    assert found.is_reached
    assert not at_most(1.99, [3.0, 1.0, 2.0]).is_reached
    assert at_least(2.0, [3.0, 1.0, 2.0]).is_reached
    assert not at_least(2.01, [3.0, 1.0, 2.0]).is_reached
    assert spread([1.23456]).median == 1.2346


def test_a_line_of_runs_has_medians_in_the_order_of_x() -> None:
    line = line_of_runs("a", {4: [1.0], 2: [3.0, 5.0, 4.0]})
    assert (line.x, line.y, line.low, line.high) == ([2, 4], [4.0, 1.0], [3.0, 1.0], [5.0, 1.0])


def test_the_device_below_a_folder_is_known_or_nothing_is_told(tmp_path: Path) -> None:
    assert device_bytes_written(Path("/proc")) is None  # no block device has this number
    before = device_bytes_written(tmp_path)
    if before is None:
        pytest.skip("the temporary folder is on no block device of its own")
    with (tmp_path / "file").open("wb") as file:
        file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    after = device_bytes_written(tmp_path)
    assert after is not None
    assert after - before >= 1 << 20


def mark(sent_bytes: int | None) -> Mark:
    return Mark(1, {}, {}, {}, sent_bytes)


def test_bytes_to_followers_are_unknown_where_the_kernel_does_not_tell() -> None:
    assert sent_bytes_between(mark(5), mark(12)) == 7
    assert sent_bytes_between(mark(None), mark(12)) is None
    assert sent_bytes_between(mark(12), mark(5)) == 0  # a connection has ended


def test_what_a_process_sent_is_what_its_peers_have_acknowledged() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        process = psutil.Process()
        before = usage._sent_bytes([process])
        if before is None:
            pytest.skip("this process may not look at descriptors")
        one.sendall(bytes(1_000))
        other.recv(1_000, socket.MSG_WAITALL)
        other.sendall(bytes(10))
        one.recv(10, socket.MSG_WAITALL)

        def sent() -> int:
            return (usage._sent_bytes([process]) or 0) - before

        assert poll_until(lambda: sent() == 1_010, 30)
