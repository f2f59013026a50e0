"""What the driver's side of a stream says to Spark's questions, asked without a query.

Each question is answered from the offsets alone, so that a replay by a new reader plans the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

import logstore
from logstore.cli.embedded import EmbeddedCluster
from logstore.errors import ConfigError, InvalidRequest, OutOfRange
from logstore.format.client_messages import SpansRequest, TimeLookupReply, TimeLookupRequest
from logstore.model import Lsn
from logstore.spark.batch_reader import LogBatchReader
from logstore.spark.columns import Field
from logstore.spark.read_options import parse_read_options
from logstore.spark.stream_reader import LogStreamReader
from tests.spark.rows import append, expected
from tests.unit.client_stage import Cluster

ALL = ReadAllAvailable()


def make(cluster: EmbeddedCluster | Cluster, **options: object) -> LogStreamReader:
    at = cluster.endpoint if isinstance(cluster, Cluster) else cluster.endpoints[0]
    given = {"endpoints": at, "fetchTimeoutMs": "8000"}
    given |= {name: str(value) for name, value in options.items()}
    return LogStreamReader(parse_read_options(given, is_streaming=True), [Field("lsn", False)])


def planned(reader: LogStreamReader, start: Any, end: Any) -> list[int]:
    """The LSNs that the tasks of a batch read."""
    return [
        lsn
        for each in reader.partitions(start, end)
        for lsn in range(each.first_lsn, each.last_lsn + 1)
    ]


def at(reader: LogStreamReader, lsn: int) -> dict[str, Any]:
    return {"cluster": reader.initialOffset()["cluster"], "lsn": lsn}


@pytest.fixture
def played() -> Iterator[Cluster]:
    """A played replica with LSNs 1 to 30, three a batch."""
    with Cluster() as cluster:
        for place in range(10):
            cluster.replicas[1].append_to_log([b"%d" % place] * 3)
        yield cluster


def test_the_first_offset_is_the_same_however_the_log_grows(
    cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    append(log, [b"something"])
    for options in (
        {"startingOffsets": "latest"},
        {"startingOffsets": "earliest"},
        {"startingTimestamp": 0},
        {"startingLsn": 1},
    ):
        reader = make(cluster, **options)
        first = reader.initialOffset()
        append(log, [b"more"])
        assert reader.initialOffset() == first
        assert make(cluster, **options).initialOffset() == first


def test_latest_is_pinned_by_an_empty_batch(
    cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    """Between the two calls of initialOffset records may come: none of them may be lost."""
    _, before = append(log, [b"before"])
    reader = make(cluster)
    first = reader.initialOffset()
    pinned = reader.latestOffset(first, ALL)
    assert pinned["lsn"] == before + 1
    append(log, [b"after"] * 4)
    assert planned(reader, first, pinned) == []
    end = reader.latestOffset(pinned, ALL)
    assert planned(make(cluster), pinned, end) == list(range(before + 1, before + 5))
    assert reader.latestOffset(end, ALL) == end, "nothing new is the start again"


def test_earliest_and_a_time_resolve_to_the_same_for_a_replay(
    cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    first, last = append(log, [b"x"], [b"y", b"z"])
    stamp = expected(log, last, last)[0][2]
    reader = make(cluster, startingTimestamp=stamp.isoformat())
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    append(log, [b"later"])
    found = planned(make(cluster, startingTimestamp=stamp.isoformat()), start, end)
    assert found[-1] == last
    assert first <= found[0] <= last - 1
    early = make(cluster, startingOffsets="earliest")
    end = early.latestOffset(early.initialOffset(), ALL)
    assert planned(early, early.initialOffset(), end)[:2] == [1, 2]


def test_a_time_to_come_waits_for_it(cluster: EmbeddedCluster, log: logstore.LogClient) -> None:
    append(log, [b"too old"])
    future = datetime.now(UTC) + timedelta(days=1)
    reader = make(cluster, startingTimestamp=int(future.timestamp() * 1_000))
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    assert (reader.reportLatestOffset() or {})["lagRecords"] == 0


def test_limits_in_records_cut_where_they_say_unless_batches_stay_whole(
    cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    first, last = append(log, [b"x"] * 4, [b"y"] * 10, [b"z"] * 2)
    reader = make(cluster)
    for records, end in ((1, 1), (4, 4), (5, 5), (16, 16), (99, 16)):
        found = reader.latestOffset(at(reader, first), ReadMaxRows(records))
        assert found["lsn"] == first + end
    whole = make(cluster, wholeBatches="true")
    for records, end in ((1, 4), (3, 4), (4, 4), (13, 4), (14, 14), (15, 14), (99, 16)):
        found = whole.latestOffset(at(whole, first), ReadMaxRows(records))
        assert found["lsn"] == first + end
    assert first + 15 == last
    # begun in the midst of a batch: its rest, whole
    found = whole.latestOffset(at(whole, first + 6), ReadMaxRows(2))
    assert found["lsn"] == first + 14


def test_limits_in_bytes_end_between_atomic_batches(
    cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    first, last = append(log, *[[b"x" * 100_000] for _ in range(20)])
    reader = make(cluster)
    start, batches = at(reader, first), []
    while (end := reader.latestOffset(start, ReadMaxBytes(350_000))) != start:
        batches.append(end["lsn"] - start["lsn"])
        start = end
    assert sum(batches) == last - first + 1
    assert max(batches) <= 3
    assert len(batches) <= 20, "a batch at least"
    one = reader.latestOffset(at(reader, first), ReadMaxBytes(10))
    assert one["lsn"] == first + 1
    assert reader.latestOffset(at(reader, first), ReadMaxBytes(1 << 30))["lsn"] == last + 1


def test_available_now_ends_where_the_log_ended_when_it_began(
    cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    first, last = append(log, [b"x"] * 5)
    reader = make(cluster, startingLsn=first)
    reader.prepareForTriggerAvailableNow()
    append(log, [b"too late"])
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert end["lsn"] == last + 1
    assert reader.latestOffset(end, ALL) == end
    report = reader.reportLatestOffset() or {}
    assert (report["lsn"], report["lagRecords"]) == (last + 2, 1)
    assert report["lagBytes"] > 0


def test_limits_are_what_the_options_say(cluster: EmbeddedCluster) -> None:
    assert make(cluster).getDefaultReadLimit() == ALL
    assert make(cluster, maxRecordsPerTrigger=7).getDefaultReadLimit() == ReadMaxRows(7)
    limit = make(cluster, maxBytesPerTrigger="1MiB").getDefaultReadLimit()
    assert limit == ReadMaxBytes(1 << 20)


def test_the_lag_is_what_no_batch_has_yet(played: Cluster) -> None:
    reader = make(played, startingLsn=1)
    assert reader.reportLatestOffset() is None, "nothing is planned yet"
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(12))
    assert end["lsn"] == 13
    report = reader.reportLatestOffset() or {}
    assert (report["lsn"], report["lagRecords"]) == (31, 18)
    assert report["lagBytes"] == sum(map(len, played.replicas[1].log[4:]))
    assert report["lagMs"] > 0
    reader.latestOffset(end, ALL)
    report = reader.reportLatestOffset() or {}
    assert [report[key] for key in ("lagRecords", "lagBytes", "lagMs")] == [0, 0, 0]


def test_a_start_above_the_end_is_refused_at_once(played: Cluster) -> None:
    with pytest.raises(ConfigError, match="startingLsn: 32 is above the end of the log, LSN 30"):
        make(played, startingLsn=32).initialOffset()
    assert make(played, startingLsn=31).initialOffset()["lsn"] == 31


def test_records_below_the_log_start_are_lost_loudly_or_left_out(played: Cluster) -> None:
    reader = make(played, startingLsn=1)
    first = reader.initialOffset()
    played.replicas[1].trim(13)
    for start in (first, {**first, "lsn": 12}):
        with pytest.raises(OutOfRange, match="to 12 are below the log start, 13"):
            reader.latestOffset(start, ALL)
        with pytest.raises(OutOfRange, match="failOnDataLoss=false"):
            reader.partitions(start, {**first, "lsn": 31})
    lenient = make(played, startingLsn=1, failOnDataLoss="false")
    assert lenient.latestOffset(first, ReadMaxRows(3))["lsn"] == 16
    assert planned(lenient, first, {**first, "lsn": 16}) == [13, 14, 15]
    assert planned(lenient, first, {**first, "lsn": 5}) == []
    early = make(played, startingOffsets="earliest")
    assert planned(early, early.initialOffset(), {**first, "lsn": 15}) == [13, 14]


def trim_at(played: Cluster, log_start_lsn: int, *, asked: int) -> None:
    """The log start rises before this question for spans is answered, counted from 1."""
    replica, count = played.replicas[1], iter(range(1, 1_000))

    def spans(request: SpansRequest) -> Any:
        if next(count) == asked:
            replica.trim(log_start_lsn)
        return replica.spans(request)

    replica.on[SpansRequest] = spans


@pytest.mark.parametrize("asked", [1, 2])
def test_what_is_trimmed_while_a_batch_is_planned_is_lost_like_any_other(
    played: Cluster, asked: int
) -> None:
    first = make(played, startingLsn=1).initialOffset()
    end = {**first, "lsn": 31}
    for fails in ("true", "false"):
        played.replicas[1].trim(1)
        reader = make(played, startingLsn=1, failOnDataLoss=fails, minPartitions=3)
        trim_at(played, 13, asked=asked)
        if fails == "true":
            with pytest.raises(OutOfRange, match="LSNs 1 to 12 are below the log start, 13"):
                reader.partitions(first, end)
        else:
            assert planned(reader, first, end) == list(range(13, 31))
    for limit in (ReadMaxBytes(200), ReadMaxBytes(10)):
        played.replicas[1].trim(1)
        trim_at(played, 13, asked=1)
        assert reader.latestOffset(first, limit)["lsn"] >= 16
    played.replicas[1].trim(1)
    early = make(played, startingOffsets="earliest")
    trim_at(played, 13, asked=1)
    assert planned(early, early.initialOffset(), end) == list(range(13, 31))
    played.replicas[1].trim(1)
    trim_at(played, 13, asked=1)
    assert early.latestOffset(early.initialOffset(), ReadMaxBytes(10))["lsn"] == 16
    assert (early.reportLatestOffset() or {})["lostRecords"] == 0


def test_a_run_whose_whole_range_is_trimmed_ends_with_nothing_and_counts_it(
    played: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    reader = make(played, startingLsn=1, failOnDataLoss="false")
    first = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    for place in range(10, 15):
        played.replicas[1].append_to_log([b"%d" % place] * 3)
    played.replicas[1].trim(37)
    for limit in (ALL, ReadMaxRows(7), ReadMaxBytes(10)):
        end = reader.latestOffset(first, limit)
        assert end["lsn"] == 31
    assert planned(reader, first, end) == []
    assert (reader.reportLatestOffset() or {})["lostRecords"] == 30
    assert "LSNs 1 to 30, 30 records, were trimmed" in caplog.text
    strict = make(played, startingLsn=1)
    with pytest.raises(OutOfRange, match="LSNs 1 to 30 are below the log start, 37"):
        strict.partitions(first, end)


def test_what_a_batch_lacks_is_counted_once_however_often_it_is_planned(played: Cluster) -> None:
    reader = make(played, startingLsn=1, failOnDataLoss="false")
    first = reader.initialOffset()
    played.replicas[1].trim(13)
    for _ in range(2):
        reader.latestOffset(first, ALL)
        assert planned(reader, first, {**first, "lsn": 31}) == list(range(13, 31))
        assert (reader.reportLatestOffset() or {})["lostRecords"] == 12
    played.replicas[1].trim(16)
    assert planned(reader, first, {**first, "lsn": 31}) == list(range(16, 31))
    assert (reader.reportLatestOffset() or {})["lostRecords"] == 15


@pytest.mark.parametrize("start", ["startingOffsets", "startingTimestamp"])
def test_a_first_batch_that_is_replayed_after_a_trim_is_not_shorter_without_a_word(
    played: Cluster, start: str
) -> None:
    """Its start is a word, which means another LSN by then; the end says what it meant."""
    given = {"startingOffsets": "earliest", "startingTimestamp": "0"}[start]
    starts = [1]
    played.replicas[1].on[TimeLookupRequest] = lambda _: TimeLookupReply(Lsn(starts[-1]))
    early = make(played, **{start: given})
    first = early.initialOffset()
    end = early.latestOffset(first, ReadMaxRows(20))
    assert (end["lsn"], end["begins"]) == (21, 1)
    assert planned(early, first, end) == list(range(1, 21))
    starts.append(13)
    played.replicas[1].trim(13)
    with pytest.raises(OutOfRange, match="LSNs 1 to 12 are below the log start, 13"):
        make(played, **{start: given}).partitions(first, end)
    lenient = make(played, failOnDataLoss="false", **{start: given})
    assert planned(lenient, first, end) == list(range(13, 21))
    assert (lenient.reportLatestOffset() or {"lostRecords": 12})["lostRecords"] == 12
    after = early.latestOffset(end, ALL)
    assert "begins" not in after
    assert planned(early, end, after) == list(range(21, 31))
    assert planned(early, end, end) == []


def test_a_stream_from_earliest_goes_on_at_a_log_start_above_all_that_it_saw(
    played: Cluster,
) -> None:
    """Its first batch ended below the log start, and the next one failed there."""
    early = make(played, startingOffsets="earliest")
    first = early.initialOffset()
    early.prepareForTriggerAvailableNow()
    for place in range(10, 15):
        played.replicas[1].append_to_log([b"%d" % place] * 3)
    trim_at(played, 37, asked=1)
    end = early.latestOffset(first, ReadMaxBytes(10))
    assert (end["lsn"], planned(early, first, end)) == (37, [])
    later = make(played, startingOffsets="earliest")
    after = later.latestOffset(end, ALL)
    assert planned(later, end, after) == list(range(37, 46))


@pytest.mark.parametrize(("log_start_lsn", "left"), [(13, 18), (31, 0), (37, 0)])
def test_a_split_that_is_trimmed_while_it_is_read_gives_what_is_left(
    log_start_lsn: int, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    """With nothing left it asked the next replica for a range that ends before it begins."""
    with Cluster(nodes=3) as cluster:
        for replica in cluster.replicas.values():
            for place in range(12):
                replica.append_to_log([b"%d" % place] * 3)
        given = {"endpoints": cluster.endpoint, "failOnDataLoss": "false", "startingLsn": "1"}
        reader = LogBatchReader(parse_read_options(given | {"endingLsn": "30"}, is_streaming=False),
                                [Field("lsn", False)])  # fmt: skip
        (partition,) = reader.partitions()
        for replica in cluster.replicas.values():
            replica.trim(log_start_lsn)
        assert sum(each.num_rows for each in reader.read(partition)) == left
        lost = 30 - left
        assert f"LSNs 1 to {lost}, {lost} records, were trimmed" in caplog.text


def test_the_offsets_of_another_cluster_are_refused(played: Cluster) -> None:
    reader = make(played, startingLsn=1)
    first = reader.initialOffset()
    played.cluster_id = b"another cluster!"
    for ask in (
        lambda: reader.latestOffset(first, ALL),
        lambda: reader.partitions(first, first),
    ):
        with pytest.raises(InvalidRequest, match="the checkpoint belongs to cluster") as caught:
            ask()
        assert first["cluster"] in str(caught.value)
        assert played.cluster_id.hex() in str(caught.value)
        assert "checkpointLocation" in str(caught.value)


def test_tasks_are_balanced_by_bytes_not_by_records(
    cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    """A thousand small records, then ten large ones: the small ones are one task."""
    small = [[b"x"] * 100 for _ in range(10)]
    first, last = append(log, *small, *[[bytes(700_000)] for _ in range(10)])
    sizes = {batch.first_lsn: batch.payload_bytes for batch in log.read(first, last, min_lsn=last)}
    reader = make(cluster, startingLsn=first, minPartitions=5)
    parts = reader.partitions(at(reader, first), at(reader, last + 1))
    by_part = [
        sum(size for lsn, size in sizes.items() if each.first_lsn <= lsn <= each.last_lsn)
        for each in parts
    ]
    assert len(parts) == 5
    assert sum(by_part) == sum(sizes.values())
    assert max(by_part) <= 3 * 700_000, "two large ones, and what entries do not divide"
