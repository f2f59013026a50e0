"""docs/tutorial.md as it stands: each block in order, on a cluster of its own ports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from logstore.cli.cluster_folder import read_state
from logstore.cli.embedded import make_small_config
from logstore.cli.replica_process import kill_replica, wait_gone
from logstore.config import Config, render_config
from tests.tidy.repository import text_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
BLOCK_TIMEOUT_S = 120
REAP_S = 10.0


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Config]:
    """Of the cluster that the tutorial starts in `tmp_path`; what it leaves running is killed."""
    made = make_small_config(3, Random(os.urandom(8)))
    (tmp_path / "ports.toml").write_text(render_config(made), encoding="utf-8")
    yield made
    state = read_state(tmp_path / "tutorial")
    for row in state.nodes if state else ():
        kill_replica(row)
        wait_gone(row, REAP_S)


def test_every_block_of_the_tutorial_runs_in_order(tmp_path: Path, config: Config) -> None:
    endpoints = [f"{node.host}:{node.port}" for node in config.nodes]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "LOGSTORE_ENDPOINT": ",".join(endpoints),
    }
    said = []
    blocks = re.findall(r"```(bash|python)\n(.*?)```", text_of(Path("docs/tutorial.md")), re.DOTALL)
    for language, block in blocks:
        text = block.replace("cluster up --dir", "cluster up --config ports.toml --dir")
        for port, endpoint in zip((7100, 7110, 7120), endpoints, strict=True):
            text = text.replace(f"127.0.0.1:{port}", endpoint)
        command = ["bash", "-euo", "pipefail", "-c", text]
        if language == "python":
            command = [sys.executable, "-W", "error", "-c", text]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, timeout=BLOCK_TIMEOUT_S, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, f"{block}\n{done.stdout}"
        said.append(done.stdout)
    everything = "\n".join(said)
    for line in (
        "the first of them is LSN 4\n",
        "both or none, side by side: 1004 1005\n",
        "second 7 b'payload 3'\n",
        "1005 payloads, each once\n",
        "LSN 1006 to 1105\n",
        "100 came back\n",
        "400 appends, the next leader is node",
        "refused: the cursor archive holds",
    ):
        assert line in everything
