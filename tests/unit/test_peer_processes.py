"""Processes that the comparison with peers talks to: lines in and out, no wait without end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import psutil
import pytest

from benchmarks.peers import failover
from benchmarks.peers.failover import Failover, first_sent_after, kill_leaders
from benchmarks.peers.line_process import LineProcess
from benchmarks.peers.loads import FLUSHED_ON_MAJORITY
from benchmarks.peers.peer import Peer
from benchmarks.peers.servers import NODES, Client, ServerCluster, free_ports
from logstore.cli.embedded import poll_until
from logstore.errors import Unreachable

PATIENCE_S = 30.0
S = 1_000_000_000
Shell = Callable[[str], LineProcess]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A process of a line of shell; ended after the test."""
    begun: list[LineProcess] = []

    def begin(script: str) -> LineProcess:
        begun.append(LineProcess(["sh", "-c", script], tmp_path / "log"))
        return begun[-1]

    yield begin
    for each in begun:
        each.close()


def test_a_process_is_asked_and_answers(shell: Shell) -> None:
    process = shell("while read line; do echo got $line; done")
    assert process.ask("this", PATIENCE_S) == "got this"
    assert process.ask("that", PATIENCE_S) == "got that"


def test_several_lines_at_once_are_heard_one_by_one(shell: Shell) -> None:
    process = shell("printf 'one\\ntwo\\n'")
    assert [process.hear(PATIENCE_S), process.hear(PATIENCE_S)] == ["one", "two"]
    assert process.hear_or_end(PATIENCE_S) == ""


def test_a_process_that_ends_or_is_silent_is_told_with_what_it_wrote(shell: Shell) -> None:
    with pytest.raises(Unreachable, match="sh ended with status 3; it wrote: a reason"):
        shell("echo a reason >&2; exit 3").hear_or_end(PATIENCE_S)
    with pytest.raises(Unreachable, match="sh has ended"):
        shell("exit 0").hear(PATIENCE_S)
    with pytest.raises(Unreachable, match="said nothing for 0.01 s"):
        shell("exec cat").hear(0.01)


def test_draining_counts_lines_and_keeps_the_half_one(shell: Shell) -> None:
    process = shell("printf 'one\\ntwo\\nthr'; read line; printf 'ee\\n'; exec cat")
    lines = 0

    def both_were_heard() -> bool:
        nonlocal lines
        lines += process.drain(0.01)
        return lines == 2

    assert poll_until(both_were_heard, PATIENCE_S)
    process.tell("on")
    assert process.hear(PATIENCE_S) == "three"


def test_an_append_on_its_way_at_the_kill_does_not_count(shell: Shell) -> None:
    """It may have been taken before the kill, and be acknowledged after it."""
    assert first_sent_after(shell("echo 90 95; echo 99 150; echo 101 160; exec cat"), 100) == 160


class Struck:
    """A peer and its probe. The kill is called at 1 s and has struck at 2 s."""

    def __init__(self) -> None:
        self.lines = iter(["0 1", f"{S + 1} {S + 2}", f"{2 * S + 1} {3 * S}"])
        self.done: list[str] = []

    def begin_probe(self) -> Struck:
        return self

    def wait_in_step(self) -> int:
        return 2

    def hear(self, _: float) -> str:
        return next(self.lines)

    def drain(self, _: float) -> int:
        return 1

    def kill(self, node: int) -> None:
        self.done.append(f"kill {node}")

    def killed_ns(self) -> int:
        return 2 * S

    def start(self, node: int) -> None:
        self.done.append(f"start {node}")


def test_a_failover_counts_from_before_the_kill_to_an_append_sent_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failover, "monotonic_ns", lambda: S)
    peer = Struck()
    found = [*kill_leaders(cast("Peer", peer), "x", FLUSHED_ON_MAJORITY, 1)]
    assert found == [Failover("x", FLUSHED_ON_MAJORITY, 1, 2, 2.0)]
    assert peer.done == ["kill 2", "start 2"]


class NoClient:
    def close(self) -> None:
        pass


def test_servers_are_killed_started_again_and_gone_in_the_end(tmp_path: Path) -> None:
    client: Client = NoClient()  # type: ignore[assignment]  # nothing is asked of it
    commands = {node: ["sh", "-c", f"echo node {node}; exec sleep 1000"] for node in NODES}
    cluster = ServerCluster(tmp_path, commands, client)
    for node in NODES:
        cluster.start(node)
    first = cluster.pids()
    cluster.kill(2)
    assert len(cluster.pids()) == 2
    cluster.start(2)
    assert len({*first, *cluster.pids()}) == 4
    for node in NODES:
        assert poll_until(lambda node=node: f"node {node}: node {node}" in cluster.logs(), 30.0)
    pids = cluster.pids()
    cluster.close()
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_every_node_has_a_port_of_its_own() -> None:
    assert len(set(free_ports())) == len(NODES)
