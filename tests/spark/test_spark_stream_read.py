"""Streams by a real Spark: restarts, replays, limits, lag, replicas that die, refusals."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import logstore
from logstore.cli.embedded import EmbeddedCluster
from logstore.spark import LagListener
from logstore.spark.listener import Lag, lag_of
from tests.spark.refusals import failure_of
from tests.spark.rows import append
from tests.spark.streams import forget_last_commit, lsns_of_batches, open_stream, run
from tests.unit.client_stage import Cluster, free_base_ports


@pytest.fixture
def played() -> Iterator[Cluster]:
    with Cluster() as cluster:
        for place in range(10):
            cluster.replicas[1].append_to_log([b"%d" % place] * 3)
        yield cluster


def test_available_now_reads_all_there_was_in_batches_within_the_limit_and_goes_on_later(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    first, last = append(log, [b"x"] * 10)
    stream = open_stream(spark, cluster, startingLsn=first, maxRecordsPerTrigger=4)
    batches = run(stream, tmp_path, on_batch=lambda number: append_once(log, number))
    assert [len(lsns) for _, lsns in batches] == [4, 4, 2]
    assert lsns_of_batches(batches) == list(range(first, last + 1))
    later = run(stream, tmp_path)
    assert lsns_of_batches(later) == [last + 1, last + 2]
    assert run(stream, tmp_path) == []


def test_a_stream_without_payloads_from_one_replica_in_one_batch(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    """Trigger.Once heeds no limit."""
    first, last = append(log, *[[b"x"] * 3] * 4)
    stream = open_stream(
        spark, cluster, startingLsn=first, maxRecordsPerTrigger=4, replica=2, includePayload="false"
    )
    cluster.wait_until_visible(2, last)
    assert "payload" not in stream.columns
    assert run(stream, tmp_path, once=True) == [(0, list(range(first, last + 1)))]


def append_once(log: logstore.LogClient, batch_id: int) -> None:
    if batch_id == 0:
        append(log, [b"while it runs"] * 2)


def test_latest_keeps_its_place_over_restarts_even_from_before_the_first_record(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    append(log, [b"before"])
    stream = open_stream(spark, cluster)
    assert run(stream, tmp_path) == []
    assert forget_last_commit(tmp_path) == 0
    first, last = append(log, [b"after"] * 3)
    assert lsns_of_batches(run(stream, tmp_path)) == list(range(first, last + 1))


def test_a_replayed_batch_has_the_same_records(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    first, last = append(log, [b"x"] * 7)
    stream = open_stream(spark, cluster, startingLsn=first, maxRecordsPerTrigger=3)
    *_, (number, lsns) = run(stream, tmp_path)
    assert forget_last_commit(tmp_path) == number
    append(log, [b"meanwhile"])
    assert run(stream, tmp_path) == [(number, lsns), (number + 1, [last + 1])]


def test_the_first_batch_is_replayed_from_the_same_start(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    """Other starts resolve to the same by test_spark_stream_offsets.py."""
    append(log, [b"x"])
    stream = open_stream(spark, cluster, startingOffsets="earliest")
    [(number, lsns)] = run(stream, tmp_path)
    assert lsns[0] == 1
    assert forget_last_commit(tmp_path) == number == 0
    assert run(stream, tmp_path) == [(0, lsns)]


def test_whole_batches_are_never_cut(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    sizes = [3, 7, 1, 1, 4, 12]
    first, last = append(log, *[[b"x"] * size for size in sizes])
    borders = {first + sum(sizes[:place]) for place in range(len(sizes) + 1)}
    stream = open_stream(
        spark, cluster, startingLsn=first, maxRecordsPerTrigger=5, wholeBatches="true"
    )
    batches = run(stream, tmp_path)
    assert lsns_of_batches(batches) == list(range(first, last + 1))
    assert {lsns[-1] + 1 for _, lsns in batches} <= borders
    assert len(batches) >= 4


def test_a_dead_replica_is_passed_over(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    first, last = append(log, *[[b"x" * 1_000] * 10 for _ in range(5)])
    stream = open_stream(
        spark, cluster, startingLsn=first, maxRecordsPerTrigger=25, minPartitions=3
    )
    leader = cluster.wait_for_leader()
    victim = next(node for node in cluster.nodes if node != leader)
    batches = run(stream, tmp_path, on_batch=lambda number: number or cluster.kill(victim))
    assert lsns_of_batches(batches) == list(range(first, last + 1))
    cluster.start(victim)
    cluster.wait_until_visible(victim, last)


def test_a_running_stream_follows_the_log_and_tells_its_lag(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    first, _ = append(log, *[[b"x" * 100]] * 6)
    heard: list[Lag] = []
    is_done = threading.Event()

    def on_lag(_: str, lag: Lag) -> None:
        heard.append(lag)
        if lag.records == 0:
            is_done.set()

    listener = LagListener(on_lag)
    spark.streams.addListener(listener)
    try:
        stream = open_stream(spark, cluster, startingLsn=first, maxRecordsPerTrigger=2)
        query = (
            stream.writeStream.format("noop")
            .queryName("follower")
            .option("checkpointLocation", str(tmp_path))
            .start()
        )
        assert is_done.wait(120)
        assert [lag.records for lag in heard] == [4, 2, 0]
        assert heard[0].size_bytes >= heard[1].size_bytes > 200
        assert heard[0].seconds > 0 == heard[2].seconds == heard[2].size_bytes
        is_done.clear()
        append(log, [b"more"])
        assert is_done.wait(120)
        assert listener.lag("follower") == Lag(0, 0, 0.0) == listener.lags()[str(query.id)]
        query.stop()
        assert listener.lag("follower") is not None
        assert listener.lag("nobody") is None
    finally:
        spark.streams.removeListener(listener)


def test_a_lag_is_the_sum_over_sources_of_this_kind() -> None:
    ours = '{"cluster": "aa", "lsn": 9, "lagRecords": 3, "lagBytes": 50, "lagMs": 1500}'
    more = '{"cluster": "bb", "lsn": 2, "lagRecords": 1, "lagBytes": 10, "lagMs": 2500}'
    assert lag_of([ours, '{"topic": {"0": 5}}', None, "17", more]) == Lag(4, 60, 2.5)
    assert lag_of([None, "no json", "[]"]) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingLsn": 5}, "option endingLsn is for batch reads; a stream has no end"),
        ({"maxOffsetsPerTrigger": 5}, "unknown option 'maxoffsetspertrigger'"),
        ({"startingLsn": 1 << 40}, "startingLsn: 1099511627776 is above the end of the log"),
    ],
)
def test_options_of_a_stream_are_refused_by_name(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    tmp_path: Path,
    options: dict[str, object],
    words: str,
) -> None:
    assert words in failure_of(lambda: run(open_stream(spark, cluster, **options), tmp_path))


def test_a_stream_names_columns_that_are_not_there_and_endpoints_that_do_not_answer(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    reader = spark.readStream.format("logstore").option("endpoints", cluster.endpoints[0])
    wrong = reader.schema("lsn BIGINT NOT NULL, value STRING").load()
    assert "schema: no column 'value'; there are lsn, payload," in failure_of(
        lambda: run(wrong, tmp_path / "wrong")
    )
    [port] = free_base_ports(1)
    reader = spark.readStream.format("logstore").option("endpoints", f"127.0.0.1:{port}")
    mute = reader.option("fetchTimeoutMs", 500).load()
    text = failure_of(lambda: run(mute, tmp_path / "mute"))
    assert f"no replica answers at 127.0.0.1:{port}: is the cluster up?" in text
    assert "fetchTimeoutMs = 500" in text


def test_a_checkpoint_of_another_cluster_is_refused(
    spark: SparkSession, played: Cluster, tmp_path: Path
) -> None:
    stream = open_stream(spark, played, startingOffsets="earliest")
    assert lsns_of_batches(run(stream, tmp_path)) == list(range(1, 31))
    before, played.cluster_id = played.cluster_id, b"another cluster!"
    text = failure_of(lambda: run(stream, tmp_path))
    assert f"the checkpoint belongs to cluster {before.hex()}" in text
    assert "or a new checkpointLocation" in text


@pytest.mark.parametrize("fails", ["true", "false"])
def test_records_trimmed_before_they_were_read_fail_the_query_or_are_left_out(
    spark: SparkSession, played: Cluster, tmp_path: Path, fails: str
) -> None:
    stream = open_stream(
        spark, played, startingLsn=1, maxRecordsPerTrigger=10, failOnDataLoss=fails
    )

    def trim(batch_id: int) -> None:
        if batch_id == 0:
            played.replicas[1].trim(16)

    if fails == "true":
        text = failure_of(lambda: run(stream, tmp_path, on_batch=trim))
        assert "LSNs 11 to 15 are below the log start, 16" in text
    else:
        batches = run(stream, tmp_path, on_batch=trim)
        assert lsns_of_batches(batches) == [*range(1, 11), *range(16, 31)]
