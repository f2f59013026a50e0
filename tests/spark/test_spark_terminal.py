"""What a pipeline's terminal shows: a line and a status, nothing of Java, and nothing late."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import logstore
from logstore.cli.embedded import EmbeddedCluster
from logstore.cli.main import main
from logstore.cli.pipeline import lazy_spark
from logstore.spark.lake import LakeWriter, data_path, read_manifest
from logstore.spark.replay import Replay, ReplayOptions
from tests.kept.kept import LAKE, unpack
from tests.spark.lakes import append_some, archive_once

CALL = [sys.executable, "-m", "logstore.cli.main", "pipeline"]
SMALL = ["--master", "local[1]", "--conf", "spark.driver.memory=512m"]
WAIT_S = 120


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> SparkSession:
        raise AssertionError("Spark is started")

    monkeypatch.setattr("logstore.cli.pipeline.lazy_spark.start_session", refuse)
    monkeypatch.delenv("LOGSTORE_ENDPOINT", raising=False)


@pytest.fixture
def kept_lake(tmp_path: Path) -> Path:
    return unpack(LAKE, tmp_path / "lake")


def file_of(folder: Path) -> Path:
    return Path(data_path(str(folder), read_manifest(str(folder)).files[1]))


@pytest.mark.usefixtures("no_spark")
def test_nothing_to_archive_or_replay_is_found_out_without_spark(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    kept_lake: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, last = append_some(log, 2)
    archive_once(spark, cluster, tmp_path / "own", "idle")
    at = ["--endpoint", ",".join(cluster.endpoints)]
    assert (
        main(["pipeline", "archive", str(tmp_path / "own"), "--once", "--cursor", "idle", *at]) == 0
    )
    assert f"nothing to archive after LSN {last}" in capsys.readouterr().err
    options = ReplayOptions(
        lake=str(kept_lake), source=None, target=at[1], name="idle", first_lsn=None, timeout_s=60.0
    )
    work = Replay(lambda: spark, options)
    list(work.chunks(work.last_lsn))
    assert main(["pipeline", "replay", "--lake", str(kept_lake), "--name", "idle", *at]) == 0
    assert f"nothing to replay after LSN {work.last_lsn}" in capsys.readouterr().err


@pytest.mark.usefixtures("no_spark")
def test_an_empty_lake_is_read_and_told_of_without_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LakeWriter(str(tmp_path)) as writer:
        writer.make(cluster_id="0f" * 16, first_lsn=7)
    assert main(["pipeline", "read", "--lake", str(tmp_path)]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["pipeline", "stats", "--lake", str(tmp_path), "--json", "-"]) == 0
    assert '"records": 0' in capsys.readouterr().out


@pytest.mark.usefixtures("no_spark")
def test_a_missing_file_is_a_line_and_status_5_without_spark(
    kept_lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file_of(kept_lake).unlink()
    for command in ("read", "stats"):
        assert main(["pipeline", command, "--lake", str(kept_lake)]) == 5
        [line] = capsys.readouterr().err.splitlines()
        assert file_of(kept_lake).name in line
        assert "No such file" in line
        # What is in the other files can be read: Spark would be started for it.
        with pytest.raises(AssertionError, match="Spark is started"):
            main(["pipeline", command, "--lake", str(kept_lake), "--to", "9"])


@pytest.mark.usefixtures("no_spark")
def test_what_cannot_be_is_refused_without_spark(
    kept_lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = ["--lake", str(kept_lake)]
    assert main(["pipeline", "read", *lake, "--to", "9999"]) == 4
    assert main(["pipeline", "stats", *lake, "--step", "1us"]) == 2
    assert main(["pipeline", "stats", *lake, "--conf", "nothing"]) == 2
    assert main(["pipeline", "audit", *lake]) == 2
    assert main(["pipeline", "read", "--lake", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 5


@pytest.mark.parametrize("command", ["stats", "read"])
def test_a_damaged_file_is_a_line_and_status_5(kept_lake: Path, command: str) -> None:
    """A process of its own, with a Spark of its own: Java, its workers and Spark have much to say
    of such an error, and none of it is for a terminal."""
    path = file_of(kept_lake)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found = subprocess.run(
        [*CALL, command, "--lake", str(kept_lake), *SMALL],
        capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (5, "")
    [line] = found.stderr.splitlines()
    assert line.startswith(f"error: {path} at byte 0: expected whole row groups")


def test_a_whole_lake_is_read_and_nothing_else_is_said(kept_lake: Path) -> None:
    found = subprocess.run(
        [*CALL, "read", "--lake", str(kept_lake), "--to", "9", *SMALL],
        capture_output=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (0, b"")
    assert found.stdout.count(b"\n") == 9


def test_a_failure_of_spark_is_a_line_that_names_its_log(kept_lake: Path) -> None:
    """Java does not start with so little memory."""
    found = subprocess.run(
        [*CALL, "stats", "--lake", str(kept_lake), "--conf", "spark.driver.memory=1k"],
        capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (1, "")
    [line] = found.stderr.splitlines()
    match = re.fullmatch(r"error: Spark failed: .*; what it wrote is in (/\S+\.log)", line)
    assert match is not None, line
    log = Path(match[1])
    assert "initialization of VM" in log.read_text()
    log.unlink()


def test_a_pipeline_that_outlives_its_log_file_ends_as_it_would(tmp_path: Path) -> None:
    """Whoever tidies /tmp takes the file of an archive that has run for weeks."""
    spark = lazy_spark._Spark("archive", "local[1]", {})
    spark._log_path = str(tmp_path / "gone.log")
    spark.stop()
