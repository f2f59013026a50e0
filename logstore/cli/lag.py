"""`logstore lag`: how far each follower and each cursor is behind the leader's log.

Owns how it is shown. The leader measures, as part of its status.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import Any

import click
from rich.text import Text

from logstore.cli.exit_status import ExitStatus
from logstore.cli.options import NumberRange, endpoint_option, json_option, timeout_option
from logstore.cli.output import (
    STDOUT,
    FoldedTable,
    Terminal,
    committed_words,
    printable,
    say,
    write_json,
    write_json_line,
)
from logstore.cli.stdout_reader import before_exit_status
from logstore.cli.trouble import silent_words
from logstore.client import clock
from logstore.client.client import LogClient, connect
from logstore.client.status import UNREACHABLE, voter_rows
from logstore.errors import LogStoreError
from logstore.raft.quorum import majority

UNKNOWN = "-"
WATCH_EVERY_S = 2.0
# Longer tables have the worst first.
BY_NAME_MAX = 20
_MEASURED = ("log_start_lsn", "visible_lsn", "newest_ns", "followers", "cursors")


@click.command()
@click.option(
    "--watch",
    "every_s",
    is_flag=False,
    flag_value=WATCH_EVERY_S,
    type=NumberRange(0.1, 3_600.0),
    metavar="[SECONDS]",
    help="again and again, so many seconds apart, 2 if not said, until it is interrupted; --json - "
    "writes a line each time, --json FILE the file anew",
)
@endpoint_option
@timeout_option
@json_option
def lag(every_s: float | None, endpoints: str, timeout_s: float, json_path: str | None) -> None:
    """How far each follower and each cursor is behind what the leader shows.

    \b
    next LSN  a follower has on its disk what is before it, a cursor stands
              there
    payloads  committed ones that it lacks
    bytes     of the log, from the entry that holds the oldest of them to
              the one that holds the newest, both whole, so they do not
              follow from the payloads; entries between them for sessions
              and cursors count
    seconds   since the leader accepted the oldest of them, by its clock: it
              grows while nothing is read, however few they are; 0 if none
              is lacking
    silent    for how many seconds the leader has not heard a follower, at
              most since it leads; above some seconds it is down or cut off

    What an unreachable follower lacks is what the leader knows of it. A cursor beyond the end lags
    by 0, one below the log's start by what is left; what is trimmed is said beside it. "-" is not
    known: this leader has not heard the follower yet, or it ends below the log's start, or an entry
    is damaged. More than 20 cursors have the worst first.

    In JSON null is not known, newest_ns is when the leader accepted the newest payload and since_ns
    the oldest lacking one, 0: none; held_by of the log is the lowest held cursor, from which on
    nothing is given up, null: none holds any of it; voters are the nodes of which a leader needs a
    majority. The leader's /metrics, at its eighth port
    (7107), has the same.

    Exit status 3 without a leader; with --watch it goes on.
    """
    with connect(endpoints, timeout=timeout_s) as client:
        if every_s is None:
            found = _measure(client)
            if json_path is not None:
                write_json(found, json_path)
            else:
                with before_exit_status():
                    _print(found)
            if found["visible_lsn"] is None:
                sys.exit(ExitStatus.UNREACHABLE)
            return
        while True:
            try:
                found = _measure(client)
                if json_path == STDOUT:
                    write_json_line(found)
                elif json_path is not None:
                    write_json(found, json_path)
                else:
                    _print(found, f"\n{found['time']} ")
            except LogStoreError as error:
                say(f"{_now()} error: {error}")
            time.sleep(every_s)


def _measure(client: LogClient) -> dict[str, Any]:
    """What is shown, and what `--json` gives; `visible_lsn` None: nobody knows."""
    status = client.admin.status()
    rows = {row["node"]: row for row in status["nodes"]}
    answering = [node for node, row in rows.items() if row["role"] != UNREACHABLE]
    found: dict[str, Any] = {
        "time": _now(),
        "leader": status["leader"] or None,
        "term": status["term"],
        "answering": answering,
        "unreachable": sorted(rows.keys() - set(answering)),
        "voters": [row["node"] for row in voter_rows(status["nodes"])],
    }
    # A leader has no `lag` until the no-op of its term is committed.
    measured: dict[str, Any] | None = rows.get(status["leader"], {}).get("lag")
    if measured is None:
        return found | dict.fromkeys(_MEASURED)
    # The leader may know a follower that the metadata, of another configuration, does not name.
    followers = [
        {"role": rows.get(each["node"], {}).get("role", UNKNOWN)} | each
        for each in measured["followers"]
    ]
    cursors = measured["cursors"] and [
        each
        | {
            "beyond_end": max(0, each["next_lsn"] - measured["visible_lsn"] - 1),
            "trimmed": max(0, measured["log_start_lsn"] - each["next_lsn"]),
        }
        for each in measured["cursors"]
    ]
    return found | measured | {"followers": followers, "cursors": cursors}


def _print(found: dict[str, Any], prefix: str = "") -> None:
    """The tables, and who leads after the prefix."""
    if found["visible_lsn"] is None:
        say(prefix.lstrip() + _unknown_words(found))
        return
    console = Terminal()
    committed = committed_words(found["log_start_lsn"], found["visible_lsn"])
    words = f"{prefix}node {found['leader']} leads in term {found['term']}, {committed}"
    console.print(words + held_words(found), soft_wrap=True)
    table = FoldedTable("follower", "role", "next LSN", "payloads", "bytes", "seconds", "silent")
    for row in found["followers"]:
        silent = f"{row['silent_seconds']:.1f}"
        table.add_row(str(row["node"]), row["role"], *_cells(row), silent)
    console.print(table)
    cursors = found["cursors"]
    if cursors is None:
        say("its cursors are not known yet: ask again")
    elif not cursors:
        say("there are no cursors")
    else:
        if len(cursors) > BY_NAME_MAX:
            cursors = sorted(cursors, key=lambda row: -row["payloads"])
        table = FoldedTable("cursor", "next LSN", "payloads", "bytes", "seconds")
        for row in cursors:
            table.add_row(Text(printable(row["name"])), *_cells(row))
        console.print(table)


def _unknown_words(found: dict[str, Any]) -> str:
    """Why nothing is known."""
    if found["leader"]:
        return f"node {found['leader']} leads and shows nothing yet: ask again"
    words = "nobody leads, and only a leader knows how far the others are"
    voters = found["voters"]  # learners are no part of a majority
    silent = [node for node in found["unreachable"] if node in voters]
    if silent:
        words += f"; {silent_words(silent, len(voters))}"
    if len(voters) - len(silent) < majority(len(voters)):
        return words
    return f"{words}; an election may be under way: ask again"


def held_words(lag: dict[str, Any]) -> str:
    """What the log holds, and the lowest cursor that holds some of it, in words that follow its
    LSNs."""
    log = lag.get("log")
    if log is None:  # an older leader's
        return ""
    size = "an unknown number of" if log["bytes"] is None else log["bytes"]
    holder = log["held_by"]
    by = ""
    if holder:
        by = f"; cursor {printable(holder['name'])} holds from LSN {holder['lsn']} on"
    return f", {log['payloads']} payloads, {size} bytes{by}"


def _cells(row: dict[str, Any]) -> list[str]:
    seconds = UNKNOWN if row["seconds"] is None else f"{row['seconds']:.1f}"
    exact = (row[each] for each in ("next_lsn", "payloads", "bytes"))
    lsn, payloads, size_bytes = (UNKNOWN if each is None else str(each) for each in exact)
    if beyond := row.get("beyond_end"):
        payloads += f", {beyond} beyond the end"
    if trimmed := row.get("trimmed"):
        payloads += f", {trimmed} trimmed"
    return [lsn, payloads, size_bytes, seconds]


def _now() -> str:
    """By this machine's clock."""
    moment = datetime.fromtimestamp(clock.wall_ns() / 1e9, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
