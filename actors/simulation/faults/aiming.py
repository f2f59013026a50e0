"""What the sequences share that are aimed at the leader: their node 1 is the leader
(`Fault.group`)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from actors.simulation.faults.draw_episodes import Scene, both_ways
from actors.simulation.faults.draw_ground import SECOND, percent
from actors.simulation.faults.script import Fault

MOSTLY_PERCENT = 85


def moment_leaving(random: Random, scene: Scene, length_ns: int) -> int:
    """A moment after the first election that leaves `length_ns`, if the run is that long."""
    first_ns = SECOND + 3 * scene.election_ns
    return first_ns + random.randrange(max(SECOND, scene.safety_ns - length_ns - first_ns))


def roles(random: Random, scene: Scene) -> tuple[int, ...]:
    """The leader, then the others in random order."""
    return 1, *random.sample(range(2, scene.replicas + 1), scene.replicas - 1)


def links_among(nodes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return both_ways((a, b) for a in nodes for b in nodes if a < b)


def mostly_at_leader(random: Random, faults: list[Fault]) -> list[Fault]:
    """Now and then not aimed, so that they strike any node."""
    return at_leader(random, faults) if percent(random, MOSTLY_PERCENT) else faults


def at_leader(random: Random, faults: list[Fault]) -> list[Fault]:
    """For sequences that are pointless elsewhere."""
    group = 1 + random.getrandbits(31)
    return [msgspec.structs.replace(fault, group=group) for fault in faults]
