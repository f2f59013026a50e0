"""Rot: of sectors anywhere, or of those that decide a recovery or a vote.

Owns its episodes and sequences, with the restarts that find the damage and the deaths around them.
Strikes `Scene.vulnerable` only, so that one good copy of everything stays; other nodes with a good
copy may be dead for a while.
"""

from __future__ import annotations

from random import Random

from actors.simulation.faults.aiming import moment_leaving
from actors.simulation.faults.draw_episodes import (
    CLIENTS,
    Scene,
    both_ways,
    cut,
    draw_down_ns,
    kill,
    stall,
)
from actors.simulation.faults.draw_ground import MILLISECOND, SECOND, percent, spread
from actors.simulation.faults.script import Fault, FaultKind, RotPlace

# What `fault_injector` may do to a sector.
ROT_KINDS = ("flip", "zero", "garble", "misdirect", "stale", "unreadable")
# Those that damage a sector written once.
_HARD_KINDS = ("flip", "zero", "garble", "garble", "unreadable")
# With so many entries after it, another sector of records follows that of an entry.
_BEHIND_MIN = 4
# The time in which a cluster commits a few entries.
_FEW_ENTRIES_NS = (10 * MILLISECOND, 150 * MILLISECOND)
# In which some producer appends a burst, mostly.
_HELD_NS = (200 * MILLISECOND, 500 * MILLISECOND)
# In which what was held arrives, and seldom anything else.
_LET_THROUGH_NS = 15 * MILLISECOND
_SLOW_FLUSH_NS = 40 * MILLISECOND
# After a few slow flushes.
_COMMITTED_NS = (120 * MILLISECOND, 200 * MILLISECOND)


def draw_rot(random: Random, scene: Scene) -> list[Fault]:
    """Sectors anywhere, or at known places."""
    if not scene.vulnerable:
        return []
    return random.choice((_scattered, _scattered, _aimed))(random, scene)


def _scattered(random: Random, scene: Scene) -> list[Fault]:
    """A few sectors of one node, mostly followed by a restart, which reads them all."""
    at_ns, node = scene.moment(random), random.choice(scene.vulnerable)
    end = random.choice((".data", ".data", ".data", ".raft", ".raft", "meta.a", "meta.b"))
    faults = [
        Fault(
            at_ns, FaultKind.ROT, node=node, mode=random.choice(ROT_KINDS), process=end,
            pick=random.getrandbits(32),
        )
        for _ in range(random.choice((1, 1, 2, 3)))
    ]  # fmt: skip
    if percent(random, 70):
        again_ns = at_ns + spread(random, MILLISECOND, SECOND)
        faults.append(kill(again_ns, node, draw_down_ns(random, scene)))
    return faults


def _aimed(random: Random, scene: Scene) -> list[Fault]:
    """The newest frames or records, both halves of an entry with others after it, or a header; then
    a restart. Sometimes two places, but none besides an entry: if the records after it are damaged
    too, it cannot be told from a torn tail (SAFETY section 4)."""
    at_ns, node = scene.moment(random), random.choice(scene.vulnerable)
    places = random.choices((*RotPlace, RotPlace.ENTRY), k=random.choice((1, 1, 2)))
    if RotPlace.ENTRY in places:
        behind = _BEHIND_MIN - 1 + random.randint(1, 3)
        faults = [_rot(random, at_ns, node, RotPlace.ENTRY, behind)]
    else:
        faults = [_rot(random, at_ns, node, place, random.randint(1, 3)) for place in places]
    faults.append(kill(at_ns, node, _short_ns(random)))
    return faults


def rotten_voter(random: Random, scene: Scene) -> list[Fault]:
    """One replica is dead while the others commit. Then the newest entries of the vulnerable nodes
    rot and all nodes die. Either a node with whole entries returns first and leads, or the node
    that never had them asks for votes (Q1, Q2)."""
    if not scene.vulnerable:
        return []
    keepers = [node for node in scene.nodes if node not in scene.vulnerable]
    late = keepers.pop(random.randrange(len(keepers)))
    if percent(random, 75):
        return _rotten_burst(random, scene, late, keepers)
    behind_ns = scene.elections(random, 1.3, 2.8)
    if percent(random, 50):
        behind_ns = spread(random, *_FEW_ENTRIES_NS)
    at_ns = moment_leaving(random, scene, behind_ns + 6 * scene.election_ns)
    rot_ns = at_ns + behind_ns
    short_ns, long_ns = _short_ns(random), scene.elections(random, 3.0, 5.0)
    is_late_first = percent(random, 50)
    faults = [kill(at_ns, late, behind_ns + (short_ns if is_late_first else long_ns))]
    for node in scene.vulnerable:
        for _ in range(random.randint(1, 2)):
            faults.append(_rot(random, rot_ns, node, RotPlace.FRAME, random.randint(1, 2)))
        faults.append(kill(rot_ns, node, _short_ns(random)))
    for node in keepers:
        faults.append(kill(rot_ns, node, long_ns if is_late_first else _short_ns(random)))
    return faults


