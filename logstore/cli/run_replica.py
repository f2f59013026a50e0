"""Runs one replica in this process, in the mode its config names.

Apart from the command, so that a replica that another program starts imports no command line:
three replicas that start on two cores wait for each other's imports.
"""

from __future__ import annotations

from pathlib import Path

from actors.child_main import run_child
from actors.single import serve_single
from actors.supervisor import serve_processes
from logstore.config import load_config


def run_replica(config_path: Path, node: int, folder: Path) -> int:
    """Run node `node` here until it is stopped; the exit status.

    Raises:
      LogStoreError: before anything was started.
    """
    config = load_config(config_path)
    if config.process.mode == "single":
        return serve_single(config, node, folder)
    return serve_processes(config, node, folder, config_path, run_child)
