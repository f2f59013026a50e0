"""Sequences of several classes: where they are drawn, and what may strike in between."""

from __future__ import annotations

from itertools import pairwise

import pytest

from actors.simulation.faults.draw import draw_script, on_percent, vulnerable_nodes
from actors.simulation.faults.draw_episodes import Scene
from actors.simulation.faults.draw_ground import draw_ground
from actors.simulation.faults.draw_sequences import SEQUENCES, Sequence
from actors.simulation.faults.script import Fault, FaultClass, FaultKind, Script
from actors.simulation.world.random_streams import stream


def alone(seed: int, *classes: FaultClass, replicas: int | None = 3) -> Script:
    return draw_script(seed, replicas=replicas, classes=classes)


def test_nothing_disturbs_an_exact_sequence() -> None:
    exact, undisturbed = next(each for each in SEQUENCES if each.is_exact), 0
    for seed in range(1, 120):
        script = alone(seed, *exact.needs, FaultClass.POWER_CUT, FaultClass.PAUSE)
        if not (first := _first_of(exact, seed, script)) or first[0] not in script.faults:
            continue
        begin_ns = min(fault.at_ns for fault in first)
        end_ns = max(fault.at_ns + fault.for_ns for fault in first)
        during = [
            fault
            for fault in script.faults
            if begin_ns <= fault.at_ns < end_ns and not _is_small(fault)
        ]
        assert set(during) <= set(first)
        undisturbed += 1
    assert undisturbed > 5


def _is_small(fault: Fault) -> bool:
    """A flood, or a replicator that stands still: neither changes who leads."""
    return fault.kind is FaultKind.FLOOD or fault.process.startswith("replicator")


def test_two_exact_sequences_of_a_seed_do_not_meet() -> None:
    classes = (FaultClass.ROT, FaultClass.CLOCK, FaultClass.PARTITION)
    exact = [each for each in SEQUENCES if each.is_exact and set(each.needs) <= set(classes)]
    both = 0
    for seed in range(1, 600):  # few are long enough for two
        script = alone(seed, *classes, replicas=3)
        spans = []
        for sequence in exact:
            first = _first_of(sequence, seed, script)
            if first and set(first) <= set(script.faults):
                ends = [fault.at_ns + fault.for_ns for fault in first]
                spans.append((min(fault.at_ns for fault in first), max(ends)))
        spans.sort()
        both += len(spans) > 1
        assert all(one[1] <= other[0] for one, other in pairwise(spans))
    assert both > 2


@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda each: each.name)
def test_a_sequence_is_drawn_only_where_all_its_classes_are_on(sequence: Sequence) -> None:
    # An unlikely pair of faults at drawn times: the sequence's own stream says what they are.
    drawn_with = drawn_without = 0
    for seed in range(1, 300):
        script = alone(seed, *sequence.needs)
        expected = _first_of(sequence, seed, script)
        if expected is None:
            continue
        drawn_with += expected[0] in script.faults
        part = alone(seed, *sequence.needs[:-1])
        drawn_without += expected[0] in part.faults
    assert drawn_with > 5
    assert drawn_without == 0


def _first_of(sequence: Sequence, seed: int, script: Script) -> list[Fault] | None:
    """What the sequence's own stream draws first; None where it is off."""
    random = stream(seed, f"sequences.{sequence.name}")
    if random.randrange(100) >= on_percent(sequence):
        return None
    if not sequence.is_exact:
        random.choice((1, 1, 2))
    random.random()
    ground = script.ground
    if sequence.is_exact:  # it may make the seed longer
        ground = draw_ground(seed, replicas=ground.replicas, classes=script.classes)
    scene = Scene(
        replicas=ground.replicas,
        safety_ns=ground.safety_ns,
        heartbeat_ns=ground.heartbeat_ms * 1_000_000,
        election_ns=ground.election_ms * 1_000_000,
        vulnerable=vulnerable_nodes(seed, replicas=ground.replicas),
        machines=ground.machines,
    )
    return sequence.draw(random, scene)
