"""Every kind of fact is told by the world and read; every checker reads what it declares."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import get_args, get_type_hints

import pytest

import actors
from actors.observer import AdmissionOpened, Seen
from actors.simulation.checkers import client_facts, consequences, facts
from actors.simulation.checkers.catalogue import CHECKERS
from actors.simulation.checkers.reads import Kind
from actors.simulation.checkers.record import Record
from actors.simulation.faults.draw import draw_script
from actors.simulation.oracle.bounds import holdings
from actors.simulation.oracle.ledger import Ledger
from actors.simulation.oracle.reach import ReachObserver
from actors.simulation.run import _Run
from actors.topology import EGRESS, INGRESS, RAFT, WRITER
from logstore import limits
from logstore.format.peer_messages import PeerMessage
from logstore.raft.effects import Effect
from logstore.raft.events import Event
from tests.simulation.quiet_cluster import QuietCluster

FOLDER = Path(inspect.getfile(actors)).parent
SIMULATOR = FOLDER / "simulation"
CHECKERS_FOLDER = SIMULATOR / "checkers"
FACTS = [
    each
    for module in (facts, client_facts, consequences)
    for each in vars(module).values()
    if isinstance(each, type) and each.__module__ == module.__name__ and not each.__subclasses__()
]
SEEN = get_args(Seen)
PARTS = {*get_args(Event), *get_args(Effect), *get_args(PeerMessage)}


def sources(*folders: Path, but: Path | None = None) -> str:
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    return "".join(path.read_text("utf-8") for path in paths if but not in path.parents)


# Checkers of messages tell facts, as the world does.
WORLD = sources(SIMULATOR, but=CHECKERS_FOLDER) + sources(CHECKERS_FOLDER / "messages")
PRODUCT = sources(FOLDER, but=SIMULATOR)


READERS = [*CHECKERS, ReachObserver]


@pytest.mark.parametrize("fact", FACTS)
def test_every_kind_of_fact_is_told(fact: type) -> None:
    """The world tells it; a checker that keeps the record tells a consequence."""
    teller = sources(CHECKERS_FOLDER) if issubclass(fact, consequences.Consequence) else WORLD
    assert re.search(rf"\b{fact.__name__}\(", teller)


@pytest.mark.parametrize("seen", SEEN)
def test_everything_an_observer_can_see_is_shown_by_the_product(seen: type) -> None:
    assert re.search(rf"\b{seen.__name__}\(", PRODUCT)


def test_every_fact_that_is_told_is_read_and_nothing_else() -> None:
    """`ProcessObserver` turns `AdmissionOpened` into `TableRebuilt`."""
    table = Ledger(Record((1,), int, election_timeout_ns=1), ReachObserver((1,))).table
    known = {*FACTS, *SEEN} - {AdmissionOpened}
    assert known <= set(table)
    assert all(
        isinstance(kind, tuple) or kind in PARTS or any(issubclass(each, kind) for each in known)
        for kind in table
    )


def test_every_checker_has_a_row() -> None:
    names = [
        path.relative_to(FOLDER.parent).with_suffix("") for path in CHECKERS_FOLDER.rglob("*.py")
    ]
    modules = [import_module(".".join(name.parts)) for name in names]
    found = {
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == module.__name__ and kinds_of(each)
    }
    assert found == set(CHECKERS)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_each_method_takes_what_it_declares_to_read(reader: type) -> None:
    for method, kind in kinds_of(reader):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        is_part = PARTS.issuperset(kinds)
        assert is_part or any(issubclass(each, kinds[0]) for each in (*FACTS, *SEEN))
        taken = get_type_hints(method)[list(inspect.signature(method).parameters)[1 + is_part]]
        assert issubclass(kinds[0], get_args(taken) or (taken,)), (method, kind)


def kinds_of(reader: type) -> list[tuple[Callable[..., None], Kind]]:
    """What its methods declare to read."""
    return [
        (method, kind)
        for method in vars(reader).values()
        for when in ("reads", "reads_after")
        for kind in getattr(method, when, ())
    ]


def test_what_is_held_beyond_a_bound_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = QuietCluster().cluster
    for replica in cluster.replicas.values():
        replica.report_holdings()
    assert not cluster.has_problems
    monkeypatch.setattr(limits, "REQUESTS_PENDING_MAX", -1)
    cluster.replicas[1].report_holdings()
    assert [each.invariant for each in cluster.violations] == ["I14"]


@pytest.mark.parametrize(
    ("process", "names"),
    [
        (RAFT, {"coalesced messages", "deferred appends", "withheld answers", "reads"}),
        (WRITER, {"groups in flight"}),
        (INGRESS, {"requests", "held answers", "bytes lent", "readers of groups"}),
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
    replica, watch = quiet.replica(1), quiet.cluster.observer
    watch.tell(facts.ProcessActed(1, WRITER, replica.incarnation))
    assert not quiet.cluster.has_problems
    ended = replica.incarnation
    replica.kill()
    replica.start()
    watch.tell(facts.ProcessActed(1, WRITER, ended))
    assert [each.invariant for each in quiet.cluster.violations] == ["I15"]


@pytest.mark.parametrize("is_before", [True, False])
def test_only_what_comes_after_a_device_lost_what_it_owed_is_excused(is_before: bool) -> None:
    run = _Run(draw_script(1, replicas=3, classes=()), None)
    cluster, world = run.cluster, run.cluster.world
    if is_before:
        cluster.observer.add_error("it broke")
    world.run_until(1_000_000)
    cluster.excuse_rest(1)
    world.run_until(5_000_000)
    if not is_before:
        cluster.observer.add_error("it broke")
    result = run._result(0.0)
    assert (result.error, result.excused_ns) == ("it broke" if is_before else "", 4_000_000)


@pytest.mark.parametrize(
    ("flushed", "is_voter", "is_wrong"),
    [(["/node-1/1.raft"], True, True), (["/node-1/1.raft"], False, False), ([], True, False)],
)
def test_no_segment_is_opened_during_a_flush(
    flushed: list[str], is_voter: bool, is_wrong: bool
) -> None:
    """A start that writes a header anew opens none."""
    quiet = QuietCluster()
    observer, process = quiet.cluster.observer, quiet.replica(1).processes["writer"]
    durability = SimpleNamespace(flushed_after=lambda _node, _at_ns: flushed)
    observer._durability = durability  # type: ignore[assignment]
    if not is_voter:
        del observer.cores[1]
    observer.on_write(process, "/node-1/2.raft", 0, 4096, b"")
    assert ("I12" in {each.invariant for each in quiet.cluster.violations}) == is_wrong
