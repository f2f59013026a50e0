"""One run of the comparison with peers: what its row counts, and when it has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from benchmarks.peers import timed_run
from benchmarks.peers.kernel_usage import Look
from benchmarks.peers.loads import FLUSHED_ON_MAJORITY, ONE_IN_FLIGHT, Load, Way
from benchmarks.peers.peer import Peer
from benchmarks.peers.timed_run import Observed, Report, Run, make_row, run_timed
from logstore.errors import Unreachable

S = 1_000_000_000


def test_a_row_counts_what_was_acknowledged_between_the_looks() -> None:
    way = Way("x", Load("l", 1_000, 2, 8_000), FLUSHED_ON_MAJORITY)
    # acknowledged, appended, payloads: one before, two inside, one after
    samples = np.array(
        [[9 * S, 8 * S, 2], [10 * S, 9 * S, 2], [11 * S, 8 * S, 6], [14 * S, 11 * S, 6]],
        dtype=np.int64,
    )
    observed = Observed(
        first=Look(10 * S, servers_s=5.0, client_s=1.0, machine_s=100.0),
        second=Look(14 * S, servers_s=7.0, client_s=2.0, machine_s=107.0),
        samples=samples,
        report=Report(errors=3, error="refused"),
        written=48_000,
        pss_mb=12.5,
    )
    row = make_row(way, observed, system="s", round_=2, seconds=4.0)
    assert (row.payloads_per_s, row.mb_per_s) == (2.0, 0.002)
    assert (row.p50_ms, row.p99_ms) == (3_000.0, 3_000.0)
    assert (row.server_cores, row.client_cores, row.other_cores) == (0.5, 0.25, 1.0)
    assert row.server_cpu_s_per_million == 250_000.0
    assert row.disk_bytes_per_payload_byte == 1.0
    assert (row.in_flight, row.errors, row.error, row.pss_mb) == (4, 3, "refused", 12.5)
    # by a schedule latency is of what was due between the looks, however late it was acknowledged
    scheduled = Way("x", Load("l", 1_000, 2, 8_000, rate=1.0), FLUSHED_ON_MAJORITY)
    assert observed.timed(scheduled).tolist() == [[14 * S, 11 * S, 6]]
    late = make_row(scheduled, observed, system="s", round_=2, seconds=4.0)
    assert (late.payloads_per_s, late.p50_ms) == (2.0, 3_000.0)


class OneRun:
    """A peer and its client: one run of which everything was acknowledged in its middle."""

    pid = 7

    def __init__(self, *, pids: list[list[int]], leaders: list[int], rows: list[list[int]]) -> None:
        self._pids = iter(pids)
        self._leaders = iter(leaders)
        self._rows = rows

    def pids(self) -> list[int]:
        return next(self._pids)

    def wait_in_step(self) -> int:
        return next(self._leaders)

    def begin_load(self, _: Way, __: float, samples: Path) -> OneRun:
        samples.write_bytes(np.array(self._rows, dtype=np.int64).tobytes())
        return self

    def hear(self, _: float) -> str:
        return "0"

    def hear_or_end(self, _: float) -> str:
        return '{"errors": 0, "error": "", "in_flight": 1}'


@pytest.fixture
def run_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Run]:
    """A run between the looks at 10 and 14 s, as a peer shows it."""
    for name in ("written_bytes", "pss_mb"):
        monkeypatch.setattr(timed_run, name, lambda _: 1)
    monkeypatch.setattr(timed_run, "write_back", lambda: None)
    looks: list[int] = []

    def look(*_: object) -> Look:
        looks.append(10 + 4 * len(looks))
        return Look(looks[-1] * S, 0.0, 0.0, 0.0)

    monkeypatch.setattr(timed_run, "look", look)

    def run_of(
        *,
        load: Load = ONE_IN_FLIGHT,
        pids: Sequence[Sequence[int]] = ((1, 2, 3), (1, 2, 3)),
        leaders: Sequence[int] = (2, 2),
        rows: Sequence[Sequence[int]] = ((12 * S, 11 * S, 1),),
    ) -> Run:
        peer = OneRun(pids=[*map(list, pids)], leaders=[*leaders], rows=[*map(list, rows)])
        way = Way("x", load, FLUSHED_ON_MAJORITY)
        return run_timed(
            cast("Peer", peer), way, system="x", round_=1, warm_s=0.0, seconds=0.0, folder=tmp_path
        )[0]

    return run_of


def test_a_run_on_the_same_servers_and_leader_has_a_row(run_of: Callable[..., Run]) -> None:
    assert run_of().p50_ms == 1_000.0


def test_a_run_in_which_a_server_was_started_anew_fails(run_of: Callable[..., Run]) -> None:
    with pytest.raises(Unreachable, match="started again"):
        run_of(pids=[[1, 2, 3], [1, 2, 4]])


def test_a_run_after_which_another_node_leads_fails(run_of: Callable[..., Run]) -> None:
    with pytest.raises(Unreachable, match="node 3 leads instead of node 2"):
        run_of(leaders=[2, 3])


def test_a_run_without_an_acknowledgement_in_time_fails(run_of: Callable[..., Run]) -> None:
    """It has no latency, and none would be the best one."""
    with pytest.raises(Unreachable, match="nothing was acknowledged in time"):
        run_of(rows=[[9 * S, 8 * S, 1]])
