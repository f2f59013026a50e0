"""What the figure of restarts is made of."""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from benchmarks import restart
from benchmarks.restart import COLD, NODE, WARM, Start, measure_restarts, summarise
from logstore.cli.embedded import EmbeddedCluster
from logstore.errors import LogStoreError


def test_what_the_long_log_adds_is_told_by_medians() -> None:
    seconds = {"empty": (1.0, 9.0, 1.5), WARM: (2.0, 3.0, 9.0), COLD: (3.6, 3.0, 9.0)}
    starts = [Start(what, n, each) for what, all in seconds.items() for n, each in enumerate(all)]
    summary = summarise(starts)
    assert summary["median_s"] == {"empty": 1.5, WARM: 3.0, COLD: 3.6}
    assert summary["added_s"] == {WARM: 1.5, COLD: 2.1}
    assert summary["is_reached"] == {WARM: True, COLD: False}


@pytest.mark.slow
def test_the_long_log_is_one_that_a_replica_serves(tmp_path: Path) -> None:
    entries = 3_000
    with EmbeddedCluster(tmp_path, restart._config(1_000)) as cluster:
        facts = restart._make(cluster, entries)
        assert facts["entries"] == entries
        assert 3 <= facts["segments"] <= 3 + restart.SEGMENTS_MORE
        cluster.start(NODE)
        cluster.wait_for_leader()
        with logstore.connect(cluster.endpoints) as log:
            assert log.admin.verify().is_good
            # one before them, and one at the start after them
            assert sum(1 for _ in log.read(1, entries + 2)) == entries + 2


def test_a_log_of_other_segments_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(restart, "_make", lambda *_: {"segments": 11, "entries": 100})
    monkeypatch.setattr(restart, "_start_s", lambda _: 1.0)
    monkeypatch.setattr(restart, "_forget_pages", lambda _: None)
    with pytest.raises(LogStoreError, match="5 segments, 100 entries are wanted"):
        measure_restarts(tmp_path, entries=100, segments=5, rounds=1, say=str)
