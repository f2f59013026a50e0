"""The log into a lake: whole, once each, in step with its cursor, whatever is broken off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

import logstore
from logstore.cli.embedded import EmbeddedCluster, poll_until
from logstore.cli.main import main
from logstore.errors import (
    CorruptData,
    CursorMoved,
    FolderInUse,
    NotReady,
    OutOfRange,
    WrongCluster,
)
from logstore.spark import lake
from logstore.spark.archive import Archive
from logstore.spark.lake import MANIFEST, LakeWriter, data_path, read_manifest
from logstore.spark.planning import Bounds, Planner
from logstore.storage.disk import RealDisk
from tests.spark.lakes import (
    append_some,
    archive_once,
    cursor_lsn,
    digest_of,
    files_of,
    lend,
    options,
)
from tests.spark.rows import NAMES, append, expected, rows_of

WAIT_S = 120


def held(log: logstore.LogClient, name: str) -> bool:
    return any(each.hold for each in log.admin.cursors() if each.name == name)


def test_a_lake_has_what_the_log_has_and_the_cursor_stands_behind_it(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    first, last = append_some(log)
    found = archive_once(spark, cluster, tmp_path, "whole")
    assert (found.first_lsn, found.next_lsn) == (1, last + 1)
    assert len(found.files) >= 3
    assert found.cluster_id == log.cluster_id.hex()
    assert digest_of(tmp_path).hexdigest() == log.digest(1, last, min_lsn=last).hexdigest()
    for file in found.files:
        assert (
            log.digest(file.first_lsn, file.last_lsn, min_lsn=file.last_lsn).hexdigest()
            == file.digest
        )
    assert cursor_lsn(log, "whole") == last + 1
    assert held(log, "whole")
    rows = spark.read.parquet(str(tmp_path / "data")).where(f"lsn >= {first}").select(*NAMES)
    assert rows_of(rows) == expected(log, first, last)


def test_a_second_pass_adds_what_is_new_and_touches_nothing_else(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    _, last = append_some(log)
    before = archive_once(spark, cluster, tmp_path, "again")
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    assert archive_once(spark, cluster, tmp_path, "again") == before
    first, last = append(log, [b"new"] * 3)
    after = archive_once(spark, cluster, tmp_path, "again")
    assert after.files[: len(before.files)] == before.files
    assert [(each.first_lsn, each.last_lsn) for each in after.files[len(before.files) :]] == [
        (first, last)
    ]
    now = {path.name: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    assert times.items() <= now.items()
    assert cursor_lsn(log, "again") == last + 1


class PowerCut(Exception):
    pass


STEPS = 14


@pytest.mark.parametrize("step", range(STEPS))
def test_a_crash_between_any_two_steps_leaves_a_lake_that_goes_on(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
) -> None:
    """Every change of the lake's folder and every move of the cursor may be the last one."""
    append_some(log, 4)
    name = f"crash-{step}"
    left = step

    def count(original: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if left == 0:
                raise PowerCut
            left -= 1
            return original(*args, **kwargs)

        return counted

    with monkeypatch.context() as patch:
        patch.setattr(lake.os, "replace", count(os.replace))
        patch.setattr(RealDisk, "sync_folder", count(RealDisk.sync_folder))
        patch.setattr(RealDisk, "flush", count(RealDisk.flush))
        patch.setattr(Archive, "_move_cursor", count(Archive._move_cursor))
        try:
            archive_once(spark, cluster, tmp_path, name, file_bytes=8_000, files_at_once=2)
        except PowerCut:
            pass
        else:
            assert step >= 10, "there are fewer steps than this counts"
    if (tmp_path / MANIFEST).exists():
        assert cursor_lsn(log, name) <= read_manifest(str(tmp_path)).next_lsn
    else:
        assert cursor_lsn(log, name) == 0
    found = archive_once(spark, cluster, tmp_path, name)
    last = log.admin.commit_lsn()
    assert found.next_lsn == last + 1 == cursor_lsn(log, name)
    assert digest_of(tmp_path).hexdigest() == log.digest(1, last, min_lsn=last).hexdigest()
    assert files_of(tmp_path) == [each.name for each in found.files]


def test_what_nobody_names_is_removed_but_never_what_is_older_or_not_ours(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    found = archive_once(spark, cluster, tmp_path, "litter")
    newer = f"{found.next_lsn + 1:019d}-{found.next_lsn + 2:019d}.parquet"
    litter = [f"data/{newer}", f"incoming/{newer}"]
    kept = [f"data/{1:019d}-{1:019d}.parquet", "data/notes.parquet", "data/_SUCCESS"]
    for name in litter + kept:
        (tmp_path / name).write_bytes(b"?")
    archive_once(spark, cluster, tmp_path, "litter")
    assert [name for name in litter + kept if (tmp_path / name).exists()] == kept


def test_one_process_at_a_time_adds_to_a_lake(tmp_path: Path) -> None:
    with LakeWriter(str(tmp_path)), pytest.raises(FolderInUse):
        LakeWriter(str(tmp_path))
    LakeWriter(str(tmp_path)).close()


def test_a_replica_that_lags_is_waited_for_and_a_log_that_ends_early_is_refused(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, last = append_some(log)
    found = archive_once(spark, cluster, tmp_path, "early")
    monkeypatch.setattr(Planner, "bounds", lambda _: Bounds(1, last - 3))
    with pytest.raises(NotReady, match=f"shows the log up to {last - 3} only"):
        archive_once(spark, cluster, tmp_path, "early")
    monkeypatch.setattr(type(log.admin), "commit_lsn", lambda _: last - 3)
    with pytest.raises(OutOfRange, match="what is between is lost; begin another lake"):
        archive_once(spark, cluster, tmp_path, "early")
    monkeypatch.undo()
    assert archive_once(spark, cluster, tmp_path, "early") == found


def test_a_cursor_ahead_of_its_lake_is_somebody_elses(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    found = archive_once(spark, cluster, tmp_path / "one", "shared")
    with pytest.raises(CursorMoved, match="is no lake yet.*disk mounted"):
        archive_once(spark, cluster, tmp_path / "two", "shared")
    assert not (tmp_path / "two" / MANIFEST).exists()
    log.admin.set_cursor("shared", found.next_lsn + 5, hold=True)
    with pytest.raises(CursorMoved, match="ends before LSN"):
        archive_once(spark, cluster, tmp_path / "one", "shared")
    log.admin.delete_cursor("shared")
    assert archive_once(spark, cluster, tmp_path / "one", "shared") == found
    assert cursor_lsn(log, "shared") == found.next_lsn


@pytest.mark.parametrize("is_cut", [False, True])
def test_an_archive_into_a_lake_with_a_hole_is_refused_and_the_cursor_stays(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    tmp_path: Path,
    is_cut: bool,
) -> None:
    name = f"hole {is_cut}"
    append_some(log)
    before = archive_once(spark, cluster, tmp_path, name)
    path = Path(data_path(str(tmp_path), before.files[1]))
    data = path.read_bytes()
    path.write_bytes(data[:-1]) if is_cut else path.unlink()
    append_some(log)
    with pytest.raises(CorruptData, match="put it back from a copy of the lake"):
        archive_once(spark, cluster, tmp_path, name)
    assert read_manifest(str(tmp_path)) == before
    assert cursor_lsn(log, name) == before.next_lsn
    path.write_bytes(data)
    assert archive_once(spark, cluster, tmp_path, name).next_lsn == cursor_lsn(log, name)


def test_a_file_that_goes_while_an_archive_runs_ends_it_before_the_cursor_moves(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    append_some(log)
    with LakeWriter(str(tmp_path)) as writer:
        work = Archive(lambda: spark, writer, options(cluster, "going", files_at_once=1))
        work.begin()
        rounds = work.rounds(work.head_lsn())
        [file] = next(rounds)
        Path(data_path(str(tmp_path), file)).unlink()
        with pytest.raises(CorruptData, match="as the manifest says, got No such file"):
            next(rounds)
    assert cursor_lsn(log, "going") == file.last_lsn + 1


def test_a_cursor_that_somebody_moves_meanwhile_ends_the_archive(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    append_some(log)
    with LakeWriter(str(tmp_path)) as writer:
        work = Archive(lambda: spark, writer, options(cluster, "moved", files_at_once=1))
        work.begin()
        rounds = work.rounds(work.head_lsn())
        next(rounds)
        log.admin.set_cursor("moved", 1)
        with pytest.raises(CursorMoved):
            next(rounds)


def test_a_lake_of_another_cluster_or_without_its_manifest_is_refused(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    with LakeWriter(str(tmp_path / "other")) as writer:
        writer.make(cluster_id="0f" * 16, first_lsn=1)
    with pytest.raises(WrongCluster, match="is a lake of cluster 0f0f"):
        archive_once(spark, cluster, tmp_path / "other", "other")
    archive_once(spark, cluster, tmp_path / "lost", "lost")
    before = files_of(tmp_path / "lost")
    (tmp_path / "lost" / MANIFEST).unlink()
    with pytest.raises(CorruptData, match="the manifest of the files in data"):
        archive_once(spark, cluster, tmp_path / "lost", "lost")
    assert files_of(tmp_path / "lost") == before


def test_the_command_archives_once_and_says_what(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, last = append_some(log)
    lend(monkeypatch, spark, ["archive"])
    call = ["pipeline", "archive", str(tmp_path), "--once", "--cursor", "command"]
    call += ["--endpoint", cluster.endpoints[0], "--file-size", "1MiB"]
    assert main([*call, "--json", "-"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert (told["first_lsn"], told["last_lsn"]) == (1, last)
    assert [file["last_lsn"] for file in told["files"]][-1] == last
    assert main(call) == 0
    assert f"nothing to archive after LSN {last}" in capsys.readouterr().err
    assert main([*call, "--file-size", "1KiB"]) == 2
    other = [str(tmp_path / "else") if part == str(tmp_path) else part for part in call]
    assert main(other) == 4
    assert "logstore cursor delete command" in capsys.readouterr().err


def test_the_command_follows_the_log_until_it_is_told_to_end(
    cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    """A process of its own, with a Spark of its own."""
    append_some(log)
    call = [sys.executable, "-m", "logstore.cli.main", "pipeline", "archive", str(tmp_path)]
    call += ["--endpoint", cluster.endpoints[0], "--cursor", "follows", "--every", "100ms"]
    call += ["--master", "local[1]", "--conf", "spark.driver.memory=512m"]
    with subprocess.Popen(call, stderr=subprocess.PIPE) as process:
        try:
            for _ in range(2):
                _, last = append_some(log, 2)
                assert poll_until(lambda last=last: cursor_lsn(log, "follows") > last, WAIT_S)
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert process.returncode == 143
    assert said
    assert all(b" archived: " in line for line in said.splitlines()), said
    assert digest_of(tmp_path).hexdigest() == log.digest(1, last, min_lsn=last).hexdigest()
