"""`logstore pipeline audit`: replicas, a lake and folders of stopped replicas, compared."""

from __future__ import annotations

import sys

import click
import msgspec

from logstore.cli.exit_status import ExitStatus
from logstore.cli.options import DEFAULT_ENDPOINTS, IntegerRange, json_option, timeout_option
from logstore.cli.output import Bar, FoldedTable, Terminal, say, write_json
from logstore.cli.pipeline.lazy_spark import spark_options, spark_session
from logstore.cli.stdout_reader import before_exit_status
from logstore.client.client import connect
from logstore.spark.audit import Audit, run_audit
from logstore.spark.audit_sources import Folder, Lake, Replica, Source


@click.command()
@click.option(
    "--endpoint",
    "endpoints",
    envvar="LOGSTORE_ENDPOINT",
    metavar="HOST:PORT[,…]",
    help=f"replicas that run, all of the cluster; without all three: {DEFAULT_ENDPOINTS}",
)
@click.option(
    "--lake",
    "lakes",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    multiple=True,
    help="a lake's folder; may be given again",
)
@click.option(
    "--data",
    "folders",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    multiple=True,
    metavar="FOLDER",
    help="the data folder of a replica that does not run, or a copy; may be given again",
)
@click.option("--from", "first_lsn", type=IntegerRange(1), metavar="LSN", help="the first")
@click.option("--to", "last_lsn", type=IntegerRange(1), metavar="LSN", help="the last")
@click.option(
    "--bucket", type=IntegerRange(1), metavar="LSNS", help="LSNs of a digest; without: as fits"
)
@timeout_option
@spark_options
@json_option
def audit(
    endpoints: str | None,
    lakes: tuple[str, ...],
    folders: tuple[str, ...],
    first_lsn: int | None,
    last_lsn: int | None,
    bucket: int | None,
    timeout_s: float,
    master: str,
    conf: tuple[str, ...],
    json_path: str | None,
) -> None:
    """Read every replica, lake and folder, and compare them: counts, gaps, duplicates, contents.

    Exit status 0 if they agree, 1 if they do not, 3 if one does not answer, 5 if one is damaged.
    """
    sources = _sources(endpoints, lakes, folders, timeout_s)
    with spark_session("audit", master, conf) as spark, Bar.of_tasks("audit") as bar:
        found = run_audit(
            spark,
            sources,
            first_lsn=first_lsn,
            last_lsn=last_lsn,
            bucket=bucket,
            on_tasks=bar.set_of,
        )
    if json_path is not None:
        write_json(msgspec.to_builtins(found), json_path)
    else:
        with before_exit_status():
            _print(found)
    if found.is_damaged:
        sys.exit(ExitStatus.DAMAGED)
    if found.findings:
        sys.exit(ExitStatus.NO)
    if found.unanswered:
        sys.exit(ExitStatus.UNREACHABLE)


def _sources(
    endpoints: str | None, lakes: tuple[str, ...], folders: tuple[str, ...], timeout_s: float
) -> list[Source]:
    found: list[Source] = []
    if endpoints is None and not lakes and not folders:
        endpoints = DEFAULT_ENDPOINTS
    if endpoints is not None:
        with connect(endpoints, timeout=timeout_s) as client:
            found += [Replica(endpoints, node, timeout_s) for node in sorted(client.nodes())]
    return [*found, *map(Lake, lakes), *map(Folder, folders)]


def _print(found: Audit) -> None:
    table = FoldedTable("source", "LSNs", "payloads", "batches", "digest")
    for each in found.verdicts:
        lsns = f"{each.first_lsn} to {each.last_lsn}"
        table.add_row(each.source, lsns, str(each.payloads), str(each.batches), each.digest[:16])
    Terminal().print(table)
    for finding in found.findings:
        lsns = f"LSN {finding.first_lsn} to {finding.last_lsn}: " if finding.first_lsn else ""
        words = f" ({finding.words})" if finding.words else ""
        say(f"{finding.source}: {lsns}{finding.kind.value}{words}")
    for source, words in found.unanswered.items():
        say(f"{source}: {words}")
    if not found.findings and not found.unanswered:
        say("all agree, as far as they go")
