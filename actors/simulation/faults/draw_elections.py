"""Sequences aimed at the leader that decide who wins the next election, and with which log.

Such schedules are too exact to be met by chance. Owns their order and timing; node 1 is the leader
(`aiming`). Must not know which classes they need.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from msgspec.structs import replace

from actors.simulation.faults.aiming import (
    at_leader,
    links_among,
    moment_leaving,
    mostly_at_leader,
    roles,
)
from actors.simulation.faults.draw_episodes import (
    BULK,
    CLIENTS,
    Link,
    Scene,
    both_ways,
    cut,
    isolation,
    kill,
    power_cut,
    stall,
)
from actors.simulation.faults.draw_ground import MILLISECOND, SECOND, percent, spread
from actors.simulation.faults.script import Fault, FaultKind

HOLD, RESET = "hold", "reset"
# Disk calls of one save of META, which a vote is; and of one group of entries.
META_CALLS = 4
GROUP_CALLS = 4
# A vote and the first groups after it.
AFTER_FIRST_GROUPS = tuple(META_CALLS + GROUP_CALLS * groups for groups in (1, 1, 1, 2, 2, 3, 4))
# How long broken connections may stay broken after a cut.
RECONNECT_NS = 5 * SECOND // 2
ALL = 1_000  # of 1,000 messages


def figure_eight(random: Random, scene: Scene) -> list[Fault]:
    """The Raft paper's figure 8. The leader is cut off with entries that no other node has. Another
    leader is elected, and its voters die before they write its first entry. The old leader comes
    back, replicates its entries to a majority, and is cut off before its new term's no-op gets
    there. The other leader returns and overwrites them.
    """
    if scene.replicas == 5 and percent(random, 75):
        return _overwritten_twice(random, scene)
    old, new, *others = roles(random, scene)
    at_ns = moment_leaving(random, scene, 10 * scene.election_ns + 2 * RECONNECT_NS)
    elected_ns = at_ns + scene.elections(random, 1.6, 2.1)
    back_ns = elected_ns + scene.elections(random, 0.8, 1.6)
    end_ns = back_ns + scene.elections(random, 1.2, 3.0) + RECONNECT_NS
    last_ns = scene.elections(random, 2.0, 3.0) + RECONNECT_NS
    silent = links_among(others)
    again_ns = scene.elections(random, 0.2, 0.5)
    # A restarted node waits longer for a leader, so `new` is the first to ask for votes.
    anew = [kill(at_ns + scene.election_ns // 20, node, again_ns, -1) for node in others]
    fatal = [
        kill(back_ns, node, end_ns - back_ns, random.choice(AFTER_FIRST_GROUPS)) for node in others
    ]
    return mostly_at_leader(
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


def _overwritten_twice(random: Random, scene: Scene) -> list[Fault]:
    """Of five replicas, a follower takes an entry of one leader, then another leader's in its
    place, then the first one again (A, C, A). The others vote for both and keep neither's entry."""
    old, follower, new, *others = roles(random, scene)
    at_ns = moment_leaving(random, scene, 8 * scene.election_ns)
    elected_ns = at_ns + scene.elections(random, 1.6, 2.4)
    back_ns = elected_ns + scene.elections(random, 0.2, 0.8)
    end_ns = back_ns + scene.elections(random, 1.5, 4.0)
    apart = both_ways((old, node) for node in (new, *others))
    silent = links_among(others) + both_ways((follower, node) for node in others)
    return mostly_at_leader(
        random,
        [
            cut(at_ns, apart, back_ns - at_ns),
            cut(at_ns, silent, end_ns - at_ns),
            *_die_after_vote(random, scene, others, at_ns),
            cut(elected_ns, isolation(scene, new, with_clients=False), end_ns - elected_ns),
        ],
    )


def _die_after_vote(random: Random, scene: Scene, nodes: Iterable[int], at_ns: int) -> list[Fault]:
    """Each has no other disk calls to make by then, and dies at the first one after its vote."""
    quiet_ns = at_ns + scene.elections(random, 0.7, 0.9)
    down_ns = scene.elections(random, 0.7, 1.3)
    return [kill(quiet_ns, node, down_ns, META_CALLS) for node in nodes]


