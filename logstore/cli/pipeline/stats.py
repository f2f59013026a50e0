"""`logstore pipeline stats`: traffic by time, producer and size."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import click
import msgspec

from logstore.cli.options import IntegerRange, json_option, timeout_option
from logstore.cli.output import FoldedTable, Terminal, say, write_json
from logstore.cli.pipeline.lazy_spark import spark_options, spark_session
from logstore.cli.pipeline.source import Source, source_options
from logstore.spark.stats import (
    NOTHING,
    STATS_COLUMNS,
    Stats,
    Traffic,
    check_steps,
    gather_stats,
)
from logstore.units import parse_duration

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@click.command()
@source_options
@click.option(
    "--step",
    default="1min",
    show_default=True,
    metavar="DURATION",
    help="how long a step of time is",
)
@click.option(
    "--top", type=IntegerRange(1, 10_000), default=20, show_default=True, help="largest producers"
)
@timeout_option
@spark_options
@json_option
def stats(
    lake: str | None,
    endpoints: str | None,
    first_lsn: int | None,
    last_lsn: int | None,
    replica: str,
    step: str,
    top: int,
    timeout_s: float,
    master: str,
    conf: tuple[str, ...],
    json_path: str | None,
) -> None:
    """Tell how many records, batches and bytes a lake, a log, or a range across both, has."""
    step_ns = parse_duration(step, key="--step")
    source = Source(lake, endpoints, first_lsn, last_lsn, replica, timeout_s)
    step_us = step_ns // 1_000
    check_steps(step_us=step_us, top=top)
    with spark_session("stats", master, conf) as spark:
        plan, found = source.plan(STATS_COLUMNS), NOTHING
        if not plan.is_empty:
            found = gather_stats(plan.frame(spark()), step_us=step_us, top=top)
    left_out = found.steps - len(found.by_time)
    if left_out:
        say(
            f"{found.steps} steps of time have records, and the last {left_out} of them are left "
            "out: give a longer --step, or a shorter range"
        )
    if json_path is not None:
        write_json(msgspec.to_builtins(found), json_path)
    else:
        _print(found)


def _print(found: Stats) -> None:
    times = ((_time(each.time_us), each.traffic) for each in found.by_time)
    producers = ((each.producer_id, each.traffic) for each in found.by_producer)
    sizes = ((str(each.size_bytes), each.traffic) for each in found.by_size)
    for name, rows in (
        ("time", times),
        (f"producer, of {found.producers}", producers),
        ("payload bytes up to", sizes),
        ("", [("all", found.total)]),
    ):
        _print_table(name, rows)


def _time(time_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=time_us)).isoformat(sep=" ")


def _print_table(name: str, rows: Iterable[tuple[str, Traffic]]) -> None:
    table = FoldedTable(name, "records", "batches", "payload bytes", "stored bytes")
    for key, each in rows:
        numbers = each.records, each.batches, each.payload_bytes, each.stored_bytes
        table.add_row(key, *map(str, numbers))
    Terminal().print(table)
