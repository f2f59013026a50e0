"""The driver that is killed: a stream from one log into another, until its standard input ends.

python -m tests.spark.chaos.driver COPY    (a JSON object)
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import msgspec
from pyspark.sql.streaming import StreamingQuery

from logstore.spark import register, start_session
from tests.spark.chaos.held_sink import FOLDER_OPTION, HeldSink
from tests.spark.standalone import DRIVER_SETTINGS, JAVA_OPTIONS

CHECKPOINT = "checkpoint"


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """What to copy: endpoints of both, a folder for the checkpoint, records of a micro-batch."""

    master: str
    source: str
    target: str
    folder: str
    records: int


def start_copy(copy: Copy) -> StreamingQuery:
    """A session of its own, and the query in it."""
    folder = Path(copy.folder)
    settings = DRIVER_SETTINGS | {
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Djava.io.tmpdir={folder}",
    }
    spark = start_session(master=copy.master, name="chaos", settings=settings)
    register(spark)
    spark.dataSource.register(HeldSink)
    stream = (
        spark.readStream.format("logstore")
        .option("endpoints", copy.source)
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerTrigger", copy.records)
        .option("minPartitions", 2)
        .load()
    )
    return (
        stream.select("payload")
        .writeStream.format(HeldSink.name())
        .option("endpoints", copy.target)
        .option(FOLDER_OPTION, copy.folder)
        .option("checkpointLocation", str(folder / CHECKPOINT))
        .trigger(processingTime="0 seconds")
        .start()
    )


def main() -> None:
    """Copy until nobody holds our standard input open."""
    query = start_copy(msgspec.json.decode(sys.argv[1], type=Copy))

    def stop_at_end() -> None:
        os.read(sys.stdin.fileno(), 1)
        query.stop()

    threading.Thread(target=stop_at_end, daemon=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
