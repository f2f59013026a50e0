"""Readers of a real log that is trimmed under them: told, or gone on as they said; never less data
in silence (SAFETY G3, G4, G6).

The tests follow one another: each appends what it reads, and trims what was before.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

import logstore
from logstore.cli.embedded import EmbeddedCluster, poll_until
from logstore.cli.exit_status import ExitStatus
from logstore.errors import OutOfRange
from logstore.storage.disk import RealDisk
from logstore.storage.salvage import salvage_folder, salvage_segment
from tests.cluster.one_cluster import run_cli
from tests.faults.frequent_snapshots import append_snapshot, frequent_snapshots
from tests.faults.quick_cluster import RECOVERY_TIMEOUT_S, quick_cluster, quick_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
BATCHES = 20
PER_BATCH = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    folder: Path = tmp_path_factory.mktemp("log-start")
    with frequent_snapshots(folder), quick_cluster(folder, quick_config()) as cluster:
        yield cluster


@pytest.fixture
def log(cluster: EmbeddedCluster) -> Iterator[logstore.LogClient]:
    with logstore.connect(cluster.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
        yield log


@pytest.fixture
def lsns(log: logstore.LogClient) -> range:
    """BATCHES of PER_BATCH payloads, each a group of its own, with a snapshot above them."""
    with log.producer() as producer:
        found = [producer.append_batch(_payloads(n)).result(timeout=60) for n in range(BATCHES)]
    append_snapshot(log)
    return range(found[0].first, found[-1].last + 1)


def _payloads(number: int) -> list[bytes]:
    return [b"%d/%d" % (number, each) for each in range(PER_BATCH)]


def payloads_from(lsns: range, lsn: int) -> list[bytes]:
    """What the log has in `lsns` from `lsn` on."""
    whole = [payload for number in range(BATCHES) for payload in _payloads(number)]
    return whole[lsn - lsns[0] :]


def trim(cluster: EmbeddedCluster, log: logstore.LogClient, lsn: int) -> None:
    """Trim there, and wait until every replica has."""
    assert log.admin.trim(lsn) == lsn
    wait_for_start(cluster, lsn)


def wait_for_start(cluster: EmbeddedCluster, lsn: int) -> None:
    """Until no replica serves what lies below `lsn`."""

    def is_trimmed() -> bool:
        starts = [cluster.counters(node).get("log_start_lsn", 0) for node in cluster.nodes]
        return min(starts) >= lsn

    assert poll_until(is_trimmed, RECOVERY_TIMEOUT_S)


@pytest.mark.parametrize("reads_ahead", [False, True])
def test_a_range_that_is_trimmed_while_it_is_read_ends_with_what_there_is(
    cluster: EmbeddedCluster, log: logstore.LogClient, lsns: range, reads_ahead: bool
) -> None:
    kept = lsns[0] + 5 * PER_BATCH
    with log.reader(max_bytes=1, reads_ahead=reads_ahead) as reader:
        batches = reader.read(lsns[0], lsns[-1])
        assert next(batches).payloads() == _payloads(0)
        trim(cluster, log, kept)
        if reads_ahead:
            assert next(batches).payloads() == _payloads(1), "it was sent ahead"
        with pytest.raises(OutOfRange, match="lies below the log start") as told:
            next(batches)
        assert told.value.first == kept
        assert told.value.last >= lsns[-1]
    found = [payload for batch in log.read(kept, lsns[-1]) for payload in batch.payloads()]
    assert found == payloads_from(lsns, kept)


def test_a_consumer_that_falls_below_is_told_or_goes_on_where_it_said(
    cluster: EmbeddedCluster, log: logstore.LogClient, lsns: range
) -> None:
    kept = lsns[0] + 12 * PER_BATCH
    strict, lenient, newest, first = (
        log.consumer(lsns[0], end_lsn=lsns[-1]),
        log.consumer(lsns[0], end_lsn=lsns[-1], on_out_of_range="earliest"),
        log.consumer(lsns[0], on_out_of_range="latest"),
        log.consumer("earliest", end_lsn=lsns[-1]),
    )
    tail = log.consumer("latest")
    trim(cluster, log, kept)
    for _ in range(2):
        with pytest.raises(OutOfRange, match="lies below the log start") as told:
            strict.poll(RECOVERY_TIMEOUT_S)
        assert told.value.first == kept
    assert [record.payload for record in lenient] == payloads_from(lsns, kept)
    assert lenient.skipped_payloads == kept - lsns[0]
    assert [record.payload for record in first] == payloads_from(lsns, kept)
    assert first.skipped_payloads == 0
    end_lsn = log.admin.commit_lsn()
    assert newest.poll(1.0) == []
    with log.producer() as producer:
        producer.append(b"newest").result(timeout=60)
    for consumer in (newest, tail):
        (batch,) = consumer.poll(RECOVERY_TIMEOUT_S)
        assert (batch.first_lsn, batch.payloads()) == (end_lsn + 1, [b"newest"])
    assert newest.skipped_payloads == end_lsn + 1 - lsns[0]


@pytest.mark.long
def test_the_command_line_refuses_what_is_gone_with_status_4(
    cluster: EmbeddedCluster, log: logstore.LogClient, lsns: range
) -> None:
    kept = lsns[0] + 15 * PER_BATCH
    trim(cluster, log, kept)
    words = f"LSN {lsns[0]} lies below the log start, LSN {kept}; the log holds LSN {kept} to"
    for command in (("consume",), ("consume", "--follow"), ("digest",)):
        done = run_cli(cluster, *command, "--from", str(lsns[0]), "--to", str(lsns[-1]))
        assert (done.returncode, done.stdout) == (ExitStatus.REFUSED, b"")
        assert words in done.stderr.decode()
    done = run_cli(cluster, "consume", "--from", "earliest", "--to", str(lsns[-1]))
    assert done.stdout.splitlines() == payloads_from(lsns, kept)
    held = run_cli(cluster, "cursor", "set", "late", str(kept - 1), "--hold")
    assert held.returncode == ExitStatus.REFUSED
    assert f"the log begins at {kept}" in held.stderr.decode()
    done = run_cli(cluster, "cursor", "set", "late", str(kept - 1))
    assert done.returncode == ExitStatus.DONE
    assert f"not in the log any more, which begins at {kept}" in done.stderr.decode()
    assert log.admin.delete_cursor("late") == kept - 1
    assert log.admin.lsn_at(logstore.AtTime(0)) == kept


def test_a_trim_goes_as_far_as_it_may_and_never_back(
    cluster: EmbeddedCluster, log: logstore.LogClient, lsns: range
) -> None:
    end_lsn = log.admin.commit_lsn()
    with pytest.raises(OutOfRange, match="no more is committed") as told:
        log.admin.trim(end_lsn + 1_000)
    assert lsns[-1] < told.value.last <= end_lsn + 1
    inside = lsns[0] + 2 * PER_BATCH + 1
    plan = log.admin.plan_trim(inside)
    assert (plan.kept_lsn, plan.payloads) == (inside - 1, inside - 1 - plan.log_start_lsn)
    assert log.admin.trim(inside) == inside - 1, "a batch is kept or given up whole"
    wait_for_start(cluster, inside - 1)
    plan = log.admin.plan_trim(inside)
    assert (plan.kept_lsn, plan.payloads, plan.size_bytes) == (inside - 1, 0, 0)
    assert log.admin.trim(1) == inside - 1
    log.admin.set_cursor("held", lsns[0] + 9, hold=True)
    with pytest.raises(OutOfRange, match="cursor 'held' holds what follows") as told:
        log.admin.trim(lsns[0] + 10)
    assert told.value.last == lsns[0] + 9
    log.admin.delete_cursor("held")
    with ThreadPoolExecutor(2) as pool:
        asked = [lsns[0] + 12, lsns[0] + 15]
        kept = list(pool.map(log.admin.trim, asked))
    assert kept[1] == asked[1]
    assert kept[0] in asked, "it may come second"
    wait_for_start(cluster, asked[1])
    assert log.admin.watermarks(linearizable=True).log_start_lsn == asked[1]


@pytest.mark.long
def test_after_a_restart_of_all_the_log_begins_there_and_files_show_it(
    cluster: EmbeddedCluster, log: logstore.LogClient, lsns: range
) -> None:
    kept = lsns[0] + 7 * PER_BATCH
    trim(cluster, log, kept)
    cluster.kill_all()
    folder = cluster.node_folder(2)
    disk = RealDisk()
    salvaged = salvage_folder(disk, str(folder))
    assert (salvaged.first_lsn, salvaged.faults) == (kept, ())
    next_lsn = kept
    for segment in salvaged.segments:
        for entry in salvage_segment(disk, str(folder), segment):
            assert (entry.first_lsn, entry.fault) == (next_lsn, "")
            next_lsn = entry.next_lsn
    assert next_lsn > lsns[-1]
    meta = run_cli(None, "inspect", "meta", str(folder / "meta.a"), "--json", "-")
    assert meta.returncode == ExitStatus.DONE, meta.stderr
    starts = [
        msgspec.json.decode(
            run_cli(None, "inspect", "meta", str(folder / name), "--json", "-").stdout
        )["log_start_next_lsn"]
        for name in ("meta.a", "meta.b")
    ]
    assert max(starts) == kept
    newest = max(folder.glob("*.raft"))
    assert run_cli(None, "inspect", "record", str(newest)).returncode == ExitStatus.DONE
    cluster.start_all()
    cluster.wait_for_leader(RECOVERY_TIMEOUT_S)
    for node in cluster.nodes:
        cluster.wait_until_visible(node, lsns[-1], RECOVERY_TIMEOUT_S)
        assert log.admin.watermarks(replica=node).log_start_lsn == kept
        found = [
            payload
            for batch in log.read(kept, lsns[-1], replica=node)
            for payload in batch.payloads()
        ]
        assert found == payloads_from(lsns, kept)
    assert log.admin.verify().is_good
