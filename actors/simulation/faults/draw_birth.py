"""What strikes a cluster while it is being born (SAFETY L2): in the first moments of a few seeds.

Owns shapes and ranges. The bootstrap needs every node, so all of it is short. Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from actors.simulation.faults.draw_episodes import (
    Episode,
    Scene,
    cut,
    isolation,
    power_cut,
    some_calls,
    stall,
)
from actors.simulation.faults.draw_ground import MILLISECOND, SECOND, spread
from actors.simulation.faults.script import Fault, FaultClass, FaultKind

# Most bootstraps end within: two rounds of questions (200 ms apart), and the saves between.
_BIRTH_NS = 300 * MILLISECOND


def draw_birth(random: Random, scene: Scene, classes: Collection[FaultClass]) -> list[Fault]:
    """One or two faults of those classes."""
    shapes = [shape for fault_class, shape in _SHAPES.items() if fault_class in classes]
    random.shuffle(shapes)
    return [fault for shape in shapes[: random.randint(1, 2)] for fault in shape(random, scene)]


def _moment(random: Random) -> int:
    return random.randrange(_BIRTH_NS)


def _short(random: Random) -> int:
    return spread(random, 10 * MILLISECOND, 2 * SECOND)


def _slow(random: Random, scene: Scene) -> list[Fault]:
    """Flushes of one: others are further than it."""
    for_ns = _short(random)
    return [stall(_moment(random), scene.node(random), for_ns, for_ns)]


def _alone(random: Random, scene: Scene) -> list[Fault]:
    links = isolation(scene, scene.node(random), with_clients=False)
    return [cut(_moment(random), links, _short(random))]


def _killed(random: Random, scene: Scene) -> list[Fault]:
    return [
        Fault(
            _moment(random), FaultKind.KILL_REPLICA, node=scene.node(random),
            for_ns=_short(random), calls=some_calls(random),
        )
    ]  # fmt: skip


def _without_power(random: Random, scene: Scene) -> list[Fault]:
    nodes = random.sample(scene.nodes, random.randint(1, scene.replicas))
    calls = some_calls(random)
    return [power_cut(_moment(random), nodes, random, for_ns=_short(random), calls=calls)]


_SHAPES: dict[FaultClass, Episode] = {
    FaultClass.DISK_STALL: _slow,
    FaultClass.PARTITION: _alone,
    FaultClass.KILL_REPLICA: _killed,
    FaultClass.POWER_CUT: _without_power,
}
BIRTH_CLASSES = tuple(_SHAPES)
