"""A fault script from a seed: which classes are on, how hard, and what strikes when.

Swarm testing: each class is on with a chance of its own, so that a seed that is all power cuts is
as likely as one that mixes everything. Owns the swarm and the numbers; `draw_ground` owns sizes and
timing, `draw_episodes` and `draw_sequences` what strikes. Pure.

Invariants: a script depends on the seed, the replicas and the classes, on nothing else; a class has
streams of its own, so leaving one out moves no fault of another (only how many there are, within
the bounds); what may lose durable bytes strikes `vulnerable_nodes` only, so that one good copy of
everything stays.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from actors.simulation.faults.draw_birth import draw_birth
from actors.simulation.faults.draw_episodes import EPISODES, Scene
from actors.simulation.faults.draw_ground import MILLISECOND, SECOND, draw_ground
from actors.simulation.faults.draw_lanes import on_one_lane
from actors.simulation.faults.draw_rot import draw_rot
from actors.simulation.faults.draw_sequences import SEQUENCES, Sequence
from actors.simulation.faults.script import Fault, FaultClass, FaultKind, Ground, Script
from actors.simulation.world.random_streams import stream
from actors.topology import REPLICATOR

# On with 40 in 100: about seven classes a seed, and every pair of them in one of six.
CLASS_ON_PERCENT = 40
# A lying device excuses whatever follows the power cut behind it, so few seeds have one.
LYING_ON_PERCENT = 8
SEQUENCE_ON_PERCENT = 40
# They seldom succeed, and have their time for themselves.
EXACT_SEQUENCE_ON_PERCENT = 80
EXACT_SEQUENCES_MAX = 3  # of one seed; more would leave nothing else room
# Fewer faults leave a seed idle, more leave the cluster no time to work.
FAULTS_MIN = 10
FAULTS_MAX = 60
EPISODES_MAX = 4  # of one class, at full hardness
CLASS_EPISODES = EPISODES | {FaultClass.ROT: draw_rot}
_OF_LINKS = frozenset({
    FaultClass.DELAY, FaultClass.LOSS, FaultClass.DUPLICATION, FaultClass.REORDERING,
    FaultClass.PARTITION, FaultClass.CLOG,
})  # fmt: skip
_PLACES_TRIED = 8  # for an exact sequence beside another one
_UNDISTURBING = (FaultKind.LINK_QUALITY, FaultKind.WALL_JUMP, FaultKind.ROT, FaultKind.FLOOD)


def draw_script(
    seed: int, *, replicas: int | None, classes: Collection[FaultClass] | None
) -> Script:
    """The script of `seed`.

    Args:
      seed: 0 or above.
      replicas: 3 or 5; None draws it, mostly 3.
      classes: those that are on, all of them; None draws them. The classes that a seed drew give
        the same script when they are named.
    """
    chosen = draw_classes(seed) if classes is None else _in_order(classes)
    ground = draw_ground(seed, replicas=replicas, classes=chosen)
    return Script(seed, chosen, ground, _draw_faults(seed, ground, chosen))


def draw_classes(seed: int) -> tuple[FaultClass, ...]:
    """The swarm's choice; one class at least."""
    random = stream(seed, "swarm")
    chances = [(random.randrange(100), fault_class) for fault_class in FaultClass]
    chosen = tuple(each for chance, each in chances if chance < _on_percent(each))
    return chosen or (min(chances)[1],)


def _on_percent(fault_class: FaultClass) -> int:
    return LYING_ON_PERCENT if fault_class is FaultClass.LYING_FLUSH else CLASS_ON_PERCENT


