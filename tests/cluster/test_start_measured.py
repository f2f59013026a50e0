"""One measurement on real processes, the cheapest: a cluster starts, and every moment is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cluster_start import measure_starts


@pytest.mark.slow
def test_a_start_is_measured_from_the_first_process_to_the_first_acknowledgement(
    tmp_path: Path,
) -> None:
    (row,) = measure_starts(tmp_path, rounds=1, say=str)
    for by_node in (row.runs_s, row.votes_s, row.shows_s):
        assert set(by_node) == {"1", "2", "3"}
    assert min(row.runs_s.values()) <= row.leads_s <= row.first_acknowledged_s
    assert not list(tmp_path.iterdir())
