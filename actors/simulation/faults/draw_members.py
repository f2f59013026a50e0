"""Faults of the cluster's members: disks that are replaced by empty ones, old disks that come
back, and what strikes while a joint configuration is in force.

Owns their episodes. Strikes `Scene.vulnerable` only, so that one good copy of everything stays. The
injector drops a lost disk while the one before it is not made good.
"""

from __future__ import annotations

from random import Random

import msgspec

from actors.simulation.faults.aiming import at_leader
from actors.simulation.faults.draw_episodes import Scene, both_ways, cut, isolation, kill, power_cut
from actors.simulation.faults.draw_ground import MILLISECOND, SECOND, percent, spread
from actors.simulation.faults.script import Fault, FaultKind, Ground

AMID_A_CHANGE_PERCENT = 60
# What no durable byte is lost by.
_HARMLESS = (
    FaultKind.KILL_REPLICA, FaultKind.KILL_PROCESS, FaultKind.PAUSE, FaultKind.DISK_STALL,
    FaultKind.RESTART, FaultKind.MONOTONIC_JUMP, FaultKind.WALL_JUMP, FaultKind.DISK_FULL,
)  # fmt: skip


def draw_members(random: Random, scene: Scene) -> list[Fault]:
    """A disk is lost, mostly early, so that another replica can take the place in time; now and
    then the old one is put back for a while. And mostly the cluster is struck amid a change."""
    faults: list[Fault] = []
    if scene.vulnerable:
        faults += lost_disk_at(random, scene, scene.safety_ns * random.randint(15, 70) // 100)
    if percent(random, AMID_A_CHANGE_PERCENT):
        faults += _amid_a_change(random, scene)
    return faults


def lost_disk(random: Random, scene: Scene) -> list[Fault]:
    """Late, amid what else happens to disks."""
    if not scene.vulnerable:
        return []
    return lost_disk_at(random, scene, scene.safety_ns * random.randint(40, 80) // 100)


def _amid_a_change(random: Random, scene: Scene) -> list[Fault]:
    """The machines are parted, or the leader is cut off, killed or loses power."""
    at_ns, for_ns = scene.moment(random), scene.elections(random, 1.0, 6.0)
    match random.randrange(6):
        case 0 | 1 | 2:
            machines = range(1, scene.machines + 1)
            side = random.sample(machines, random.randint(1, scene.machines - 1))
            links = both_ways((a, b) for a in side for b in machines if b not in side)
            faults = [cut(at_ns, links, for_ns)]
        case 3:
            faults = at_leader(
                random, [cut(at_ns, isolation(scene, 1, with_clients=False), for_ns)]
            )
        case 4:
            faults = at_leader(random, [kill(at_ns, 1, for_ns)])
        case _:
            faults = at_leader(random, [power_cut(at_ns, (1,), random, for_ns=for_ns)])
    return [msgspec.structs.replace(each, awaits_joint=True) for each in faults]


def faults_of_joiners(random: Random, ground: Ground, faults: list[Fault]) -> list[Fault]:
    """A machine that is no founder has links as some founder has, and is struck as that one is, but
    not at the same time. It never loses what it has."""
    found: list[Fault] = []
    for joiner in range(ground.replicas + 1, ground.machines + 1):
        for fault in faults:
            like = random.randint(1, ground.replicas)
            later_ns = spread(random, 50 * MILLISECOND, 3 * SECOND)
            if fault.group or fault.awaits_joint or not percent(random, 60):
                continue
            links = tuple(_as(link, like, joiner) for link in fault.links if like in link)
            if links:
                found.append(msgspec.structs.replace(fault, links=links))
            elif fault.node == like and fault.kind in _HARMLESS and percent(random, 50):
                at_ns = fault.at_ns + later_ns
                found.append(msgspec.structs.replace(fault, node=joiner, at_ns=at_ns))
    return found


def _as(link: tuple[int, int], like: int, joiner: int) -> tuple[int, int]:
    start, end = (joiner if node == like else node for node in link)
    return start, end


def lost_disk_at(random: Random, scene: Scene, at_ns: int) -> list[Fault]:
    node = random.choice(scene.vulnerable)
    for_ns = spread(random, 10 * MILLISECOND, SECOND // 3)
    faults = [Fault(at_ns, FaultKind.LOST_DISK, node=node, for_ns=for_ns)]
    if percent(random, 40):
        back_ns = at_ns + scene.elections(random, 0.5, 16.0)
        stays_ns = scene.elections(random, 0.5, 6.0)
        faults.append(Fault(back_ns, FaultKind.OLD_DISK, node=node, for_ns=stays_ns))
    return faults
