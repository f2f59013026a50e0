"""`logstore pipeline read`: records from a lake, a log, or across both, as lines or Parquet."""

from __future__ import annotations

import os
from typing import IO

import click
from pyspark.sql import DataFrame

from logstore.cli.options import timeout_option
from logstore.cli.output import STDOUT, open_output, say
from logstore.cli.pipeline.lazy_spark import spark_options, spark_session
from logstore.cli.pipeline.source import Source, source_options
from logstore.errors import InvalidRequest


@click.command()
@source_options
@click.option("--raw", is_flag=True, help="payloads as they are, without line feeds")
@click.option(
    "--output",
    type=click.Path(file_okay=False, resolve_path=True),
    metavar="FOLDER",
    help="all columns as Parquet files there, not payloads to stdout",
)
@timeout_option
@spark_options
def read(
    lake: str | None,
    endpoints: str | None,
    first_lsn: int | None,
    last_lsn: int | None,
    replica: str,
    raw: bool,
    output: str | None,
    timeout_s: float,
    master: str,
    conf: tuple[str, ...],
) -> None:
    """Write payloads to stdout in the order of their LSNs, a line each.

    The range may begin in the lake, below where the log begins, and end in the log.
    """
    if output is not None:
        _check_new(output)
    source = Source(lake, endpoints, first_lsn, last_lsn, replica, timeout_s)
    with spark_session("read", master, conf) as spark:
        plan = source.plan()
        if output is not None:
            plan.frame(spark()).write.mode("overwrite").parquet(output)
            say(f"{output} has {spark().read.parquet(output).count()} records")
        elif not plan.is_empty:
            with open_output(STDOUT) as stdout:
                _write_payloads(plan.frame(spark()), stdout, b"" if raw else b"\n")


def _write_payloads(frame: DataFrame, stdout: IO[bytes], end: bytes) -> None:
    ordered = frame.select("lsn", "payload").orderBy("lsn")
    for row in ordered.toLocalIterator(prefetchPartitions=True):
        stdout.write(bytes(row.payload) + end)


def _check_new(folder: str) -> None:
    """Nothing is there, or what a read that was broken off has left.

    Raises:
      InvalidRequest: the folder has something else in it.
    """
    names = os.listdir(folder) if os.path.isdir(folder) else []
    if any(name != "_temporary" for name in names):
        raise InvalidRequest(f"{folder} is not empty: give a new folder")
