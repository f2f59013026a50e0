"""The shrinker finds what a failure needs, by synthetic failures whose cause is known."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from actors.simulation.faults.draw import draw_script
from actors.simulation.faults.script import Fault, FaultClass, FaultKind, Script
from actors.simulation.shrink import SAFETY_SHORTEST_NS, shrink

SECOND = 1_000_000_000


def never() -> bool:
    return False


def many_faults(*, replicas: int = 3) -> Script:
    """A drawn script of at least 30 faults."""
    for seed in range(1, 1_000):
        script = draw_script(seed, replicas=replicas, classes=None)
        if len(script.faults) >= 30:
            return script
    raise AssertionError("no seed has 30 faults")


def with_faults(script: Script, *faults: Fault) -> Script:
    return msgspec.structs.replace(script, faults=faults)


def holds_all(wanted: set[Fault]) -> Callable[[Script], bool]:
    return lambda script: wanted <= set(script.faults)


def kill(at_s: int, node: int, for_ns: int = SECOND) -> Fault:
    return Fault(at_s * SECOND, FaultKind.KILL_REPLICA, node=node, for_ns=for_ns)


@pytest.mark.parametrize("positions", [(0,), (29,), (3, 17), (0, 1, 2), (2, 11, 23, 28)])
def test_only_the_faults_that_the_failure_needs_are_left(positions: tuple[int, ...]) -> None:
    script = many_faults()
    wanted = {script.faults[position] for position in positions}

    smallest = shrink(script, holds_all(wanted), deadline=never)

    assert set(smallest.faults) == wanted


def test_a_failure_that_needs_no_fault_leaves_none_after_one_run() -> None:
    script = many_faults()
    runs = []

    def fails(candidate: Script) -> bool:
        runs.append(candidate)
        return True

    assert shrink(script, fails, deadline=never).faults == ()
    assert runs[0].faults == ()


def test_ddmin_needs_far_fewer_runs_than_there_are_subsets() -> None:
    script = many_faults()
    wanted = {script.faults[5], script.faults[20]}
    runs = 0

    def fails(candidate: Script) -> bool:
        nonlocal runs
        runs += 1
        return wanted <= set(candidate.faults)

    shrink(script, fails, deadline=never)

    assert runs < 4 * len(script.faults)


def test_the_horizon_ends_with_what_the_failure_needs() -> None:
    needed = kill(5, 1)
    script = with_faults(many_faults(), needed, kill(9, 2))

    smallest = shrink(
        script,
        lambda each: any(fault.at_ns == needed.at_ns for fault in each.faults),
        deadline=never,
    )

    assert needed.at_ns < smallest.ground.safety_ns <= needed.at_ns + 2 * SECOND


def test_a_failure_without_a_cause_shrinks_to_the_plainest_world() -> None:
    script = many_faults(replicas=5)
    ground = shrink(script, lambda _: True, deadline=never).ground

    assert ground.replicas == 3
    assert (ground.producers, ground.consumers) == (1, 1)
    assert (ground.batch_max_payloads, ground.payload_max_bytes) == (1, 8)
    assert (ground.ring_delay_ns, ground.counters_lag) == (0, False)
    assert ground.clock_offset_ns == ground.clock_drift_ppm == (0, 0, 0)
    assert SAFETY_SHORTEST_NS <= ground.safety_ns < 2 * SAFETY_SHORTEST_NS


def test_no_client_is_added() -> None:
    script = many_faults()
    one = msgspec.structs.replace(script.ground, producers=1, consumers=1)
    seen = []

    def fails(candidate: Script) -> bool:
        seen.append(candidate.ground.producers)
        return False

    shrink(msgspec.structs.replace(script, ground=one), fails, deadline=never)

    assert set(seen) == {1}


def test_five_replicas_become_the_three_that_the_failure_is_about() -> None:
    script = with_faults(
        many_faults(replicas=5),
        kill(2, 4),
        Fault(3 * SECOND, FaultKind.PARTITION, links=((2, 5), (5, 2)), for_ns=SECOND, mode="drop"),
        Fault(4 * SECOND, FaultKind.KILL_PROCESS, node=5, process="replicator-4"),
        kill(4, 1),
    )

    def fails(candidate: Script) -> bool:
        kinds = [fault.kind for fault in candidate.faults]
        return {FaultKind.PARTITION, FaultKind.KILL_PROCESS} <= set(kinds) and (
            kinds.count(FaultKind.KILL_REPLICA) >= 1
        )

    smallest = shrink(script, fails, deadline=never)

    assert smallest.ground.replicas == 3
    partition, process = (
        next(fault for fault in smallest.faults if fault.kind == kind)
        for kind in (FaultKind.PARTITION, FaultKind.KILL_PROCESS)
    )
    assert partition.links == ((1, 3), (3, 1))
    assert (process.node, process.process) == (3, "replicator-2")
    assert len(smallest.ground.clock_drift_ppm) == 3


def test_durations_are_halved_as_long_as_it_still_fails() -> None:
    script = with_faults(many_faults(), kill(3, 1, for_ns=8 * SECOND))

    smallest = shrink(
        script,
        lambda each: any(fault.for_ns >= SECOND // 3 for fault in each.faults),
        deadline=never,
    )

    (fault,) = smallest.faults
    assert fault.for_ns == SECOND // 2


def test_the_deadline_ends_the_search_with_the_best_so_far() -> None:
    script = many_faults()
    wanted = {script.faults[4]}
    runs = 0

    def fails(candidate: Script) -> bool:
        nonlocal runs
        runs += 1
        return wanted <= set(candidate.faults)

    smallest = shrink(script, fails, deadline=lambda: runs >= 3)

    assert runs == 3
    assert wanted < set(smallest.faults) < set(script.faults)


def test_what_is_left_fails_whatever_the_failure_is() -> None:
    """A failure that comes and goes with the number of faults: no step may lose it."""
    for seed in range(1, 30):
        script = draw_script(seed, replicas=None, classes=None)

        def fails(candidate: Script) -> bool:
            return len(candidate.faults) % 3 != 1 or candidate.ground.producers > 1

        if fails(script):
            assert fails(shrink(script, fails, deadline=never))


def test_a_shrunk_script_survives_its_file() -> None:
    script = many_faults()
    smallest = shrink(script, holds_all({script.faults[7]}), deadline=never)

    assert msgspec.json.decode(msgspec.json.encode(smallest), type=Script) == smallest
    assert all(isinstance(each, FaultClass) for each in smallest.classes)
