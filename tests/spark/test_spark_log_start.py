"""A real log that begins above LSN 1: what lies below it is lost, loudly or by request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest
from pyspark.sql import SparkSession

import logstore
from logstore.cli.embedded import EmbeddedCluster, make_small_config
from logstore.settings import ProcessSettings
from tests.spark.refusals import failure_of
from tests.spark.rows import append, load, lsns_of
from tests.spark.streams import lsns_of_batches, open_stream, run

FIRST_LSN = 1_000
FORM_TIMEOUT_S = 60.0
LOST = "LSNs 990 to 999 are below the log start, 1000: they were trimmed"


@pytest.fixture(scope="module")
def young(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """One replica with LSNs 1,000 to 1,009, five a batch."""
    config = make_small_config(1, Random())
    config = msgspec.structs.replace(
        config,
        cluster=msgspec.structs.replace(config.cluster, auto_init=False),
        process=ProcessSettings(mode="single"),
    )
    with EmbeddedCluster(tmp_path_factory.mktemp("young"), config) as cluster:
        cluster.start_all()
        with logstore.connect(cluster.endpoints, timeout=FORM_TIMEOUT_S) as log:
            log.admin.initialize(first_lsn=FIRST_LSN)
            assert append(log, [b"x"] * 5, [b"y"] * 5) == (FIRST_LSN, FIRST_LSN + 9)
        yield cluster


def test_a_batch_read_from_below_the_log_start_fails_or_begins_there(
    spark: SparkSession, young: EmbeddedCluster
) -> None:
    assert LOST in failure_of(load(spark, young, startingLsn=990).count)
    lenient = load(spark, young, startingLsn=990, failOnDataLoss="false", replica=1)
    assert lsns_of(lenient) == list(range(1_000, 1_010))
    assert lsns_of(load(spark, young, endingLsn=1_004)) == list(range(1_000, 1_005))


def test_a_stream_from_below_the_log_start_fails_or_begins_there(
    spark: SparkSession, young: EmbeddedCluster, tmp_path: Path
) -> None:
    strict = open_stream(spark, young, startingLsn=990)
    assert LOST in failure_of(lambda: run(strict, tmp_path / "strict"))
    lenient = open_stream(
        spark, young, startingLsn=990, failOnDataLoss="false", maxRecordsPerTrigger=6
    )
    batches = run(lenient, tmp_path / "lenient")
    assert lsns_of_batches(batches) == list(range(1_000, 1_010))
    assert len(batches) == 2


def test_a_log_of_one_replica_has_no_follower_to_read(
    spark: SparkSession, young: EmbeddedCluster
) -> None:
    text = failure_of(load(spark, young, replica="follower").count)
    assert "option replica: the cluster has no follower; give any or leader" in text
    assert load(spark, young, replica="leader").count() == 10
