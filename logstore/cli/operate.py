"""`logstore status`, `transfer`, `verify`, `init`: what an operator asks of a running cluster."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec
from rich.table import Column

from logstore.cli.exit_status import ExitStatus
from logstore.cli.lag import held_words
from logstore.cli.options import (
    IntegerRange,
    endpoint_option,
    first_lsn_option,
    json_option,
    timeout_option,
)
from logstore.cli.output import FoldedTable, Terminal, committed_words, say, write_json
from logstore.cli.stdout_reader import before_exit_status
from logstore.cli.trouble import (
    damage_words,
    install_words,
    leaderless_words,
    placement_words,
    places_words,
    trouble_of,
    unheard_words,
)
from logstore.client.client import LogClient, connect
from logstore.client.core.verification import Verification
from logstore.client.status import UNREACHABLE
from logstore.errors import LogStoreError
from logstore.model import FIRST_LSN

RANGES_SHOWN = 4  # damaged ranges in a row of a table


@click.command()
@endpoint_option
@timeout_option
@json_option
def status(endpoints: str, timeout_s: float, json_path: str | None) -> None:
    """Who leads, how far the log is, how each replica is doing. Exit status 3 without a leader.

    `logstore lag` says more about how far the replicas are behind.
    """
    with connect(endpoints, timeout=timeout_s) as client:
        found = client.admin.status()
    if json_path is not None:
        write_json(found, json_path)
    else:
        with before_exit_status():
            _print_status(found)
    if not found["leader"]:
        sys.exit(ExitStatus.UNREACHABLE)


@click.command()
@click.argument("target", type=IntegerRange(1), required=False, metavar="[NODE]")
@endpoint_option
@timeout_option
@json_option
def transfer(target: int | None, endpoints: str, timeout_s: float, json_path: str | None) -> None:
    """Hand leadership to NODE, or to whichever replica is most up to date."""
    with connect(endpoints, timeout=timeout_s) as client:
        leader = client.admin.transfer(target or 0)
        why = _why_not_lead(client, target) if target else ""
    if json_path is not None:
        write_json({"leader": leader}, json_path)
    else:
        say(f"node {leader} leads")
    if target and leader != target:
        say(f"error: node {target} does not lead: {why or 'another was elected first'}; try again")
        sys.exit(ExitStatus.REFUSED)
    if why:
        say(f"node {target} will not lead for long: {why}")


@click.command()
@endpoint_option
@timeout_option
@json_option
def verify(endpoints: str, timeout_s: float, json_path: str | None) -> None:
    """Recompute the chain from every batch on every replica, and compare.

    Exit status 5 if a replica is damaged or differs, 3 if one does not answer.
    """
    with connect(endpoints, timeout=timeout_s) as client:
        found = client.admin.verify()
    if json_path is not None:
        document = {"is_good": found.is_good, **msgspec.to_builtins(found)}
        write_json(document, json_path)
    else:
        with before_exit_status():
            _print_verification(found)
    has_compared = any(not row.error for row in found.replicas)
    if (has_compared and not found.chains_equal) or any(row.faulty for row in found.replicas):
        sys.exit(ExitStatus.DAMAGED)
    if not found.is_good:
        sys.exit(ExitStatus.UNREACHABLE)


@click.command()
@first_lsn_option
@endpoint_option
@timeout_option
def init(first_lsn: int | None, endpoints: str, timeout_s: float) -> None:
    """Form the cluster, once, where its configuration has `auto_init = false`."""
    with connect(endpoints, timeout=timeout_s) as client:
        client.admin.initialize(first_lsn=first_lsn or FIRST_LSN)
    say("the cluster is formed")


def _why_not_lead(client: LogClient, node: int) -> str:
    """What keeps a replica from leading, as it says of itself: it hands leadership on, or never
    gets it. Empty: nothing, or it does not say."""
    try:
        rows = client.admin.status()["nodes"]
    except LogStoreError:
        return ""
    for row in rows:
        if row["node"] == node:
            faulty = row["faulty"]
            damaged = f"damaged: {_faulty_words(faulty, row.get('faulty_count', len(faulty)))}"
            return "; ".join(filter(None, (trouble_of(row), damaged if faulty else "")))
    return ""


def _print_status(found: dict[str, Any]) -> None:
    role = Column("role", no_wrap=True)
    table = FoldedTable("node", role, "pid", "visible LSN", "behind", "CPU %", "MB", "faulty")
    for row in found["nodes"]:
        processes = row["processes"].values()
        table.add_row(
            str(row["node"]),
            _role_words(row),
            str(row["pid"] or "-"),
            str(row.get("visible_lsn", "-")),
            str("-" if row["lag_payloads"] is None else row["lag_payloads"]),
            f"{sum(each['cpu_percent'] for each in processes):.0f}" if processes else "-",
            f"{sum(each['rss_mb'] for each in processes):.0f}" if processes else "-",
            "-"
            if row["role"] == UNREACHABLE
            else _faulty_words(row["faulty"], row.get("faulty_count", len(row["faulty"]))),
        )
    leader = f"node {found['leader']} leads" if found["leader"] else "nobody leads"
    console = Terminal()
    committed = committed_words(found["log_start_lsn"], found["commit_lsn"])
    lag: dict[str, Any] = next((row["lag"] for row in found["nodes"] if row.get("lag")), {})
    console.print(f"{leader} in term {found['term']}, {committed}{held_words(lag)}", soft_wrap=True)
    console.print(table)
    if words := leaderless_words(found):
        say(words)
    damaged = [row["node"] for row in found["nodes"] if row.get("faulty")]
    for words in damage_words(damaged, len(found["nodes"])):
        say(words)
    for row in found["nodes"]:
        said = (unheard_words(row, lag), install_words(row), trouble_of(row), placement_words(row))
        for words in filter(None, said):
            say(f"node {row['node']}: {words}")
    for words in places_words(found):
        say(words)


def _role_words(row: dict[str, Any]) -> str:
    """What it does, or, of one that follows and does not count, what it is."""
    is_learner = row["role"] == "follower" and row.get("member") == "learner"
    return "learner" if is_learner else str(row["role"])


def _print_verification(found: Verification) -> None:
    table = FoldedTable("node", "payloads", "last LSN", "chain", "damage")
    for row in found.replicas:
        cells = (str(row.payloads), str(row.last_lsn), row.chain)
        damage = row.error or _faulty_words(row.faulty, len(row.faulty))
        table.add_row(str(row.node), *("---" if row.error else cells), damage)
    console = Terminal()
    console.print(table)
    missing = [str(row.node) for row in found.replicas if row.error]
    verdict = "equal" if found.chains_equal else "NOT equal"
    words = f"chains are {verdict} up to LSN {found.compared_lsn}"
    if len(missing) == len(found.replicas):
        words = "no chain was compared"
    elif missing and len(missing) == len(found.replicas) - 1:
        words = f"one chain, up to LSN {found.compared_lsn}, and none to compare it with"
    words += f"; not compared: node {', '.join(missing)}" if missing else ""
    console.print(words, soft_wrap=True)
    damaged = [row.node for row in found.replicas if row.faulty]
    for words in damage_words(damaged, len(found.replicas)):
        say(words)


def _faulty_words(faulty: list[dict[str, Any]], count: int) -> str:
    """The first damaged ranges and the number of all; `--json` lists more."""
    shown = faulty[:RANGES_SHOWN]
    more = [f"and {count - len(shown)} more"] if count > len(shown) else []
    return ", ".join([*map(_range_words, shown), *more]) or "none"


def _range_words(faulty: dict[str, Any]) -> str:
    reason = f" ({faulty['reason']})" if faulty.get("reason") else ""
    first, last = faulty.get("first_lsn"), faulty.get("last_lsn")
    if first is None and last is None:
        return f"entry {faulty.get('first_index')} to {faulty.get('last_index')}{reason}"
    return f"LSN {first or '?'} to {last or '?'}{reason}"
