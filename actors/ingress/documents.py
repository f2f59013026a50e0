"""The JSON documents of the control port: metadata, this replica's part of the status, its trace.

Pure, but it reads the counters page, as metrics only (SAFETY U1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from actors import topology
from actors.ingress.replica_info import ReplicaInfo
from actors.loop_usage import USAGE
from actors.topology import PROCESS_GAUGES, Counter
from logstore.config import Config
from logstore.config_layout import Layout, actors_in
from logstore.format.configuration_body import Member, MemberRole
from logstore.model import NodeId
from logstore.settings import HIGHEST_PORT, NO_PORT, PortOffset

_MIB = 1 << 20


def metadata_document(replica: ReplicaInfo, config: Config) -> bytes:
    """Who this replica is, who leads, where the nodes are, which limits hold."""
    return msgspec.json.encode(
        {
            "name": config.cluster.name,
            "cluster_id": replica.identity.cluster_id.hex(),
            "node": replica.node,
            "leader": replica.leader,
            "term": replica.term,
            "configuration": replica.members.configuration.id if replica.members else 0,
            "nodes": _nodes_of(replica, config),
            "limits": {
                "batch_max_bytes": config.limits.batch_max_bytes,
                "group_max_bytes": config.limits.group_max_bytes,
                "fetch_max_bytes": config.limits.fetch_max_bytes,
                "session_window_bytes": config.limits.session_window_bytes,
            },
        }
    )


def _nodes_of(replica: ReplicaInfo, config: Config) -> list[dict[str, Any]]:
    """The members that there are, or, without a configuration in the log, the file's nodes. All
    that counts in a majority is a voter."""
    members = replica.present_members
    if members is None:
        return [
            {
                "node": each.node,
                "host": each.host,
                "port": each.port,
                "produce_port": config.produce_port(each.node),
                "role": "voter",
            }
            for each in config.nodes
        ]
    return [
        {
            "node": member.number,
            "host": member.host,
            "port": member.port,
            "produce_port": _produce_port(member, config),
            "role": "learner" if role is MemberRole.LEARNER else "voter",
        }
        for member, role in members
    ]


def _produce_port(member: Member, config: Config) -> int:
    """What the file says of its own nodes, where they are at the address that it names; of all
    other members the port that follows their eight."""
    for node in config.nodes:
        if (node.node, node.host, node.port) == (member.number, member.host, member.port):
            return config.produce_port(node.node)
    port = member.port + PortOffset.PRODUCE
    return port if config.process.produce and port <= HIGHEST_PORT else NO_PORT


def status_document(
    raft_document: bytes, layout: Layout, nodes: tuple[NodeId, ...], slots: Sequence[int]
) -> bytes:
    """What raft reports, and beside it the supervisor's pid, the processes with their actors, and
    the counters."""
    document: dict[str, Any] = msgspec.json.decode(raft_document)
    values = _values(layout, nodes, slots)
    document["pid"] = values[f"{topology.SUPERVISOR}.pid"]
    document["processes"] = {
        process: {
            "actors": () if process == topology.SUPERVISOR else actors_in(layout, process),
            "pid": values[f"{process}.pid"],
            "cpu_percent": values[f"{process}.cpu_permille"] / 10,
            "rss_mb": round(values[f"{process}.rss_bytes"] / _MIB, 1),
        }
        for process in (topology.SUPERVISOR, *layout, *_running_spares(values))
    }
    document["counters"] = _counters(slots)
    return msgspec.json.encode(document)


def trace_document(
    replica: ReplicaInfo,
    layout: Layout,
    nodes: tuple[NodeId, ...],
    slots: Sequence[int],
    stamps: Mapping[str, Mapping[int, int]],
    *,
    groups_in_flight_max: int,
    now_ns: int,
) -> bytes:
    """What this replica has measured of itself. `stamps`: row to index to time."""
    values = _values(layout, nodes, slots)
    return msgspec.json.encode(
        {
            "node": replica.node,
            "boot": replica.identity.boot,
            "leader": replica.leader,
            "term": replica.term,
            "now_ns": now_ns,
            "groups_in_flight_max": groups_in_flight_max,
            "counters": _counters(slots),
            "layout": dict(layout) | {spare: (spare,) for spare in _running_spares(values)},
            "processes": {
                process: {name: values[f"{process}.{name}"] for name in (*PROCESS_GAUGES, *USAGE)}
                for process in (topology.SUPERVISOR, *layout, *_running_spares(values))
            },
            "stamps": stamps,
        }
    )


def _running_spares(values: Mapping[str, int]) -> list[str]:
    """The spare replicators that run; a layout has none."""
    return [spare for spare in topology.SPARE_NAMES if values.get(f"{spare}.pid")]


def _values(layout: Layout, nodes: tuple[NodeId, ...], slots: Sequence[int]) -> dict[str, int]:
    return dict(zip(topology.counter_names(layout, nodes), slots, strict=False))


def _counters(slots: Sequence[int]) -> dict[str, int]:
    return {counter.name.lower(): slots[counter] for counter in Counter}
