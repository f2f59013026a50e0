"""A replica that lags ends what is planned at its own end; asked for what comes next, it has no
spans. It is asked first, for it is the follower of the lowest number. No query is needed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from logstore.errors import NotReady
from logstore.format.client_messages import (
    StatusReply,
    StatusRequest,
    TimeLookupReply,
    TimeLookupRequest,
    WatermarksReply,
    WatermarksRequest,
)
from logstore.model import Lsn
from logstore.spark import archive, replay, stream_reader
from logstore.spark.archive import Archive, ArchiveOptions
from logstore.spark.batch_reader import LogBatchReader
from logstore.spark.connections import close_all
from logstore.spark.lake import LakeWriter
from logstore.spark.planning import Planner
from logstore.spark.read_options import AtTimestamp, ReadOptions, parse_read_options
from logstore.spark.replay import Replay, ReplayOptions
from tests.spark.test_spark_stream_offsets import make
from tests.unit.client_stage import Cluster, FakeReplica


@pytest.fixture
def played() -> Iterator[Cluster]:
    """Three replicas with LSNs 1 to 30, three a batch; node 1 shows 1 to 6, node 3 leads."""
    with Cluster(3) as cluster:
        cluster.leader = 3
        for replica in cluster.replicas.values():
            for place in range(10):
                replica.append_to_log([b"%d" % place] * 3)
        cluster.replicas[1].hidden = 24
        yield cluster
        close_all()


def read_options(cluster: Cluster, **given: str) -> ReadOptions:
    at = {"endpoints": cluster.endpoint, "fetchTimeoutMs": "8000"}
    return parse_read_options(at | given, is_streaming=False)


def no_spark() -> Any:
    raise AssertionError("something is read")


def test_spans_come_from_the_leader_where_the_first_replica_has_none_yet(played: Cluster) -> None:
    planner = Planner(read_options(played))
    assert planner.spans(7, 30, limit=1).rows[0].last_lsn == 30
    assert planner.spans(9, 30, limit=1).rows[0].last_lsn == 30
    pinned = Planner(read_options(played, replica="1"))
    assert pinned.spans(7, 30, limit=1).rows == ()


def test_a_run_to_the_end_does_not_end_where_the_first_replica_does(played: Cluster) -> None:
    """Trigger.AvailableNow with a limit in bytes: a batch without records is its end."""
    reader = make(played, startingLsn=1)
    start = {**reader.initialOffset(), "lsn": 4}
    reader.prepareForTriggerAvailableNow()
    for limit, ends in ((100, [7, 10]), (1_000, [7, 31])):
        first = reader.latestOffset(start, ReadMaxBytes(limit))
        assert [first["lsn"], reader.latestOffset(first, ReadMaxBytes(limit))["lsn"]] == ends


def archived(played: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The ranges that an archive of a log which begins at LSN 7 gives to its tasks."""
    tasks: list[Any] = []

    def run_tasks(_spark: object, _work: object, given: list[Any]) -> list[Any]:
        tasks.append([(each.first_lsn, each.last_lsn) for each in given])
        if len(tasks) == 3:
            raise AssertionError("it goes round and round")
        if given:
            raise KeyboardInterrupt
        return []

    monkeypatch.setattr(archive, "run_tasks", run_tasks)
    monkeypatch.setattr(archive, "_standing", lambda *_: (7, True))
    options = ArchiveOptions(endpoints=played.endpoint, timeout_s=8, files_at_once=1)
    with LakeWriter(str(tmp_path)) as writer:
        writer.make(cluster_id=bytes(range(16)).hex(), first_lsn=7)
        work = Archive(no_spark, writer, options)
        work.begin()
        try:
            for _ in work.rounds(30):
                pass
        except KeyboardInterrupt:
            pass
    return tasks


