"""Sequences around a log whose flushes take longer than elections, while META's do not.

What raft has accepted is far ahead of the files then: the writer still has entries that are
overwritten meanwhile. Owns their order and timing; node 1 is the leader, as in `draw_aimed`. Must
not know which classes they need.
"""

from __future__ import annotations

from random import Random

from actors.simulation.faults.draw_aimed import moment_before, surely_aimed
from actors.simulation.faults.draw_episodes import CLIENTS, Scene, both_ways, cut, isolation, stall
from actors.simulation.faults.draw_ground import percent
from actors.simulation.faults.script import Fault, FaultKind


def rewritten_in_flight(random: Random, scene: Scene) -> list[Fault]:
    """A leader whose flush takes longer than the election of the next, which overwrites what is
    being flushed (FAULTS.R24). The old one saves the new term between two flushes, and has more to
    flush: all clients ask only it, as much as they may, and all that it takes is overwritten."""
    at_ns = moment_before(random, scene, 7 * scene.election_ns)
    alone_ns = at_ns + scene.elections(random, 0.0, 0.5)
    for_ns = scene.elections(random, 1.6, 2.4)
    delay_ns = scene.elections(random, 1.2, 3.5)
    others = [node for node in scene.nodes if node != 1]
    mode = _mode(random)
    slow_files = _slow_files(random)
    asked_ns = alone_ns + scene.elections(random, 0.05, 0.6)
    return surely_aimed(
        random,
        [
            stall(at_ns, 1, scene.elections(random, 5.0, 7.0), delay_ns, slow_files),
            cut(alone_ns, isolation(scene, 1, with_clients=False), for_ns, mode),
            cut(alone_ns, both_ways((CLIENTS, node) for node in others), for_ns, mode),
            Fault(asked_ns, FaultKind.FLOOD),
        ],
    )


def _slow_files(random: Random) -> str:
    """Records' mostly: the writer goes on to frames, and to truncations, beside them."""
    return random.choice((".raft", ".raft", ".raft", ".data"))


def _mode(random: Random) -> str:
    """Connections that hold go on at once, so that the flush is still under way then."""
    return "drop" if percent(random, 10) else "hold"
