"""A real log that is trimmed under streams, archives and restores (SAFETY G1, G3, G6): kept where
a cursor holds it, told elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import msgspec
import pytest
from pyspark.sql import SparkSession

import logstore
from logstore.cli.embedded import EmbeddedCluster, make_small_config, poll_until
from logstore.cli.main import main
from logstore.client.client import LogClient
from logstore.errors import ErrorCode, NoQuorum, OutOfRange
from logstore.format.client_messages import (
    CursorsReply,
    CursorsRequest,
    DoneReply,
    ErrorReply,
    SetCursorRequest,
)
from logstore.format.cursor_entries import Cursor, Hold, encode_cursors
from logstore.format.level import TRIM_LEVEL
from logstore.format.meta import LogStart
from logstore.model import Lsn
from logstore.settings import ProcessSettings
from logstore.spark import LagListener
from logstore.spark.archive import Archive, ArchiveOptions
from logstore.spark.audit_sources import Folder, read_part, survey
from logstore.spark.lake import MANIFEST, LakeWriter, read_manifest
from logstore.spark.listener import Lag
from logstore.spark.restore import Restore
from logstore.storage.disk import RealDisk
from logstore.storage.meta_store import META_NAMES, read_meta
from logstore.storage.segment import record_position
from tests.faults.frequent_snapshots import append_snapshot, frequent_snapshots
from tests.spark.lakes import (
    archive_once,
    cursor_lsn,
    digest_of,
    files_of,
    lend,
    options,
)
from tests.spark.refusals import failure_of
from tests.spark.rows import append, load, lsns_of
from tests.spark.streams import lsns_of_batches, open_stream, run
from tests.unit.client_stage import Cluster
from tests.unit.folder_stage import FolderStage, batch, flip, located

TIMEOUT_S = 60.0
ON_LAG_S = 30.0


@pytest.fixture(scope="module")
def young(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[EmbeddedCluster]]:
    """Two clusters of one replica that nobody has formed."""
    with ExitStack() as stack:
        stack.enter_context(frequent_snapshots(tmp_path_factory.mktemp("patched")))
        found = []
        for name in ("source", "restored"):
            config = make_small_config(1, Random())
            config = msgspec.structs.replace(
                config,
                cluster=msgspec.structs.replace(config.cluster, auto_init=False),
                process=ProcessSettings(mode="single"),
            )
            cluster = EmbeddedCluster(tmp_path_factory.mktemp(name), config)
            found.append(stack.enter_context(cluster))
            cluster.start_all()
            with logstore.connect(cluster.endpoints, timeout=TIMEOUT_S) as client:
                client.nodes()  # it has its ports: the next one's are others
        yield found


@pytest.fixture(scope="module")
def source(young: list[EmbeddedCluster]) -> EmbeddedCluster:
    return young[0]


@pytest.fixture(scope="module")
def log(source: EmbeddedCluster) -> Iterator[LogClient]:
    with logstore.connect(source.endpoints, timeout=TIMEOUT_S) as client:
        client.admin.initialize()
        assert poll_until(lambda: client.admin.format_levels().level >= TRIM_LEVEL, TIMEOUT_S)
        yield client


def _raise(error: Exception) -> None:
    raise error


def append_thirty(log: LogClient) -> range:
    """Three a batch, and a snapshot above them."""
    with log.producer() as producer:
        found = [producer.append_batch([b"x"] * 3).result(timeout=TIMEOUT_S) for _ in range(10)]
    append_snapshot(log)
    return range(found[0].first, found[-1].last + 1)


def test_a_stream_that_falls_below_fails_or_goes_on_and_counts(
    spark: SparkSession, source: EmbeddedCluster, log: LogClient, tmp_path: Path
) -> None:
    lsns = append_thirty(log)
    end = log.admin.commit_lsn()
    kept = lsns[0] + 15

    def trim(_: int) -> None:
        assert log.admin.trim(kept) == kept

    given = {"startingLsn": lsns[0], "maxRecordsPerTrigger": 6}
    strict = open_stream(spark, source, **given)
    text = failure_of(lambda: run(strict, tmp_path, on_batch=trim))
    assert f"LSNs {lsns[0] + 6} to {kept - 1} are below the log start, {kept}" in text
    assert "failOnDataLoss=false" in text

    lags: list[Lag] = []
    has_lost = threading.Event()

    def on_lag(_: str, lag: Lag) -> None:
        lags.append(lag)
        if lag.lost_records:
            has_lost.set()

    listener = LagListener(on_lag)
    spark.streams.addListener(listener)
    try:
        lenient = open_stream(spark, source, failOnDataLoss="false", **given)
        found = lsns_of_batches(run(lenient, tmp_path))
        assert has_lost.wait(ON_LAG_S)
    finally:
        spark.streams.removeListener(listener)
    assert found == list(range(kept, end + 1))
    assert {each.lost_records for each in lags} <= {0, kept - lsns[0] - 6}


def test_a_batch_read_of_what_is_gone_fails_and_earliest_is_the_log_start(
    spark: SparkSession, source: EmbeddedCluster, log: LogClient
) -> None:
    lsns = append_thirty(log)
    planned = load(spark, source, startingLsn=lsns[0], endingLsn=lsns[-1])
    assert planned.rdd.getNumPartitions() == 1
    kept = lsns[0] + 9
    assert log.admin.trim(kept) == kept
    assert f"LSNs {lsns[0]} to {kept - 1} are below the log start" in failure_of(planned.count)
    assert lsns_of(load(spark, source, endingLsn=lsns[-1])) == list(range(kept, lsns[-1] + 1))


def test_an_archive_holds_what_it_lacks_and_is_told_what_it_did_not_hold(
    spark: SparkSession, source: EmbeddedCluster, log: LogClient, tmp_path: Path
) -> None:
    lsns = append_thirty(log)
    begun = log.admin.watermarks().log_start_lsn
    with LakeWriter(str(tmp_path)) as writer:
        work = Archive(lambda: spark, writer, options(source, "held", files_at_once=1))
        assert work.begin().next_lsn == begun
        rounds = work.rounds(work.head_lsn())
        (file,) = next(rounds)
        for wanted in (file.last_lsn + 2, log.admin.commit_lsn()):
            with pytest.raises(OutOfRange, match="cursor 'held' holds what follows") as told:
                log.admin.trim(wanted)
            assert told.value.last == file.last_lsn + 1
        assert log.admin.trim(file.last_lsn + 1) > begun
        for _ in rounds:
            pass
    manifest = read_manifest(str(tmp_path))
    assert (manifest.first_lsn, manifest.next_lsn) == (begun, log.admin.commit_lsn() + 1)
    assert cursor_lsn(log, "held") == manifest.next_lsn > lsns[-1]
    log.admin.delete_cursor("held")
    kept = append_thirty(log)[-2]
    start = log.admin.trim(kept)
    assert manifest.next_lsn < start <= kept
    with pytest.raises(OutOfRange, match="what is between is lost; begin another lake") as gap:
        archive_once(spark, source, tmp_path, "held")
    assert gap.value.first == start


def test_a_lake_that_was_made_without_its_cursor_begins_where_the_log_does_by_then(
    spark: SparkSession,
    source: EmbeddedCluster,
    log: LogClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing held the log for it; each run said that what is between was lost."""
    lsns = append_thirty(log)
    with monkeypatch.context() as patch:
        patch.setattr(Archive, "_move_cursor", lambda *_: _raise(NoQuorum("no majority")))
        with pytest.raises(NoQuorum):
            archive_once(spark, source, tmp_path, "late")
    made = read_manifest(str(tmp_path))
    start = log.admin.trim(lsns[0] + 3)
    assert (made.files, made.next_lsn < start) == ((), True)
    found = archive_once(spark, source, tmp_path, "late")
    assert (found.cluster_id, found.first_lsn) == (made.cluster_id, start)
    assert found.next_lsn == log.admin.commit_lsn() + 1 == cursor_lsn(log, "late")
    log.admin.delete_cursor("late")
    expected = log.digest(start, found.next_lsn - 1, min_lsn=found.next_lsn - 1)
    assert digest_of(tmp_path).hexdigest() == expected.hexdigest()