def test_an_archive_whose_first_replica_has_nothing_new_reads_the_leaders_plan(
    played: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It made a round without files, told all of its lake's as new, and did so for ever."""
    assert archived(played, tmp_path, monkeypatch) == [[(7, 30)]]


def test_an_archive_that_no_replica_has_a_plan_for_says_so(
    played: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for replica in played.replicas.values():
        replica.hidden = 24
    with pytest.raises(NotReady, match="does not show LSN 7 yet"):
        archived(played, tmp_path, monkeypatch)


def test_a_replay_whose_source_replica_has_nothing_new_reads_the_leaders_plan(
    played: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IndexError ended it."""
    admin = SimpleNamespace(cursors=list, session_commits=lambda _: None)
    target = SimpleNamespace(cluster_id="0c" * 16, client=SimpleNamespace(admin=admin))
    monkeypatch.setattr(replay, "connected", lambda *_, **__: target)
    options = ReplayOptions(
        lake=None,
        source=played.endpoint,
        target="127.0.0.1:2",
        name=None,
        first_lsn=None,
        timeout_s=8,
    )
    work = Replay(no_spark, options)
    assert work._choose(7, 30) == 30
    for replica in played.replicas.values():
        replica.hidden = 24
    with pytest.raises(NotReady, match="does not show LSN 7 yet"):
        work._choose(7, 30)


def stamp(cluster: Cluster) -> None:
    """Replicas answer by their stamps: batch n of three LSNs has 1,000 + n. They honour min_lsn,
    and say how far they are."""
    for replica in cluster.replicas.values():

        def at(request: TimeLookupRequest, it: FakeReplica = replica) -> TimeLookupReply:
            wanted = 3 * max(0, request.timestamp_ns - 1_000) + 1
            return TimeLookupReply(Lsn(min(wanted, it.visible_lsn + 1)))

        def marks(request: WatermarksRequest, it: FakeReplica = replica) -> Any:
            if request.min_lsn > it.visible_lsn:
                it.hidden = 0  # it waits until it has caught up
            return WatermarksReply(Lsn(it.log_start_lsn), Lsn(it.visible_lsn))

        def status(_: StatusRequest, it: FakeReplica = replica) -> StatusReply:
            return StatusReply(b'{"log_start_lsn":1,"visible_lsn":%d}' % it.visible_lsn)

        replica.on |= {TimeLookupRequest: at, WatermarksRequest: marks, StatusRequest: status}


def test_a_batch_ends_at_its_time_also_without_a_leader_where_one_lags(played: Cluster) -> None:
    """It ended where the first replica does: what is older than its end was left out, and the next
    one, from that time on, does not have it either."""
    stamp(played)
    played.leader = 0
    options = msgspec.structs.replace(read_options(played), end=AtTimestamp(1_005))
    found = LogBatchReader(options, []).partitions()
    assert [(each.first_lsn, each.last_lsn) for each in found] == [(1, 6), (7, 15)]


@pytest.mark.parametrize("leader", [0, 1])
def test_a_stream_begins_at_its_time_also_where_the_first_replica_lags(
    played: Cluster, leader: int
) -> None:
    """It began with what is older: at the end of the replica that was asked, a new leader's, too,
    which shows no more before it commits."""
    stamp(played)
    played.leader = leader
    reader = make(played)
    reader._options = msgspec.structs.replace(reader._options, start=AtTimestamp(1_005))
    played.replicas[1].hidden = 0
    planner = Planner(reader._options)
    first = reader.initialOffset()
    bounds = planner.bounds()
    played.replicas[1].hidden = 24
    reader._wait_for_news = lambda *_: bounds  # type: ignore[method-assign]
    end = reader.latestOffset(first, ReadAllAvailable())
    assert (end["lsn"], end["begins"]) == (31, 16)


def test_a_stream_goes_on_where_the_replica_that_it_watches_stands_still(
    played: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower whose disk is full, or that is cut off from its leader, answers for ever that
    there is nothing new. The stream believed it, and told a lag of 0."""
    monkeypatch.setattr(stream_reader, "STILL_S", 0.5)
    reader = make(played)
    start = {**reader.initialOffset(), "lsn": 7}
    assert reader.latestOffset(start, ReadMaxRows(6)) == start, "it may still come"
    time.sleep(0.6)
    assert reader.latestOffset(start, ReadMaxRows(6))["lsn"] == 13
    assert (reader.reportLatestOffset() or {})["lagRecords"] == 18
    assert reader.latestOffset({**start, "lsn": 13}, ReadMaxRows(6))["lsn"] == 19, "and at once"
    played.replicas[1].hidden = 0
    asked = played.replicas[3].answer_in_turn(WatermarksRequest, None)
    assert reader.latestOffset({**start, "lsn": 19}, ReadMaxRows(6))["lsn"] == 25
    assert not asked, "the replica has caught up: it is believed again"


def test_a_stream_from_a_replica_by_number_waits_for_that_one(
    played: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader, "STILL_S", 0.0)
    reader = make(played, replica=1)
    start = {**reader.initialOffset(), "lsn": 7}
    for _ in range(2):
        assert reader.latestOffset(start, ReadMaxRows(6)) == start
