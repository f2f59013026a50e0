"""`logstore cursor set|list|delete`: the named cursors of the log."""

from __future__ import annotations

import sys

import click
import msgspec
from rich.text import Text

from logstore.cli.exit_status import ExitStatus
from logstore.cli.options import IntegerRange, endpoint_option, json_option, timeout_option
from logstore.cli.output import FoldedTable, Terminal, printable, say, write_json
from logstore.client.client import LogClient, connect
from logstore.errors import LogStoreError

# The cursor is set by then: a remark about it must not take long.
END_TIMEOUT_S = 1.0

_expect_option = click.option(
    "--expect",
    "expected_lsn",
    type=IntegerRange(0),
    metavar="LSN",
    help="only if it stands there now; 0: only if there is no such cursor",
)


@click.group("cursor")
def cursor() -> None:
    """Named cursors: how far an archive, or another reader, has come.

    They are kept by the log itself, on every replica.
    """


@cursor.command("set")
@click.argument("name")
@click.argument("lsn", type=IntegerRange(1))
@click.option("--hold", is_flag=True, help="keep the payloads from LSN on; without it: no longer")
@_expect_option
@endpoint_option
@timeout_option
@json_option
def set_(
    name: str,
    lsn: int,
    hold: bool,
    expected_lsn: int | None,
    endpoints: str,
    timeout_s: float,
    json_path: str | None,
) -> None:
    """Let NAME stand before LSN, the next one to read.

    Exit status 4 if it does not stand where --expect says.
    """
    with connect(endpoints, timeout=timeout_s) as client:
        before = client.admin.set_cursor(name, lsn, hold=hold, expected_lsn=expected_lsn)
        remark = _remark(client, lsn)
    if json_path is not None:
        document = {"name": name, "lsn": lsn, "hold": hold, "previous_lsn": before}
        write_json(document, json_path)
    else:
        where = f"before at {before}" if before else "a new cursor"
        say(f"{printable(name)} stands at LSN {lsn}, {where}")
    if remark:
        say(remark)


def _remark(client: LogClient, lsn: int) -> str:
    """What the cursor stands before, if not a payload or the next one; "": nothing to say, or
    nobody says so in time."""
    try:
        end_lsn = client.admin.commit_lsn(timeout=END_TIMEOUT_S)
        start_lsn = client.admin.watermarks().log_start_lsn
    except LogStoreError:
        return ""
    if lsn > end_lsn + 1:
        return f"LSN {lsn} is not in the log yet, which ends at {end_lsn}"
    if lsn < start_lsn:
        return f"LSN {lsn} is not in the log any more, which begins at {start_lsn}"
    return ""


@cursor.command("list")
@endpoint_option
@timeout_option
@json_option
def list_(endpoints: str, timeout_s: float, json_path: str | None) -> None:
    """Every cursor, as a majority of the replicas has it."""
    with connect(endpoints, timeout=timeout_s) as client:
        found = client.admin.cursors()
    if json_path is not None:
        write_json({"cursors": msgspec.to_builtins(found)}, json_path)
        return
    table = FoldedTable("cursor", "next LSN", "hold")
    for each in found:
        table.add_row(Text(printable(each.name)), str(each.lsn), "yes" if each.hold else "no")
    Terminal().print(table)


@cursor.command("delete")
@click.argument("name")
@_expect_option
@endpoint_option
@timeout_option
@json_option
def delete(
    name: str,
    expected_lsn: int | None,
    endpoints: str,
    timeout_s: float,
    json_path: str | None,
) -> None:
    """Forget NAME. Exit status 1 if there is no such cursor."""
    with connect(endpoints, timeout=timeout_s) as client:
        before = client.admin.delete_cursor(name, expected_lsn=expected_lsn)
    if json_path is not None:
        write_json({"name": name, "previous_lsn": before}, json_path)
    elif before:
        say(f"{printable(name)} is deleted, it stood at LSN {before}")
    if not before:
        say(f"there is no cursor {printable(name)}")
        sys.exit(ExitStatus.NO)
