"""Scripts drawn from a seed: within bounds, repeatable, one class at a time, one good copy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import combinations

import msgspec
import pytest

from actors.simulation.faults.draw import (
    CLASS_EPISODES,
    FAULTS_A_SECOND,
    FAULTS_MAX,
    FAULTS_MIN,
    draw_script,
    vulnerable_nodes,
)
from actors.simulation.faults.draw_bootstrap import BOOTSTRAP_CLASSES
from actors.simulation.faults.draw_episodes import CALLS_MAX
from actors.simulation.faults.draw_ground import LEVEL_MAX, SAFETY_MAX_NS, SAFETY_MIN_NS
from actors.simulation.faults.draw_rot import ROT_KINDS
from actors.simulation.faults.script import Fault, FaultClass, FaultKind, Ground, RotPlace, Script
from logstore.format.batch import batch_size
from transport.command_ring import message_bytes_max

SEEDS = range(1, 401)
SECOND = 1_000_000_000


def drawn(seed: int) -> Script:
    return draw_script(seed, replicas=None, classes=None)


# An exact sequence makes its seed longer: a dozen election timeouts, and times for reconnections.
LONGEST_SEQUENCE_NS = 20 * SECOND
# As many as any seed has room for, and one more episode.
FEW_FAULTS = FAULTS_MIN + FAULTS_A_SECOND * SAFETY_MIN_NS // SECOND - 5


def alone(seed: int, *classes: FaultClass, replicas: int | None = 3) -> Script:
    return draw_script(seed, replicas=replicas, classes=classes)


@pytest.fixture(scope="module")
def scripts() -> list[Script]:
    return [drawn(seed) for seed in SEEDS]


# --- births ---


def test_a_few_clusters_are_struck_while_they_are_born(scripts: list[Script]) -> None:
    struck = [each for each in scripts if each.ground.is_struck_at_birth]
    assert 0.06 * len(scripts) < len(struck) < 0.2 * len(scripts)
    kinds = set()
    for script in struck:
        early = [each for each in script.faults if each.at_ns < 300_000_000]
        kinds |= {each.kind for each in early}
        assert early or not set(BOOTSTRAP_CLASSES) & set(script.classes)
    assert {FaultKind.DISK_STALL, FaultKind.PARTITION, FaultKind.POWER_CUT} <= kinds


# --- the same seed ---


def test_a_seed_gives_the_same_script_again(scripts: list[Script]) -> None:
    assert [drawn(script.seed) for script in scripts] == scripts
    assert len({script.faults for script in scripts}) == len(scripts)


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["0", "4242"])
def test_a_script_does_not_depend_on_the_hash_seed(hash_seed: str) -> None:
    code = (
        "import msgspec; from actors.simulation.faults.draw import draw_script; "
        "print(msgspec.json.encode([draw_script(s, replicas=None, classes=None) "
        "for s in range(1, 6)]).decode())"
    )
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert msgspec.json.decode(done.stdout, type=list[Script]) == [drawn(s) for s in range(1, 6)]


def test_the_classes_that_a_seed_drew_give_its_script_when_they_are_named(
    scripts: list[Script],
) -> None:
    for script in scripts[:100]:
        again = draw_script(
            script.seed, replicas=script.ground.replicas, classes=tuple(reversed(script.classes))
        )
        assert again == script


# --- the ground ---


def test_the_ground_keeps_its_ranges(scripts: list[Script]) -> None:
    for ground in (script.ground for script in scripts):
        assert SAFETY_MIN_NS <= ground.safety_ns <= SAFETY_MAX_NS + LONGEST_SEQUENCE_NS
        assert 34 <= ground.heartbeat_ms <= 200
        assert 5 * ground.heartbeat_ms <= ground.election_ms <= 7 * ground.heartbeat_ms
        assert 50_000 <= ground.link_delay_ns[0] <= ground.link_delay_ns[1] <= 5_000_000
        assert 100_000 <= ground.flush_ns[0] <= ground.flush_ns[1] <= 8_000_000
        assert 16 <= ground.segment_records <= 64
        assert 1 <= ground.flush_entries_max <= ground.segment_records // 4
        assert 16 << 10 <= ground.segment_bytes <= 128 << 10
        assert ground.ring_bytes <= 256 << 10
        assert 2 <= ground.producers <= 4
        assert 1 <= ground.consumers <= 3
        assert len(ground.clock_offset_ns) == len(ground.clock_drift_ppm) == ground.machines


def test_relations_of_the_configuration_hold(scripts: list[Script]) -> None:
    for ground in (script.ground for script in scripts):
        largest = max(ground.batch_max_bytes, ground.group_max_bytes)
        peers = ground.machines - 1
        assert ground.batch_max_bytes >= 4_096
        assert ground.group_max_bytes >= 4_096
        assert ground.bulk_window_bytes >= largest
        assert ground.ring_bytes >= 4 * largest + peers * ground.bulk_window_bytes
        assert ground.segment_bytes >= 4 * largest
        assert message_bytes_max(ground.command_ring_bytes) >= 256


def test_twenty_appends_a_second_are_meant_and_the_largest_batch_fits(
    scripts: list[Script],
) -> None:
    for ground in (script.ground for script in scripts):
        assert ground.producers * SECOND / ground.append_every_ns >= 20
        payloads = ground.batch_max_payloads
        assert batch_size(payloads, payloads * ground.payload_max_bytes) <= ground.batch_max_bytes


def test_most_clusters_have_three_replicas_and_some_have_five(scripts: list[Script]) -> None:
    five = sum(script.ground.replicas == 5 for script in scripts)
    assert {script.ground.replicas for script in scripts} == {3, 5}
    assert 0.2 < five / len(scripts) < 0.32
    for replicas in (3, 5):
        assert draw_script(9, replicas=replicas, classes=None).ground.replicas == replicas


def test_clocks_and_rings_are_ideal_unless_their_class_is_on() -> None:
    others = [each for each in FaultClass if each is not FaultClass.MEMBERS]
    calm, wild = alone(5, FaultClass.LOSS).ground, alone(5, *others).ground
    assert set(calm.clock_offset_ns + calm.clock_drift_ppm) == {0}
    assert (calm.ring_delay_ns, calm.counters_lag) == (0, False)
    assert any(wild.clock_offset_ns)
    assert wild.ring_delay_ns > 0
    ideal: dict[str, object] = {
        name: getattr(calm, name)
        for name in ("clock_offset_ns", "clock_drift_ppm", "ring_delay_ns", "counters_lag")
    }
    assert msgspec.structs.replace(wild, **ideal) == calm


# --- the faults ---


def test_faults_are_in_order_within_the_safety_phase_and_bounded(scripts: list[Script]) -> None:
    for script in scripts:
        times = [fault.at_ns for fault in script.faults]
        assert times == sorted(times)
        assert len(times) <= FAULTS_MAX
        assert not times or 0 <= times[0] <= times[-1] < script.ground.safety_ns
    none = [script for script in scripts if not script.faults]
    assert all(set(script.classes) <= {FaultClass.RINGS} for script in none)
    # an exact sequence may leave no room for other faults
    few = [script for script in scripts if len(script.faults) < FAULTS_MIN // 2]
    assert len(few) < len(scripts) // 8


def test_every_fault_says_what_its_kind_needs(scripts: list[Script]) -> None:
    for script in scripts:
        for fault in script.faults:
            assert _complaint(fault, script.ground) == ""


def _complaint(fault: Fault, ground: Ground) -> str:
    nodes = range(1, ground.machines + 1)
    processes = {"writer", "raft", "ingress", "egress"}
    processes |= {f"replicator-{node}" for node in nodes if node != fault.node}
    needs: dict[FaultKind, bool] = {
        FaultKind.LINK_QUALITY: fault.for_ns > 0
        and any((fault.delay_ns, fault.loss, fault.duplication, fault.reordering)),
        FaultKind.PARTITION: fault.for_ns > 0 and fault.mode in ("drop", "hold", "reset"),
        FaultKind.DISCONNECT: True,
        FaultKind.KILL_PROCESS: fault.process in processes
        and (fault.calls == -1 or fault.process == "writer"),
        FaultKind.KILL_REPLICA: fault.for_ns > 0,
        FaultKind.POWER_CUT: bool(fault.nodes) and fault.for_ns > 0 and not fault.node,
        FaultKind.PAUSE: fault.for_ns > 0 and fault.process in processes | {""},
        FaultKind.WALL_JUMP: fault.amount != 0,
        FaultKind.MONOTONIC_JUMP: fault.amount > 0,
        FaultKind.DISK_STALL: fault.for_ns > 0 and fault.delay_ns > 0,
        FaultKind.DISK_ERROR: fault.mode in ("write", "flush", "read"),
        FaultKind.DISK_FULL: fault.for_ns > 0,
        FaultKind.LYING_FLUSH: fault.for_ns > 0,
        FaultKind.ROT: fault.mode in ROT_KINDS
        and fault.process != ""
        and (fault.amount > 0) == (fault.process in frozenset(RotPlace)),
        FaultKind.LOST_DISK: fault.for_ns > 0,
        FaultKind.OLD_DISK: fault.for_ns > 0,
        FaultKind.TRANSFER: 0 <= fault.node <= ground.replicas,
        FaultKind.FLOOD: fault.mode in ("", "again"),
        FaultKind.RESTART: True,
        FaultKind.VERSION: 0 <= fault.amount <= LEVEL_MAX,
    }
    of_links = {FaultKind.LINK_QUALITY, FaultKind.PARTITION, FaultKind.DISCONNECT}
    of_nobody = of_links | {FaultKind.POWER_CUT, FaultKind.TRANSFER, FaultKind.FLOOD}
    places = {place for link in fault.links for place in link}
    if not needs[fault.kind]:
        return f"not what its kind needs: {fault}"
    if bool(fault.links) != (fault.kind in of_links) or not places <= {0, *nodes}:
        return f"links: {fault}"
    if any(a == b for a, b in fault.links) or len(set(fault.links)) != len(fault.links):
        return f"a link twice, or to itself: {fault}"
    if fault.kind not in of_nobody and fault.node not in nodes:
        return f"nobody's: {fault}"
    if not set(fault.nodes) <= set(nodes) or not -1 <= fault.calls <= CALLS_MAX:
        return f"nodes or calls: {fault}"
    return ""


def test_every_class_is_on_in_some_seeds_and_every_kind_strikes(scripts: list[Script]) -> None:
    for each in FaultClass:
        share = sum(each in script.classes for script in scripts) / len(scripts)
        if each is FaultClass.LYING_FLUSH:
            assert 0.03 < share < 0.15
        else:
            assert 0.3 < share < 0.5, each
    assert {fault.kind for script in scripts for fault in script.faults} == set(FaultKind)


def test_classes_are_drawn_independently(scripts: list[Script]) -> None:
    for one, other in combinations(FaultClass, 2):
        assert any(one in s.classes and other in s.classes for s in scripts), (one, other)
        assert any(one in s.classes and other not in s.classes for s in scripts), (one, other)


def test_a_class_leaves_the_faults_of_another_where_they_are() -> None:
    """Until there are so many that some must go, and but for the sequences of both."""
    compared = 0
    for seed in range(1, 40):
        one = alone(seed, FaultClass.DISCONNECT)
        if len(one.faults) > FEW_FAULTS:
            continue
        compared += 1
        both = alone(seed, FaultClass.DISCONNECT, FaultClass.DISK_ERROR)
        least = set(both.faults) - set(alone(seed, FaultClass.DISK_ERROR).faults)
        assert least
        assert least <= set(one.faults)
    assert compared > 10


def test_a_class_alone_strikes_in_its_own_kinds_only() -> None:
    others = {
        FaultClass.LYING_FLUSH: {FaultKind.POWER_CUT},
        FaultClass.ROT: {
            FaultKind.KILL_REPLICA,
            FaultKind.TRANSFER,
            FaultKind.LOST_DISK,
            FaultKind.OLD_DISK,
            FaultKind.PARTITION,
            FaultKind.DISK_STALL,
        },
        FaultClass.MEMBERS: {FaultKind.PARTITION, FaultKind.KILL_REPLICA, FaultKind.POWER_CUT},
        FaultClass.PAUSE: {FaultKind.FLOOD},
        FaultClass.DISK_ERROR: {FaultKind.KILL_REPLICA},
        FaultClass.DISK_STALL: {FaultKind.FLOOD},
        FaultClass.PARTITION: {FaultKind.FLOOD, FaultKind.LINK_QUALITY},
    }
    own = {
        FaultClass.DELAY: {FaultKind.LINK_QUALITY},
        FaultClass.LOSS: {FaultKind.LINK_QUALITY},
        FaultClass.DUPLICATION: {FaultKind.LINK_QUALITY},
        FaultClass.REORDERING: {FaultKind.LINK_QUALITY},
        FaultClass.CLOG: {FaultKind.PARTITION},
        FaultClass.CLOCK: {FaultKind.WALL_JUMP, FaultKind.MONOTONIC_JUMP},
        FaultClass.OPERATOR: {FaultKind.TRANSFER, FaultKind.RESTART},
        FaultClass.MEMBERS: {FaultKind.LOST_DISK, FaultKind.OLD_DISK},
    }
    for each in CLASS_EPISODES:
        kinds = {fault.kind for seed in range(1, 100) for fault in alone(seed, each).faults}
        assert kinds == own.get(each, {FaultKind(each.value)} if each not in own else set()) | (
            others.get(each, set())
        ), each
    drawn = [fault for seed in range(1, 100) for fault in alone(seed, FaultClass.MEMBERS).faults]
    assert all(fault.awaits_joint != (fault.kind in own[FaultClass.MEMBERS]) for fault in drawn), (
        "what else strikes does so amid a change"
    )
    assert set(FaultClass) - set(CLASS_EPISODES) == {FaultClass.RINGS}
    assert alone(1, FaultClass.RINGS).faults == ()


def test_no_classes_is_a_calm_world() -> None:
    assert alone(3).faults == ()
    assert alone(3).classes == ()


# --- shapes ---


def faults_of(kind: FaultKind, *classes: FaultClass, replicas: int = 3) -> list[Fault]:
    return [
        fault
        for seed in range(1, 150)
        for fault in alone(seed, *classes, replicas=replicas).faults
        if fault.kind is kind
    ]


def test_partitions_are_symmetric_one_way_and_partial_short_and_long() -> None:
    """FAULTS N1, N2, N3, N5."""
    every = faults_of(FaultKind.PARTITION, FaultClass.PARTITION)
    cuts = [cut for cut in every if cut.mode == "drop" and not cut.lane]
    symmetric = [cut for cut in cuts if all((b, a) in cut.links for a, b in cut.links)]
    one_way = [cut for cut in cuts if not any((b, a) in cut.links for a, b in cut.links)]
    assert len(symmetric) > len(one_way) > len(cuts) // 20
    assert any(len(cut.links) == 2 and 0 not in cut.links[0] for cut in symmetric)
    assert any(0 in cut.links[0] for cut in cuts)
    lengths = sorted(cut.for_ns for cut in cuts)
    assert lengths[len(lengths) // 10] < SECOND
    assert 5 * SECOND < lengths[-1] <= 12 * SECOND
    assert {cut.mode for cut in every} == {"drop", "reset", "hold"}


def test_some_faults_of_links_strike_one_lane_only() -> None:
    every = faults_of(FaultKind.PARTITION, FaultClass.PARTITION)
    lanes = Counter(cut.lane for cut in every)
    assert set(lanes) == {"", "bulk", "control"}
    assert lanes[""] > lanes["bulk"] > lanes["control"]
    lossy = faults_of(FaultKind.LINK_QUALITY, FaultClass.PARTITION)
    assert {(fault.lane, fault.loss) for fault in lossy} == {("bulk", 1_000)}


def test_a_partial_mesh_of_five_leaves_two_that_see_one_each() -> None:
    """FAULTS N4."""
    cuts = faults_of(FaultKind.PARTITION, FaultClass.PARTITION, replicas=5)
    sights = [
        sorted(4 - sum(a == node for a, _ in cut.links) for node in range(1, 6))
        for cut in cuts
        if all((b, a) in cut.links for a, b in cut.links) and len(cut.links) == 10
    ]
    assert [1, 1, 2, 3, 3] in sights


def test_clogged_links_hold_and_swizzle() -> None:
    clogs = faults_of(FaultKind.PARTITION, FaultClass.CLOG)
    assert {clog.mode for clog in clogs} == {"hold"}
    singles = [clog for clog in clogs if len(clog.links) == 1]
    assert len(singles) > len(clogs) // 3


def test_power_goes_everywhere_at_once_and_at_single_disk_calls() -> None:
    cuts = faults_of(FaultKind.POWER_CUT, FaultClass.POWER_CUT)
    assert any(cut.nodes == (1, 2, 3) for cut in cuts)
    assert {cut.calls for cut in cuts} >= {-1, 0, 1, 2, 3, 5, 8, 13, 21, 34}
    assert {cut.mode for cut in cuts} == {"", "garble"}


def test_pauses_and_stalls_outlast_elections() -> None:
    for seed in range(1, 150):
        script = alone(seed, FaultClass.PAUSE, FaultClass.DISK_STALL)
        if any(
            fault.kind is FaultKind.DISK_STALL
            and fault.delay_ns > 2 * script.ground.election_ms * 1_000_000
            for fault in script.faults
        ) and any(
            fault.kind is FaultKind.PAUSE and fault.for_ns > script.ground.election_ms * 1_000_000
            for fault in script.faults
        ):
            return
    raise AssertionError("no seed stalls and pauses beyond an election")


# --- the atlas ---


def test_what_loses_durable_bytes_strikes_one_minority_of_a_seed() -> None:
    destructive = {
        FaultKind.ROT, FaultKind.LYING_FLUSH, FaultKind.LOST_DISK, FaultKind.OLD_DISK,
    }  # fmt: skip
    for replicas in (3, 5):
        chosen = set()
        for seed in range(1, 120):
            few = vulnerable_nodes(seed, replicas=replicas)
            chosen.add(few)
            assert len(few) == (replicas - 1) // 2
            script = alone(
                seed, FaultClass.ROT, FaultClass.LYING_FLUSH, FaultClass.DISK_ERROR,
                replicas=replicas,
            )  # fmt: skip
            struck = {
                fault.node
                for fault in script.faults
                if fault.kind in destructive or fault.mode == "read"
            }
            assert struck <= set(few)
        assert {node for few in chosen for node in few} == set(range(1, replicas + 1))


def test_a_lying_flush_is_followed_by_a_power_cut_while_it_lies() -> None:
    for seed in range(1, 60):
        faults = alone(seed, FaultClass.LYING_FLUSH).faults
        for lie in (fault for fault in faults if fault.kind is FaultKind.LYING_FLUSH):
            cuts = [
                fault
                for fault in faults
                if fault.kind is FaultKind.POWER_CUT
                and fault.nodes == (lie.node,)
                and lie.at_ns <= fault.at_ns <= lie.at_ns + lie.for_ns
            ]
            beyond = lie.at_ns + lie.for_ns >= alone(seed, FaultClass.LYING_FLUSH).ground.safety_ns
            assert cuts or beyond
