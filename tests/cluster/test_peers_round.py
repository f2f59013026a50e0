"""A tiny round of the comparison with peers, of this log alone: real replicas, loads, a kill."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from benchmarks.figures import percents
from benchmarks.measurement import Site
from benchmarks.peers.failover import Failover
from benchmarks.peers.loads import BATCHES, FLUSHED_ON_MAJORITY, ONE_IN_FLIGHT
from benchmarks.peers.ours import CONTENDER
from benchmarks.peers.rounds import Start
from benchmarks.peers.side_by_side import measure_peers
from benchmarks.peers.timed_run import Run

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_a_round_of_ours_has_rows_of_every_kind_and_leaves_nothing(tmp_path: Path) -> None:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    found = measure_peers(
        Site(tmp_path, print),
        rounds=1,
        seconds=0.5,
        kills=1,
        warm_ups=2,
        minutes_max=10.0,
        systems=CONTENDER,
        loads=f"{ONE_IN_FLIGHT.name},{BATCHES.name}",
    )
    assert found.summary["failed"] == []
    one, batches = [row for row in found.rows if isinstance(row, Run)]
    assert (one.load, batches.load) == (ONE_IN_FLIGHT.name, BATCHES.name)
    for row in (one, batches):
        assert row.durability == FLUSHED_ON_MAJORITY
        assert row.payloads_per_s > 0
        assert 0 < row.p50_ms <= row.p99_ms
        assert row.server_cores > 0
        assert row.disk_bytes_per_payload_byte > 1
        assert row.pss_mb > 0
    assert [row.round for row in found.rows if isinstance(row, Start)] == [1, 0]
    assert [row.kill for row in found.rows if isinstance(row, Failover)] == [1]
    assert {len(curve.latency_ms) for curve in found.samples} == {len(percents())}
    after = {process.pid for process in psutil.Process().children(recursive=True)}
    assert after <= before
    assert not list(tmp_path.iterdir())
