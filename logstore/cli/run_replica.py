"""Runs one replica in this process and its children.

Apart from the command, so that a replica that another program starts imports no command line:
three replicas that start on two cores wait for each other's imports.
"""

from __future__ import annotations

from pathlib import Path

from actors.child_main import run_child
from actors.supervisor import serve_processes
from logstore.config import load_config


def run_replica(config_path: Path, node: int, folder: Path) -> int:
    """Run node `node` here until it is stopped; the exit status.

    Raises:
      LogStoreError: before anything was started.
    """
    return serve_processes(load_config(config_path), node, folder, config_path, run_child)
