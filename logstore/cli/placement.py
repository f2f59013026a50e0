"""`logstore placement show|set`: where and how the processes of replicas run.

`show` asks the cluster; `set` changes a replica of this machine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.table import Column

from logstore.cli.cpu_list import cpu_words, parse_cpus
from logstore.cli.exit_status import ExitStatus
from logstore.cli.options import (
    IntegerRange,
    NumberRange,
    endpoint_option,
    json_option,
    timeout_option,
)
from logstore.cli.output import FoldedTable, Terminal, say, write_json
from logstore.cli.serve import DEFAULT_FOLDER
from logstore.cli.stdout_reader import before_exit_status
from logstore.cli.trouble import placement_words
from logstore.client.client import connect
from logstore.config_relations import NICE_MAX, NICE_MIN
from logstore.errors import InvalidRequest
from logstore.limits import IO_THREADS_MAX

DEFAULT = "default"
# The supervisor looks at its file once a second.
FOLLOW_TIMEOUT_S = 10.0


class _Cpus(click.ParamType[Any]):
    """A list of CPUs, or `default`."""

    name = "LIST"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == DEFAULT or isinstance(value, list):
            return value
        try:
            return parse_cpus(str(value))
        except InvalidRequest as error:
            self.fail(str(error), param, ctx)


class _Number(IntegerRange):
    """A number, or `default`."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == DEFAULT else super().convert(value, param, ctx)


@click.group("placement")
def placement() -> None:
    """Where and how the processes of replicas run: CPUs, niceness, spinning, ZeroMQ IO threads."""


@placement.command()
@endpoint_option
@timeout_option
@json_option
def show(endpoints: str, timeout_s: float, json_path: str | None) -> None:
    """Each process of each replica, as it runs now, and where that is not what its configuration
    says."""
    with connect(endpoints, timeout=timeout_s) as client:
        found = client.admin.status()["nodes"]
    if json_path is not None:
        rows = [
            {"node": row["node"], "role": row["role"], "placement": row.get("placement")}
            for row in found
        ]
        write_json({"nodes": rows}, json_path)
    else:
        _print_nodes(found)


@placement.command("set")
@click.argument("processes", nargs=-1, required=True, metavar="PROCESS...")
@click.option(
    "--config",
    "config_path",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="the TOML file that the replica was started with; the change is written there",
)
@click.option("--node", required=True, type=IntegerRange(1), help="which of its nodes")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"its data folder [default: {DEFAULT_FOLDER}/node-N]",
)
@click.option("--cpus", type=_Cpus(), help="where it may run, such as 0-3,8; at once")
@click.option("--nice", type=_Number(NICE_MIN, NICE_MAX), help="how urgent, -20 most; at once")
@click.option(
    "--io-threads",
    type=_Number(1, IO_THREADS_MAX),
    help="of ZeroMQ, for a process that runs ingress, egress or replicators; when it starts again",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=NumberRange(0.1, 3_600.0),
    default=FOLLOW_TIMEOUT_S,
    show_default=True,
    help="seconds for the supervisor to follow",
)
@json_option
def set_(
    processes: Sequence[str],
    config_path: Path,
    node: int,
    folder: Path | None,
    cpus: Any,
    nice: Any,
    io_threads: Any,
    timeout_s: float,
    json_path: str | None,
) -> None:
    """Place PROCESSes of a replica of this machine, and keep it in its configuration.

    PROCESS is ingress, raft, writer, egress, supervisor, replicator (all of them) or replicator-2,
    or by the layout a group such as shared (`placement show` has the names);
    --config, --node and --dir are what `serve` was given. `default` takes the node's own entry out
    of the file: then [process] counts, which is of every node. What cannot be had is refused, and
    nothing is changed. Exit status 1 if a process does not take now what it could.
    """
    from logstore.cli.placement_change import change_placement

    asked = {"cpus": cpus, "nice": nice, "io_threads": io_threads}
    change = {
        key: None if value == DEFAULT else value
        for key, value in asked.items()
        if value is not None
    }
    outcomes = change_placement(
        folder or DEFAULT_FOLDER / f"node-{node}",
        config_path,
        node,
        processes,
        change,
        timeout_s=timeout_s,
    )
    if json_path is not None:
        write_json(outcomes, json_path)
    else:
        rows = {each.process: msgspec.to_builtins(each.report) for each in outcomes}
        with before_exit_status():
            Terminal().print(_table_of([(str(node), rows)]))
    for each in outcomes:
        for words in filter(None, (each.pending, each.inherited)):
            say(f"{each.process}: {words}")
    if any(each.is_refused for each in outcomes):
        sys.exit(ExitStatus.NO)


def _print_nodes(nodes: Sequence[dict[str, Any]]) -> None:
    known = [row for row in nodes if row.get("placement")]
    Terminal().print(
        _table_of([(str(row["node"]), row["placement"]["processes"]) for row in known])
    )
    for row in nodes:
        words = placement_words(row) if row in known else f"says no placement ({row['role']})"
        if words:
            say(f"node {row['node']}: {words}")


def _table_of(nodes: Sequence[tuple[str, dict[str, Any]]]) -> FoldedTable:
    """A row for each process that runs."""
    process = Column("process", min_width=len("replicator-2"))  # whole in 80 columns, too
    runs = Column("runs", min_width=len("replicator-2,"))
    table = FoldedTable("node", process, "pid", "CPUs", "nice", "spins", "IO\nthreads", runs)
    for node, processes in nodes:
        for name, report in processes.items():
            now, actors = report["now"], ", ".join(report.get("actors", ()))
            if now is None:
                table.add_row(node, name, "-", "-", "-", "-", "-", actors)
                continue
            spins = "yes" if now["spin"] else "no"
            threads = str(now["io_threads"] or "-")
            cells = (cpu_words(now["cpus"]), str(now["nice"]), spins, threads)
            table.add_row(node, name, str(report["pid"]), *cells, actors)
    return table
