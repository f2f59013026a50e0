"""Draws a fault script from a seed: which classes of fault are on, how many, and when they strike.

Swarm testing: each class is on with a chance of its own, so that a seed of power cuts alone is as
likely as one that mixes everything. Owns which classes are on and how many faults there are;
`draw_ground` owns sizes and timing, `draw_episodes` and `draw_sequences` the faults. Pure.

Invariants: a script depends on the seed, the replicas and the classes only; each class has random
streams of its own, so leaving one out moves no fault of another (it may change how many fit within
the bounds, and how long the seed is: as long as its exact sequences); a fault that may lose durable
bytes strikes `vulnerable_nodes` only, so that one good copy of everything stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from random import Random

import msgspec

from actors.simulation.faults.draw_bootstrap import draw_bootstrap_faults
from actors.simulation.faults.draw_episodes import EPISODES, Scene, on_one_lane
from actors.simulation.faults.draw_ground import MILLISECOND, SECOND, draw_ground, percent
from actors.simulation.faults.draw_members import draw_members, faults_of_joiners
from actors.simulation.faults.draw_rot import draw_rot
from actors.simulation.faults.draw_sequences import SEQUENCES, Sequence
from actors.simulation.faults.script import Fault, FaultClass, FaultKind, Ground, Script
from actors.simulation.world.random_streams import stream
from actors.topology import REPLICATOR

# With 40 in 100 a seed has about seven classes, and each pair of classes meets in one seed of six.
CLASS_ON_PERCENT = 40
# A power cut of a lying device excuses all that follows, so few seeds have one.
LYING_ON_PERCENT = 8
SEQUENCE_ON_PERCENT = 40
# Exact sequences seldom succeed, and no other fault strikes meanwhile.
EXACT_SEQUENCE_ON_PERCENT = 80
EXACT_SEQUENCES_MAX = 3  # of one seed; more would leave no room for other faults
# A short seed has time for nothing besides one, so many have none.
EXACT_SEEDS_PERCENT = 50
# Fewer faults show little, more leave the cluster no time to work.
FAULTS_MIN = 10
FAULTS_MAX = 60
FAULTS_A_SECOND = 4
EPISODES_MAX = 4  # of one class, at full hardness
CLASS_EPISODES = EPISODES | {FaultClass.ROT: draw_rot, FaultClass.MEMBERS: draw_members}
_OF_LINKS = frozenset({
    FaultClass.DELAY, FaultClass.LOSS, FaultClass.DUPLICATION, FaultClass.REORDERING,
    FaultClass.PARTITION, FaultClass.CLOG,
})  # fmt: skip
_PLACES_TRIED = 8  # times at which an exact sequence may meet no other one
_UNDISTURBING = (FaultKind.LINK_QUALITY, FaultKind.WALL_JUMP, FaultKind.ROT, FaultKind.FLOOD)


def draw_script(
    seed: int, *, replicas: int | None, classes: Collection[FaultClass] | None
) -> Script:
    """The script of `seed`.

    Args:
      seed: 0 or above.
      replicas: 3 or 5; None draws it, mostly 3.
      classes: all that are on; None draws them. Naming the classes that a seed drew gives the same
        script.
    """
    chosen = draw_classes(seed) if classes is None else _in_order(classes)
    ground = draw_ground(seed, replicas=replicas, classes=chosen)
    ground, faults = _draw_faults(seed, ground, chosen)
    return Script(seed, chosen, ground, faults)


def draw_classes(seed: int) -> tuple[FaultClass, ...]:
    """Which classes are on; one at least."""
    random = stream(seed, "swarm")
    chances = [(random.randrange(100), fault_class) for fault_class in FaultClass]
    chosen = tuple(each for chance, each in chances if chance < _on_percent(each))
    return chosen or (min(chances)[1],)


def _on_percent(fault_class: FaultClass) -> int:
    return LYING_ON_PERCENT if fault_class is FaultClass.LYING_FLUSH else CLASS_ON_PERCENT


def vulnerable_nodes(seed: int, *, replicas: int) -> tuple[int, ...]:
    """The minority whose disks may rot or lie, so that a good copy of every commit stays."""
    random = stream(seed, "atlas")
    return tuple(sorted(random.sample(range(1, replicas + 1), (replicas - 1) // 2)))


def _in_order(classes: Collection[FaultClass]) -> tuple[FaultClass, ...]:
    return tuple(each for each in FaultClass if each in classes)


def _draw_faults(
    seed: int, ground: Ground, classes: tuple[FaultClass, ...]
) -> tuple[Ground, tuple[Fault, ...]]:
    """Faults of every class and sequence, within the bounds, by time; and the ground, which
    is as long as the exact sequences need."""
    scene = Scene(
        replicas=ground.replicas,
        safety_ns=ground.safety_ns,
        heartbeat_ns=ground.heartbeat_ms * MILLISECOND,
        election_ns=ground.election_ms * MILLISECOND,
        vulnerable=vulnerable_nodes(seed, replicas=ground.replicas),
        machines=ground.machines,
    )
    exact = _exact_sequences(seed, scene, classes)
    ends_ns = [_window(faults)[1] + scene.election_ns for faults in exact]
    ground = msgspec.structs.replace(ground, safety_ns=max([ground.safety_ns, *ends_ns]))
    scene = msgspec.structs.replace(scene, safety_ns=ground.safety_ns)
    most = min(FAULTS_MAX, FAULTS_MIN + FAULTS_A_SECOND * ground.safety_ns // SECOND)
    episodes = _sequence_episodes(seed, scene, classes)
    least = _least_episodes(classes)
    for fault_class in classes:
        episodes += _class_episodes(seed, scene, fault_class, least)
    if ground.is_struck_at_birth:
        episodes.append((-1.0, draw_bootstrap_faults(stream(seed, "birth"), scene, classes)))
    # Whole episodes, in the order of ranks that their own streams drew, until there are enough.
    episodes.sort(key=lambda each: each[0])
    faults = [fault for sequence in exact for fault in sequence]
    for _, episode in episodes:
        kept = [
            fault
            for fault in episode
            if fault.at_ns < ground.safety_ns and not any(_disturbs(fault, each) for each in exact)
        ]
        if len(faults) + len(kept) <= most:
            faults += kept
    more = faults_of_joiners(stream(seed, "joiners"), ground, faults)
    faults += more[: max(0, FAULTS_MAX - len(faults))]
    struck = [fault for fault in faults if fault.at_ns < ground.safety_ns]
    return ground, tuple(sorted(struck, key=lambda fault: fault.at_ns))


def _least_episodes(classes: tuple[FaultClass, ...]) -> int:
    striking = sum(each in CLASS_EPISODES for each in classes)
    return -(-FAULTS_MIN // striking) if striking else 0


def _class_episodes(
    seed: int, scene: Scene, fault_class: FaultClass, least: int
) -> list[tuple[float, list[Fault]]]:
    """Episodes with their rank; the class's hardness decides how many and how hard they are."""
    if fault_class not in CLASS_EPISODES:
        return []
    random = stream(seed, f"faults.{fault_class}")
    hardness = random.random()
    number = max(1 + int(hardness * EPISODES_MAX), least)
    hard = msgspec.structs.replace(scene, hardness=hardness)
    draw = CLASS_EPISODES[fault_class]
    episodes = [(random.random(), draw(random, hard)) for _ in range(number)]
    if fault_class not in _OF_LINKS:
        return episodes
    lanes = stream(seed, f"lanes.{fault_class}")
    return [(rank, on_one_lane(lanes, faults)) for rank, faults in episodes]


