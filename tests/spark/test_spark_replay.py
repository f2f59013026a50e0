"""A lake, or another log, appended to a log: all of it, in order, once, whoever is broken off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import msgspec
import pytest
from pyspark.sql import SparkSession

import logstore
from logstore.cli.embedded import EmbeddedCluster, make_small_config
from logstore.cli.main import main
from logstore.client.producer_options import ProducerOptions
from logstore.errors import (
    CorruptData,
    CursorMoved,
    Fenced,
    InvalidRequest,
    OutOfRange,
    WrongCluster,
)
from logstore.model import SequenceMode
from logstore.spark import replay
from logstore.spark.jobs import error_in
from logstore.spark.lake import data_path
from logstore.spark.planning import Bounds, Planner
from logstore.spark.replay import Replay, ReplayOptions
from logstore.spark.sink_commit import PARTS_MAX, PARTS_SUFFIX
from tests.spark.lakes import append_some, archive_once, lend
from tests.spark.rows import append


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """Another log, of one replica."""
    config = make_small_config(1, Random())
    with EmbeddedCluster(tmp_path_factory.mktemp("other"), config) as running:
        running.start_all()
        running.wait_for_leader()
        yield running


@pytest.fixture(scope="module")
def others_log(other: EmbeddedCluster) -> Iterator[logstore.LogClient]:
    with logstore.connect(other.endpoints, timeout=60) as client:
        append_some(client)
        random = Random(9)
        append(client, *[[random.randbytes(random.choice((0, 7, 90_000)))] * 2 for _ in range(40)])
        append_some(client)
        yield client


def payloads(log: logstore.LogClient, first: int, last: int) -> list[bytes]:
    return [each for batch in log.read(first, last, min_lsn=last) for each in batch.payloads()]


def make(spark: SparkSession, target: EmbeddedCluster, **changes: object) -> Replay:
    settings = {"lake": None, "source": None, "name": None, "first_lsn": None} | changes
    endpoints = ",".join(target.endpoints)
    return Replay(lambda: spark, ReplayOptions(target=endpoints, timeout_s=60.0, **settings))  # type: ignore[arg-type]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "CHUNK_BYTES", 400_000)


@pytest.mark.usefixtures("small_chunks")
def test_another_log_is_appended_in_order_and_once(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    other: EmbeddedCluster,
    others_log: logstore.LogClient,
) -> None:
    before = log.admin.commit_lsn()
    work = make(spark, cluster, source=other.endpoints[0])
    chunks = list(work.chunks(work.last_lsn))
    assert len(chunks) >= 3
    assert [chunk.first_lsn for chunk in chunks] == [
        1, *(chunk.last_lsn + 1 for chunk in chunks[:-1])
    ]  # fmt: skip
    last = log.admin.commit_lsn()
    assert payloads(log, before + 1, last) == payloads(others_log, 1, work.last_lsn)
    assert list(make(spark, cluster, source=other.endpoints[0]).chunks(work.last_lsn)) == []
    first, new_last = append(others_log, [b"and", b"more"])
    again = make(spark, cluster, source=other.endpoints[0])
    assert [msgspec.structs.astuple(each) for each in again.chunks(again.last_lsn)] == [
        (first, new_last)
    ]
    assert payloads(log, last + 1, log.admin.commit_lsn()) == [b"and", b"more"]


@pytest.mark.usefixtures("small_chunks")
def test_a_lake_is_appended_in_order_and_its_part_from_an_lsn_on(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    other: EmbeddedCluster,
    others_log: logstore.LogClient,
    tmp_path: Path,
) -> None:
    found = archive_once(spark, other, tmp_path, "replayed", file_bytes=900_000)
    before = log.admin.commit_lsn()
    work = make(spark, cluster, lake=str(tmp_path), first_lsn=20, name="from 20")
    assert work.last_lsn == found.next_lsn - 1
    list(work.chunks(work.last_lsn))
    last = log.admin.commit_lsn()
    assert payloads(log, before + 1, last) == payloads(others_log, 20, work.last_lsn)
    beyond = make(spark, cluster, lake=str(tmp_path), first_lsn=found.next_lsn, name="beyond")
    with pytest.raises(OutOfRange, match="is not in the lake"):
        list(beyond.chunks(found.next_lsn))


def test_a_damaged_lake_ends_a_replay_before_anything_of_the_chunk_is_written(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    other: EmbeddedCluster,
    others_log: logstore.LogClient,
    tmp_path: Path,
) -> None:
    """A bit of a column that a replay does not read; it used to leave out rows, or to go on for
    ever."""
    found = archive_once(spark, other, tmp_path, "replayed and damaged")
    path = Path(data_path(str(tmp_path), found.files[0]))
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    before = log.admin.commit_lsn()
    work = make(spark, cluster, lake=str(tmp_path), name="damaged")
    with pytest.raises(CorruptData, match="as the manifest says"):
        list(work.chunks(work.last_lsn))
    assert log.admin.commit_lsn() == before


@pytest.mark.parametrize("has_cursor", [True, False])
def test_a_chunk_that_was_broken_off_is_finished_as_it_was_agreed(
    has_cursor: bool,
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    other: EmbeddedCluster,
    others_log: logstore.LogClient,
) -> None:
    """Its first part is in the log; the replay that goes on would choose another chunk. Somebody
    may have deleted the cursor."""
    work = make(spark, cluster, source=other.endpoints[0], name=f"broken {has_cursor}")
    wanted = payloads(others_log, 1, work.last_lsn)
    end = work.last_lsn - 3
    if has_cursor:
        log.admin.set_cursor(work.name, end + 1, expected_lsn=0)
    before = log.admin.commit_lsn()
    planned = _first_part(wanted[:end])
    options = ProducerOptions(name=work.name + PARTS_SUFFIX, mode=SequenceMode.MONOTONE)
    with log.producer(options) as producer:
        producer.append_batch(planned, sequence=end * PARTS_MAX).result(timeout=60)
    chunks = [msgspec.structs.astuple(each) for each in work.chunks(work.last_lsn)]
    assert chunks == [(1, end), (end + 1, work.last_lsn)]
    assert payloads(log, before + 1, log.admin.commit_lsn()) == wanted


def _first_part(wanted: list[bytes]) -> list[bytes]:
    """What the sink puts into the first part of 1 MiB."""
    size = count = 0
    while size + len(wanted[count]) + 4 <= (1 << 20) - 64:
        size += len(wanted[count]) + 4
        count += 1
    return wanted[:count]


@pytest.mark.usefixtures("small_chunks")
def test_two_replays_of_one_name_agree_on_their_chunks(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    other: EmbeddedCluster,
    others_log: logstore.LogClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second one begins while the first has agreed on a chunk and not written it yet."""
    one = make(spark, cluster, source=other.endpoints[0], name="two")
    two = make(spark, cluster, source=other.endpoints[0], name="two")
    before = log.admin.commit_lsn()
    append_chunk = one._append
    seen = []

    def late(chunk: replay.Chunk) -> None:
        if not seen:
            seen.append(chunk)
            monkeypatch.setattr(replay, "CHUNK_BYTES", 150_000)
            seen.append(next(two.chunks(one.last_lsn)))
            seen.append(next(two.chunks(one.last_lsn)))
        append_chunk(chunk)

    monkeypatch.setattr(one, "_append", late)
    list(one.chunks(one.last_lsn))
    assert seen[0] == seen[1] != seen[2]
    assert payloads(log, before + 1, log.admin.commit_lsn()) == payloads(
        others_log, 1, one.last_lsn
    )


