"""A cluster that a whole test module shares, and the command line as a user runs it.

Whoever ends the cluster is told what it left behind: processes, or names in shared memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import psutil

from logstore.cli.embedded import LEADER_TIMEOUT_S, EmbeddedCluster, make_small_config, poll_until
from logstore.config import Config
from logstore.config_layout import choose_mode, with_mode
from logstore.config_placement import process_names

CLI_PATIENCE_S = 60.0
SHARED_MEMORY = Path("/dev/shm")


@contextmanager
def running_cluster(folder: Path, mode: str = "") -> Iterator[EmbeddedCluster]:
    """Three replicas with a leader; stopped in order at the end, with nothing left behind. `mode`:
    for tests that are about one; else as the environment says."""
    names_before = set(os.listdir(SHARED_MEMORY))
    config = make_small_config(3, Random())
    with EmbeddedCluster(folder, with_mode(config, mode) if mode else config) as cluster:
        cluster.start_all()
        cluster.wait_for_leader()
        yield cluster
        cluster.start_all()  # whatever a test killed: an orderly stop is asked of all three
        cluster.wait_for_leader()
        count = sum(processes_of(cluster.config, node) for node in cluster.nodes)
        assert poll_until(lambda: len(cluster.all_processes()) == count, LEADER_TIMEOUT_S)
        processes = cluster.all_processes()
        assert cluster.stop_all(), "a replica needed SIGKILL"
    alive = {name: each for name, each in processes.items() if each.is_running()}
    assert not alive, "left behind"
    assert not left_in_shared_memory(names_before), "left behind in shared memory"
    assert not [each for each in psutil.Process().children() if str(folder) in _command(each)]


def processes_of(config: Config, node: int) -> int:
    """How many a node has on this machine, its supervisor among them."""
    return len(process_names(choose_mode(config, node, len(os.sched_getaffinity(0))), node))


def left_in_shared_memory(names_before: set[str]) -> set[str]:
    """Names that came since and that no process has mapped: what others run beside is theirs."""
    names = set(os.listdir(SHARED_MEMORY)) - names_before
    if not names:
        return names
    mapped = "".join(map(_maps_of, Path("/proc").glob("[0-9]*")))
    return {name for name in names if f"{SHARED_MEMORY / name}" not in mapped}


def _maps_of(process: Path) -> str:
    try:
        return (process / "maps").read_text()
    except OSError:  # it has ended, or is not ours
        return ""


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def run_cli(
    cluster: EmbeddedCluster | None, *arguments: str, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """`logstore …` in a process of its own, at one endpoint of `cluster`; what came of it."""
    environment = dict(os.environ)
    if cluster is not None:
        environment["LOGSTORE_ENDPOINT"] = cluster.endpoints[0]
    return subprocess.run(
        [sys.executable, "-m", "logstore.cli.main", *arguments],
        input=stdin,
        capture_output=True,
        env=environment,
        timeout=CLI_PATIENCE_S,
        check=False,
    )