def test_a_lake_whose_manifest_is_an_older_empty_one_keeps_its_files_of_what_was_trimmed(
    spark: SparkSession, source: EmbeddedCluster, log: LogClient, tmp_path: Path
) -> None:
    """They are the only copy, and the cursor was deleted, as the refusal advises."""
    lsns = append_thirty(log)
    with LakeWriter(str(tmp_path)) as writer:
        Archive(lambda: spark, writer, options(source, "older")).begin()
    older = (tmp_path / MANIFEST).read_bytes()
    archive_once(spark, source, tmp_path, "older")
    files = files_of(tmp_path)
    (tmp_path / MANIFEST).write_bytes(older)
    log.admin.delete_cursor("older")
    log.admin.trim(lsns[0] + 3)
    with pytest.raises(OutOfRange, match="what is between is lost; begin another lake"):
        archive_once(spark, source, tmp_path, "older")
    assert (files_of(tmp_path), (tmp_path / MANIFEST).read_bytes()) == (files, older)
    assert cursor_lsn(log, "older") == 0


def test_a_lake_without_files_whose_cursor_no_longer_holds_tells_what_was_trimmed(
    spark: SparkSession, source: EmbeddedCluster, log: LogClient, tmp_path: Path
) -> None:
    """The cursor says that the log was to be kept from there on."""
    lsns = append_thirty(log)
    with LakeWriter(str(tmp_path)) as writer:
        made = Archive(lambda: spark, writer, options(source, "let go")).begin()
    log.admin.set_cursor("let go", made.next_lsn, hold=False)
    start = log.admin.trim(lsns[0] + 3)
    with pytest.raises(OutOfRange, match="what is between is lost; begin another lake"):
        archive_once(spark, source, tmp_path, "let go")
    assert read_manifest(str(tmp_path)) == made
    log.admin.delete_cursor("let go")
    assert archive_once(spark, source, tmp_path, "let go").first_lsn == start
    log.admin.delete_cursor("let go")


