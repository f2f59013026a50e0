"""`logstore session list|end`: the producer sessions of the log."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import click
import msgspec
from rich.table import Column
from rich.text import Text

from logstore.cli.exit_status import ExitStatus
from logstore.cli.options import IntegerRange, endpoint_option, json_option, timeout_option
from logstore.cli.output import FoldedTable, Terminal, printable, say, write_json
from logstore.client.client import connect
from logstore.client.core.session_admin import SessionInfo
from logstore.errors import UnknownProducer


@click.group("session")
def session() -> None:
    """Producer sessions: who may append, and what the log remembers of each.

    The log keeps a session until it is ended, or was idle for too long.
    """


@session.command("list")
@endpoint_option
@timeout_option
@json_option
def list_(endpoints: str, timeout_s: float, json_path: str | None) -> None:
    """Every session, as a majority of the replicas has it."""
    with connect(endpoints, timeout=timeout_s) as client:
        found = list(client.admin.sessions())
    if json_path is not None:
        write_json({"sessions": [_document(each) for each in found]}, json_path)
        return
    whole = Column("producer id", no_wrap=True)  # `session end --id` takes it
    heads = ("epoch", "name", "mode", "acks", "next sequence", "window", "last used")
    table = FoldedTable(whole, *heads)
    for each in found:
        table.add_row(
            str(each.producer_id),
            str(each.producer_epoch),
            Text(printable(each.name) or "–"),
            each.mode,
            each.acks,
            str(each.next_sequence),
            "expired" if each.is_kept else str(each.window),
            _last_used(each),
        )
    Terminal().print(table)


@session.command("end")
@click.argument("name", required=False)
@click.option(
    "--id",
    "producer_id",
    type=IntegerRange(1, (1 << 64) - 1),
    metavar="N",
    help="in place of NAME: its producer id, as `logstore session list` shows it",
)
@endpoint_option
@timeout_option
@json_option
def end(
    name: str | None,
    producer_id: int | None,
    endpoints: str,
    timeout_s: float,
    json_path: str | None,
) -> None:
    """End the session NAME, or that of a producer id. Exit status 1 if there is none.

    The log refuses its producer from then on. Whether a batch of the session was appended before
    can no longer be told: end a session only when its producer will not come back. Opening NAME
    again starts a new session.
    """
    if (name is None) == (producer_id is None):
        raise click.UsageError("give a NAME or --id N, and not both")
    wanted = name if name is not None else producer_id
    ended = 0
    with connect(endpoints, timeout=timeout_s) as client:
        try:
            ended = client.admin.end_session(wanted or 0)
        except UnknownProducer as error:
            say(str(error))
    if json_path is not None:
        known_id = ended or producer_id
        document = {"name": name, "producer_id": str(known_id) if known_id else None}
        write_json(document | {"ended": bool(ended)}, json_path)
    elif ended:
        say(f"the session of producer {ended} is ended")
    if not ended:
        sys.exit(ExitStatus.NO)


def _document(info: SessionInfo) -> dict[str, Any]:
    """Producer ids as text, as in a lake: most readers of JSON know 53 bits."""
    fields: dict[str, Any] = msgspec.to_builtins(info)
    return fields | {"producer_id": str(info.producer_id)}


def _last_used(info: SessionInfo) -> str:
    if not info.last_used_ns:
        return "–"
    seconds = info.last_used_ns // 1_000_000_000
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ").replace("+00:00", "Z")
    except (OverflowError, ValueError):  # a clock that was far ahead
        return f"{seconds} s"