@pytest.mark.usefixtures("small_chunks")
def test_two_replays_of_one_name_at_the_same_time_both_end_and_every_record_is_there_once(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    other: EmbeddedCluster,
    others_log: logstore.LogClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each chunk that one of them writes fences what the other has under way."""
    monkeypatch.setattr(replay, "PAUSE_S", 0.1)
    before = log.admin.commit_lsn()
    works = [make(spark, cluster, source=other.endpoints[0], name="race") for _ in range(2)]

    def run(work: Replay) -> list[replay.Chunk]:
        spark.createDataFrame([], "none INT")  # makes this the session of the thread
        return list(work.chunks(work.last_lsn))

    with ThreadPoolExecutor(2) as threads:
        ends = [threads.submit(run, work) for work in works]
        written = [end.result(timeout=200) for end in ends]
    assert sum(map(len, written)) >= 3
    wanted = payloads(others_log, 1, works[0].last_lsn)
    assert payloads(log, before + 1, log.admin.commit_lsn()) == wanted


class OneAndTheOther:
    """A replay whose first appends are fenced, and what happens in its pauses."""

    def __init__(self, work: Replay, monkeypatch: pytest.MonkeyPatch, fenced: int) -> None:
        self.work = work
        self.fenced = fenced
        self.appends = self.pauses = 0
        self.each_pause: Callable[[], object] = lambda: None
        append_chunk = work._append

        def fence(chunk: replay.Chunk) -> None:
            self.appends += 1
            if self.appends <= self.fenced:
                raise Fenced("another driver")
            append_chunk(chunk)

        def pause(_seconds: float) -> None:
            self.pauses += 1
            self.each_pause()

        monkeypatch.setattr(work, "_append", fence)
        monkeypatch.setattr(work, "_pause", pause)


@pytest.mark.usefixtures("small_chunks")
def test_a_fenced_replay_stands_by_as_long_as_the_other_goes_on(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    other: EmbeddedCluster,
    others_log: logstore.LogClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = make(spark, cluster, source=other.endpoints[0], name="by")
    two = make(spark, cluster, source=other.endpoints[0], name="by")
    chunks = two.chunks(two.last_lsn)
    staged = OneAndTheOther(one, monkeypatch, fenced=1)
    staged.each_pause = lambda: next(chunks)
    assert list(one.chunks(one.last_lsn)) == []
    assert staged.appends == 1
    assert two.done_lsn() == one.last_lsn


def test_a_fenced_replay_takes_over_from_one_that_stands_still(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    other: EmbeddedCluster,
    others_log: logstore.LogClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = log.admin.commit_lsn()
    staged = OneAndTheOther(
        make(spark, cluster, source=other.endpoints[0], name="still"), monkeypatch, fenced=2
    )
    assert [chunk.last_lsn for chunk in staged.work.chunks(9)] == [9]
    least = 3 * replay.PATIENCE_PAUSES
    assert least <= staged.pauses < 2 * least
    assert payloads(log, before + 1, log.admin.commit_lsn()) == payloads(others_log, 1, 9)


def test_a_replay_that_is_fenced_for_ever_says_so(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    other: EmbeddedCluster,
    others_log: logstore.LogClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay, "PATIENCE_PAUSES", 1)
    staged = OneAndTheOther(
        make(spark, cluster, source=other.endpoints[0], name="ever"), monkeypatch, fenced=99
    )
    with pytest.raises(Fenced):
        list(staged.work.chunks(9))
    assert staged.appends == replay.TAKEOVERS_MAX + 1


def test_a_cursor_that_no_replay_has_put_there_ends_it(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    other: EmbeddedCluster,
    others_log: logstore.LogClient,
) -> None:
    work = make(spark, cluster, source=other.endpoints[0], name="moved")
    list(work.chunks(5))
    log.admin.set_cursor(work.name, 2)
    with pytest.raises(CursorMoved, match="somebody has moved it; delete it"):
        list(work.chunks(7))
    log.admin.delete_cursor(work.name)
    assert [chunk.first_lsn for chunk in work.chunks(7)] == [6]


def test_a_log_is_not_replayed_into_itself_and_a_source_is_one(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest, match="into itself"):
        make(spark, cluster, source=cluster.endpoints[1])
    for both in ({}, {"lake": str(tmp_path), "source": cluster.endpoints[0]}):
        with pytest.raises(InvalidRequest, match="either a lake or"):
            make(spark, cluster, **both)


def test_the_command_replays_and_then_has_nothing_to_do(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    other: EmbeddedCluster,
    others_log: logstore.LogClient,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lend(monkeypatch, spark, ["replay"])
    call = ["pipeline", "replay", "--source", other.endpoints[0], "--name", "command"]
    call += ["--endpoint", ",".join(cluster.endpoints), "--from", "3"]
    before = log.admin.commit_lsn()
    assert main([*call, "--to", "9"]) == 0
    assert "LSN 3 to 9 of the source are replayed as replay/command/3" in capsys.readouterr().err
    assert payloads(log, before + 1, before + 7) == payloads(others_log, 3, 9)
    assert main([*call, "--to", "9", "--json", "-"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert told == {"name": "replay/command/3", "first_lsn": 10, "last_lsn": 9}


def test_an_error_of_ours_is_found_in_what_spark_says() -> None:
    text = (
        "Traceback (most recent call last):\n  File …\n"
        "logstore.errors.Unreachable: no replica\n\nDuring handling …\n"
        "logstore.errors.WrongCluster: cluster ab answers at x\n\tat org.apache.spark…"
    )
    found = error_in(text)
    assert (type(found), str(found)) == (WrongCluster, "cluster ab answers at x")
    assert error_in("java.lang.OutOfMemoryError: heap") is None
    assert error_in("logstore.errors.Nothing: x\nlogstore.errors.IntEnum: y") is None


def test_a_source_that_is_trimmed_between_two_calls_is_not_replayed_anew(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    other: EmbeddedCluster,
    others_log: logstore.LogClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = make(spark, cluster, source=other.endpoints[0], name="trimmed")
    list(first.chunks(9))
    monkeypatch.setattr(Planner, "bounds", lambda self: Bounds(6, first.last_lsn))
    again = make(spark, cluster, source=other.endpoints[0], name="trimmed")
    assert (again.name, again.done_lsn()) == (first.name, 9)
