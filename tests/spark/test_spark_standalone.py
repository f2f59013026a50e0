"""Pipelines on a cluster of Spark: a standalone master, two workers, an executor on each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

import logstore
from logstore.cli.embedded import EmbeddedCluster, poll_until
from logstore.spark.lake import read_manifest
from tests.spark.lakes import append_some, cursor_lsn, digest_of
from tests.spark.rows import expected
from tests.spark.standalone import DRIVER_SETTINGS, StandaloneSpark, driver_environment

WAIT_S = 200


def start_pipeline(spark: StandaloneSpark, *words: str) -> subprocess.Popen[bytes]:
    conf = [f"--conf={name}={value}" for name, value in DRIVER_SETTINGS.items()]
    call = [sys.executable, "-m", "logstore.cli.main", "pipeline", *words, "--master", spark.url]
    return subprocess.Popen([*call, *conf], env=driver_environment(), stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> str:
    """What it said; its exit status is 0."""
    try:
        _, said = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
    assert process.returncode == 0, said.decode()
    return said.decode()


def test_an_archive_goes_on_whose_executor_is_killed(
    standalone: StandaloneSpark, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    append_some(log, 600)
    last = log.admin.commit_lsn()
    call = ["archive", str(tmp_path), "--once", "--file-size", "1MiB", "--cursor", "cluster"]
    process = start_pipeline(standalone, *call, "--endpoint", cluster.endpoints[0])
    assert poll_until(
        lambda: cursor_lsn(log, "cluster") > 1 or process.poll() is not None, WAIT_S, look_ms=50
    )
    standalone.executors()[0].kill()
    assert "archived: " in finish(process)
    assert read_manifest(str(tmp_path)).next_lsn == last + 1
    assert len(read_manifest(str(tmp_path)).files) > 1
    assert digest_of(tmp_path).hexdigest() == log.digest(1, last, min_lsn=last).hexdigest()
    assert cursor_lsn(log, "cluster") == last + 1


def test_a_batch_read_brings_every_row_from_two_executors(
    standalone: StandaloneSpark, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    first, last = append_some(log)
    call = ["read", "--endpoint", cluster.endpoints[0], "--from", str(first)]
    finish(start_pipeline(standalone, *call, "--output", str(tmp_path / "rows")))
    found = pq.read_table(tmp_path / "rows").sort_by("lsn")
    wanted = expected(log, first, last)
    assert found["lsn"].to_pylist() == [row[0] for row in wanted]
    assert found["payload"].to_pylist() == [row[1] for row in wanted]
    assert found["producer_id"].to_pylist() == [row[5] for row in wanted]
