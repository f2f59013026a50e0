"""Runs one replica in this process and its children.

Apart from the command, so that a replica that another program starts imports no command line:
three replicas that start on two cores wait for each other's imports.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from actors.child_main import run_child
from actors.supervisor import serve_processes
from logstore.config import NodeSettings, joined_config, load_config


def run_replica(
    config_path: Path, node: int, folder: Path, *, others: Sequence[NodeSettings] | None = None
) -> int:
    """Run node `node` here until it is stopped; the exit status.

    Args:
      others: the members of the cluster that it joins, in place of the file's other nodes; None: it
        joins none, and the file says who the nodes are.

    Raises:
      LogStoreError: before anything was started.
    """
    config = load_config(config_path)
    if others is not None:
        config = joined_config(config, node, others)
    return serve_processes(config, node, folder, config_path, run_child, others=others)
