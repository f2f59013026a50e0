"""Every checker hears of what it checks in a run, not only in hand-broken histories."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import actors.simulation
from actors.simulation.faults.draw import draw_script
from actors.simulation.oracle import ledger as ledger_module
from actors.simulation.oracle.bounds import holdings
from actors.simulation.oracle.ledger import Ledger
from actors.simulation.run import _Run
from actors.topology import EGRESS, INGRESS, RAFT, WRITER
from logstore import limits
from tests.simulation.quiet_cluster import QuietCluster

FOLDER = Path(inspect.getfile(actors.simulation)).parent
SOURCES = [
    path.read_text("utf-8")
    for path in FOLDER.rglob("*.py")
    if path.parent.name != "checkers" and path != Path(inspect.getfile(ledger_module))
]
WORDS = [
    name
    for name, each in inspect.getmembers(Ledger((1,), election_timeout_ns=1), callable)
    if not name.startswith("_")
]


@pytest.mark.parametrize("word", WORDS)
def test_whatever_can_be_told_is_told_by_the_world(word: str) -> None:
    told = re.compile(rf"ledger\.{word}\b")
    assert any(told.search(source) for source in SOURCES)


def test_what_is_held_beyond_a_bound_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = QuietCluster().cluster
    for replica in cluster.replicas.values():
        replica.look_at_bounds()
    assert not cluster.has_problems
    monkeypatch.setattr(limits, "REQUESTS_PENDING_MAX", -1)
    cluster.replicas[1].look_at_bounds()
    assert [each.invariant for each in cluster.violations] == ["I14"]


@pytest.mark.parametrize(
    ("process", "names"),
    [
        (RAFT, {"patient messages", "deferred appends", "withheld answers", "reads"}),
        (WRITER, {"groups in flight"}),
        (INGRESS, {"requests", "held answers", "bytes lent"}),
        (EGRESS, {"requests", "damaged entries"}),
    ],
)
def test_a_process_has_its_bounded_things(process: str, names: set[str]) -> None:
    quiet = QuietCluster()
    actor = quiet.replica(quiet.leaders[0]).processes[process].actor
    found = list(holdings(actor))
    assert {name for name, _, _ in found} == names
    assert all(0 <= length <= bound for _, length, bound in found)


def test_a_disk_call_after_the_end_of_its_process_is_a_violation() -> None:
    quiet = QuietCluster()
    replica, watch = quiet.replica(1), quiet.cluster.watch
    watch.called(1, WRITER, replica.incarnation)
    assert not quiet.cluster.has_problems
    ended = replica.incarnation
    replica.kill()
    replica.start()
    watch.called(1, WRITER, ended)
    assert [each.invariant for each in quiet.cluster.violations] == ["I15"]


@pytest.mark.parametrize("is_before", [True, False])
def test_only_what_comes_after_a_device_lost_what_it_owed_is_excused(is_before: bool) -> None:
    run = _Run(draw_script(1, replicas=3, classes=()), None)
    cluster, world = run.cluster, run.cluster.world
    if is_before:
        cluster.watch.failed("it broke")
    world.run_until(1_000_000)
    cluster.forgive(1)
    world.run_until(5_000_000)
    if not is_before:
        cluster.watch.failed("it broke")
    result = run._result(0.0)
    assert (result.error, result.excused_ns) == ("it broke" if is_before else "", 4_000_000)
