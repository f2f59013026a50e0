"""The shipped writers flush before they acknowledge: traced system calls (SAFETY F1, P5)."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from random import Random

import pytest

import logstore
from logstore.cli.embedded import EmbeddedCluster, make_config
from tests.faults.flush_trace import Strace, early_acknowledgements
from tests.faults.unflushed import skip_data_flushes

MAJORITY = 2


def _can_trace() -> bool:
    return shutil.which("strace") is not None and os.geteuid() == 0


def _append_traced(folder: Path, *, appends: int) -> list[str]:
    """Violations of the flush order while a producer appends singles and batches, several in
    flight.
    """
    with EmbeddedCluster(folder, make_config(3, Random(4))) as cluster:
        cluster.start_all()
        cluster.wait_for_leader()
        with logstore.connect(cluster.endpoints) as log:
            producer = log.producer()
            producer.append(b"the first append opens everything").result(30)
            writers = [cluster.pid_of(node, "writer") for node in cluster.nodes]
            strace = Strace(folder / "strace", writers)
            told: dict[int, float] = {}
            for number in range(appends):
                futures = [producer.append_batch([b"x" * 700] * 3) for _ in range(1 + number % 4)]
                for future in futures:
                    first_lsn = future.result(30).first
                    told[first_lsn] = time.time()
            producer.close()
            # a majority acknowledges; the slowest writer may still be at it, which the check allows
            traces = strace.close()
            last_lsn = max(told) + 2
            index_of = {
                batch.first_lsn: batch.index
                for batch in log.reader().read(min(told), last_lsn, min_lsn=last_lsn)
            }
        acknowledged: dict[int, float] = {}
        for lsn, moment in told.items():
            index = index_of[lsn]
            acknowledged[index] = min(moment, acknowledged.get(index, moment))
        assert len(acknowledged) >= appends
        return early_acknowledgements(traces, acknowledged, majority=MAJORITY)


@pytest.mark.slow
@pytest.mark.skipif(not _can_trace(), reason="tracing needs root and strace")
@pytest.mark.promise("P5")
def test_every_acknowledged_entry_was_flushed_frame_then_record_on_a_majority(
    tmp_path: Path,
) -> None:
    assert _append_traced(tmp_path, appends=40) == []


@pytest.mark.slow
@pytest.mark.skipif(not _can_trace(), reason="tracing needs root and strace")
def test_the_trace_check_fails_when_the_data_flush_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_data_flushes(tmp_path, monkeypatch)
    violations = _append_traced(tmp_path, appends=5)
    assert any("before its frame was flushed" in violation for violation in violations)
