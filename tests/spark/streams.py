"""Running a stream to its end, and crashing one: what each micro-batch had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from logstore.cli.embedded import EmbeddedCluster
from tests.unit.client_stage import Cluster

Batches = list[tuple[int, list[int]]]
OnBatch = Callable[[int], None]


def open_stream(
    spark: SparkSession, cluster: EmbeddedCluster | Cluster, **options: object
) -> DataFrame:
    at = cluster.endpoint if isinstance(cluster, Cluster) else ",".join(cluster.endpoints)
    reader = spark.readStream.format("logstore").option("endpoints", at)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def run(
    frame: DataFrame, checkpoint: Path, *, on_batch: OnBatch = lambda _: None, **trigger: Any
) -> Batches:
    """Run a stream until it ends by itself; id and LSNs of each batch that had any.

    `on_batch` is called with the id after a batch was taken, before Spark says it is done.
    """
    found: Batches = []

    def take(batch: DataFrame, batch_id: int) -> None:
        lsns = [row.lsn for row in batch.select("lsn").orderBy("lsn").collect()]
        if lsns:
            found.append((batch_id, lsns))
        on_batch(batch_id)

    query = (
        frame.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(**(trigger or {"availableNow": True}))
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return found


def lsns_of_batches(batches: Batches) -> list[int]:
    return [lsn for _, lsns in batches for lsn in lsns]


def forget_last_commit(checkpoint: Path) -> int:
    """As if the driver had died between the sink's commit and Spark's commit log; the batch."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last
