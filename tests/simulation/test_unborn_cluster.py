"""A cluster that could not bootstrap under faults does so once they are over."""

from __future__ import annotations

import msgspec

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