def test_a_restore_into_a_log_that_was_trimmed_is_refused(
    spark: SparkSession,
    young: list[EmbeddedCluster],
    log: LogClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, fresh = young
    append(log, *[[bytes(900_000)] for _ in range(9)])  # too large to be imported as one entry
    archive_once(spark, source, tmp_path, "restore")
    manifest = read_manifest(str(tmp_path))
    lend(monkeypatch, spark, ["restore"])
    call = ["pipeline", "restore", str(tmp_path), "--endpoint", fresh.endpoints[0]]
    assert main(call) == 0
    with logstore.connect(fresh.endpoints, timeout=TIMEOUT_S) as copy:
        start = copy.admin.trim(manifest.next_lsn - 5)
        assert start > manifest.first_lsn
        capsys.readouterr()
        assert main(call) == 4
        text = f"was trimmed: it begins at LSN {start}, not at {manifest.first_lsn}: restore into"
        assert text in capsys.readouterr().err
        data = [bytes(each.data) for each in log.read_batches(start, manifest.next_lsn - 1)]
        assert copy.admin.import_batches(start, data) == manifest.next_lsn, "compared, and the same"
        with pytest.raises(OutOfRange, match=f"LSN {start - 1} lies below the log start"):
            copy.admin.import_batches(start - 1, data)
    fresh.kill_all()
    fresh.start_all()
    fresh.wait_for_leader()
    assert main(call) != 0
    assert f"begins at LSN {start}, not at {manifest.first_lsn}" in capsys.readouterr().err
    first = Restore(str(tmp_path), manifest, start)
    found = first.run(
        lambda: spark, fresh.endpoints[0], timeout_s=TIMEOUT_S, on_bytes=lambda _: None
    )
    assert (found.first_lsn, found.imported_batches) == (start, 0)


def test_a_new_lake_begins_where_the_log_does_when_its_cursor_holds_it(tmp_path: Path) -> None:
    """The log start rises between the question for it and the cursor: nothing may hold what is
    gone, and the lake would have begun with a gap, for ever."""
    with Cluster() as cluster:
        replica = cluster.replicas[1]
        replica.call(lambda: [replica.append_to_log([b"x"] * 3) for _ in range(9)] and None)
        replica.on[CursorsRequest] = lambda _: CursorsReply(b"")

        def set_cursor(request: SetCursorRequest) -> object:
            if request.lsn < 13:
                replica.trim(13)
                return ErrorReply(ErrorCode.OUT_OF_RANGE, 0, 13, 1 << 60, b"is gone")
            return DoneReply(0)

        replica.on[SetCursorRequest] = set_cursor
        settings = ArchiveOptions(endpoints=cluster.endpoint, cursor="new", timeout_s=5.0)
        with LakeWriter(str(tmp_path)) as writer:
            manifest = Archive(lambda: pytest.fail("no Spark yet"), writer, settings).begin()
        assert (manifest.first_lsn, manifest.files) == (13, ())
        assert read_manifest(str(tmp_path)) == manifest


@pytest.mark.parametrize("is_held", [True, False])
def test_an_archive_holds_where_its_cursor_stands_already_without_a_hold(
    tmp_path: Path, *, is_held: bool
) -> None:
    """Somebody set it so, or took the hold off: what the lake lacks could be trimmed meanwhile."""
    with Cluster() as cluster:
        replica = cluster.replicas[1]
        replica.call(lambda: [replica.append_to_log([b"x"] * 3) for _ in range(9)] and None)
        cursors: dict[bytes, Cursor] = {}
        replica.on[CursorsRequest] = lambda _: CursorsReply(encode_cursors([*cursors.values()]))
        asked: list[SetCursorRequest] = []

        def set_cursor(request: SetCursorRequest) -> object:
            asked.append(request)
            cursors[b"lake"] = Cursor(b"lake", request.lsn, request.hold == Hold.HELD)
            return DoneReply(request.expected_lsn)

        replica.on[SetCursorRequest] = set_cursor
        settings = ArchiveOptions(endpoints=cluster.endpoint, cursor="lake", timeout_s=5.0)
        for _ in range(2):
            with LakeWriter(str(tmp_path)) as writer:
                Archive(lambda: pytest.fail("no Spark yet"), writer, settings).begin()
            cursors[b"lake"] = Cursor(b"lake", Lsn(1), is_held)
        assert [bool(each.hold) for each in asked] == ([True] if is_held else [True, True])


def test_damage_right_above_the_log_start_is_told_where_it_is(tmp_path: Path) -> None:
    """Its LSN was that of the segment's first entry, below what an audit looks at."""
    stage = FolderStage(tmp_path)
    for number in range(6):
        stage.append(batch([b"%d-a" % number, b"b"]))
    stage.close()
    segment, below = located(tmp_path, 4)
    header = below.header
    start = LogStart(header.index, header.term, below.chain, header.next_lsn)
    meta = read_meta(RealDisk(), f"{tmp_path}/{META_NAMES[0]}")
    for name in META_NAMES:
        (tmp_path / name).write_bytes(msgspec.structs.replace(meta, log_start=start).pack())
    segment, damaged = located(tmp_path, 5)
    flip(tmp_path, f"{segment.number:016d}.data", damaged.frame_offset + 20)
    position = record_position(segment, damaged.header.index)
    flip(tmp_path, f"{segment.number:016d}.raft", position + 20)
    found = survey(Folder(str(tmp_path)))
    assert (found.first_lsn, found.last_lsn, found.faults) == (5, 10, ())
    first, *rest = [place for part in found.parts for place in read_part(part)]
    assert (first.first_lsn, first.count, "no record" in first.fault) == (5, 0, True)
    assert [(each.first_lsn, each.fault) for each in rest] == [(7, ""), (9, ""), (11, "")]
