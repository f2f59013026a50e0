"""What rot does at a time: sectors anywhere, or those that recovery and voters decide by.

Owns its episodes and sequences, with the starts that make damage known and the deaths around them.
Strikes
`Scene.vulnerable` only, so that one good copy of everything stays; who else has a good one may be
dead for a while.
"""

from __future__ import annotations

from random import Random

from actors.simulation.faults.draw_aimed import moment_before
from actors.simulation.faults.draw_episodes import Scene
from actors.simulation.faults.draw_ground import MILLISECOND, SECOND, percent, spread
from actors.simulation.faults.script import Fault, FaultKind, RotPlace

# What `conduct` may do to a sector.
ROT_KINDS = ("flip", "zero", "garble", "misdirect", "stale", "unreadable")
# Those that change what was written once.
_HARD_KINDS = ("flip", "zero", "garble", "garble", "unreadable")
# Behind the record of such an entry is another sector of records.
_BEHIND_MIN = 4
# In which a cluster commits a few entries.
_FEW_ENTRIES_NS = (10 * MILLISECOND, 150 * MILLISECOND)


def draw_rot(random: Random, scene: Scene) -> list[Fault]:
    """Sectors anywhere, or at known places."""
    if not scene.vulnerable:
        return []
    return random.choice((_scattered, _scattered, _aimed))(random, scene)


def _scattered(random: Random, scene: Scene) -> list[Fault]:
    """A few sectors of one node, mostly followed by a start, which reads them all."""
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
        faults.append(_kill(again_ns, node, _down_ns(random, scene)))
    return faults


def _aimed(random: Random, scene: Scene) -> list[Fault]:
    """The newest frames or records, both halves of an entry with others behind it, or a header;
    then a start. Now and then one more place, but none beside an entry: with the records behind it
    gone too, an entry is a torn tail and nobody can name it (SAFETY section 4)."""
    at_ns, node = scene.moment(random), random.choice(scene.vulnerable)
    places = random.choices((*RotPlace, RotPlace.ENTRY), k=random.choice((1, 1, 2)))
    if RotPlace.ENTRY in places:
        behind = _BEHIND_MIN - 1 + random.randint(1, 3)
        faults = [_rot(random, at_ns, node, RotPlace.ENTRY, behind)]
    else:
        faults = [_rot(random, at_ns, node, place, random.randint(1, 3)) for place in places]
    faults.append(_kill(at_ns, node, _short_ns(random)))
    return faults


def rotten_voter(random: Random, scene: Scene) -> list[Fault]:
    """One replica is dead while the others commit; the newest entries of those that may rot do, and
    everybody dies. Who has them whole returns first and leads, or who never had them asks for
    votes (Q1, Q2). If it was dead for so short that it misses only those, its log is as good as
    what is left of theirs."""
    if not scene.vulnerable:
        return []
    keepers = [node for node in scene.nodes if node not in scene.vulnerable]
    late = keepers.pop(random.randrange(len(keepers)))
    behind_ns = scene.elections(random, 1.3, 2.8)
    if percent(random, 50):
        behind_ns = spread(random, *_FEW_ENTRIES_NS)
    at_ns = moment_before(random, scene, behind_ns + 6 * scene.election_ns)
    rot_ns = at_ns + behind_ns
    short_ns, long_ns = _short_ns(random), scene.elections(random, 3.0, 5.0)
    is_late_first = percent(random, 50)
    faults = [_kill(at_ns, late, behind_ns + (short_ns if is_late_first else long_ns))]
    for node in scene.vulnerable:
        for _ in range(random.randint(1, 2)):
            faults.append(_rot(random, rot_ns, node, RotPlace.FRAME, random.randint(1, 2)))
        faults.append(_kill(rot_ns, node, _short_ns(random)))
    for node in keepers:
        faults.append(_kill(rot_ns, node, long_ns if is_late_first else _short_ns(random)))
    return faults


def rotten_leader(random: Random, scene: Scene) -> list[Fault]:
    """One leads, and all others die: what it takes then rots, and is overwritten by those who come
    back before it does (Q1)."""
    if not scene.vulnerable:
        return []
    node = random.choice(scene.vulnerable)
    asked_ns = moment_before(random, scene, 8 * scene.election_ns)
    again_ns = asked_ns + scene.elections(random, 0.3, 0.6)
    at_ns = again_ns + scene.elections(random, 0.2, 0.8)
    rot_ns = at_ns + scene.elections(random, 0.3, 0.8)
    faults = [Fault(each, FaultKind.TRANSFER, node=node) for each in (asked_ns, again_ns)]
    for other in scene.nodes:
        if other != node:
            faults.append(_kill(at_ns, other, rot_ns - at_ns + _short_ns(random)))
    for amount in random.choice(((1,), (1,), (1, 3), (2, 4))):
        faults.append(_rot(random, rot_ns, node, RotPlace.FRAME, amount))
    faults.append(_kill(rot_ns, node, scene.elections(random, 2.0, 3.5)))
    return faults


def lone_rot(random: Random, scene: Scene) -> list[Fault]:
    """The last thing of a run. One leads, and all others die: what it takes then, it alone has, and
    that rots. Those of a bare majority who come back first have shorter logs and elect it, the rest
    comes back at the end: damaged as it is, it must not keep them from electing another one (Q3).
    """
    if not scene.vulnerable:
        return []
    node = random.choice(scene.vulnerable)
    first_ns, length_ns = SECOND + 3 * scene.election_ns, scene.elections(random, 10.0, 11.0)
    asked_ns = max(first_ns, scene.safety_ns - length_ns)
    again_ns = asked_ns + scene.elections(random, 0.3, 0.6)
    at_ns = again_ns + scene.elections(random, 0.3, 0.8)
    rot_ns = at_ns + scene.elections(random, 0.3, 0.8)
    others = [other for other in scene.nodes if other != node]
    random.shuffle(others)
    few = scene.replicas // 2
    faults = [Fault(each, FaultKind.TRANSFER, node=node) for each in (asked_ns, again_ns)]
    for place, other in enumerate(others):
        back_ns = rot_ns + _short_ns(random) if place < few else scene.safety_ns
        faults.append(_kill(at_ns, other, max(0, back_ns - at_ns)))
    faults.append(_rot(random, rot_ns, node, RotPlace.FRAME, 1))
    faults.append(_kill(rot_ns, node, _short_ns(random)))
    return faults


def lost_disk(random: Random, scene: Scene) -> list[Fault]:
    """A disk is replaced by an empty one, late: its replica is out for the rest (SAFETY L1)."""
    if not scene.vulnerable:
        return []
    at_ns = scene.safety_ns * random.randint(60, 95) // 100
    node = random.choice(scene.vulnerable)
    return [Fault(at_ns, FaultKind.LOST_DISK, node=node, for_ns=_short_ns(random))]


def _rot(random: Random, at_ns: int, node: int, place: RotPlace, amount: int) -> Fault:
    return Fault(
        at_ns, FaultKind.ROT, node=node, mode=random.choice(_HARD_KINDS), process=place,
        pick=random.getrandbits(32), amount=amount,
    )  # fmt: skip


def _kill(at_ns: int, node: int, for_ns: int) -> Fault:
    return Fault(at_ns, FaultKind.KILL_REPLICA, node=node, for_ns=for_ns)


def _short_ns(random: Random) -> int:
    return spread(random, 10 * MILLISECOND, SECOND // 3)


def _down_ns(random: Random, scene: Scene) -> int:
    return spread(random, 10 * MILLISECOND, SECOND + int(7 * SECOND * scene.hardness))