def split_vote(random: Random, scene: Scene) -> list[Fault]:
    """The leader is cut off and all other disks are slow. Several nodes vote for themselves before
    any may ask for votes, votes come late, and saves of two terms are in flight together."""
    at_ns = moment_leaving(random, scene, 9 * scene.election_ns)
    for_ns = scene.elections(random, 3.0, 7.0)
    others = [node for node in scene.nodes if node != 1]
    begin_ns = max(0, at_ns - scene.election_ns // 10)
    faults = [stall(begin_ns, node, for_ns, scene.elections(random, 0.2, 0.9)) for node in others]
    alone = isolation(scene, 1, with_clients=False)
    return mostly_at_leader(
        random, [*faults, cut(at_ns, alone, for_ns + scene.elections(random, 0.0, 1.0))]
    )


def torn_vote(random: Random, scene: Scene) -> list[Fault]:
    """The leader is cut off, and the power fails while votes are saved: one copy of META is torn,
    the other whole."""
    at_ns = moment_leaving(random, scene, 7 * scene.election_ns)
    for_ns = scene.elections(random, 2.0, 4.0)
    quiet_ns = at_ns + scene.elections(random, 0.5, 0.9)
    down_ns = scene.elections(random, 0.05, 0.5)
    faults = [cut(at_ns, isolation(scene, 1, with_clients=False), for_ns)]
    for node in range(2, scene.replicas + 1):
        calls = random.randrange(META_CALLS + 2)
        fault = power_cut(quiet_ns, (node,), random, for_ns=down_ns, calls=calls)
        faults.append(replace(fault, mode="garble"))
    return mostly_at_leader(random, faults)


def longer_log(random: Random, scene: Scene) -> list[Fault]:
    """The leader (with a follower if there are five) is cut off with all clients and takes many
    entries. The others commit the no-op of a newer term, then are cut off from each other. In some
    runs they elect again before the first group is back, so that the new leader's stream begins
    within the first group's suffix; in most runs all others see only the first group. The longer
    log must not win."""
    if scene.replicas == 5 and percent(random, 70):
        return reelected_leader(random, scene)  # a stale `match` shows with five only
    at_ns, minority, others = _apart(random, scene, 8)
    elected_ns = at_ns + scene.elections(random, 2.2, 2.8)
    alone_ns = elected_ns + scene.elections(random, 1.2, 1.4)
    is_elected_again = percent(random, 35)
    end_ns = alone_ns + scene.elections(random, 2.2, 2.8)
    back_ns, seen_ns = (end_ns, alone_ns) if is_elected_again else (alone_ns, end_ns)
    return at_leader(
        random,
        [
            cut(at_ns, both_ways((a, b) for a in minority for b in others), back_ns - at_ns, RESET),
            cut(at_ns, both_ways((CLIENTS, node) for node in others), end_ns - at_ns, RESET),
            cut(elected_ns, links_among(others), seen_ns - elected_ns, RESET),
        ],
    )


def reelected_leader(random: Random, scene: Scene) -> list[Fault]:
    """The leader (with a follower if there are five) is cut off with all clients, and its entries
    are flushed there. The others elect another leader, which overwrites them with only a no-op.
    Then all nodes see the first leader alone, so it leads again: what it knew of its followers is
    out of date, and the batches it took are gone."""
    at_ns, minority, others = _apart(random, scene, 7)
    back_ns = at_ns + scene.elections(random, 2.2, 2.8)
    again_ns = at_ns + scene.elections(random, 0.3, 0.8)
    star_ns = back_ns + scene.elections(random, 0.5, 0.9)
    end_ns = star_ns + scene.elections(random, 2.8, 3.4)
    rest = [node for node in scene.nodes if node != 1]
    return at_leader(
        random,
        [
            cut(at_ns, both_ways((a, b) for a in minority for b in others), back_ns - at_ns, RESET),
            cut(at_ns, both_ways((CLIENTS, node) for node in others), end_ns - at_ns, RESET),
            Fault(again_ns, FaultKind.FLOOD, mode="again"),
            cut(star_ns, links_among(rest), end_ns - star_ns, RESET),
        ],
    )


def _apart(random: Random, scene: Scene, elections: int) -> tuple[int, list[int], list[int]]:
    """A moment that leaves so many election timeouts, the leader's minority, the others."""
    order = roles(random, scene)
    few = scene.replicas // 2
    at_ns = moment_leaving(random, scene, elections * scene.election_ns)
    return at_ns, list(order[:few]), list(order[few:])


def late_vote(random: Random, scene: Scene) -> list[Fault]:
    """A candidate's votes come late (FAULTS.N16). What the leader sends (of five, the leader and a
    follower) is held: it gives its vote and cannot be asked again. The other disks are so slow that
    their first votes come when the candidate asks again, and their second ones later still. Then
    the leader's held vote arrives. The candidate hears the leader longest, so that it grants no one
    else a pre-vote; clients are cut off, so that all logs are equal."""
    order = roles(random, scene)
    few = scene.replicas // 2
    late, candidate, slow = order[:few], order[few], order[few + 1 :]
    at_ns = moment_leaving(random, scene, 8 * scene.election_ns)
    silent_ns = at_ns + 9 * scene.election_ns // 10
    asked_ns, told_ns, end_ns = (
        silent_ns + tenths * scene.election_ns // 10 for tenths in (22, 46, 60)
    )
    quiet_ns = at_ns - scene.election_ns // 4
    rest = (candidate, *slow)
    clients = both_ways((CLIENTS, node) for node in scene.nodes)
    return at_leader(
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
    """The leader is cut off from the others, not from clients, and their clocks jump: another node
    leads while the first may still believe that it does (FAULTS.R10)."""
    at_ns = moment_leaving(random, scene, 5 * scene.election_ns)
    jump_ns = at_ns + scene.elections(random, 0.0, 0.1)
    amount = 3 * scene.election_ns
    jumps = [
        Fault(jump_ns, FaultKind.MONOTONIC_JUMP, node=node, amount=amount)
        for node in scene.nodes
        if node != 1
    ]
    for_ns = scene.elections(random, 1.0, 2.0)
    return mostly_at_leader(
        random, [cut(at_ns, isolation(scene, 1, with_clients=False), for_ns), *jumps]
    )


def dead_target(random: Random, scene: Scene) -> list[Fault]:
    """Twice a replica is stopped, and leadership is handed over to it before the leader can notice
    (FAULTS.R17). The leader keeps its term and must go on."""
    at_ns = moment_leaving(random, scene, 7 * scene.election_ns)
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
    return at_leader(random, faults)


def accepted_and_lost(random: Random, scene: Scene) -> list[Fault]:
    """The last fault of a run: a follower has accepted what it cannot flush, and restarts. No new
    leader follows, so the present one must notice."""
    at_ns = max(0, scene.safety_ns - scene.elections(random, 2.2, 3.5))
    follower = random.randint(2, scene.replicas)
    for_ns = scene.elections(random, 0.6, 1.2)
    slow = stall(at_ns, follower, for_ns, 2 * for_ns)
    down_ns = scene.elections(random, 0.05, 0.4)
    return mostly_at_leader(random, [slow, kill(at_ns + for_ns, follower, down_ns, -1)])


def lost_appends(random: Random, scene: Scene) -> list[Fault]:
    """No entry of the leader arrives, while heartbeats do: the bulk lane loses messages, holds
    them, or breaks. Now and then between all replicas, so that no new leader does better."""
    length_ns = scene.elections(random, 9.0, 12.0)
    at_ns = moment_leaving(random, scene, length_ns)
    others = [node for node in scene.nodes if node != 1]
    links: tuple[Link, ...] = tuple((1, node) for node in others)
    if percent(random, 20):
        links = both_ways((a, b) for a in scene.nodes for b in scene.nodes if a < b)
    mode = random.choice(("lost", "drop", "hold", "reset"))
    fault = cut(at_ns, links, length_ns, mode)
    if mode == "lost":
        fault = Fault(at_ns, FaultKind.LINK_QUALITY, links=links, for_ns=length_ns, loss=ALL)
    return at_leader(random, [replace(fault, lane=BULK)])


def rewritten_in_flight(random: Random, scene: Scene) -> list[Fault]:
    """A leader's flush takes longer than the election of the next leader, which overwrites what is
    being flushed (FAULTS.R24). The old one saves the new term between two flushes and has more to
    flush: all clients append to it, as much as they may, and all of that is overwritten."""
    at_ns = moment_leaving(random, scene, 7 * scene.election_ns)
    alone_ns = at_ns + scene.elections(random, 0.0, 0.5)
    for_ns = scene.elections(random, 1.6, 2.4)
    delay_ns = scene.elections(random, 1.2, 3.5)
    others = [node for node in scene.nodes if node != 1]
    # Held connections go on at once after the cut, while the flush is still in flight.
    mode = "drop" if percent(random, 10) else HOLD
    # Mostly records: the writer goes on to frames, and to truncations, meanwhile.
    slow_files = random.choice((".raft", ".raft", ".raft", ".data"))
    asked_ns = alone_ns + scene.elections(random, 0.05, 0.6)
    return at_leader(
        random,
        [
            stall(at_ns, 1, scene.elections(random, 5.0, 7.0), delay_ns, slow_files),
            cut(alone_ns, isolation(scene, 1, with_clients=False), for_ns, mode),
            cut(alone_ns, both_ways((CLIENTS, node) for node in others), for_ns, mode),
            Fault(asked_ns, FaultKind.FLOOD),
        ],
    )
