"""`logstore lag`: how far each follower and each cursor is behind the leader's log.

Owns how it is shown. The leader measures, as part of its status.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from logstore.cli.exit_status import ExitStatus
from logstore.cli.options import NumberRange, endpoint_option, json_option, timeout_option
from logstore.cli.output import Terminal, printable, say, write_json
from logstore.client.client import LogClient, connect
from logstore.client.status import UNREACHABLE
from logstore.errors import LogStoreError

UNKNOWN = "-"
WATCH_EVERY_S = 2.0


@click.command()
@click.option(
    "--watch",
    "every_s",
    is_flag=False,
    flag_value=WATCH_EVERY_S,
    type=NumberRange(0.1, 3_600.0),
    metavar="[SECONDS]",
    help="again and again, so many seconds apart, 2 if not said, until it is interrupted",
)
@endpoint_option
@timeout_option
@json_option
def lag(every_s: float | None, endpoints: str, timeout_s: float, json_path: str | None) -> None:
    """How far each follower and each cursor is behind what the leader shows.

    \b
    payloads  committed ones that it lacks
    bytes     of the log, from the entry that holds the oldest of them to
              the one that holds the newest, both whole; entries between
              them for sessions and cursors count
    seconds   since the leader accepted the oldest of them, by its clock;
              0 if none is lacking
    silent    for how many seconds the leader has not heard a follower, at
              most since it leads; above some seconds it is down or cut off

    A follower has what is on its disk. A cursor beyond the end lags by 0, one below the log's start
    by what is left. "-" is not known: this leader has not heard the follower yet, or an entry is
    damaged.

    Exit status 3 without a leader; with --watch it goes on.
    """
    with connect(endpoints, timeout=timeout_s) as client:
        if every_s is None:
            found = _measure(client)
            _show(found, json_path)
            if found["visible_lsn"] is None:
                sys.exit(ExitStatus.UNREACHABLE)
            return
        while True:
            try:
                _show(_measure(client), json_path)
            except LogStoreError as error:
                say(f"error: {error}")
            time.sleep(every_s)


def _measure(client: LogClient) -> dict[str, Any]:
    """What is shown, and what `--json` gives; `visible_lsn` None: nobody knows."""
    status = client.admin.status()
    rows = {row["node"]: row for row in status["nodes"]}
    # A leader has no `lag` until the no-op of its term is committed.
    measured = rows.get(status["leader"], {}).get("lag") or {
        "log_start_lsn": None,
        "visible_lsn": None,
        "followers": [],
        "cursors": None,
    }
    # The leader may know a follower that the metadata, of another configuration, does not name.
    followers = [
        {"role": rows.get(each["node"], {}).get("role", UNKNOWN)} | each
        for each in measured["followers"]
    ]
    return (
        {"leader": status["leader"], "term": status["term"]} | measured | {"followers": followers}
    )


def _show(found: dict[str, Any], json_path: str | None) -> None:
    if json_path is not None:
        write_json(found, json_path)
    elif found["visible_lsn"] is not None:
        _print(found)
    elif found["leader"]:
        say(f"node {found['leader']} leads and shows nothing yet: ask again")
    else:
        say("nobody leads, and only a leader knows how far the others are")


def _print(found: dict[str, Any]) -> None:
    visible_lsn, cursors = found["visible_lsn"], found["cursors"]
    console = Terminal()
    console.print(f"node {found['leader']} leads in term {found['term']} and shows LSN "
                  f"{found['log_start_lsn']} to {visible_lsn}")  # fmt: skip
    table = Table("follower", "role", "next LSN", "payloads", "bytes", "seconds", "silent")
    for row in found["followers"]:
        silent = f"{row['silent_seconds']:.1f}"
        table.add_row(str(row["node"]), row["role"], *_cells(row), silent)
    console.print(table)
    if cursors is None:
        say("its cursors are not known yet: ask again")
    elif not cursors:
        say("there are no cursors")
    else:
        table = Table("cursor", "next LSN", "payloads", "bytes", "seconds")
        for row in cursors:
            table.add_row(Text(printable(row["name"])), *_cells(row))
        console.print(table)
    for row in found["followers"]:
        if row["role"] == UNREACHABLE:
            say(f"node {row['node']} does not answer; its lag is what the leader knows of it")
    for row in cursors or ():
        if row["next_lsn"] > visible_lsn + 1:
            say(f"cursor {printable(row['name'])} stands beyond the end, at LSN {row['next_lsn']}")


def _cells(row: dict[str, Any]) -> list[str]:
    seconds = UNKNOWN if row["seconds"] is None else f"{row['seconds']:.1f}"
    exact = (row[each] for each in ("next_lsn", "payloads", "bytes"))
    return [*(UNKNOWN if each is None else str(each) for each in exact), seconds]
