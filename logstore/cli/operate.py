"""`logstore status`, `transfer`, `verify`, `init`: what an operator asks of a running cluster."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec
from rich.table import Table

from logstore.cli.exit_status import ExitStatus
from logstore.cli.options import (
    endpoint_option,
    first_lsn_option,
    json_option,
    timeout_option,
)
from logstore.cli.output import Terminal, say, write_json
from logstore.client.client import LogClient, connect
from logstore.client.verification import Verification
from logstore.errors import LogStoreError
from logstore.limits import CLOCK_AHEAD_MAX_NS
from logstore.model import FIRST_LSN

RANGES_SHOWN = 4  # damaged ranges in a row of a table


@click.command()
@endpoint_option
@timeout_option
@json_option
def status(endpoints: str, timeout_s: float, json_path: str | None) -> None:
    """Who leads, how far the log is, how each replica is doing. Exit status 3 without a leader."""
    with connect(endpoints, timeout=timeout_s) as client:
        found = client.admin.status()
    if json_path is not None:
        write_json(found, json_path)
    else:
        _print_status(found)
    if not found["leader"]:
        sys.exit(ExitStatus.UNREACHABLE)


@click.command()
@click.argument("target", type=click.IntRange(0), default=0, metavar="[NODE]")
@endpoint_option
@timeout_option
@json_option
def transfer(target: int, endpoints: str, timeout_s: float, json_path: str | None) -> None:
    """Hand leadership to NODE, or to whichever replica is most up to date."""
    with connect(endpoints, timeout=timeout_s) as client:
        leader = client.admin.transfer(target)
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
            return "; ".join(filter(None, (_trouble(row), damaged if faulty else "")))
    return ""


def _print_status(found: dict[str, Any]) -> None:
    table = Table("node", "role", "pid", "LSN", "lag", "CPU %", "memory MB", "faulty")
    for row in found["nodes"]:
        processes = row["processes"].values()
        table.add_row(
            str(row["node"]),
            str(row["role"]),
            str(row["pid"] or "-"),
            str(row.get("visible_lsn", "-")),
            str("-" if row["lag_lsn"] is None else row["lag_lsn"]),
            f"{sum(each['cpu_percent'] for each in processes):.0f}",
            f"{sum(each['rss_mb'] for each in processes):.0f}",
            _faulty_words(row["faulty"], row.get("faulty_count", len(row["faulty"]))),
        )
    leader = f"node {found['leader']} leads" if found["leader"] else "nobody leads"
    console = Terminal()
    console.print(f"{leader} in term {found['term']}, LSN {found['log_start_lsn']} to "
                  f"{found['commit_lsn']} committed")  # fmt: skip
    console.print(table)
    for row in found["nodes"]:
        if trouble := _trouble(row):
            say(f"node {row['node']}: {trouble}")


def _trouble(row: dict[str, Any]) -> str:
    """Why a replica takes no part, or takes no appends, or what else is wrong; empty if nothing
    is."""
    full = "its disk is full: free some space" if row.get("is_disk_full") else ""
    empty = ""
    if row.get("state") == "empty" and not row.get("refusal"):
        empty = (
            "runs, and is part of no cluster yet: `logstore init` forms it where auto_init = false"
        )
    parts = (
        row.get("damage"),
        row.get("refusal"),
        _lost_words(row),
        full,
        empty,
        _clock_words(row),
        _crowd(row),
    )
    return "; ".join(filter(None, parts))


def _lost_words(row: dict[str, Any]) -> str:
    """What a replica acknowledged and does not have."""
    lost = row.get("lost_flushed")
    if not lost:
        return ""
    return (
        f"has LOST entries {lost['first_index']} to {lost['last_index']}, which it had flushed and "
        "acknowledged: its data folder is an older copy, or its device forgot what it had flushed"
    )


def _clock_words(row: dict[str, Any]) -> str:
    """Whose clocks are off by more than a second, as the leader knows."""
    skews = row.get("clock_skew_ms") or {}
    off = [
        f"node {node} by {skew_ms / 1_000:+.1f} s"
        for node, skew_ms in skews.items()
        if abs(skew_ms) > CLOCK_AHEAD_MAX_NS // 1_000_000
    ]
    return f"clocks are off (set them right): {', '.join(off)}" if off else ""


def _crowd(row: dict[str, Any]) -> str:
    """Whether one of its processes takes no more connections, and how many it takes."""
    counters = row.get("counters", {})
    for process in ("ingress", "egress"):
        most = counters.get(f"{process}_connections_max", 0)
        if most and counters.get(f"{process}_connections", 0) >= most:
            return f"{process} has {most} connections and takes no more: raise its limit of files"
    return ""


def _print_verification(found: Verification) -> None:
    table = Table("node", "payloads", "last LSN", "chain", "damage")
    for row in found.replicas:
        damage = row.error or _faulty_words(row.faulty, len(row.faulty))
        table.add_row(str(row.node), str(row.payloads), str(row.last_lsn), row.chain, damage)
    console = Terminal()
    console.print(table)
    verdict = "equal" if found.chains_equal else "NOT equal"
    console.print(f"chains are {verdict} up to LSN {found.compared_lsn}")


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
