"""docs/runbooks/node-dead.md as it stands: each block in order, on a cluster of its own ports of
which a replica is killed, and then another one."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import logstore
from logstore.cli.cluster_folder import read_state
from logstore.cli.embedded import poll_until
from logstore.cli.replica_process import ReplicaProcess, kill_replica, wait_gone
from logstore.config import Config
from tests.cluster.document_blocks import (
    CONFIG_NAME,
    endpoints_of,
    needs_curl,
    pattern_of,
    ports_for,
    run_block,
    run_step,
    sections_of,
    steps_of,
    with_ports_of,
)
from tests.cluster.one_cluster import run_cli
from tests.faults.damage import META_NAMES
from tests.tidy.repository import text_of

pytestmark = [
    pytest.mark.runbook("node-dead"),
    pytest.mark.slow,
    pytest.mark.timeout(400),
    needs_curl,
]
RUNBOOK = Path("docs/runbooks/node-dead.md")
DEAD = 3
LINES = [b"line %d" % number for number in range(300)]
REAP_S = 10.0
ELECTED_S = 60.0
# Of the table of messages; the test of docs/runbooks/full-disk.md has the last one.
IN_USE = "… is in use by another supervisor"
OLDER_COPY = "amnesia: … The folder is an older copy, or its device forgot what it had flushed"
ON_A_FULL_DISK = "its disk is full: free some space"


class Site(NamedTuple):
    """`folder` is where commands are given; the cluster is in `log` there."""

    folder: Path
    config: Config

    def up(self) -> str:
        command = f"logstore cluster up --config {CONFIG_NAME} --dir log || test $? = 1"
        return run_block(self.folder, self.config, command)

    def node_folder(self, node: int) -> Path:
        return self.folder / "log" / f"node-{node}"

    def process_of(self, node: int) -> ReplicaProcess:
        state = read_state(self.folder / "log")
        assert state is not None
        return next(row for row in state.nodes if row.node == node)

    def kill(self, node: int) -> None:
        row = self.process_of(node)
        kill_replica(row)
        assert wait_gone(row, REAP_S)

    def connect(self) -> logstore.LogClient:
        return logstore.connect(endpoints_of(self.config), timeout=60)

    def serve(self, node: int) -> str:
        """What `logstore serve` says, which does not start."""
        place = ["--config", str(self.folder / CONFIG_NAME), "--dir", str(self.node_folder(node))]
        done = run_cli(None, "serve", "--node", str(node), *place)
        assert done.returncode in (4, 70), done.stderr
        return (done.stdout + done.stderr).decode()


def _with_a_port_taken(act: Callable[[Site], str]) -> Callable[[Site], str]:
    def bring_about(site: Site) -> str:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", site.config.node(DEAD).port))
            listener.listen()
            return act(site)

    return bring_about


def _up_is_refused(site: Site) -> str:
    return run_block(site.folder, site.config, "logstore cluster up --dir log || test $? = 2")


def _serve_a_second_time(site: Site) -> str:
    site.up()
    return site.serve(DEAD)


def _up_with_another_nodes_folder(site: Site) -> str:
    for name in META_NAMES:
        shutil.copy(site.node_folder(1) / name, site.node_folder(DEAD))
    return site.up()


def _up_with_an_empty_folder(site: Site) -> str:
    shutil.rmtree(site.node_folder(DEAD))
    return site.up()


def _up_without_meta(site: Site) -> str:
    for name in META_NAMES:
        os.truncate(site.node_folder(DEAD) / name, 0)
    return site.up()


# Message of the table to what brings it about: none of them lets the replica acknowledge anything.
CAUSES: dict[str, Callable[[Site], str]] = {
    "port … of node 3 is in use by process …": _with_a_port_taken(_up_is_refused),
    "port … in use: stop the process that listens on …": _with_a_port_taken(
        lambda site: site.serve(DEAD)
    ),
    "… is node 1's, this is node 3: check the folder": _up_with_another_nodes_folder,
    "it has no place in the cluster": _up_with_an_empty_folder,
    "meta.a and meta.b are both damaged or missing": _up_without_meta,
}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ports_for(tmp_path, "log") as config:
        made = Site(tmp_path, config)
        made.up()
        yield made


@pytest.mark.long
@pytest.mark.parametrize("dead_leads", [False, True], ids=["a-follower", "the-leader"])
def test_every_block_of_the_runbook_runs_in_order(site: Site, dead_leads: bool) -> None:
    with site.connect() as log, log.producer() as producer:
        [producer.append(line) for line in LINES[:100]][-1].result(60)
        wanted = DEAD if dead_leads else 1
        assert poll_until(lambda: log.admin.transfer(wanted) == wanted, ELECTED_S)
        site.kill(DEAD)
        # no append is lost, and the producer finds the next leader
        [producer.append(line) for line in LINES[100:]][-1].result(60)
        assert poll_until(lambda: log.admin.status()["leader"] in (1, 2), ELECTED_S)

    sections = sections_of(text_of(RUNBOOK))
    said: dict[str, list[str]] = {}
    for head, text in sections.items():
        if head == "A second one dies":
            site.kill(2)
        said[head] = [run_step(site.folder, site.config, step) for step in steps_of(text)]
    assert [len(each) for each in said.values()] == [4, 1, 3, 4, 0]
    assert said["A second one dies"][2] == "line 0\nline 1\nline 2\n"
    with site.connect() as log:
        for node in site.config.node_ids():
            batches = log.read(1, len(LINES) + 1, replica=node)
            found = [bytes(each) for batch in batches for each in batch.payloads()]
            assert found == [*LINES, b"appended while node 3 is dead"]


@pytest.mark.long
def test_every_message_of_its_table_is_what_the_product_says(site: Site) -> None:
    site.kill(DEAD)
    kept = site.folder / "kept"
    site.node_folder(DEAD).rename(kept)
    for message, bring_about in CAUSES.items():
        shutil.copytree(kept, site.node_folder(DEAD), symlinks=True)
        said = said_in_time(site, message, bring_about)
        assert "Traceback" not in said
        site.kill(DEAD)
        if "in use" in message:  # it has started, so what it was before is an older copy
            shutil.rmtree(kept)
            site.node_folder(DEAD).rename(kept)
        else:
            shutil.rmtree(site.node_folder(DEAD))
    text = sections_of(text_of(RUNBOOK))["It does not start, or takes no part"]
    assert set(re.findall(r"^\| `(.*?)` \|", text, re.MULTILINE)) == {
        *CAUSES, IN_USE, OLDER_COPY, ON_A_FULL_DISK
    }  # fmt: skip
    shutil.copytree(kept, site.node_folder(DEAD), symlinks=True)
    said_in_time(site, IN_USE, _serve_a_second_time)
    said_in_time(site, "node 3 follows, pid", Site.up)
    with site.connect() as log, log.producer() as producer:
        last = producer.append(b"on its disk, too").result(60).last
        assert log.admin.watermarks(replica=DEAD, min_lsn=last).visible_lsn == last
    site.kill(DEAD)
    shutil.rmtree(site.node_folder(DEAD))
    kept.rename(site.node_folder(DEAD))
    said_in_time(site, OLDER_COPY, Site.up)


def said_in_time(site: Site, message: str, bring_about: Callable[[Site], str]) -> str:
    """What is said, which has the message, at once or when the cluster is brought up again: a slow
    replica does not answer yet."""
    pattern = pattern_of(with_ports_of(site.config, message))
    said = [bring_about(site)]

    def is_said() -> bool:
        if re.search(pattern, said[-1]):
            return True
        said.append(site.up())
        return False

    assert poll_until(is_said, ELECTED_S), "\n".join(said)
    return "".join(said)
