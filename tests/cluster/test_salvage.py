"""A majority of disks is gone: one replica's folder into a fresh cluster, on real processes, by the
command (SAFETY L8). Another cluster than a fresh one is refused, and what was broken off goes on.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import logstore
from logstore import ProducerOptions
from logstore.cli.embedded import EmbeddedCluster, poll_until
from logstore.cli.exit_status import ExitStatus
from logstore.config import Config
from logstore.format.batch import encode_batch
from logstore.format.level import COMPRESSION_LEVEL
from logstore.limits import MIB
from tests.cluster.one_cluster import run_cli
from tests.faults import small_disk
from tests.faults.frequent_snapshots import append_snapshot, frequent_snapshots
from tests.faults.patched_processes import patched
from tests.faults.quick_cluster import RECOVERY_TIMEOUT_S, QuickCluster, quick_cluster, quick_config
from tests.unit.compressed_batches import TEXT
from tests.unit.folder_stage import flip_payload

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
BATCHES = 10_000
LARGE = 30
LARGE_BYTES = 200_000
DISK_BYTES = 24 * MIB
# An import that lasts, so that it can be broken off half way.
ONE_AT_A_TIME = """
from logstore.client.core import importing

importing.WINDOW_BATCHES = 1
"""
KEPT = 3
MARK = b"a payload to be found in a file"


class Old:
    """The log of a cluster of which one folder is left: whole, and trimmed later."""

    def __init__(self, folder: Path) -> None:
        self.whole = folder / "kept" / "whole"
        self.trimmed = folder / "kept" / "trimmed"
        self.other = folder / "kept" / "other"
        self.payloads: list[bytes] = []
        self.digest = ""
        self.mark_lsn = 0
        self.kept_lsn = 0
        self.while_running: subprocess.CompletedProcess[bytes] | None = None


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Old:
    folder: Path = tmp_path_factory.mktemp("old")
    found = Old(folder)
    with frequent_snapshots(folder), quick_cluster(folder, quick_config()) as cluster:
        cluster.wait_for_level(COMPRESSION_LEVEL)
        with connected(cluster) as log:
            append_all(log, found)
            last = cluster.visible_everywhere()
            found.payloads = [p for batch in log.read(1, last) for p in batch.payloads()]
            found.digest = log.digest(1, last).hexdigest()
        folder_of_kept = cluster.node_folder(KEPT)
        found.while_running = run_cli(None, "salvage", str(folder_of_kept), "--dry-run")
        assert cluster.stop_all()
        shutil.copytree(folder_of_kept, found.whole, symlinks=True)
        shutil.copytree(cluster.node_folder(1), found.other, symlinks=True)
        cluster.visible_everywhere()
        with connected(cluster) as log:
            append_snapshot(log)
            found.kept_lsn = log.admin.trim(last - 50)

            def is_trimmed() -> bool:
                return cluster.counters(KEPT).get("log_start_lsn", 0) >= found.kept_lsn

            assert poll_until(is_trimmed, RECOVERY_TIMEOUT_S)
        assert cluster.stop_all()
        shutil.copytree(folder_of_kept, found.trimmed, symlinks=True)
    return found


def append_all(log: logstore.LogClient, found: Old) -> None:
    """10,000 batches, plain ones and one of each other kind."""
    with log.producer() as producer:
        producer.append(b"the first").result(RECOVERY_TIMEOUT_S)
        producer.append(b"").result(RECOVERY_TIMEOUT_S)
        producer.append_batch([b"%d" % number for number in range(500)])
        futures = [producer.append_batch([b"batch %d" % number]) for number in range(BATCHES)]
        futures += [producer.append_batch([os.urandom(LARGE_BYTES)]) for _ in range(LARGE)]
        found.mark_lsn = producer.append_batch([MARK]).result(RECOVERY_TIMEOUT_S).first
        for future in futures:
            future.result(RECOVERY_TIMEOUT_S)
    # what the kept replica writes after this knows that all before is committed
    log.admin.watermarks(replica=KEPT, min_lsn=found.mark_lsn)
    with log.producer(ProducerOptions(compression="zstd")) as producer:
        producer.append_batch(TEXT).result(RECOVERY_TIMEOUT_S)


def unformed_config(nodes: int, **limits: str) -> Config:
    config = quick_config()
    return msgspec.structs.replace(
        config,
        cluster=msgspec.structs.replace(config.cluster, auto_init=False),
        nodes=config.nodes[:nodes],
        limits=msgspec.structs.replace(config.limits, **limits),
    )


def connected(cluster: EmbeddedCluster) -> logstore.LogClient:
    return logstore.connect(cluster.endpoints, timeout=RECOVERY_TIMEOUT_S)


@contextmanager
def fresh(folder: Path, nodes: int = 1, **limits: str) -> Iterator[QuickCluster]:
    """Replicas that wait to be formed."""
    with QuickCluster(folder, unformed_config(nodes, **limits)) as cluster:
        cluster.start_all()
        with connected(cluster) as log:

            def all_answer() -> bool:
                return all(row["pid"] for row in log.admin.status()["nodes"])

            assert poll_until(lambda: _quiet(all_answer), RECOVERY_TIMEOUT_S), cluster.said()
        yield cluster


def _quiet(look: Any) -> bool:
    try:
        return bool(look())
    except logstore.LogStoreError:
        return False


def salvage(folder: Path, cluster: EmbeddedCluster, *more: str) -> tuple[int, dict[str, Any], str]:
    """Status, document and words of a run."""
    done = run_cli(None, *command(folder, cluster), "--json", "-", *more)
    document = json.loads(done.stdout) if done.stdout else {}
    return done.returncode, document, done.stderr.decode()


def command(folder: Path, cluster: EmbeddedCluster) -> list[str]:
    return ["salvage", str(folder), "--to", ",".join(cluster.endpoints), "--timeout", "60"]


def payloads_of(log: logstore.LogClient, first: int, last: int) -> list[bytes]:
    return [p for batch in log.read(first, last, min_lsn=last) for p in batch.payloads()]


@pytest.mark.long
@pytest.mark.promise("P1")
def test_one_folder_of_three_gives_the_same_payloads_at_the_same_lsns(
    old: Old, tmp_path: Path
) -> None:
    last = len(old.payloads)
    with fresh(tmp_path, nodes=3) as cluster:
        status, told, words = salvage(old.whole, cluster)
        assert status == ExitStatus.DONE, words
        assert (told["node"], told["first_lsn"], told["last_lsn"]) == (KEPT, 1, last)
        assert told["not_taken"] is None
        certain, perhaps = told["certain"], told["perhaps"]
        assert certain["first_lsn"] == 1
        if perhaps is None:
            assert certain["last_lsn"] == last
        else:
            assert (perhaps["first_lsn"], perhaps["last_lsn"]) == (certain["last_lsn"] + 1, last)
        assert told["digest"] == old.digest
        assert told["batches"] > BATCHES
        with connected(cluster) as log:
            assert log.admin.commit_lsn() == last
            assert payloads_of(log, 1, last) == old.payloads
            for node in cluster.nodes:
                found = log.digest(1, last, replica=node, min_lsn=last)
                assert found.hexdigest() == old.digest, f"node {node}"
            assert log.admin.verify().is_good
        status, told, words = salvage(old.whole, cluster)
        assert (status, told["imported"]["present_lsn"]) == (ExitStatus.DONE, last), words
        with connected(cluster) as log, log.producer() as producer:
            assert producer.append(b"and on").result(60).first == last + 1
        status, told, words = salvage(old.whole, cluster)
        assert (status, told) == (ExitStatus.REFUSED, {})
        assert "producers have opened sessions in it" in words


def started(folder: Path, cluster: EmbeddedCluster) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "logstore.cli.main", *command(folder, cluster)],
        stderr=subprocess.PIPE,
    )


def wait_past(cluster: QuickCluster, lsn: int) -> None:
    assert poll_until(lambda: cluster.visible_lsn(1) > lsn, RECOVERY_TIMEOUT_S), cluster.said()


@pytest.mark.long
def test_a_run_that_is_broken_off_is_run_again_and_goes_on(old: Old, tmp_path: Path) -> None:
    """By SIGINT, then by SIGKILL; while it runs, another one of the same folder is refused."""
    last = len(old.payloads)
    with fresh(tmp_path) as cluster, connected(cluster) as log:
        with patched("one-at-a-time", ONE_AT_A_TIME, tmp_path):
            with started(old.whole, cluster) as process:
                wait_past(cluster, 600)
                process.send_signal(signal.SIGINT)
                said = process.communicate(timeout=RECOVERY_TIMEOUT_S)[1]
            assert process.returncode == ExitStatus.INTERRUPTED, said
            assert b"what is imported stays" in said
            first = log.admin.commit_lsn()
            assert 600 < first < last
            with started(old.whole, cluster) as process:
                wait_past(cluster, first)
                process.send_signal(signal.SIGSTOP)
                busy, _, words = salvage(old.whole, cluster)
                process.kill()
        assert busy == ExitStatus.REFUSED
        assert f"node {KEPT} runs in" in words
        there = log.admin.commit_lsn()
        assert first < there < last
        status, told, words = salvage(old.whole, cluster)
        assert status == ExitStatus.DONE, words
        assert told["imported"]["present_lsn"] >= there
        assert payloads_of(log, 1, last) == old.payloads


@pytest.mark.long
def test_two_folders_of_one_log_at_the_same_time_are_one_log(old: Old, tmp_path: Path) -> None:
    last = len(old.payloads)
    with fresh(tmp_path) as cluster, connected(cluster) as log:
        with started(old.whole, cluster) as one, started(old.other, cluster) as other:
            said = [each.communicate(timeout=RECOVERY_TIMEOUT_S)[1] for each in (one, other)]
        assert [one.returncode, other.returncode] == [0, 0], said
        assert payloads_of(log, 1, last) == old.payloads


@pytest.mark.long
@pytest.mark.skipif(bool(small_disk.why_not()), reason=small_disk.why_not())
def test_a_full_disk_of_the_new_cluster_ends_it_and_then_it_goes_on(
    old: Old, tmp_path: Path
) -> None:
    last = len(old.payloads)
    disk = small_disk.SmallDisk(tmp_path / "node-1", DISK_BYTES)
    try:
        with fresh(tmp_path) as cluster, connected(cluster) as log:
            log.admin.initialize()
            assert log.admin.commit_lsn() == 0
            disk.fill()
            status, _, words = salvage(old.whole, cluster, "--timeout", "5")
            assert status == ExitStatus.UNREACHABLE, words
            assert "once that is mended, run the same command again" in words
            disk.empty()
            status, told, words = salvage(old.whole, cluster)
            assert status == ExitStatus.DONE, words
            assert 0 < told["imported"]["present_lsn"] <= last  # what was sent may be in by now
            assert payloads_of(log, 1, last) == old.payloads
    finally:
        disk.close()


@pytest.mark.long
def test_where_one_folder_is_damaged_another_one_goes_on(old: Old, tmp_path: Path) -> None:
    """It ends before the damage, with its place and what lies behind it; the other replica's folder
    is then compared up to there."""
    last = len(old.payloads)
    damaged = tmp_path / "damaged"
    shutil.copytree(old.whole, damaged, symlinks=True)
    flip_payload(damaged, old.mark_lsn, MARK)
    (tmp_path / "target").mkdir()
    with fresh(tmp_path / "target") as cluster:
        status, told, words = salvage(damaged, cluster)
        assert status == ExitStatus.DAMAGED, words
        rest = told["not_taken"]
        assert rest["lsn"] <= old.mark_lsn
        assert (rest["last_lsn"], rest["payloads"]) == (last, last - rest["lsn"] + 1)
        assert rest["size_bytes"] > 0
        assert "the body of entry" in rest["reason"]
        assert told["certain"]["last_lsn"] == told["last_lsn"] == rest["lsn"] - 1
        with connected(cluster) as log:
            assert log.admin.commit_lsn() == rest["lsn"] - 1
            status, told, words = salvage(old.other, cluster)
            assert status == ExitStatus.DONE, words
            assert told["node"] == 1
            assert payloads_of(log, 1, last) == old.payloads
        status, _, words = salvage(damaged, cluster)
        assert status == ExitStatus.REFUSED
        assert f"goes on to LSN {last}, which this folder does not have" in words


@pytest.mark.long
def test_a_trimmed_log_begins_where_it_began(old: Old, tmp_path: Path) -> None:
    """A cluster that begins elsewhere is refused, with the command that forms the right one."""
    kept = old.kept_lsn
    with fresh(tmp_path) as cluster, connected(cluster) as log:
        log.admin.initialize()
        status, _, words = salvage(old.trimmed, cluster)
        assert status == ExitStatus.REFUSED
        assert f"logstore cluster up --dir NEW --first-lsn {kept}" in words
        assert log.admin.commit_lsn() == 0
    (tmp_path / "right").mkdir()
    with fresh(tmp_path / "right") as cluster:
        status, told, words = salvage(old.trimmed, cluster)
        assert (status, told["first_lsn"]) == (ExitStatus.DONE, kept), words
        with connected(cluster) as log:
            last = len(old.payloads)
            assert log.admin.watermarks(linearizable=True).log_start_lsn == kept
            assert payloads_of(log, kept, last) == old.payloads[kept - 1 :]


@pytest.mark.long
def test_a_cluster_that_holds_something_else_is_refused(old: Old, tmp_path: Path) -> None:
    batch = encode_batch([b"x"], producer_id=1, producer_epoch=1, sequence=0, timestamp_ns=5)
    with fresh(tmp_path) as cluster, connected(cluster) as log:
        log.admin.initialize()
        log.admin.set_cursor("mine", 1)
        status, _, words = salvage(old.whole, cluster)
        assert status == ExitStatus.REFUSED
        assert "it has cursors" in words
        log.admin.delete_cursor("mine")
        log.admin.import_batches(1, [batch])
        status, _, words = salvage(old.whole, cluster)
        assert status == ExitStatus.REFUSED
        assert "the log holds another batch at LSN 1" in words
        assert log.admin.commit_lsn() == 1, "nothing was added"


@pytest.mark.long
def test_a_batch_that_is_too_large_for_the_new_cluster_says_what_to_set(
    old: Old, tmp_path: Path
) -> None:
    with fresh(tmp_path, batch_max="64KiB", group_max="64KiB") as cluster:
        status, _, words = salvage(old.whole, cluster)
        assert status == ExitStatus.REFUSED
        assert "[limits] batch_max of 200" in words
        assert "once that is mended, run the same command again" in words


def test_a_replica_that_runs_is_refused_by_name(old: Old) -> None:
    assert old.while_running is not None
    assert old.while_running.returncode == ExitStatus.REFUSED
    assert f"the replica of node {KEPT} runs in" in old.while_running.stderr.decode()


def test_without_a_cluster_nothing_is_lost_and_it_says_so(old: Old) -> None:
    done = run_cli(None, "salvage", str(old.whole), "--to", "127.0.0.1:9", "--timeout", "0.2")
    assert done.returncode == ExitStatus.UNREACHABLE
    assert b"run the same command again" in done.stderr
