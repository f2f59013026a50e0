"""docs/examples/single_writer.py on a real cluster: two writers at once, changes of leader amid
them, and no command in the log that was decided on a state other than the one before it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

import logstore
from docs.examples.single_writer import Book, BookWriter, Command, Decide, deposit, move
from logstore.cli.embedded import EmbeddedCluster, poll_until
from logstore.format.level import EXPECTED_LSN_LEVEL
from tests.cluster.one_cluster import CLI_PATIENCE_S, running_cluster
from tests.tidy.repository import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
EXAMPLE = ROOT / "docs/examples/single_writer.py"
ROUNDS = 30
COINS = 2 * ROUNDS
TRANSFERS = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with running_cluster(tmp_path) as cluster:
        yield cluster


def at_its_level(log: logstore.LogClient) -> None:
    """A new log is raised once every replica was heard."""
    assert poll_until(lambda: log.admin.format_levels().level >= EXPECTED_LSN_LEVEL, 60)


def seen_by(decide: Decide, barrier: Barrier | None = None) -> Decide:
    """The same, which writes down on which balances it was decided, and waits the first time until
    the other writer has decided, too."""
    waits = [barrier] if barrier is not None else []

    def note(balances: Mapping[str, int]) -> Command | None:
        command = decide(balances)
        if command is None:
            return None
        if waits:
            waits.pop().wait(timeout=60)
        return {**command, "seen": json.dumps(balances, sort_keys=True)}

    return note


def write(endpoints: list[str], name: str, barrier: Barrier) -> int:
    """Move coins from ann, each decided at once with one of the other writer's, until there are
    none; how often that one was faster."""
    with logstore.connect(endpoints, timeout=60) as log:
        writer = BookWriter(log, name)
        writer.read_up_to(log.admin.commit_lsn())
        for _ in range(ROUNDS):
            assert writer.append(seen_by(move("ann", name, 1), barrier)) is not None
        barrier.wait(timeout=60)
        assert writer.append(seen_by(move("ann", name, 1))) is None
        writer.close()
        return writer.refused


@pytest.mark.long
def test_two_writers_at_once_never_decide_on_a_stale_state(cluster: EmbeddedCluster) -> None:
    """SAFETY E11, FAULTS K14."""
    with logstore.connect(cluster.endpoints, timeout=60) as log, ThreadPoolExecutor(2) as threads:
        at_its_level(log)
        bank = BookWriter(log, "bank")
        assert bank.append(seen_by(deposit("ann", COINS))) == 1
        bank.close()
        barrier = Barrier(2)
        writers = [
            threads.submit(write, cluster.endpoints, name, barrier) for name in ("one", "two")
        ]
        for _ in range(TRANSFERS):
            log.admin.transfer()
        assert sum(each.result(240) for each in writers) >= ROUNDS  # of each two one was too late
        book = Book()
        with log.consumer("earliest", end_lsn=log.admin.commit_lsn()) as records:
            for record in records:
                command = json.loads(record.payload)
                assert json.loads(command["seen"]) == book.balances
                book.apply(record.lsn, record.payload)
        assert book.balances == {"ann": 0, "one": ROUNDS, "two": ROUNDS}


@pytest.mark.long
def test_the_example_runs_as_it_says(cluster: EmbeddedCluster) -> None:
    with logstore.connect(cluster.endpoints, timeout=60) as log:
        at_its_level(log)

    def run(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, str(EXAMPLE), ",".join(cluster.endpoints), *arguments]
        done = subprocess.run(
            command, cwd=ROOT, timeout=CLI_PATIENCE_S, text=True, check=False, capture_output=True
        )
        return done.returncode, done.stdout

    assert run("till-1", "deposit", "ann", "100") == (0, "LSN 1 {'ann': 100}\n")
    assert run("till-2", "move", "ann", "bob", "30") == (0, "LSN 2 {'ann': 70, 'bob': 30}\n")
    status, said = run("till-1", "move", "ann", "bob", "71")
    assert (status, said) == (1, "refused: not enough {'ann': 70, 'bob': 30}\n")
