"""What the figure of restarts is made of."""

from __future__ import annotations

from pathlib import Path

import pytest

import logstore
from benchmarks import restart, restart_in_cluster
from benchmarks.restart import COLD, NODE, WARM, Start, measure_restarts, summarise
from benchmarks.restart_in_cluster import Return, draw_returns, measure_returns
from benchmarks.restart_in_cluster import summarise as summarise_returns
from logstore.cli.embedded import EmbeddedCluster
from logstore.errors import LogStoreError


def test_what_the_long_log_adds_is_told_by_medians() -> None:
    seconds = {"empty": (1.0, 9.0, 1.5), WARM: (2.0, 3.0, 9.0), COLD: (3.6, 3.0, 9.0)}
    starts = [Start(what, n, each) for what, all in seconds.items() for n, each in enumerate(all)]
    summary = summarise(starts)
    assert summary["median_s"] == {"empty": 1.5, WARM: 3.0, COLD: 3.6}
    assert summary["added_s"] == {WARM: 1.5, COLD: 2.1}
    assert summary["is_reached"] == {WARM: True, COLD: False}


@pytest.mark.long
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
    monkeypatch.setattr(restart, "forget_pages", lambda _: None)
    with pytest.raises(LogStoreError, match="5 segments, 100 entries are wanted"):
        measure_restarts(tmp_path, entries=100, segments=5, rounds=1, say=str)


def test_all_files_are_read_before_each_start_from_the_page_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The start before it was from the disk, and read only what a start needs."""
    done: list[str] = []

    def start(cluster: EmbeddedCluster) -> float:
        done.append(cluster.folder.name)
        return 1.0

    monkeypatch.setattr(restart, "_make", lambda *_: {"segments": 5, "entries": 100})
    monkeypatch.setattr(restart, "_start_s", start)
    monkeypatch.setattr(restart, "read_pages", lambda _: done.append("read"))
    monkeypatch.setattr(restart, "forget_pages", lambda _: done.append("forget"))
    measure_restarts(tmp_path, entries=100, segments=5, rounds=2, say=str)
    long = ["read", "long", "forget", "long"]
    assert done == ["empty-1", *long, "empty-2", *long]


def test_followers_of_either_log_come_back_in_turn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clusters = iter(["little", "much"])
    monkeypatch.setattr(restart_in_cluster, "_cluster", lambda *_: next(clusters))
    monkeypatch.setattr(restart_in_cluster, "_fill", lambda *_: None)
    seconds = {
        ("little", WARM): 1.0,
        ("little", COLD): 2.0,
        ("much", WARM): 3.0,
        ("much", COLD): 4.0,
    }
    monkeypatch.setattr(restart_in_cluster, "_return_s", lambda *key: seconds[key])
    returns = measure_returns(tmp_path, (100, 2_048), rounds=2, say=str)
    assert [(each.round, each.seconds) for each in returns] == [
        (number, each) for number in (1, 2) for each in (1.0, 2.0, 3.0, 4.0)
    ]
    summary = summarise_returns([*returns, Return(100, WARM, 3, 9.0)])
    assert summary["follower, 100 MiB in the page cache"] == {
        "median_s": 1.0,
        "low_s": 1.0,
        "high_s": 9.0,
    }
    assert draw_returns({"entries": 5}) == {}
    axes = draw_returns({"entries": 5, **summary})["restart-in-cluster"].axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()][::-1] == list(summary)
