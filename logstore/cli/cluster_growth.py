"""`logstore cluster up --replicas N`: more replicas for a cluster of this machine.

Owns the order of its steps, each of which may be done already: format level, the nodes in the
config, their places, their processes, learners, voters. One that was interrupted goes on when it is
asked again. Must not know how processes are started.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tomlkit

from logstore.cli.cluster_folder import CONFIG_NAME, ClusterState, bring_up
from logstore.cli.config_edit import locked_config, replace_file
from logstore.client.admin import Admin
from logstore.client.client import connect
from logstore.client.clock import monotonic_ns, seconds_from_now
from logstore.client.core.member_admin import Members
from logstore.config import Config, NodeSettings, load_config, parse_config
from logstore.errors import InvalidRequest, LevelRefused, NotReady
from logstore.format.level import CONFIG_LEVEL
from logstore.storage.disk import RealDisk
from logstore.storage.meta_store import newest_meta

PORT_STEP = 10  # between the first ports of two nodes, as in the generated config
LOOK_MS = 100
ATTEMPT_S = 10.0
Say = Callable[[str], None]


def grow(
    folder: Path, state: ClusterState, replicas: int, timeout_s: float, *, say: Say
) -> ClusterState:
    """Add voters until there are `replicas`; the folder's replicas then.

    Args:
      folder: of the cluster, whose replicas run.
      state: what its cluster.json holds.
      replicas: how many voters it is to have.
      timeout_s: how long all of it may take.
      say: prints a line for people.

    Raises:
      InvalidRequest: it has more already, or its config is not the folder's own and has no nodes
        to add.
      LevelRefused: a replica runs a version that cannot change the members.
      NotReady: it is not done in time; what is missing.
    """
    until_ns = seconds_from_now(timeout_s)
    with connect(state.endpoints, timeout=min(timeout_s, ATTEMPT_S)) as client:
        admin = client.admin
        voters = [each.number for each in admin.members().members if each.is_voter]
        missing = replicas - len(voters)
        if missing < 0:
            raise InvalidRequest(
                f"the cluster has {len(voters)} voters: `logstore member remove NUMBER` removes one"
            )
        if not missing:
            return state
        _raise_level(admin, say)
        _await(admin, until_ns, _why_unfounded, say)
        added = _nodes_to_add(folder, Path(state.config), voters, missing)
        _refuse_removed(folder, added, admin.members())
        for node in added:
            admin.add_member(node.node, node.host, node.port, timeout=_left_s(until_ns))
        state = bring_up(folder, None, first_lsn=None)
        for node in added:
            number = node.node
            _await(admin, until_ns, partial(_why_absent, number), say)
            admin.promote_member(
                number,
                timeout=_left_s(until_ns),
                on_wait=lambda words: say(f"waiting: {words}"),
            )
            say(f"node {number} is a voter")
    return state


def _raise_level(admin: Admin, say: Say) -> None:
    found = admin.format_levels()
    if found.common < CONFIG_LEVEL:
        levels = found.newest_levels.items()
        nodes = ", ".join(str(node) for node, level in levels if level < CONFIG_LEVEL)
        raise LevelRefused(
            f"members can be changed from format level {CONFIG_LEVEL} on, which node {nodes} does "
            "not read, or does not answer: start this version there first"
        )
    for level in range(found.level + 1, CONFIG_LEVEL + 1):
        admin.raise_level(level)
        say(f"the log is raised to format level {level}")


def _nodes_to_add(
    folder: Path, path: Path, voters: Sequence[int], missing: int
) -> list[NodeSettings]:
    """Nodes of the config that do not vote, as many as are missing; new ones if it has too few."""
    config = load_config(path)
    found = _others(config, voters)[:missing]
    lacking = missing - len(found)
    if not lacking:
        return found
    if path.resolve() != (folder / CONFIG_NAME).resolve():
        raise InvalidRequest(
            f"{path} has {len(config.nodes)} nodes, {lacking} too few, and is not the folder's own "
            "config: add [[nodes]] there, then ask again"
        )
    return add_nodes(path, voters, missing)


def _refuse_removed(folder: Path, nodes: Sequence[NodeSettings], found: Members) -> None:
    """A replica that was removed does not come back with what it has (SAFETY C6).

    Raises:
      InvalidRequest: one of the nodes was removed, and has its folder still.
    """
    for node in nodes:
        data = folder / f"node-{node.node}"
        meta = newest_meta(RealDisk(), str(data)) if data.is_dir() else None
        if found.member(node.node) is None and meta is not None and meta.has_config:
            raise InvalidRequest(
                f"node {node.node} was a member, and was removed: `logstore cluster forget "
                f"{node.node} --dir {folder}` first"
            )


def add_nodes(path: Path, voters: Sequence[int], missing: int) -> list[NodeSettings]:
    """Write nodes into the config at `path`, and keep the rest of it, until `missing` of them are
    none of `voters`; those. They follow the highest number and port that it has, on the host of the
    last node. Another command may have written them meanwhile.

    Raises:
      ConfigError: the file cannot be written, or would have too many nodes.
      InvalidRequest: another command changes it now.
    """
    with locked_config(path) as target:
        text = target.read_text(encoding="utf-8")
        config = parse_config(text)
        found = _others(config, voters)[:missing]
        added = _next_nodes(config, missing - len(found))
        document: Any = tomlkit.parse(text)
        for node in added:
            table = tomlkit.table()
            table.update({"node": node.node, "host": node.host, "port": node.port})
            table.add(tomlkit.nl())
            document["nodes"].append(table)
        changed = tomlkit.dumps(document)
        parse_config(changed)
        replace_file(target, changed)
    return found + added


def _others(config: Config, voters: Sequence[int]) -> list[NodeSettings]:
    return [each for each in config.nodes if each.node not in voters]


def _next_nodes(config: Config, count: int) -> list[NodeSettings]:
    number = max(config.node_ids())
    port = max(each.port for each in config.nodes)
    host = config.nodes[-1].host
    return [
        NodeSettings(node=number + step, host=host, port=port + PORT_STEP * step)
        for step in range(1, count + 1)
    ]


# --- what is waited for ---


def _why_unfounded(found: Members) -> str:
    if found.id and found.is_committed:
        return ""
    return "the leader has not written the members into the log yet"


def _why_absent(number: int, found: Members) -> str:
    row = found.member(number)
    if row is not None and row.role != "reserved":
        return ""
    return f"node {number} has not joined yet: its log, in its folder, says more"


def _await(admin: Admin, until_ns: int, why_not: Callable[[Members], str], say: Say) -> None:
    """Ask who the members are until `why_not` has no reason to go on, and say what it waits for."""
    said = ""
    while words := why_not(admin.members()):
        if monotonic_ns() >= until_ns:
            raise NotReady(f"{words}; ask again: what is done stays done")
        if words != said:
            say(f"waiting: {words}")
        said = words
        select.poll().poll(LOOK_MS)


def _left_s(until_ns: int) -> float:
    return max(0.1, (until_ns - monotonic_ns()) / 1e9)
