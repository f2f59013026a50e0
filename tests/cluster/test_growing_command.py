"""`cluster up --replicas` and `serve --join` on real processes: voters are added to a running
cluster, and its first machine leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest

import logstore
from logstore.cli.cluster_folder import CONFIG_NAME, read_state
from logstore.cli.embedded import make_small_config
from logstore.cli.free_ports import find_free_ports
from logstore.cli.replica_process import kill_replica, wait_gone
from logstore.config import NodeSettings, load_config, render_config
from tests.cluster.one_cluster import run_cli

pytestmark = pytest.mark.slow
END_S = 20.0


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """With a config of its own for one replica, so that the ports above it are likely free."""
    config = make_small_config(1, Random(os.urandom(8)))
    (tmp_path / CONFIG_NAME).write_text(render_config(config), encoding="utf-8")
    yield tmp_path
    state = read_state(tmp_path)
    for row in state.nodes if state else ():
        kill_replica(row)
        wait_gone(row, END_S)


def up(folder: Path, *words: str) -> str:
    done = run_cli(None, "cluster", "up", "--dir", str(folder), *words)
    assert done.returncode == 0, done.stderr
    return done.stderr.decode()


@pytest.mark.long
def test_one_replica_becomes_three_a_fourth_joins_and_the_first_leaves(folder: Path) -> None:
    up(folder)
    assert "node 3 is a voter" in up(folder, "--replicas", "3", "--timeout", "50")
    state = read_state(folder)
    assert state is not None
    assert [row.node for row in state.nodes] == [1, 2, 3]
    (port,) = find_free_ports(1, Random(os.urandom(8)))
    own = NodeSettings(node=4, port=port)
    config = msgspec.structs.replace(load_config(folder / CONFIG_NAME), nodes=[own])
    path = folder / "four.toml"
    path.write_text(render_config(config), encoding="utf-8")
    with logstore.connect(state.endpoints, timeout=50) as log:
        log.admin.add_member(4, own.host, own.port)
        command = [sys.executable, "-m", "logstore.cli.main", "serve", "--config", str(path)]
        command += ["--node", "4", "--dir", str(folder / "four"), "--join", state.endpoints[0]]
        replica = subprocess.Popen(command)
        try:
            promoted = run_cli(None, "member", "promote", "4", "--timeout", "50", "--endpoint",
                               state.endpoints[1])  # fmt: skip
            assert promoted.returncode == 0, promoted.stderr
            log.admin.remove_member(1)
            found = log.admin.members()
            assert [each.number for each in found.members if each.is_voter] == [2, 3, 4]
            assert sorted(log.nodes()) == [2, 3, 4]
            with log.producer() as producer:
                assert producer.append(b"after the move").result(50).first == 1
        finally:
            replica.terminate()
            replica.wait(END_S)
