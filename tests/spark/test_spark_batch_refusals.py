"""What a batch read refuses, and what it says; replicas that trim, lag or die are played."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import logstore
from logstore.cli.embedded import EmbeddedCluster
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    ErrorReply,
    FetchRequest,
    StatusReply,
    StatusRequest,
)
from tests.spark.refusals import failure_of
from tests.spark.rows import append, load, lsns_of
from tests.unit.client_stage import Cluster, FakeReplica, free_base_ports

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture
def played() -> Iterator[Cluster]:
    """Three played replicas with LSNs 1 to 30, three a batch."""
    with Cluster(nodes=3) as cluster:
        for replica in cluster.replicas.values():
            replica.on[StatusRequest] = status_of(replica)
            for place in range(10):
                replica.append_to_log([b"%d" % place] * 3)
        yield cluster


def status_of(replica: FakeReplica) -> Callable[[StatusRequest], StatusReply]:
    def answer(_: StatusRequest) -> StatusReply:
        document = {"node": replica.node, "role": "follower", "visible_lsn": replica.visible_lsn}
        return StatusReply(json.dumps(document).encode())

    return answer


def load_played(spark: SparkSession, played: Cluster, **options: Any) -> DataFrame:
    reader = spark.read.format("logstore").option("endpoints", played.endpoint)
    for name, value in {"fetchTimeoutMs": 3_000, **options}.items():
        reader = reader.option(name, value)
    return reader.load()


def trim(played: Cluster, log_start_lsn: int) -> None:
    for replica in played.replicas.values():
        replica.trim(log_start_lsn)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingLns": 1}, "unknown option 'startinglns'; did you mean startingLsn?"),
        ({"startingLsn": "first"}, "option startingLsn: 'first' is not valid"),
        ({"startingLsn": 9, "endingLsn": 8}, "startingLsn: 9 is above endingLsn 8"),
        ({"wholeBatches": "true"}, "option wholeBatches is for streams"),
        ({"startingLsn": 1 << 40}, "option startingLsn: 1099511627776 is above the end of the log"),
        ({"endingLsn": 1 << 40}, "option endingLsn: 1099511627776 is above the end of the log"),
        ({"replica": 9}, "option replica: no node 9; the cluster has [1, 2, 3]"),
    ],
)
def test_options_are_refused_by_name(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    options: dict[str, object],
    words: str,
) -> None:
    append(log, [b"something"])
    assert words in failure_of(lambda: load(spark, cluster, **options).count())


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("lsn BIGINT, value STRING", "schema: no column 'value'; there are lsn, payload,"),
        ("lsn INT", "schema: column lsn is BIGINT NOT NULL, not INT"),
        ("payload STRING", "schema: column payload is BINARY, not STRING"),
    ],
)
def test_a_wrong_schema_is_refused_by_column(
    spark: SparkSession, cluster: EmbeddedCluster, schema: str, words: str
) -> None:
    reader = spark.read.format("logstore").option("endpoints", cluster.endpoints[0]).schema(schema)
    assert words in failure_of(lambda: reader.load().count())


def test_no_replica_reachable_names_endpoints_and_patience(spark: SparkSession) -> None:
    [port] = free_base_ports(1)
    reader = spark.read.format("logstore").option("endpoints", f"127.0.0.1:{port}")
    frame = reader.option("fetchTimeoutMs", 500).load()
    text = failure_of(frame.count)
    assert f"no replica answers at 127.0.0.1:{port}: is the cluster up?" in text
    assert "fetchTimeoutMs = 500" in text
    assert text.count("Traceback") == 1
    *_, ours, sparks = text.splitlines()
    assert (ours.split(":")[0], sparks.split()[0]) == ("logstore.errors.Unreachable", "SQLSTATE:")


def test_lsns_below_the_log_start_fail_a_query_or_are_left_out(
    spark: SparkSession, played: Cluster
) -> None:
    trim(played, 13)
    text = failure_of(load_played(spark, played, startingLsn=4).count)
    assert "LSNs 4 to 12 are below the log start, 13: they were trimmed" in text
    assert "failOnDataLoss=false" in text
    found = load_played(spark, played, startingLsn=4, failOnDataLoss="false")
    assert lsns_of(found) == list(range(13, 31))
    below = load_played(spark, played, startingLsn=4, endingLsn=7, failOnDataLoss="false")
    assert below.count() == 0
    assert lsns_of(load_played(spark, played)) == list(range(13, 31)), "earliest is the log start"


@pytest.mark.parametrize("fails", ["true", "false"])
def test_what_is_trimmed_between_plan_and_read_counts_as_lost(
    spark: SparkSession, played: Cluster, fails: str
) -> None:
    frame = load_played(spark, played, startingLsn=1, failOnDataLoss=fails)
    assert frame.rdd.getNumPartitions() == 1  # planned
    trim(played, 22)
    if fails == "true":
        assert "LSNs 1 to 21 are below the log start, 22" in failure_of(frame.count)
    else:
        assert lsns_of(frame) == list(range(22, 31))


def test_a_split_goes_on_at_another_replica_where_the_first_one_failed(
    spark: SparkSession, played: Cluster
) -> None:
    """Node 2 serves the first batch, then only refuses; node 3 is damaged; the leader has all."""
    flaky = played.replicas[2]
    flaky.on[FetchRequest] = lambda request: (
        flaky.fetch(FetchRequest(request.first_lsn, 3, 0, 1, 0, False))
        if request.first_lsn == 1
        else ErrorReply(ErrorCode.NOT_READY, 0, 0, 0, b"just started")
    )
    played.replicas[3].on[FetchRequest] = lambda _: ErrorReply(
        ErrorCode.CORRUPT_DATA, 0, 4, 6, b"bad CRC"
    )
    found = load_played(spark, played, fetchTimeoutMs=20_000)
    assert lsns_of(found) == list(range(1, 31))
    text = failure_of(load_played(spark, played, replica="follower").count)
    assert "no replica of [2, 3] (option replica: follower) served them" in text


def test_damage_on_every_replica_is_told_and_never_skipped(
    spark: SparkSession, played: Cluster
) -> None:
    for replica in played.replicas.values():
        replica.on[FetchRequest] = lambda _: ErrorReply(
            ErrorCode.CORRUPT_DATA, 0, 4, 6, b"body CRC of LSN 4"
        )
    assert "body CRC of LSN 4" in failure_of(load_played(spark, played).count)


def test_a_range_ends_at_what_replicas_show_when_nobody_leads(
    spark: SparkSession, played: Cluster
) -> None:
    played.leader = 0
    played.replicas[3].hidden = 12
    assert load_played(spark, played).count() == 30
    text = failure_of(load_played(spark, played, replica="leader").count)
    assert "none of them leads" in text


def test_another_cluster_at_the_endpoints_is_refused_when_the_plan_is_read(
    spark: SparkSession, played: Cluster
) -> None:
    frame = load_played(spark, played)
    assert frame.rdd.getNumPartitions() == 1  # planned
    played.cluster_id = b"another cluster!"
    text = failure_of(frame.count)
    assert played.cluster_id.hex() in text
    assert "cluster" in text
