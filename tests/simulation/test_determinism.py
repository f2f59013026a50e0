"""One seed is one history: twice, traced or not, under any PYTHONHASHSEED, for any outcome."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import msgspec
import pytest

from actors.simulation.faults.draw import draw_script
from actors.simulation.faults.script import FaultClass, FaultKind, Script
from actors.simulation.result import SeedResult
from actors.simulation.run import run_seed
from logstore.raft import replication
from tests.simulation.quiet_cluster import SECOND_NS
from tests.tidy.repository import ROOT

SEED = 3
# Everything on, for a short time.
HORIZON_NS = 8 * SECOND_NS
RUN = "from tests.simulation.test_determinism import say_history; say_history()"


def full_script(seed: int) -> Script:
    """Every class of fault, the first seconds of them."""
    script = draw_script(seed, replicas=3, classes=tuple(FaultClass))
    ground = msgspec.structs.replace(script.ground, safety_ns=HORIZON_NS)
    faults = tuple(each for each in script.faults if each.at_ns < HORIZON_NS)
    return msgspec.structs.replace(script, ground=ground, faults=faults)


def history(seed: int = SEED, trace: Callable[[str], None] | None = None) -> bytes:
    """The whole result of a run, except how long it took."""
    result = run_seed(seed, script=full_script(seed), trace=trace)
    return msgspec.json.encode(msgspec.structs.replace(result, wall_s=0.0))


def say_history() -> None:
    sys.stdout.write(history().decode())


@pytest.mark.long
@pytest.mark.slow
def test_a_seed_gives_the_same_history_with_a_trace_and_without_and_another_one_another() -> None:
    lines: list[str] = []
    traced = history(trace=lines.append)
    assert history() == traced
    assert history(SEED + 1) != traced
    result = msgspec.json.decode(traced, type=SeedResult)
    assert result.appends_acknowledged > 0
    injected = result.faults_injected
    assert len(injected) >= 5
    assert len(lines) > 1_000
    assert sum("fault " in line for line in lines) == sum(
        injected.get(kind, 0) for kind in FaultKind
    )


@pytest.mark.long
@pytest.mark.slow
def test_a_seed_gives_the_same_history_under_every_hash_seed() -> None:
    said = []
    for hash_seed in ("1", "77"):
        done = subprocess.run(
            [sys.executable, "-c", RUN],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            timeout=60,
        )
        said.append(done.stdout)
    here = history()
    assert said == [here, here]


def test_a_failure_is_the_same_failure_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        replication, "commit_candidate", lambda voters, matches: max(matches.values())
    )
    first, second = run_seed(SEED), run_seed(SEED)
    assert first.violations
    assert first.violations == second.violations
    assert first.event_hash == second.event_hash
