"""`logstore pipeline restore`: a lake into a fresh cluster."""

from __future__ import annotations

import click
import msgspec

from logstore.cli.options import IntegerRange, endpoint_option, json_option, timeout_option
from logstore.cli.output import Bar, say, write_json
from logstore.cli.pipeline.lazy_spark import spark_options, spark_session
from logstore.spark.lake import read_manifest
from logstore.spark.restore import Restore


@click.command()
@click.argument("lake", type=click.Path(exists=True, file_okay=False, resolve_path=True))
@click.option(
    "--from",
    "first_lsn",
    type=IntegerRange(1),
    metavar="LSN",
    help="begin with the batch that holds it; what is before stays in the lake alone",
)
@endpoint_option
@timeout_option
@spark_options
@json_option
def restore(
    lake: str,
    first_lsn: int | None,
    endpoints: str,
    timeout_s: float,
    master: str,
    conf: tuple[str, ...],
    json_path: str | None,
) -> None:
    """Bring the lake in the folder LAKE back as a log: the same batches at the same LSNs.

    The cluster must be fresh: not formed yet (auto_init = false), or formed for this LSN, and
    without producers so far. Every replica is compared with the lake in the end. Exit status 4 if
    the cluster is not fresh or its log was trimmed, 5 if the lake or a replica is damaged.
    """
    manifest = read_manifest(lake)
    work = Restore(lake, manifest, manifest.first_lsn if first_lsn is None else first_lsn)
    if first_lsn is not None and work.first_lsn != first_lsn:
        say(f"LSN {first_lsn} lies in a batch that begins at LSN {work.first_lsn}: from there")
    with spark_session("restore", master, conf) as spark, Bar("restore", work.size_bytes) as bar:
        found = work.run(spark, endpoints, timeout_s=timeout_s, on_bytes=bar.set)
    if json_path is not None:
        write_json(msgspec.to_builtins(found), json_path)
        return
    nodes = ", ".join(map(str, found.nodes))
    say(
        f"LSN {found.first_lsn} to {found.last_lsn} are restored, {found.imported_batches} batches "
        f"by this call: nodes {nodes} hold what the lake does, by digest"
    )
