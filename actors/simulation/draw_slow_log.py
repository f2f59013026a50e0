"""Sequences around a log whose flushes take longer than elections, while META's do not.

What raft has accepted is far ahead of the files then: its writer still has entries that are
overwritten meanwhile, and may be behind a leader's back. Owns their order and timing; node 1 is the
leader, as in `draw_aimed`. Must not know which classes they need.
"""

from __future__ import annotations

from random import Random

from actors.simulation.draw_aimed import aimed, among, moment_before
from actors.simulation.draw_episodes import Scene, cut, isolation, stall
from actors.simulation.draw_ground import percent
from actors.simulation.faults import Fault


def rewritten_in_flight(random: Random, scene: Scene) -> list[Fault]:
    """A leader whose flush takes longer than the election of the next, which overwrites what is
    being flushed (FAULTS.R24). In half of them that one has nobody else, and is gone soon: the
    first leads again, with what it has not written."""
    at_ns = moment_before(random, scene, 9 * scene.election_ns)
    alone_ns = at_ns + scene.elections(random, 0.0, 0.5)
    back_ns = alone_ns + scene.elections(random, 1.6, 2.4)
    delay_ns = scene.elections(random, 2.0, 6.0)
    faults = [
        stall(at_ns, 1, scene.elections(random, 6.0, 9.0), delay_ns, _slow_files(random)),
        cut(alone_ns, isolation(scene, 1, with_clients=False), back_ns - alone_ns, _mode(random)),
    ]
    if percent(random, 50):
        others = [node for node in scene.nodes if node != 1]
        faults.append(cut(back_ns, among(others), scene.elections(random, 3.0, 6.0), _mode(random)))
        return [*aimed(random, faults), *_deposed(random, scene, back_ns)]
    return aimed(random, faults)


def _deposed(random: Random, scene: Scene, at_ns: int) -> list[Fault]:
    """Whoever leads shortly after `at_ns` is alone for a while."""
    gone_ns = at_ns + scene.elections(random, 0.2, 0.7)
    for_ns = scene.elections(random, 2.0, 4.0)
    return aimed(random, [cut(gone_ns, isolation(scene, 1, with_clients=False), for_ns, "hold")])


def _slow_files(random: Random) -> str:
    """Records' mostly: the writer goes on to frames, and to truncations, beside them."""
    return random.choice((".raft", ".raft", ".raft", ".data"))


def _mode(random: Random) -> str:
    """Connections that hold go on at once, so that the flush is still under way then."""
    return "drop" if percent(random, 10) else "hold"
