"""`logstore cluster up|down|status`: a cluster on this machine that outlives the command."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from logstore.cli.cluster_folder import (
    DEFAULT_REPLICAS,
    NOT_FORMED,
    bring_down,
    bring_up,
    foreign_ports,
    initialize,
    member_roles,
    read_state,
    standings,
    wait_for_leader,
)
from logstore.cli.cluster_growth import grow
from logstore.cli.cluster_shrinking import forget as forget_replica
from logstore.cli.exit_status import ExitStatus
from logstore.cli.options import (
    DEFAULT_ENDPOINTS,
    IntegerRange,
    NumberRange,
    first_lsn_option,
    json_option,
    timeout_option,
)
from logstore.cli.output import STDOUT, FoldedTable, Terminal, say, write_json
from logstore.cli.port_users import describe
from logstore.cli.replica_process import is_alive
from logstore.cli.stdout_reader import before_exit_status
from logstore.errors import InvalidRequest
from logstore.limits import NODES_MAX

DEFAULT_FOLDER = Path("logstore-cluster")
LEADER_TIMEOUT_S = 60.0

_folder = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_FOLDER,
    show_default=True,
    help="where the cluster lives: logs, data, cluster.json",
)


@click.group("cluster")
def cluster() -> None:
    """Start, stop and look at a cluster whose replicas all run on this machine."""


@cluster.command("up", short_help="Start what does not run, and wait for a leader.")
@click.option(
    "--config",
    "config_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="the TOML file; three replicas on ports 7100, 7110 and 7120 if none is named",
)
@_folder
@click.option(
    "--timeout",
    "timeout_s",
    type=NumberRange(0.0, 3_600.0),
    default=LEADER_TIMEOUT_S,
    show_default=True,
    help="seconds to wait for a leader",
)
@first_lsn_option
@click.option(
    "--replicas",
    type=IntegerRange(1, NODES_MAX),
    metavar="N",
    help="how many voters it is to have; a cluster with fewer gets more, a new one has three",
)
def up(
    config_path: Path | None,
    folder: Path,
    timeout_s: float,
    first_lsn: int | None,
    replicas: int | None,
) -> None:
    """Start every replica that does not run, and return when a leader serves. Exit status 1 if a
    replica has ended by then.

    With --replicas, as `cluster up --replicas 5`, nodes are written into the folder's config,
    started, and promoted once they have caught up. The log is raised to format level 4 for that.

    Where the config has auto_init = false and the cluster is not formed yet, return when every
    replica waits for `logstore init`.
    """
    folder = folder.resolve()
    count = replicas or DEFAULT_REPLICAS
    with _told_who_runs_on(folder, "run on: `logstore cluster down --dir {folder}` stops them"):
        state = bring_up(folder, config_path, first_lsn=first_lsn, replicas=count)
        if first_lsn is not None:
            initialize(state, first_lsn, timeout_s)
        leader = wait_for_leader(state, timeout_s)
        if replicas is not None and leader != NOT_FORMED:
            state = grow(folder, state, replicas, timeout_s, say=say)
        words = standings(state, leader)
    for row in state.nodes:
        click.echo(f"node {row.node} {words[row.node]}, pid {row.pid}, {row.dir}")
    endpoints = ",".join(state.endpoints)
    click.echo(f"endpoints: {endpoints}")
    asked = os.environ.get("LOGSTORE_ENDPOINT") or DEFAULT_ENDPOINTS
    if not set(asked.split(",")) <= set(state.endpoints):
        say(f"so that other commands ask this cluster: export LOGSTORE_ENDPOINT={endpoints}")
    if replicas is not None and replicas % 2 == 0:
        say(
            f"{replicas} replicas survive the loss of {(replicas - 1) // 2}, no more than "
            f"{replicas - 1} do"
        )
    if leader == NOT_FORMED:
        say(
            "all replicas run and none is part of a cluster: with auto_init = false, "
            f"`logstore init --endpoint {endpoints}` forms it, once"
        )
    if not all(map(is_alive, state.nodes)):
        sys.exit(ExitStatus.NO)


@cluster.command("down")
@_folder
@click.option("--node", type=IntegerRange(1), help="stop the replica of this node only")
def down(folder: Path, node: int | None) -> None:
    """Stop every replica in order; kill what does not stop. `logstore cluster up` starts what was
    stopped."""
    folder = folder.resolve()
    with _told_who_runs_on(folder, "still run: `logstore cluster down --dir {folder}` once more"):
        rows = bring_down(folder, node=node, say=say)
    for row, outcome in rows:
        click.echo(f"node {row.node} (pid {row.pid}): {outcome}")


@contextmanager
def _told_who_runs_on(folder: Path, words: str) -> Iterator[None]:
    """At Ctrl-C, say which replicas of the folder run, and what to do about it."""
    try:
        yield
    except KeyboardInterrupt:
        state = read_state(folder)
        alive = [str(row.node) for row in state.nodes if is_alive(row)] if state else []
        if alive:
            say(f"replicas {', '.join(alive)} {words.format(folder=folder)}")
        raise


@cluster.command("forget")
@click.argument("node", type=IntegerRange(1))
@_folder
@timeout_option
def forget(node: int, folder: Path, timeout_s: float) -> None:
    """Stop replica NODE, which `logstore member remove` has removed, and take it out of the folder:
    `cluster up` starts it no more. Its data is kept, under another name.

    Example: logstore cluster forget 5
    """
    aside = forget_replica(folder.resolve(), node, timeout_s, say=say)
    kept = f"; its data is in {aside}, which nothing needs any more" if aside else ""
    click.echo(f"node {node} is out of the folder{kept}")


@cluster.command("status")
@_folder
@json_option
def status(folder: Path, json_path: str | None) -> None:
    """Which replicas of the folder run, and what each is in the cluster. Exit status 1 if not all
    run, or if another process has a port of theirs."""
    state = read_state(folder.resolve())
    if state is None:
        raise InvalidRequest(f"no cluster was started in {folder}: name its folder with --dir")
    foreign, roles = foreign_ports(state), member_roles(state)
    rows = [
        {
            "node": row.node,
            "pid": row.pid,
            "dir": row.dir,
            "is_running": is_alive(row),
            "role": roles.get(row.node),
            "ports_in_use": foreign.get(row.node, []),
        }
        for row in state.nodes
    ]
    document = {"endpoints": state.endpoints, "config": state.config, "nodes": rows}
    if json_path is not None:
        write_json(document, json_path)
    if json_path != STDOUT:
        table = FoldedTable("node", "pid", "state", "role", "folder")
        for row in rows:
            state_word = "running" if row["is_running"] else "gone"
            role = str(row["role"] or "-")
            table.add_row(str(row["node"]), str(row["pid"]), state_word, role, str(row["dir"]))
        with before_exit_status():
            Terminal().print(table)
        for users in filter(None, foreign.values()):
            say(f"{describe(users)}: the replica cannot listen there")
    if any(foreign.values()) or not all(row["is_running"] for row in rows):
        sys.exit(ExitStatus.NO)
