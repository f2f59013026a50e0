"""Faults of one lane between replicas, as a path MTU or a blocked port makes them: heartbeats and
votes arrive, entries do not, or the other way round.

Owns their order and timing; node 1 is the leader, as in `draw_aimed`. Must not know which classes
they need.
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from actors.simulation.faults.draw_aimed import moment_before, surely_aimed
from actors.simulation.faults.draw_episodes import Link, Scene, both_ways, cut
from actors.simulation.faults.draw_ground import percent
from actors.simulation.faults.script import Fault, FaultKind

BULK, CONTROL = "bulk", "control"
LANE_PERCENT = 15
ALL = 1_000  # of 1,000 messages


def lost_appends(random: Random, scene: Scene) -> list[Fault]:
    """No entry of the leader's arrives: the bulk lane loses what it is given, holds it, or breaks.
    Now and then it is so between all replicas, so that whoever is elected fares no better."""
    length_ns = scene.elections(random, 9.0, 12.0)
    at_ns = moment_before(random, scene, length_ns)
    others = [node for node in scene.nodes if node != 1]
    links: tuple[Link, ...] = tuple((1, node) for node in others)
    if percent(random, 20):
        links = both_ways((a, b) for a in scene.nodes for b in scene.nodes if a < b)
    mode = random.choice(("lost", "drop", "hold", "reset"))
    fault = cut(at_ns, links, length_ns, mode)
    if mode == "lost":
        fault = Fault(at_ns, FaultKind.LINK_QUALITY, links=links, for_ns=length_ns, loss=ALL)
    return surely_aimed(random, [replace(fault, lane=BULK)])


def on_one_lane(random: Random, faults: list[Fault]) -> list[Fault]:
    """Some episodes of links strike one lane only."""
    if not percent(random, LANE_PERCENT):
        return faults
    lane = random.choice((BULK, BULK, CONTROL))
    return [replace(fault, lane=lane) for fault in faults]