def _sequences_on(
    seed: int, classes: tuple[FaultClass, ...], *, are_exact: bool
) -> Iterator[tuple[Sequence, Random]]:
    """With the random stream of each, from which one number was drawn."""
    for sequence in SEQUENCES:
        random = stream(seed, f"sequences.{sequence.name}")
        is_on = random.randrange(100) < on_percent(sequence)
        is_drawn = is_on and all(each in classes for each in sequence.needs)
        if is_drawn and sequence.is_exact == are_exact:
            yield sequence, random


def _sequence_episodes(
    seed: int, scene: Scene, classes: tuple[FaultClass, ...]
) -> list[tuple[float, list[Fault]]]:
    """The sequences that are not exact, with their rank."""
    return [
        (random.random(), sequence.draw(random, scene))
        for sequence, random in _sequences_on(seed, classes, are_exact=False)
        for _ in range(random.choice((1, 1, 2)))
    ]


def _exact_sequences(seed: int, scene: Scene, classes: tuple[FaultClass, ...]) -> list[list[Fault]]:
    """A few that do not overlap, in many seeds none. Those that need more classes are on in fewer
    seeds: they mostly choose first."""
    if not percent(stream(seed, "exact"), EXACT_SEEDS_PERCENT):
        return []
    ranked = [
        (random.random() / len(sequence.needs), random, sequence.draw)
        for sequence, random in _sequences_on(seed, classes, are_exact=True)
    ]
    exact: list[list[Fault]] = []
    for _, random, draw in sorted(ranked, key=lambda each: each[0]):
        for _ in range(_PLACES_TRIED if len(exact) < EXACT_SEQUENCES_MAX else 0):
            faults = draw(random, scene)
            if faults and not any(_meet(faults, each) for each in exact):
                exact.append(faults)
                break
    return exact


def on_percent(sequence: Sequence) -> int:
    return EXACT_SEQUENCE_ON_PERCENT if sequence.is_exact else SEQUENCE_ON_PERCENT


def _disturbs(fault: Fault, exact: list[Fault]) -> bool:
    """Whether `fault` overlaps the sequence; bad links and clocks may, and faults of one
    replicator."""
    is_small = fault.kind in _UNDISTURBING or fault.process.startswith(REPLICATOR)
    return not is_small and _meet([fault], exact)


def _meet(faults: list[Fault], exact: list[Fault]) -> bool:
    """Whether `faults` overlap the sequence or the second before it."""
    begin_ns, end_ns = _window(exact)
    first_ns, last_ns = _window(faults)
    return first_ns < end_ns and last_ns > begin_ns - SECOND


def _window(faults: list[Fault]) -> tuple[int, int]:
    return min(each.at_ns for each in faults), max(each.at_ns + each.for_ns for each in faults)
