"""`logstore pipeline replay`: a lake, or another cluster's log, appended to a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial

import click

from logstore.cli.interrupts import Interrupts
from logstore.cli.options import IntegerRange, endpoint_option, json_option, timeout_option
from logstore.cli.output import Bar, say, write_json
from logstore.cli.pipeline.lazy_spark import spark_options, spark_session
from logstore.spark.replay import Replay, ReplayOptions


@click.command()
@click.option(
    "--lake",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="the folder of the lake to replay",
)
@click.option(
    "--source", metavar="HOST:PORT[,…]", help="control ports of the log to replay, not a lake"
)
@click.option("--from", "first_lsn", type=IntegerRange(1), metavar="LSN", help="the first")
@click.option("--to", "last_lsn", type=IntegerRange(1), metavar="LSN", help="the last")
@click.option(
    "--name", metavar="NAME", help="what this replay is known by; without: the source's cluster id"
)
@endpoint_option
@timeout_option
@spark_options
@json_option
def replay(
    lake: str | None,
    source: str | None,
    first_lsn: int | None,
    last_lsn: int | None,
    name: str | None,
    endpoints: str,
    timeout_s: float,
    master: str,
    conf: tuple[str, ...],
    json_path: str | None,
) -> None:
    """Append a lake (--lake) or another log (--source) to the log at --endpoint.

    Every record once, in order, up to where the source ends now. The same call again goes on where
    this one was, and appends what the source has got since. Batches and LSNs are the target's own.
    """
    options = ReplayOptions(
        lake=lake,
        source=source,
        target=endpoints,
        name=name,
        first_lsn=first_lsn,
        timeout_s=timeout_s,
    )
    with spark_session("replay", master, conf) as spark, Interrupts() as interrupts:
        work = Replay(spark, options, pause=partial(_stand_by, interrupts, cache(say)))
        end_lsn = work.last_lsn if last_lsn is None else min(last_lsn, work.last_lsn)
        first = work.done_lsn() + 1
        with Bar("replay", total := work.pending_bytes(end_lsn)) as bar:
            for chunk in work.chunks(end_lsn):
                bar.set(total * (chunk.last_lsn - first + 1) // max(1, end_lsn - first + 1))
                interrupts.look()
        last = work.done_lsn()
    if json_path is not None:
        document = {"name": work.name, "first_lsn": first, "last_lsn": last}
        write_json(document, json_path)
    elif last < first:
        say(f"nothing to replay after LSN {last} of the source")
    else:
        say(f"LSN {first} to {last} of the source are replayed as {work.name}")


def _stand_by(interrupts: Interrupts, say_once: Callable[[str], None], seconds: float) -> None:
    """While another replay of the same name goes on."""
    say_once("another replay of this name goes on: this one stands by")
    with interrupts.allowed():
        time.sleep(seconds)
