"""Sequences around whoever leads whose point is an election: who may win it, with which log.

Owns their order and timing; node 1 is the leader, as in `draw_aimed`. Must not know which classes
they need.
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from actors.simulation.draw_aimed import META_CALLS, aimed, kill, moment_before, roles
from actors.simulation.draw_episodes import Scene, both_ways, cut, isolation, power_cut, stall
from actors.simulation.draw_ground import MILLISECOND, percent, spread
from actors.simulation.faults import Fault, FaultKind


def split_vote(random: Random, scene: Scene) -> list[Fault]:
    """The leader is gone and everybody else's disk is slow: several have voted for themselves
    before anybody may tell, votes come late, and saves of two terms are under way together."""
    at_ns = moment_before(random, scene, 9 * scene.election_ns)
    for_ns = scene.elections(random, 3.0, 7.0)
    others = [node for node in scene.nodes if node != 1]
    begin_ns = max(0, at_ns - scene.election_ns // 10)
    faults = [stall(begin_ns, node, for_ns, scene.elections(random, 0.2, 0.9)) for node in others]
    alone = isolation(scene, 1, with_clients=False)
    return aimed(random, [*faults, cut(at_ns, alone, for_ns + scene.elections(random, 0.0, 1.0))])


def torn_vote(random: Random, scene: Scene) -> list[Fault]:
    """The leader is gone, and the power goes while votes are being saved: one copy of META is torn,
    the other whole."""
    at_ns = moment_before(random, scene, 7 * scene.election_ns)
    for_ns = scene.elections(random, 2.0, 4.0)
    quiet_ns = at_ns + scene.elections(random, 0.5, 0.9)
    down_ns = scene.elections(random, 0.05, 0.5)
    faults = [cut(at_ns, isolation(scene, 1, with_clients=False), for_ns)]
    for node in range(2, scene.replicas + 1):
        calls = random.randrange(META_CALLS + 2)
        fault = power_cut(quiet_ns, (node,), random, for_ns=down_ns, calls=calls)
        faults.append(replace(fault, mode="garble"))
    return aimed(random, faults)


def longer_log(random: Random, scene: Scene) -> list[Fault]:
    """The leader is alone with many entries; another one commits a few in a newer term, and
    everybody but the first starts anew. The longer log must not win. In half of them it stays
    alone during a third election, so that the next leader's begins in the midst of its suffix."""
    at_ns = moment_before(random, scene, 9 * scene.election_ns)
    anew_ns = at_ns + scene.elections(random, 1.5, 2.6)
    again = percent(random, 50)
    back_ns = anew_ns + (scene.elections(random, 1.2, 2.6) if again else 20 * MILLISECOND)
    down_ns = scene.elections(random, 0.1, 0.6)
    return aimed(
        random,
        [
            cut(at_ns, isolation(scene, 1, with_clients=False), back_ns - at_ns),
            *(kill(anew_ns, node, down_ns, -1) for node in scene.nodes if node != 1),
        ],
    )


def minority_pair(random: Random, scene: Scene) -> list[Fault]:
    """Of five replicas the leader and a follower are alone with entries that both have flushed;
    the others elect and overwrite them. In the end the first one shall lead again. Of three
    replicas the leader is alone."""
    old, follower, *others = roles(random, scene)
    at_ns = moment_before(random, scene, 9 * scene.election_ns)
    for_ns = scene.elections(random, 2.0, 4.5)
    apart = both_ways((a, b) for a in (old, follower) for b in others)
    if scene.replicas < 5:
        apart = isolation(scene, old, with_clients=False)
    back_ns = at_ns + for_ns + scene.elections(random, 0.5, 2.0)
    return aimed(
        random,
        [
            cut(at_ns, apart, for_ns),
            Fault(back_ns, FaultKind.TRANSFER, node=old),
            Fault(back_ns + scene.election_ns, FaultKind.TRANSFER, node=old),
        ],
    )


def early_election(random: Random, scene: Scene) -> list[Fault]:
    """Everybody else's clock jumps while the leader is cut off from them, not from clients: another
    one leads while the first may still think that it does (FAULTS.R10)."""
    at_ns = moment_before(random, scene, 5 * scene.election_ns)
    jump_ns = at_ns + scene.elections(random, 0.0, 0.1)
    amount = 3 * scene.election_ns
    jumps = [
        Fault(jump_ns, FaultKind.MONOTONIC_JUMP, node=node, amount=amount)
        for node in scene.nodes
        if node != 1
    ]
    for_ns = scene.elections(random, 1.0, 2.0)
    return aimed(random, [cut(at_ns, isolation(scene, 1, with_clients=False), for_ns), *jumps])


def lost_replicator(random: Random, scene: Scene) -> list[Fault]:
    """A leader's replicator dies and starts alone; often as the last thing that happens."""
    at_ns = moment_before(random, scene, 2 * scene.election_ns)
    if percent(random, 50):
        at_ns = max(0, scene.safety_ns - scene.elections(random, 0.3, 1.0))
    process = f"replicator-{random.randint(2, scene.replicas)}"
    return aimed(random, [Fault(at_ns, FaultKind.KILL_PROCESS, node=1, process=process)])


def dead_target(random: Random, scene: Scene) -> list[Fault]:
    """The last thing that happens: a handover to one who has just died. Its leader must go on."""
    at_ns = max(0, scene.safety_ns - scene.elections(random, 1.2, 2.5))
    target = random.randint(2, scene.replicas)
    asked_ns = at_ns + spread(random, MILLISECOND, scene.election_ns // 5)
    for_ns = scene.elections(random, 4.0, 6.0)
    faults = [kill(at_ns, target, for_ns, -1), Fault(asked_ns, FaultKind.TRANSFER, node=target)]
    return aimed(random, faults)


def accepted_and_lost(random: Random, scene: Scene) -> list[Fault]:
    """The last thing that happens: a follower has accepted what it cannot flush, and starts anew.
    Nobody leads anew, so whoever leads must notice."""
    at_ns = max(0, scene.safety_ns - scene.elections(random, 2.2, 3.5))
    follower = random.randint(2, scene.replicas)
    for_ns = scene.elections(random, 0.6, 1.2)
    slow = stall(at_ns, follower, for_ns, 2 * for_ns)
    down_ns = scene.elections(random, 0.05, 0.4)
    return aimed(random, [slow, kill(at_ns + for_ns, follower, down_ns, -1)])
