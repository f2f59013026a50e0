"""The runbooks of members, docs/runbooks/disk-lost.md, replace-a-machine.md, grow-and-shrink.md and
move-a-cluster.md, as they stand: each block in order, on a cluster of its own ports."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import pytest

import logstore
from logstore.cli.cluster_folder import read_state
from logstore.cli.embedded import make_small_config, poll_until
from logstore.cli.free_ports import find_free_ports
from logstore.cli.replica_process import kill_replica, wait_gone
from logstore.config import Config, render_config
from logstore.settings import NodeSettings
from tests.cluster.document_blocks import (
    REAP_S,
    Step,
    endpoints_of,
    run_block,
    run_step,
    steps_of,
    with_ports_of,
)
from tests.tidy.repository import text_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
FOUNDERS = 3
NODES = 6  # that the runbooks name
LINES = [b"line %d" % number for number in range(300)]
STOP_S = 30.0


class Site(NamedTuple):
    """`folder` is where commands are given; the cluster is in `log` there. `named` has every node
    that the runbooks name, `founders` those that begin."""

    folder: Path
    founders: Config
    named: Config

    def play(self, runbook: str, only: slice = slice(None)) -> list[str]:
        """What the blocks of the runbook say, each of which must be what it has below."""
        text = text_of(Path(f"docs/runbooks/{runbook}.md"))
        for node in self.named.nodes:  # in a line of a configuration file
            text = text.replace(f"port = {7_090 + 10 * node.node}", f"port = {node.port}")
        steps = steps_of(with_ports_of(self.named, text))
        return [run_step(self.folder, self.founders, Step(*each)) for each in steps[only]]

    def run(self, command: str) -> str:
        return run_block(self.folder, self.founders, command)

    def log_file(self) -> Path:
        return self.folder / "log" / "cluster.toml"

    def lose_disk(self, node: int) -> None:
        state = read_state(self.folder / "log")
        assert state is not None
        row = next(each for each in state.nodes if each.node == node)
        kill_replica(row)
        assert wait_gone(row, REAP_S)
        shutil.rmtree(self.folder / "log" / f"node-{node}")

    def check(self, voters: list[int], endpoints: list[str] | None = None) -> None:
        """Who votes, and that each of them has every line."""
        with logstore.connect(endpoints or endpoints_of(self.founders), timeout=60) as log:
            found = log.admin.members().members
            assert sorted(each.number for each in found if each.is_voter) == voters
            assert len(found) == len(voters)
            for node in voters:
                batches = log.read(1, len(LINES), replica=node)
                assert [bytes(each) for one in batches for each in one.payloads()] == LINES


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Three replicas run, with the lines in their log."""
    founders = make_small_config(FOUNDERS, Random(os.urandom(8)))
    ports = find_free_ports(NODES - FOUNDERS, Random(os.urandom(8)))
    more = [NodeSettings(node=FOUNDERS + 1 + at, port=port) for at, port in enumerate(ports)]
    named = msgspec.structs.replace(founders, nodes=[*founders.nodes, *more])
    site = Site(tmp_path, founders, named)
    site.log_file().parent.mkdir()
    site.log_file().write_text(render_config(founders), encoding="utf-8")
    try:
        site.run("logstore cluster up --dir log")
        endpoints = endpoints_of(founders)
        with logstore.connect(endpoints, timeout=60) as log, log.producer() as producer:
            [producer.append(line) for line in LINES][-1].result(60)
        yield site
    finally:
        stop_served(tmp_path.resolve())
        state = read_state(tmp_path / "log")
        for row in state.nodes if state else ():
            kill_replica(row)
            wait_gone(row, REAP_S)


def stop_served(folder: Path) -> None:
    """Stop every `logstore serve` that a block has left running in the folder."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in served_in(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if poll_until(lambda: not served_in(folder), STOP_S):
            return
    raise AssertionError(f"replicas still run in {folder}: {served_in(folder)}")


def served_in(folder: Path) -> list[int]:
    """Supervisors that were started in the folder: by this name, or as `serve` a moment before."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes().replace(b"\0", b" ").split()
            if {b"serve", b"supervisor"} & set(words) and (path / "cwd").resolve() == folder:
                found.append(int(path.name))
    return found


@pytest.mark.long
@pytest.mark.runbook("disk-lost")
def test_a_lost_disk_is_replaced_by_itself_or_by_an_operator(site: Site) -> None:
    site.run("logstore upgrade && logstore transfer 1")
    site.lose_disk(3)
    said = site.play("disk-lost", slice(4))
    assert len(said) == 4
    site.run("logstore cluster down --dir log")
    text = site.log_file().read_text(encoding="utf-8")
    assert text.count('replace_lost = "auto"') == 1
    site.log_file().write_text(text.replace('"auto"', '"manual"', 1), encoding="utf-8")
    site.run("logstore cluster up --dir log && logstore transfer 1")
    site.lose_disk(3)
    site.run("logstore cluster up --dir log")
    said = site.play("disk-lost", slice(4, None))
    assert len(said) == 2
    site.check([1, 2, 3])


@pytest.mark.long
@pytest.mark.runbook("replace-a-machine")
def test_a_machine_is_replaced_by_another_one(site: Site) -> None:
    site.run("logstore upgrade")
    assert len(site.play("replace-a-machine")) == 6
    assert served_in(site.folder.resolve())  # what is to be stopped at the end is found
    assert not re.search(r"^node = 2$", site.log_file().read_text(encoding="utf-8"), re.MULTILINE)
    # the folder's other replicas are started as before, and know the new one for a member
    assert "node 3 " in site.run("logstore cluster up --dir log")
    site.check([1, 3, 4])


@pytest.mark.long
@pytest.mark.runbook("grow-and-shrink")
def test_a_cluster_grows_to_five_and_shrinks_to_three(site: Site) -> None:
    said = site.play("grow-and-shrink", slice(1))
    # the generated node has the next port of its own: it is not the one that the runbook names
    assert len(said) == 1
    assert len(site.play("grow-and-shrink", slice(1, 7))) == 6
    site.run("logstore member remove 4 && logstore cluster down --dir log --node 4")
    refused = site.run("logstore cluster up --dir log --replicas 4 || test $? = 2")
    assert "node 4 was a member, and was removed: `logstore cluster forget 4" in refused
    assert "is no member of the cluster" in site.run("logstore cluster up --dir log")
    refused = site.run("logstore cluster forget 3 --dir log || test $? = 2")
    assert "node 3 is a member of the cluster, voter" in refused
    assert len(site.play("grow-and-shrink", slice(7, None))) == 1
    assert list((site.folder / "log").glob("node-4.aside-*"))
    site.check([1, 2, 3])


@pytest.mark.long
@pytest.mark.runbook("move-a-cluster")
def test_a_cluster_moves_to_other_addresses(site: Site) -> None:
    endpoints = endpoints_of(site.founders)
    with logstore.connect(endpoints, timeout=60) as log, log.producer() as producer:
        steps = 8
        for at in range(steps):
            assert len(site.play("move-a-cluster", slice(at, at + 1))) == 1
            last = producer.append(b"after step %d" % at).result(60).last  # it follows
        assert not site.play("move-a-cluster", slice(steps, None))
        assert last == len(LINES) + steps + 1
    site.check([4, 5, 6], endpoints_of(site.named)[FOUNDERS:])
