"""What `logstore serve --join` asks before the replica starts: who the members of the cluster are.

    python -m logstore.cli.join ENDPOINTS NODE HOST:PORT SECONDS

prints them as JSON, in a process of its own: the one that is to be the replica's supervisor forks,
so it must never have had a client's threads (SAFETY M3). Owns the question and its wait. What the
members do with a replica that joins is theirs to decide.
"""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from logstore.cli.exit_status import exit_status_of
from logstore.cli.output import say
from logstore.cli.stopped_folder import has_log
from logstore.client.client import connect
from logstore.client.clock import monotonic_ns, seconds_from_now
from logstore.client.endpoint import Endpoint, parse_endpoint
from logstore.client.refusal import TRANSIENT
from logstore.client.status import UNREACHABLE
from logstore.errors import InvalidRequest, LogStoreError, NotReady
from logstore.format.meta import Meta
from logstore.model import ReplicaState
from logstore.settings import Config, NodeSettings
from logstore.storage.disk import RealDisk
from logstore.storage.meta_store import newest_meta

Others: TypeAlias = list[NodeSettings] | None
_FOUNDERS = frozenset((ReplicaState.STARTING, ReplicaState.VOTER))
# How long an empty replica waits for a member that answers. What starts it may start it again.
JOIN_WAIT_S = 60.0
# One whose folder belongs to the cluster has what it needs: where all machines start at the same
# time, each would wait for the others.
JOINED_WAIT_S = 5.0
ATTEMPT_S = 2.0
PAUSE_MS = 200


def is_part_of_cluster(folder: Path) -> bool:
    """Whether a replica ran in the folder that is part of a cluster, as far as can be read. One
    that asked to join, and whose log names no members yet, must find them first: it would ask
    no peer for its place."""
    meta = _meta_of(folder)
    if meta is None:
        return folder.is_dir() and has_log(folder)
    return meta.has_config if meta.state == ReplicaState.LEARNER else any(meta.cluster_id)


def goes_by_its_file(folder: Path) -> bool:
    """Whether the nodes of the configuration file are counted for this folder: it is a founder's,
    and its log has no CONFIG as far as META knows (SAFETY C5a). What another replica says of the
    members, or that none answers, must not change who counts: a founder that knew of itself alone
    would be a majority."""
    meta = _meta_of(folder)
    return meta is not None and meta.state in _FOUNDERS and not meta.has_config


def _meta_of(folder: Path) -> Meta | None:
    if not folder.is_dir() or not has_log(folder):
        return None
    return newest_meta(RealDisk(), str(folder))


def members_to_join(endpoints: str, config: Config, node: int, folder: Path) -> Others:
    """The members that answer at `endpoints`, asked in a process of its own. Empty where none
    answers and the folder is part of the cluster already; None where the configuration file says
    who the nodes are.

    Raises:
      InvalidRequest: the file says so, and names no other node.
      SystemExit: none answers, or the replica cannot join; that process has said why.
    """
    own = config.node(node)
    if goes_by_its_file(folder):
        if len(config.nodes) == 1:
            raise InvalidRequest(
                f"the folder of node {node} was formed with its cluster, and its log does not name "
                "the members yet: start it without --join, with the configuration file that the "
                "cluster was formed with"
            )
        say(f"node {node} starts with the nodes of its file: its log does not name the members yet")
        return None
    is_joined = is_part_of_cluster(folder)
    wait_s = JOINED_WAIT_S if is_joined else JOIN_WAIT_S
    command = [sys.executable, "-m", "logstore.cli.join", endpoints, str(own.node)]
    command += [f"{own.host}:{own.port}", str(wait_s)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if not done.returncode:
        return msgspec.json.decode(done.stdout, type=list[NodeSettings])
    if is_joined:
        say(f"node {own.node} starts without an answer: its folder is part of the cluster already")
        return []
    raise SystemExit(done.returncode)


def ask_members(endpoints: str, node: int, place: Endpoint, wait_s: float) -> list[NodeSettings]:
    """The members as a replica at `endpoints` names them, without the one that is to join.

    Args:
      endpoints: of members; one that answers is enough.
      node: which node is to join.
      place: where.
      wait_s: how long to wait for an answer.

    Raises:
      Unreachable, NotReady: no member answered in time.
      InvalidRequest: its number is that of a member elsewhere that answers, or its address is that
        of another member.
      WrongCluster: the endpoints belong to more than one cluster.
    """
    until_ns = seconds_from_now(wait_s)
    said = ""
    while True:
        try:
            return _ask_once(endpoints, node, place)
        except LogStoreError as error:
            if error.code not in TRANSIENT:
                raise
            if monotonic_ns() >= until_ns:
                raise
            if str(error) != said:
                said = str(error)
                say(f"waiting for a member of the cluster: {said}")
        select.poll().poll(PAUSE_MS)


def _ask_once(endpoints: str, node: int, place: Endpoint) -> list[NodeSettings]:
    with connect(endpoints, timeout=ATTEMPT_S) as client:
        nodes = client.nodes()
        if not any(client.cluster_id):
            raise NotReady(
                f"the replicas at {endpoints} are part of no cluster yet: form it first, or start "
                "this one without --join"
            )
        there = nodes.get(node)
        if there is not None and there != place:
            rows = client.admin.status()["nodes"]
            if any(row["node"] == node and row["role"] != UNREACHABLE for row in rows):
                raise InvalidRequest(
                    f"node {node} is a member at {there}, and answers: choose another number for "
                    f"the replica at {place}"
                )
    for other, endpoint in nodes.items():
        if endpoint == place and other != node:
            raise InvalidRequest(
                f"{place} is the address of node {other}: choose another one, or start that node"
            )
    return [
        NodeSettings(node=each, host=endpoint.host, port=endpoint.port)
        for each, endpoint in nodes.items()
        if each != node
    ]


def main(arguments: Sequence[str]) -> int:
    """Prints the members as JSON; the exit status."""
    endpoints, node, place, wait_s = arguments
    try:
        found = ask_members(endpoints, int(node), parse_endpoint(place), float(wait_s))
    except LogStoreError as error:
        say(f"error: node {node} does not join: {error}")
        return exit_status_of(error)
    sys.stdout.buffer.write(msgspec.json.encode(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
