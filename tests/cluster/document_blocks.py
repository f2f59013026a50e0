"""Runs the blocks of a document in order, as a reader does, on a cluster of its own ports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from logstore.cli.cluster_folder import read_state
from logstore.cli.embedded import make_small_config
from logstore.cli.replica_process import kill_replica, wait_gone
from logstore.config import Config, render_config

CONFIG_NAME = "ports.toml"
BLOCK_TIMEOUT_S = 120
REAP_S = 10.0


@contextmanager
def ports_for(folder: Path, cluster: str) -> Iterator[Config]:
    """Three replicas' configuration, written to CONFIG_NAME in `folder`. What the folder `cluster`
    there leaves running is killed."""
    made = make_small_config(3, Random(os.urandom(8)))
    (folder / CONFIG_NAME).write_text(render_config(made), encoding="utf-8")
    try:
        yield made
    finally:
        state = read_state(folder / cluster)
        for row in state.nodes if state else ():
            kill_replica(row)
            wait_gone(row, REAP_S)


def endpoints_of(config: Config) -> list[str]:
    return [f"{node.host}:{node.port}" for node in config.nodes]


def run_block(folder: Path, config: Config, text: str, language: str = "bash") -> str:
    """What one block says; it must end with exit status 0."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "LOGSTORE_ENDPOINT": ",".join(endpoints_of(config)),
    }
    command = ["bash", "-euo", "pipefail", "-c", text]
    if language == "python":
        command = [sys.executable, "-W", "error", "-c", text]
    done = subprocess.run(
        command, cwd=folder, env=environment, timeout=BLOCK_TIMEOUT_S, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, f"{text}\n{done.stdout}"
    return done.stdout