def vulnerable_nodes(seed: int, *, replicas: int) -> tuple[int, ...]:
    """The minority whose disks may rot or lie: one good copy of everything committed stays."""
    random = stream(seed, "atlas")
    return tuple(sorted(random.sample(range(1, replicas + 1), (replicas - 1) // 2)))


def _in_order(classes: Collection[FaultClass]) -> tuple[FaultClass, ...]:
    return tuple(each for each in FaultClass if each in classes)


def _draw_faults(seed: int, ground: Ground, classes: tuple[FaultClass, ...]) -> tuple[Fault, ...]:
    """Episodes of every class and sequence, within the bounds, in order of time."""
    scene = Scene(
        replicas=ground.replicas,
        safety_ns=ground.safety_ns,
        heartbeat_ns=ground.heartbeat_ms * MILLISECOND,
        election_ns=ground.election_ms * MILLISECOND,
        vulnerable=vulnerable_nodes(seed, replicas=ground.replicas),
    )
    exact, episodes = _sequence_episodes(seed, scene, classes)
    least = _least_episodes(classes)
    for fault_class in classes:
        episodes += _class_episodes(seed, scene, fault_class, least)
    if ground.is_struck_at_birth:
        episodes.append((-1.0, draw_birth(stream(seed, "birth"), scene, classes)))
    # Whole episodes, in an order that their own streams drew, until there are enough.
    episodes.sort(key=lambda each: each[0])
    faults = [fault for sequence in exact for fault in sequence]
    for _, episode in episodes:
        kept = [fault for fault in episode if not any(_disturbs(fault, each) for each in exact)]
        if len(faults) + len(kept) <= FAULTS_MAX:
            faults += kept
    struck = [fault for fault in faults if fault.at_ns < ground.safety_ns]
    return tuple(sorted(struck, key=lambda fault: fault.at_ns))


def _least_episodes(classes: tuple[FaultClass, ...]) -> int:
    striking = sum(each in CLASS_EPISODES for each in classes)
    return -(-FAULTS_MIN // striking) if striking else 0


def _class_episodes(
    seed: int, scene: Scene, fault_class: FaultClass, least: int
) -> list[tuple[float, list[Fault]]]:
    """Episodes with their rank. Hardness says how many and, to the episode, how hard."""
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


def _sequence_episodes(
    seed: int, scene: Scene, classes: tuple[FaultClass, ...]
) -> tuple[list[list[Fault]], list[tuple[float, list[Fault]]]]:
    """A few exact sequences, one after the other, and the others with their rank."""
    ranked = []
    episodes = []
    for sequence in SEQUENCES:
        random = stream(seed, f"sequences.{sequence.name}")
        is_on = random.randrange(100) < on_percent(sequence)
        if not is_on or not all(each in classes for each in sequence.needs):
            continue
        if not sequence.is_exact:
            for _ in range(random.choice((1, 1, 2))):
                episodes.append((random.random(), sequence.draw(random, scene)))
        else:
            # Those that need more classes have fewer chances, so they choose their place first.
            ranked.append(((-len(sequence.needs), random.random()), random, sequence.draw))
    exact: list[list[Fault]] = []
    for _, random, draw in sorted(ranked, key=lambda each: each[0]):
        for _ in range(_PLACES_TRIED if len(exact) < EXACT_SEQUENCES_MAX else 0):
            faults = draw(random, scene)
            if faults and not any(_meet(faults, each) for each in exact):
                exact.append(faults)
                break
    return exact, episodes


def on_percent(sequence: Sequence) -> int:
    return EXACT_SEQUENCE_ON_PERCENT if sequence.is_exact else SEQUENCE_ON_PERCENT


def _disturbs(fault: Fault, exact: list[Fault]) -> bool:
    """Whether `fault` is about while the sequence is. Bad links and clocks may be, and what only
    one replicator suffers."""
    is_small = fault.kind in _UNDISTURBING or fault.process.startswith(REPLICATOR)
    return not is_small and _meet([fault], exact)


def _meet(faults: list[Fault], exact: list[Fault]) -> bool:
    """Whether some of `faults` are about while the sequence is, or shortly before it."""
    begin_ns, end_ns = _window(exact)
    first_ns, last_ns = _window(faults)
    return first_ns < end_ns and last_ns > begin_ns - SECOND


def _window(faults: list[Fault]) -> tuple[int, int]:
    return min(each.at_ns for each in faults), max(each.at_ns + each.for_ns for each in faults)
