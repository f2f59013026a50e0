"""`logstore cluster forget NODE`: a replica that is no member any more leaves a cluster's folder.

Owns the order of its steps, each of which may be done already: its process, its data folder, its
entry in the config, its row in cluster.json. One that was interrupted goes on when it is asked
again. Must not know how members are removed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import tomlkit

from logstore.cli.cluster_folder import (
    CONFIG_NAME,
    ClusterState,
    bring_down,
    endpoints_of,
    locked,
    read_state,
    write_state,
)
from logstore.cli.config_edit import locked_config, replace_file
from logstore.cli.stopped_folder import has_log, move_aside, stopped
from logstore.client.client import connect
from logstore.config import load_config, parse_config
from logstore.errors import InvalidRequest


def forget(folder: Path, node: int, timeout_s: float, *, say: Callable[[str], None]) -> Path | None:
    """Stop the replica of `node`, and take it out of the folder; where its data is now, which is
    None if it had none.

    Args:
      folder: of the cluster, some of whose members run.
      node: one that the members leave out.
      timeout_s: how long to ask who the members are.
      say: prints a line for people.

    Raises:
      InvalidRequest: it is a member, or the only replica of the folder, or none of it; or the
        config is not the folder's own.
      NoQuorum, Unreachable: no leader says who the members are.
      Overloaded: another command is at work there.
    """
    state = read_state(folder)
    if state is None:
        raise InvalidRequest(f"no cluster was started in {folder}: name its folder with --dir")
    _check(folder, state, node, timeout_s)
    if any(row.node == node for row in state.nodes):
        bring_down(folder, node=node, say=say)
    data = folder / f"node-{node}"
    aside = None
    if data.is_dir() and has_log(data):
        with stopped(data):
            aside = move_aside(data)
    remove_node(Path(state.config), node)
    with locked(folder):
        state = read_state(folder) or state  # another command may have started replicas meanwhile
        left = [row for row in state.nodes if row.node != node]
        endpoints = endpoints_of(load_config(state.config))
        write_state(folder, msgspec.structs.replace(state, nodes=left, endpoints=endpoints))
    return aside


def _check(folder: Path, state: ClusterState, node: int, timeout_s: float) -> None:
    path = Path(state.config)
    nodes = load_config(path).node_ids()
    if node not in {*nodes, *(row.node for row in state.nodes)}:
        has = ", ".join(map(str, nodes))
        raise InvalidRequest(f"the cluster in {folder} has no node {node}: it has {has}")
    if nodes == [node]:
        raise InvalidRequest(f"node {node} is the only one in {folder}: `logstore cluster down`")
    if path.resolve() != (folder / CONFIG_NAME).resolve():
        raise InvalidRequest(
            f"{path} is not the folder's own config: stop node {node} with `logstore cluster down "
            f"--node {node}`, and take its [[nodes]] entry out of the file"
        )
    with connect(state.endpoints, timeout=timeout_s) as client:
        member = client.admin.members().member(node)
    if member is not None:
        raise InvalidRequest(
            f"node {node} is a member of the cluster, {member.role}: `logstore member remove "
            f"{node}` first"
        )


def remove_node(path: Path, node: int) -> None:
    """Take a node out of the config at `path`, and keep the rest of it.

    Raises:
      ConfigError: the file cannot be written.
      InvalidRequest: another command changes it now.
    """
    with locked_config(path) as target:
        document: Any = tomlkit.parse(target.read_text(encoding="utf-8"))
        found = [at for at, table in enumerate(document["nodes"]) if table["node"] == node]
        for at in reversed(found):
            del document["nodes"][at]
        changed = tomlkit.dumps(document)
        parse_config(changed)
        replace_file(target, changed)
