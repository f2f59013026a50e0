"""`logstore digest`: which batches lie where, in one line that equal logs share."""

from __future__ import annotations

import click

from logstore.cli.options import IntegerRange, endpoint_option, json_option, timeout_option
from logstore.cli.output import write_json
from logstore.cli.trouble import other_replica_named
from logstore.client.client import connect
from logstore.client.core.operating import Watermarks
from logstore.errors import OutOfRange
from logstore.limits import POSITION_MAX

LSN = IntegerRange(1, POSITION_MAX)


@click.command()
@click.option("--from", "first_lsn", type=LSN, metavar="LSN", help="default: the log's start")
@click.option("--to", "last_lsn", type=LSN, metavar="LSN", help="default: the last committed")
@click.option("--node", type=IntegerRange(1), help="read this replica; any one if none is named")
@endpoint_option
@timeout_option
@json_option
def digest(
    first_lsn: int | None,
    last_lsn: int | None,
    node: int | None,
    endpoints: str,
    timeout_s: float,
    json_path: str | None,
) -> None:
    """The digest of a range: of first LSN, count and bytes of each batch in it, uncut.

    Two clusters that hold the same batches at the same LSNs give the same line, a restored one and
    its source for example; terms and indexes have no part in it.
    """
    if first_lsn is not None and last_lsn is not None and last_lsn < first_lsn:
        raise click.UsageError(f"--to {last_lsn} lies before --from {first_lsn}")
    with connect(endpoints, timeout=timeout_s) as client:
        marks = client.admin.watermarks(linearizable=True)
        first = marks.log_start_lsn if first_lsn is None else first_lsn
        last = marks.visible_lsn if last_lsn is None else last_lsn
        if last < first:
            raise OutOfRange(
                _nothing_there(first, last, marks),
                first=marks.log_start_lsn,
                last=marks.visible_lsn,
            )
        with other_replica_named(node, "--node"):
            found = client.digest(first, last, replica=node, min_lsn=min(last, marks.visible_lsn))
    document = {
        "first_lsn": found.first_lsn,
        "last_lsn": found.last_lsn,
        "batches": found.batches,
        "payloads": found.payloads,
        "size_bytes": found.size_bytes,
        "digest": found.hexdigest(),
    }
    if json_path is not None:
        write_json(document, json_path)
    else:
        click.echo(
            f"{document['digest']} LSN {found.first_lsn} to {found.last_lsn}, "
            f"{found.batches} batches, {found.payloads} payloads, {found.size_bytes} bytes"
        )


def _nothing_there(first_lsn: int, last_lsn: int, marks: Watermarks) -> str:
    """Why [first_lsn, last_lsn], of which one was named at most, holds no batch."""
    start, end = marks.log_start_lsn, marks.visible_lsn
    if end < start:
        return f"the log is empty: its first batch gets LSN {start}"
    if first_lsn > end:
        return f"LSN {first_lsn} is not committed: the log holds LSN {start} to {end}"
    return f"LSN {last_lsn} lies before the log: it holds LSN {start} to {end}"
