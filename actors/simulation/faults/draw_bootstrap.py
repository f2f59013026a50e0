"""Faults during the bootstrap of a cluster (SAFETY L2), in a few seeds.

Owns shapes and ranges. The bootstrap needs every node, so all faults are short. Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from actors.simulation.faults.draw_episodes import (
    Episode,
    Scene,
    cut,
    isolation,
    kill,
    power_cut,
    some_calls,
    stall,
)
from actors.simulation.faults.draw_ground import MILLISECOND, SECOND, spread
from actors.simulation.faults.script import Fault, FaultClass

# Most bootstraps take less: two rounds of requests 50 ms apart, and the saves between.
_BOOTSTRAP_NS = 300 * MILLISECOND


def draw_bootstrap_faults(
    random: Random, scene: Scene, classes: Collection[FaultClass]
) -> list[Fault]:
    """One or two faults of these classes."""
    shapes = [shape for fault_class, shape in _SHAPES.items() if fault_class in classes]
    random.shuffle(shapes)
    return [fault for shape in shapes[: random.randint(1, 2)] for fault in shape(random, scene)]


def _moment(random: Random) -> int:
    return random.randrange(_BOOTSTRAP_NS)


def _short(random: Random) -> int:
    return spread(random, 10 * MILLISECOND, 2 * SECOND)


def _slow(random: Random, scene: Scene) -> list[Fault]:
    """One node flushes slowly, so that the others are ahead of it."""
    for_ns = _short(random)
    return [stall(_moment(random), scene.node(random), for_ns, for_ns)]


def _isolate(random: Random, scene: Scene) -> list[Fault]:
    links = isolation(scene, scene.node(random), with_clients=False)
    return [cut(_moment(random), links, _short(random))]


def _killed(random: Random, scene: Scene) -> list[Fault]:
    return [kill(_moment(random), scene.node(random), _short(random), some_calls(random))]


def _without_power(random: Random, scene: Scene) -> list[Fault]:
    nodes = random.sample(scene.nodes, random.randint(1, scene.replicas))
    calls = some_calls(random)
    return [power_cut(_moment(random), nodes, random, for_ns=_short(random), calls=calls)]


_SHAPES: dict[FaultClass, Episode] = {
    FaultClass.DISK_STALL: _slow,
    FaultClass.PARTITION: _isolate,
    FaultClass.KILL_REPLICA: _killed,
    FaultClass.POWER_CUT: _without_power,
}
BOOTSTRAP_CLASSES = tuple(_SHAPES)
