"""Runs the blocks of a document in order, as a reader does, on a cluster of its own ports.

A `text` block is what the `bash` block before it prints: its lines, in this order, among others.
There `…` stands for anything, and spaces for any number of them. A block that only asks, or hands
leadership over, is given again until it prints that, as its reader would.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from logstore.cli.cluster_folder import read_state
from logstore.cli.embedded import make_small_config, poll_until
from logstore.cli.replica_process import kill_replica, wait_gone
from logstore.config import Config, render_config
from logstore.settings import PortOffset

CONFIG_NAME = "ports.toml"
BLOCK_TIMEOUT_S = 120
REAP_S = 10.0
needs_curl = pytest.mark.skipif(
    not shutil.which("curl"), reason="the runbook asks /metrics, and curl is not installed"
)
ASKED_FOR_S = 60.0
ASKED_EVERY_MS = 500
_REPEATED = (
    "curl ", "logstore cluster status", "logstore lag", "logstore member list", "logstore status",
    "logstore transfer", "logstore upgrade", "logstore verify",
)  # fmt: skip
_STEP = re.compile(
    r"^ *```bash\n(.*?)^ *```\n(?:\s*^ *```text\n(.*?)^ *```\n)?", re.DOTALL | re.MULTILINE
)


class Step(NamedTuple):
    """A block of commands, and the lines that it prints."""

    command: str
    lines: list[str]


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
    done = _run(folder, config, text, language)
    assert done.returncode == 0, f"{text}\n{done.stdout}"
    return done.stdout


def _run(
    folder: Path, config: Config, text: str, language: str
) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "LOGSTORE_ENDPOINT": ",".join(endpoints_of(config)),
    }
    command = ["bash", "-euo", "pipefail", "-c", text]
    if language == "python":
        command = [sys.executable, "-W", "error", "-c", text]
    return subprocess.run(
        command, cwd=folder, env=environment, timeout=BLOCK_TIMEOUT_S, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def steps_of(text: str) -> list[Step]:
    """Every block of commands, with the lines below it."""
    found = (map(textwrap.dedent, match.groups("")) for match in _STEP.finditer(text))
    return [Step(command, lines.splitlines()) for command, lines in found]


def sections_of(text: str) -> dict[str, str]:
    """What is below each heading of the second level."""
    parts = text.split("\n## ")[1:]
    return {head: body for head, _, body in (part.partition("\n") for part in parts)}


def with_ports_of(config: Config, text: str) -> str:
    """The text with this cluster's ports for those of `cluster up`."""
    for node in config.node_ids():
        for offset in PortOffset:
            said, own = f":{7_090 + 10 * node + offset}", f":{config.port(node, offset)}"
            text = re.sub(rf"{said}\b", own, text)
    return text


def run_step(folder: Path, config: Config, step: Step) -> str:
    """What its commands say, which has the lines of the step in their order; the exit status of the
    last one is 0."""
    command = with_ports_of(config, step.command)
    done = [_run(folder, config, command, "bash")]

    def is_as_written() -> bool:
        if done[-1].returncode == 0 and not missing_line(step.lines, done[-1].stdout):
            return True
        done.append(_run(folder, config, command, "bash"))
        return False

    if command.startswith(_REPEATED):
        poll_until(is_as_written, ASKED_FOR_S, look_ms=ASKED_EVERY_MS)
    last = done[-1]
    missing = missing_line(step.lines, last.stdout)
    assert last.returncode == 0, f"{command}\n{last.stdout}"
    assert not missing, f"{command}does not say {missing!r}, but\n{last.stdout}"
    return last.stdout


def missing_line(lines: list[str], said: str) -> str:
    """The first of the lines that is not there after those before it; empty: all are."""
    left = iter(" ".join(line.split()) for line in said.splitlines())
    for line in lines:
        if not any(re.fullmatch(pattern_of(line), each) for each in left):
            return line
    return ""


def pattern_of(words: str) -> str:
    """What matches them, with anything where they have `…`."""
    return ".*".join(map(re.escape, " ".join(words.split()).split("…")))