def _rotten_burst(random: Random, scene: Scene, late: int, keepers: list[int]) -> list[Fault]:
    """What `late` misses are appends that were held, then let through together, with nothing after
    them. A record says how far the commit index was known, and damage up to there is known to be
    of committed entries: so the other nodes flush slowly, and nothing of the burst is committed
    before the vulnerable nodes have written all of it. There, all of it rots: without it, the log
    of `late` is as good."""
    asked_ns = moment_leaving(random, scene, 8 * scene.election_ns)
    quiet_ns = asked_ns + scene.elections(random, 0.4, 0.8)
    burst_ns = quiet_ns + spread(random, *_HELD_NS)
    late_ns, last_ns = burst_ns - MILLISECOND, burst_ns + _LET_THROUGH_NS
    rot_ns = burst_ns + spread(random, *_COMMITTED_NS)
    back_ns = rot_ns + _short_ns(random)
    clients = both_ways((CLIENTS, node) for node in scene.nodes)
    faults = [
        Fault(asked_ns, FaultKind.TRANSFER, node=random.choice(keepers)),
        cut(quiet_ns, clients, burst_ns - quiet_ns, "hold"),
        kill(late_ns, late, back_ns - late_ns),
        cut(last_ns, clients, rot_ns - last_ns, "hold"),
    ]
    for node in scene.vulnerable:
        faults.append(_rot(random, rot_ns, node, RotPlace.FRAMES, random.randint(8, 24)))
        faults.append(kill(rot_ns, node, _short_ns(random)))
    for node in keepers:
        faults.append(stall(late_ns, node, rot_ns - late_ns, _SLOW_FLUSH_NS, ".raft"))
        faults.append(kill(rot_ns, node, scene.elections(random, 3.0, 5.0)))
    return faults


def rotten_leader(random: Random, scene: Scene) -> list[Fault]:
    """A vulnerable node leads and all others die. What it takes then rots, and is overwritten by
    the nodes that come back before it (Q1)."""
    if not scene.vulnerable:
        return []
    node = random.choice(scene.vulnerable)
    asked_ns = moment_leaving(random, scene, 8 * scene.election_ns)
    again_ns = asked_ns + scene.elections(random, 0.3, 0.6)
    at_ns = again_ns + scene.elections(random, 0.2, 0.8)
    rot_ns = at_ns + scene.elections(random, 0.3, 0.8)
    faults = [Fault(each, FaultKind.TRANSFER, node=node) for each in (asked_ns, again_ns)]
    for other in scene.nodes:
        if other != node:
            faults.append(kill(at_ns, other, rot_ns - at_ns + _short_ns(random)))
    for amount in random.choice(((1,), (1,), (1, 3), (2, 4))):
        faults.append(_rot(random, rot_ns, node, RotPlace.FRAME, amount))
    faults.append(kill(rot_ns, node, scene.elections(random, 2.0, 3.5)))
    return faults


def rotten_only_copy(random: Random, scene: Scene) -> list[Fault]:
    """The last faults of a run. A vulnerable node leads and all others die: what it takes then, it
    alone has, and that rots. A bare majority with shorter logs comes back and elects it; the others
    come back at the end. The damaged leader must not keep them from electing another (Q3)."""
    if not scene.vulnerable:
        return []
    node = random.choice(scene.vulnerable)
    first_ns, length_ns = SECOND + 3 * scene.election_ns, scene.elections(random, 10.0, 11.0)
    asked_ns = max(first_ns, scene.safety_ns - length_ns)
    end_ns = asked_ns + length_ns
    again_ns = asked_ns + scene.elections(random, 0.3, 0.6)
    at_ns = again_ns + scene.elections(random, 0.3, 0.8)
    rot_ns = at_ns + scene.elections(random, 0.3, 0.8)
    others = [other for other in scene.nodes if other != node]
    random.shuffle(others)
    few = scene.replicas // 2
    faults = [Fault(each, FaultKind.TRANSFER, node=node) for each in (asked_ns, again_ns)]
    for place, other in enumerate(others):
        back_ns = rot_ns + _short_ns(random) if place < few else end_ns
        faults.append(kill(at_ns, other, back_ns - at_ns))
    faults.append(_rot(random, rot_ns, node, RotPlace.FRAME, 1))
    faults.append(kill(rot_ns, node, _short_ns(random)))
    return faults


def _rot(random: Random, at_ns: int, node: int, place: RotPlace, amount: int) -> Fault:
    return Fault(
        at_ns, FaultKind.ROT, node=node, mode=random.choice(_HARD_KINDS), process=place,
        pick=random.getrandbits(32), amount=amount,
    )  # fmt: skip


def _short_ns(random: Random) -> int:
    return spread(random, 10 * MILLISECOND, SECOND // 3)
