"""The JSON documents of the control port: metadata, and this replica's part of the status.

Pure but for the counters page, of which it reads what is meant for metrics (SAFETY U1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from actors import topology
from actors.ingress.facts import Facts
from actors.topology import Counter
from logstore.config import Config
from logstore.model import NodeId

_MIB = 1 << 20


def metadata_document(facts: Facts, config: Config) -> bytes:
    """Who we are, who leads, where the nodes are, which limits hold."""
    return msgspec.json.encode(
        {
            "name": config.cluster.name,
            "cluster_id": facts.identity.cluster_id.hex(),
            "node": facts.node,
            "leader": facts.leader,
            "term": facts.term,
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
    """raft's facts and, beside them, the supervisor's pid, the processes and the counters."""
    facts: dict[str, Any] = msgspec.json.decode(raft_document)
    names = topology.counter_names(node, nodes)
    values = dict(zip(names, slots, strict=False))
    facts["pid"] = values[f"{topology.SUPERVISOR}.pid"]
    facts["processes"] = {
        process: {
            "pid": values[f"{process}.pid"],
            "cpu_percent": values[f"{process}.cpu_permille"] / 10,
            "rss_mb": round(values[f"{process}.rss_bytes"] / _MIB, 1),
        }
        for process in (topology.SUPERVISOR, *topology.processes(node, nodes))
    }
    facts["counters"] = {counter.name.lower(): slots[counter] for counter in Counter}
    return msgspec.json.encode(facts)
