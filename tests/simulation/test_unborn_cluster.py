"""A cluster that could not bootstrap under faults does so once they are over."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec

from actors.simulation.cluster import SimulatedCluster
from actors.simulation.faults.draw import draw_script
from actors.simulation.faults.script import Fault, FaultKind
from actors.simulation.run import run_seed

SECOND = 1_000_000_000


def test_a_cluster_that_never_came_to_be_is_healed_with_all_its_replicas() -> None:
    """All configured nodes take part in a bootstrap (SAFETY L2), so a majority cannot begin."""
    script = draw_script(5, replicas=3, classes=())
    links = tuple((a, b) for a in range(1, 4) for b in range(1, 4) if a != b)
    cut = Fault(0, FaultKind.PARTITION, links=links, for_ns=60 * SECOND, mode="drop")
    ground = msgspec.structs.replace(script.ground, safety_ns=SECOND)
    result = run_seed(5, script=msgspec.structs.replace(script, ground=ground, faults=(cut,)))
    assert (result.violations, result.error) == ((), "")
    assert result.appends_acknowledged > 0


def may_lose(node: int, *, formed: tuple[int, ...]) -> bool:
    """Of three founders, of which these have formed the cluster."""
    record = SimpleNamespace(
        replicas={each: each for each in (1, 2, 3)},
        is_member=lambda _: True,
        electorates_in_force=lambda: [SimpleNamespace(is_majority=lambda rest: len(rest) > 1)],
    )
    cluster: Any = SimpleNamespace(
        ledger=SimpleNamespace(record=record),
        observer=SimpleNamespace(voters=dict.fromkeys(formed)),
        lost=(),
        excused=(),
        old_disks_in={},
    )
    cluster._is_whole = partial(SimulatedCluster._is_whole, cluster)
    return SimulatedCluster.may_lose(cluster, node)


def test_no_founder_is_lost_before_a_majority_of_the_others_has_formed() -> None:
    assert not may_lose(1, formed=(1,))
    assert not may_lose(1, formed=(1, 2))
    assert may_lose(1, formed=(1, 2, 3))
