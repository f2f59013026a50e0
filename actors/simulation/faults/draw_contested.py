"""Sequences around whoever leads whose point is an election: who may win it, with which log.

Owns their order and timing; node 1 is the leader, as in `draw_aimed`. Must not know which classes
they need.
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from actors.simulation.faults.draw_aimed import (
    META_CALLS,
    aimed,
    among,
    kill,
    moment_before,
    roles,
    surely_aimed,
)
from actors.simulation.faults.draw_episodes import (
    CLIENTS,
    Scene,
    both_ways,
    cut,
    isolation,
    power_cut,
    stall,
)
from actors.simulation.faults.draw_ground import MILLISECOND, percent, spread
from actors.simulation.faults.script import Fault, FaultKind

HOLD, RESET = "hold", "reset"


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
    """The leader, of five replicas with a follower, is apart with all clients and many entries; the
    others commit the no-op of a newer term, then each of them is alone. In some they elect once
    more before the first ones come back, so that its stream begins in the midst of their suffix; in
    most the first ones are the only ones that all others see. The longer log must not win.
    """
    if scene.replicas == 5 and percent(random, 70):
        return led_again(random, scene)  # which needs five to show what match was
    at_ns, minority, others = _apart(random, scene, 8)
    elected_ns = at_ns + scene.elections(random, 2.2, 2.8)
    alone_ns = elected_ns + scene.elections(random, 1.2, 1.4)
    is_elected_again = percent(random, 35)
    end_ns = alone_ns + scene.elections(random, 2.2, 2.8)
    back_ns, seen_ns = (end_ns, alone_ns) if is_elected_again else (alone_ns, end_ns)
    return surely_aimed(
        random,
        [
            cut(at_ns, both_ways((a, b) for a in minority for b in others), back_ns - at_ns, RESET),
            cut(at_ns, both_ways((CLIENTS, node) for node in others), end_ns - at_ns, RESET),
            cut(elected_ns, among(others), seen_ns - elected_ns, RESET),
        ],
    )


def led_again(random: Random, scene: Scene) -> list[Fault]:
    """The leader, of five replicas with a follower, is apart with all clients and with entries that
    are flushed there; the others elect, and overwrite them with no more than a no-op. Then all see
    the first one and nobody else, so it leads again: what it knew of its followers is not so any
    more, and the batches it took are gone."""
    at_ns, minority, others = _apart(random, scene, 7)
    back_ns = at_ns + scene.elections(random, 2.2, 2.8)
    again_ns = at_ns + scene.elections(random, 0.3, 0.8)
    star_ns = back_ns + scene.elections(random, 0.5, 0.9)
    end_ns = star_ns + scene.elections(random, 2.8, 3.4)
    rest = [node for node in scene.nodes if node != 1]
    return surely_aimed(
        random,
        [
            cut(at_ns, both_ways((a, b) for a in minority for b in others), back_ns - at_ns, RESET),
            cut(at_ns, both_ways((CLIENTS, node) for node in others), end_ns - at_ns, RESET),
            Fault(again_ns, FaultKind.FLOOD, mode="again"),
            cut(star_ns, among(rest), end_ns - star_ns, RESET),
        ],
    )


def _apart(random: Random, scene: Scene, elections: int) -> tuple[int, list[int], list[int]]:
    """A moment that leaves so many election timeouts, a minority with the leader, the others."""
    order = roles(random, scene)
    few = scene.replicas // 2
    at_ns = moment_before(random, scene, elections * scene.election_ns)
    return at_ns, list(order[:few]), list(order[few:])


def late_vote(random: Random, scene: Scene) -> list[Fault]:
    """A candidate's votes come late (FAULTS.N16): the leader, of five replicas with another one, is
    heard by nobody, gives its vote and cannot be asked again; the others' disks are so slow that
    their first votes come when the candidate asks anew, and their second ones later. Then what the
    leader said arrives. The candidate hears the leader longest, so that it grants nobody else an
    election; no client is there, so that all logs are level."""
    order = roles(random, scene)
    few = scene.replicas // 2
    late, candidate, slow = order[:few], order[few], order[few + 1 :]
    at_ns = moment_before(random, scene, 8 * scene.election_ns)
    silent_ns = at_ns + 9 * scene.election_ns // 10
    asked_ns, told_ns, end_ns = (
        silent_ns + tenths * scene.election_ns // 10 for tenths in (22, 46, 60)
    )
    quiet_ns = at_ns - scene.election_ns // 4
    rest = (candidate, *slow)
    clients = both_ways((CLIENTS, node) for node in scene.nodes)
    return surely_aimed(
        random,
        [
            cut(quiet_ns, clients, end_ns - quiet_ns, HOLD),
            *(stall(at_ns, node, end_ns - at_ns, 6 * scene.election_ns // 5) for node in slow),
            cut(
                at_ns,
                tuple((a, b) for a in late for b in (*late, *slow) if a != b),
                told_ns - at_ns,
                HOLD,
            ),
            cut(silent_ns, tuple((a, candidate) for a in late), told_ns - silent_ns, HOLD),
            cut(asked_ns, tuple((b, a) for a in late for b in rest), end_ns - asked_ns, HOLD),
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


def dead_target(random: Random, scene: Scene) -> list[Fault]:
    """Twice a replica is taken down, and leadership is handed over to it before the leader can have
    noticed (FAULTS.R17). Its leader keeps its term, and must go on."""
    at_ns = moment_before(random, scene, 7 * scene.election_ns)
    faults = []
    for _ in range(2):
        target = random.randint(2, scene.replicas)
        down_ns = scene.elections(random, 1.4, 2.4)
        asked_ns = at_ns + spread(random, 20 * MILLISECOND, scene.election_ns // 5)
        faults += [
            Fault(at_ns, FaultKind.RESTART, node=target, for_ns=down_ns),
            Fault(asked_ns, FaultKind.TRANSFER, node=target),
        ]
        at_ns += scene.elections(random, 3.0, 4.0)
    return surely_aimed(random, faults)


def accepted_and_lost(random: Random, scene: Scene) -> list[Fault]:
    """The last thing that happens: a follower has accepted what it cannot flush, and starts anew.
    Nobody leads anew, so whoever leads must notice."""
    at_ns = max(0, scene.safety_ns - scene.elections(random, 2.2, 3.5))
    follower = random.randint(2, scene.replicas)
    for_ns = scene.elections(random, 0.6, 1.2)
    slow = stall(at_ns, follower, for_ns, 2 * for_ns)
    down_ns = scene.elections(random, 0.05, 0.4)
    return aimed(random, [slow, kill(at_ns + for_ns, follower, down_ns, -1)])
