"""The producers of docs/examples against real replicas whose leader is killed: every line is in the
log once, in order, at the LSN that was printed (SAFETY E9).

They were written from PROTOCOL.md, section 12, alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest

import logstore
from logstore.cli.free_ports import find_free_ports
from logstore.settings import PORTS_PER_NODE
from tests.faults.quick_cluster import quick_cluster, quick_config

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
LINES_MAX = 150
FIRST, SECOND = 500, 1_500  # lines before and after the leader is killed
SEEN_BEFORE_KILL = 100
PATIENCE_S = 90.0
INSTALL_S = 300.0
pytestmark = pytest.mark.slow


def node_command() -> list[str]:
    """How to run produce.js; installs what its package.json names, once in this checkout."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not installed: the example in JavaScript is not run")
    modules = EXAMPLES / "node_modules"
    if not (modules / "zeromq").exists():
        with tempfile.TemporaryDirectory(dir=EXAMPLES, prefix="node_modules-") as folder:
            shutil.copy(EXAMPLES / "package.json", folder)
            installed = subprocess.run(
                [npm, "install", "--no-package-lock", "--no-audit", "--ignore-scripts"],
                cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False,
            )  # fmt: skip
            assert installed.returncode == 0, f"npm cannot install zeromq: {installed.stderr}"
            try:
                (Path(folder) / "node_modules").rename(modules)
            except OSError:  # another run was faster
                assert (modules / "zeromq").exists()
    return [node, str(EXAMPLES / "produce.js")]


def python_command() -> list[str]:
    return [sys.executable, str(EXAMPLES / "produce.py")]


@contextmanager
def running(command: list[str], endpoints: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with subprocess.Popen(
        [*command, ",".join(endpoints)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        bufsize=0,  # what `readline` reads ahead would be lost to `communicate`
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def lines_of(start: int, count: int) -> list[bytes]:
    return [
        b"line %d %s" % (number, b"x" * (number % 97)) for number in range(start, start + count)
    ]


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("command_of", [python_command, node_command], ids=["python", "node"])
def test_an_example_appends_each_line_once_and_in_order_though_its_leader_is_killed(
    command_of, tmp_path: Path
) -> None:
    command = command_of()
    lines = lines_of(0, FIRST + SECOND)
    with quick_cluster(tmp_path, quick_config()) as cluster:
        with running(command, cluster.endpoints) as producer:
            assert producer.stdin is not None
            assert producer.stdout is not None
            first = b"\n".join(lines[:FIRST]) + b"\n"
            assert producer.stdin.write(first) == len(first)  # a pipe has room for it
            printed = [producer.stdout.readline() for _ in range(SEEN_BEFORE_KILL)]
            killed = cluster.wait_for_leader()
            cluster.kill(killed)
            rest, errors = producer.communicate(b"\n".join(lines[FIRST:]) + b"\n", PATIENCE_S)
            assert producer.returncode == 0, errors.decode()
        acknowledged = dict(row.split(b"\t") for row in (*printed, *rest.splitlines(keepends=True)))
        with logstore.connect(cluster.endpoints, timeout=PATIENCE_S) as log:
            batches = list(log.read(1, log.admin.commit_lsn()))
        payloads = [bytes(payload) for batch in batches for payload in batch.payloads()]
        assert payloads == lines
        told = {lsn: line for lsn, line in acknowledged.items() if lsn != b"?"}
        assert told == {b"%d" % lsn: lines[lsn - 1] + b"\n" for lsn in map(int, told)}
        assert len(printed) + len(rest.splitlines()) == len(lines)
        assert len(told) > len(lines) * 0.9  # an LSN that is not told is one that left the window


@pytest.mark.timeout(300)
@pytest.mark.parametrize("command_of", [python_command, node_command], ids=["python", "node"])
def test_an_example_that_is_told_of_one_follower_finds_the_leader(
    command_of, tmp_path: Path
) -> None:
    command = command_of()
    with quick_cluster(tmp_path, quick_config()) as cluster:
        leader = cluster.wait_for_leader()
        follower = cluster.endpoints[leader % len(cluster.endpoints)]
        with running(command, [follower]) as producer:
            printed, errors = producer.communicate(b"one\ntwo\n", PATIENCE_S)
        assert (printed, producer.returncode) == (b"1\tone\n2\ttwo\n", 0), errors.decode()


@pytest.mark.timeout(300)
def test_nodes_that_are_eight_ports_apart_are_appended_to_like_any_others(tmp_path: Path) -> None:
    """As configurations of before there was a produce port may be: it lies above all of them."""
    config = quick_config()
    (base,) = find_free_ports(1, Random(), run=PORTS_PER_NODE * 3 + 3)
    nodes = [
        msgspec.structs.replace(node, port=base + PORTS_PER_NODE * place)
        for place, node in enumerate(config.nodes)
    ]
    config = msgspec.structs.replace(config, nodes=nodes)
    assert [config.produce_port(node) for node in (1, 2, 3)] == [base + 24, base + 25, base + 26]
    with quick_cluster(tmp_path, config) as cluster:
        with running(python_command(), cluster.endpoints[:1]) as producer:
            printed, errors = producer.communicate(b"one\ntwo\n", PATIENCE_S)
        assert (printed, producer.returncode) == (b"1\tone\n2\ttwo\n", 0), errors.decode()


def test_an_example_says_what_is_wrong_with_a_cluster_without_a_produce_port(
    tmp_path: Path,
) -> None:
    config = quick_config()
    process = msgspec.structs.replace(config.process, produce=False)
    with quick_cluster(tmp_path, msgspec.structs.replace(config, process=process)) as cluster:
        with running(python_command(), cluster.endpoints) as producer:
            _, errors = producer.communicate(b"one\n", PATIENCE_S)
        assert producer.returncode == 1
        assert b"too old, or has no such port" in errors


def test_the_examples_are_short_enough_to_read() -> None:
    for name in ("produce.py", "produce.js"):
        text = (EXAMPLES / name).read_text(encoding="utf-8").splitlines()
        assert len(text) <= LINES_MAX, name
        assert max(map(len, text)) <= 100, name


def test_what_the_example_needs_is_pinned() -> None:
    package = json.loads((EXAMPLES / "package.json").read_text(encoding="utf-8"))
    assert all(version[:1].isdigit() for version in package["dependencies"].values())
