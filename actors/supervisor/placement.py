"""The CPUs that a process may run on, from the settings. The machine's own are an argument."""

from __future__ import annotations

from collections.abc import Collection

from actors import topology
from logstore.config import Config
from logstore.errors import ConfigError
from logstore.model import NodeId


def cpus_of(config: Config, node: NodeId, process: str) -> list[int]:
    """CPU numbers for `process`; empty: any. `replicator-2` comes before `replicator`."""
    cpus = config.node(node).cpus
    return list(cpus.get(process) or cpus.get(process.partition("-")[0]) or [])


def is_spinning(config: Config, process: str) -> bool:
    return process.partition("-")[0] in config.process.spin


def check_cpus(config: Config, node: NodeId, available: Collection[int]) -> None:
    """Refuse CPUs that this process may not use: children would die of it one by one.

    Raises:
      ConfigError: names the key, the CPU and those available.
    """
    nodes = tuple(NodeId(each) for each in config.node_ids())
    for process in (topology.SUPERVISOR, *topology.processes(node, nodes)):
        absent = [cpu for cpu in cpus_of(config, node, process) if cpu not in available]
        if absent:
            raise ConfigError(
                f"node {node}: cpus of {process}: no CPU {absent[0]} here; "
                f"this process may use {sorted(available)}"
            )
