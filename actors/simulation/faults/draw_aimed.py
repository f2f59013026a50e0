"""Sequences that begin with whoever leads when they begin: schedules too exact to be met by going
around.

Owns their order and timing. In each, node 1 is the leader (`Fault.group`). Must not know which
classes they need. Now and then one is not aimed, so that it strikes any node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import msgspec

from actors.simulation.faults.draw_episodes import Scene, both_ways, cut, isolation
from actors.simulation.faults.draw_ground import SECOND, percent
from actors.simulation.faults.script import Fault, FaultKind

# Disk calls of one save of META, which a vote is; and of one group of entries.
META_CALLS = 4
GROUP_CALLS = 4
# A vote and the first groups behind it.
AFTER_FIRST_GROUPS = tuple(META_CALLS + GROUP_CALLS * groups for groups in (1, 1, 1, 2, 2, 3, 4))
# How long broken connections may stay broken after a cut.
RECONNECT_NS = 5 * SECOND // 2
AIMED_PERCENT = 85


def figure_eight(random: Random, scene: Scene) -> list[Fault]:
    """The Raft paper's figure 8. The leader is alone with entries that nobody has; another one is
    elected, and whoever voted dies before its first entry is written there; the old leader comes
    back, brings its entries to a majority, and is gone again before its new term's no-op is there;
    the other one returns and overwrites them.
    """
    if scene.replicas == 5 and percent(random, 75):
        return _written_again(random, scene)
    old, new, *others = roles(random, scene)
    at_ns = moment_before(random, scene, 10 * scene.election_ns + 2 * RECONNECT_NS)
    elected_ns = at_ns + scene.elections(random, 1.6, 2.1)
    back_ns = elected_ns + scene.elections(random, 0.8, 1.6)
    end_ns = back_ns + scene.elections(random, 1.2, 3.0) + RECONNECT_NS
    last_ns = scene.elections(random, 2.0, 3.0) + RECONNECT_NS
    silent = among(others)
    again_ns = scene.elections(random, 0.2, 0.5)
    # Who starts anew waits longer for a leader, so `new` is the first to ask for votes.
    anew = [kill(at_ns + scene.election_ns // 20, node, again_ns, -1) for node in others]
    fatal = [
        kill(back_ns, node, end_ns - back_ns, random.choice(AFTER_FIRST_GROUPS)) for node in others
    ]
    return aimed(
        random,
        [
            cut(at_ns, isolation(scene, old, with_clients=False), back_ns - at_ns),
            *([cut(at_ns, silent, end_ns - at_ns)] if silent else []),
            *anew,
            *_die_after_vote(random, scene, others, at_ns),
            cut(elected_ns, isolation(scene, new, with_clients=False), end_ns - elected_ns),
            *fatal,
            cut(end_ns, isolation(scene, old, with_clients=False), last_ns),
        ],
    )


def _written_again(random: Random, scene: Scene) -> list[Fault]:
    """Of five replicas a follower takes an entry of one leader, another leader's instead, and the
    first one's again (A, C, A). The others vote for both and keep neither's.
    """
    old, follower, new, *others = roles(random, scene)
    at_ns = moment_before(random, scene, 8 * scene.election_ns)
    elected_ns = at_ns + scene.elections(random, 1.6, 2.4)
    back_ns = elected_ns + scene.elections(random, 0.2, 0.8)
    end_ns = back_ns + scene.elections(random, 1.5, 4.0)
    apart = both_ways((old, node) for node in (new, *others))
    silent = among(others) + both_ways((follower, node) for node in others)
    return aimed(
        random,
        [
            cut(at_ns, apart, back_ns - at_ns),
            cut(at_ns, silent, end_ns - at_ns),
            *_die_after_vote(random, scene, others, at_ns),
            cut(elected_ns, isolation(scene, new, with_clients=False), end_ns - elected_ns),
        ],
    )


def moment_before(random: Random, scene: Scene, length_ns: int) -> int:
    """One after the first election that leaves `length_ns`, if the run is that long."""
    first_ns = SECOND + 3 * scene.election_ns
    return first_ns + random.randrange(max(SECOND, scene.safety_ns - length_ns - first_ns))


def roles(random: Random, scene: Scene) -> tuple[int, ...]:
    """The leader, and everybody else in any order."""
    return 1, *random.sample(range(2, scene.replicas + 1), scene.replicas - 1)


def among(nodes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return both_ways((a, b) for a in nodes for b in nodes if a < b)


def _die_after_vote(random: Random, scene: Scene, nodes: Iterable[int], at_ns: int) -> list[Fault]:
    """Quiet by then, each dies at the first disk call behind its vote."""
    quiet_ns = at_ns + scene.elections(random, 0.7, 0.9)
    down_ns = scene.elections(random, 0.7, 1.3)
    return [kill(quiet_ns, node, down_ns, META_CALLS) for node in nodes]


def kill(at_ns: int, node: int, for_ns: int, calls: int) -> Fault:
    return Fault(at_ns, FaultKind.KILL_REPLICA, node=node, for_ns=for_ns, calls=calls)


def aimed(random: Random, faults: list[Fault]) -> list[Fault]:
    return surely_aimed(random, faults) if percent(random, AIMED_PERCENT) else faults


def surely_aimed(random: Random, faults: list[Fault]) -> list[Fault]:
    """For those that are nothing without the leader."""
    group = 1 + random.getrandbits(31)
    return [msgspec.structs.replace(fault, group=group) for fault in faults]
