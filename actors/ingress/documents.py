"""The JSON documents of the control port: metadata, and this replica's part of the status.

Pure, but it reads the counters page, as metrics only (SAFETY U1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from actors import topology
from actors.ingress.replica_info import ReplicaInfo
from actors.topology import Counter
from logstore.config import Config
from logstore.model import NodeId

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
            "nodes": [
                {"node": each.node, "host": each.host, "port": each.port} for each in config.nodes
            ],
            "limits": {
                "batch_max_bytes": config.limits.batch_max_bytes,
                "group_max_bytes": config.limits.group_max_bytes,
                "fetch_max_bytes": config.limits.fetch_max_bytes,
                "session_window_bytes": config.limits.session_window_bytes,
            },
        }
    )


def status_document(
    raft_document: bytes, node: NodeId, nodes: tuple[NodeId, ...], slots: Sequence[int]
) -> bytes:
    """What raft reports, and beside it the supervisor's pid, the processes and the counters."""
    document: dict[str, Any] = msgspec.json.decode(raft_document)
    names = topology.counter_names(node, nodes)
    values = dict(zip(names, slots, strict=False))
    document["pid"] = values[f"{topology.SUPERVISOR}.pid"]
    document["processes"] = {
        process: {
            "pid": values[f"{process}.pid"],
            "cpu_percent": values[f"{process}.cpu_permille"] / 10,
            "rss_mb": round(values[f"{process}.rss_bytes"] / _MIB, 1),
        }
        for process in (topology.SUPERVISOR, *topology.processes(node, nodes))
    }
    document["counters"] = {counter.name.lower(): slots[counter] for counter in Counter}
    return msgspec.json.encode(document)
