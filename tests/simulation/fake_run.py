"""A stand-in for the run of a seed, by the same signature: what it answers depends on the seed.

Every thirteenth seed breaks I3 as long as its script has a kill in it, seed 1,000 raises, seed
2,000 ends its process, and from 5,000 on every fifth one breaks I7.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from actors.simulation.checkers.invariant import Violation
from actors.simulation.faults.draw import draw_script
from actors.simulation.faults.script import FaultClass, FaultKind, Script
from actors.simulation.oracle.reach import MUST_REACH
from actors.simulation.result import SeedResult

RAISES = 1_000
DIES = 2_000
BREAKS_I7 = 5_000


def run_seed(
    seed: int,
    *,
    replicas: int | None = None,
    classes: Sequence[FaultClass] | None = None,
    script: Script | None = None,
    trace: Callable[[str], None] | None = None,
) -> SeedResult:
    if seed == RAISES:
        raise ArithmeticError("the world is broken")
    if seed == DIES:
        os._exit(9)
    if script is None:
        script = draw_script(seed, replicas=replicas, classes=classes)
    kinds = [fault.kind for fault in script.faults]
    if trace is not None:
        for kind in kinds:
            trace(f"fault {kind}")
    violations = []
    if seed % 13 == 0 and FaultKind.KILL_REPLICA in kinds:
        violations.append(Violation("I3", f"node {script.ground.replicas} differs", 5_000_000_000))
    if seed >= BREAKS_I7 and seed % 5 == 0:
        violations.append(Violation("I7", "twice", 1))
    return SeedResult(
        seed=seed,
        simulated_ns=30_000_000_000,
        wall_s=0.5,
        events=1_000,
        appends_acknowledged=10,
        violations=tuple(violations),
        faults_injected={kind: kinds.count(kind) for kind in set(kinds)},
        reached={MUST_REACH[seed % len(MUST_REACH)].name: 1},
        event_hash=f"{seed:08x}",
    )
