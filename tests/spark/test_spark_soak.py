"""A minute of the soak, in which each event happens: trims, kills, an archive that holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from benchmarks.soak import SoakSettings, soak
from logstore.cli.embedded import EmbeddedCluster
from logstore.limits import MIB
from tests.spark.streams import open_stream

SETTINGS = SoakSettings(
    seconds=60.0,
    rate=2_000.0,
    retention_bytes=32 * MIB,
    segment_bytes=16 * MIB,
    kill_every_s=40.0,
    archive_every_s=5.0,
)


class Stream:
    """A stream of the log from its beginning on, in micro-batches of a second.

    Attributes:
      next_lsn: after all that came so far; it came whole, once and in order.
    """

    def __init__(self, spark: SparkSession, checkpoint: Path) -> None:
        self.next_lsn = 1
        self._spark = spark
        self._checkpoint = checkpoint

    @contextmanager
    def beside(self, cluster: EmbeddedCluster) -> Iterator[None]:
        query = (
            open_stream(self._spark, cluster, startingLsn=1)
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(processingTime="1 second")
            .start()
        )
        try:
            yield
            query.processAllAvailable()
        finally:
            query.stop()

    def _take(self, batch: DataFrame, _: int) -> None:
        row = batch.agg(
            functions.min("lsn"),
            functions.max("lsn"),
            functions.countDistinct("lsn"),
            functions.count("lsn"),
        ).first()
        assert row is not None
        first, last, different, count = row
        if count:
            assert (first, last - first + 1) == (self.next_lsn, count)
            assert different == count
            self.next_lsn = last + 1


@pytest.mark.timeout(600)
def test_nothing_is_lost_while_the_log_forgets_and_a_follower_is_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = Stream(spark, tmp_path / "checkpoint")
    found, samples = soak(SETTINGS, tmp_path, say=print, beside=stream.beside)
    assert found.payloads > 0.9 * SETTINGS.seconds * SETTINGS.rate
    assert set(found.checked.values()) == {found.payloads}
    assert stream.next_lsn == found.payloads + 1
    assert found.kills == len(found.returns_s) >= 1
    assert found.trims >= 1
    # A slow archive holds more than retention keeps.
    assert samples[-1].disk_mb
    assert 0.1 < found.disk_over_max < 1.5
