"""docs/runbooks/majority-lost.md as it stands: each block in order, on a cluster of its own ports
of which two folders are gone (SAFETY L8)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import logstore
from logstore.cli.cluster_folder import read_state
from logstore.cli.embedded import make_small_config
from logstore.cli.replica_process import kill_replica, wait_gone
from logstore.config import Config, render_config
from tests.tidy.repository import text_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
BLOCK_TIMEOUT_S = 120
REAP_S = 10.0
LINES = [b"line %d" % number for number in range(200)]


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Config]:
    """Of the cluster in `tmp_path`; what it leaves running is killed."""
    made = make_small_config(3, Random(os.urandom(8)))
    (tmp_path / "ports.toml").write_text(render_config(made), encoding="utf-8")
    yield made
    state = read_state(tmp_path / "old")
    for row in state.nodes if state else ():
        kill_replica(row)
        wait_gone(row, REAP_S)


def test_every_block_of_the_runbook_runs_in_order(tmp_path: Path, config: Config) -> None:
    endpoints = [f"{node.host}:{node.port}" for node in config.nodes]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "LOGSTORE_ENDPOINT": ",".join(endpoints),
    }

    def run(text: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=tmp_path, env=environment, timeout=BLOCK_TIMEOUT_S, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, f"{text}\n{done.stdout}"
        return done.stdout

    run("logstore cluster up --config ports.toml --dir old")
    with logstore.connect(endpoints, timeout=60) as log, log.producer() as producer:
        for lines in (LINES[:100], LINES[100:]):
            last = [producer.append(line) for line in lines][-1].result(60).last
            # what node 3 writes after this knows that it is committed
            assert log.admin.watermarks(replica=3, min_lsn=last).visible_lsn == last
    run("logstore cluster down --dir old")
    for node in (1, 2):
        shutil.rmtree(tmp_path / "old" / f"node-{node}")
    text = text_of(Path("docs/runbooks/majority-lost.md")).replace("127.0.0.1:7100", endpoints[0])
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    said = [run(block) for block in blocks]
    assert len(said) == 6
    assert "was gone" in said[0]
    assert "committed for certain: LSN 1 to " in said[1]
    assert "nothing is deleted" in said[2]
    assert "200 payloads of it" in said[4]
    assert "chains are equal up to LSN 200" in said[5]
    [aside] = (tmp_path / "old").glob("node-3.aside-*")
    assert (aside / "meta.a").exists()
    with logstore.connect(endpoints, timeout=60) as log:
        found = [payload for batch in log.read(1, 200) for payload in batch.payloads()]
        assert found == LINES
        with log.producer() as producer:
            assert producer.append(b"and on").result(60).first == 201
