"""Sequences aimed at one process of the leader while its other processes go on.

Owns their order and timing; node 1 is the leader (`aiming`). Must not know which classes they need.
"""

from __future__ import annotations

from random import Random

from actors.simulation.faults.aiming import at_leader, moment_leaving
from actors.simulation.faults.draw_episodes import Scene, stall
from actors.simulation.faults.draw_ground import SECOND, percent, spread
from actors.simulation.faults.script import Fault, FaultKind


def sleeping_raft(random: Random, scene: Scene) -> list[Fault]:
    """Raft is paused while ingress goes on proposing. When it resumes it has not heard a quorum for
    an election timeout, and mostly no other leader is elected yet: it steps down with unread
    proposals. Or the whole replica is paused for longer, with appends to send that are of an old
    term when it resumes."""
    return _asleep(random, scene, 4 * scene.election_ns, is_handing_over=False)


def transfer_while_asleep(random: Random, scene: Scene) -> list[Fault]:
    """Raft is paused for less than an election timeout, and the first message it reads afterwards
    is a handover: the proposals after it come too late (E3)."""
    return _asleep(random, scene, 3 * scene.election_ns, is_handing_over=True)


def _asleep(random: Random, scene: Scene, length_ns: int, *, is_handing_over: bool) -> list[Fault]:
    """Once or twice, the leader at that time."""
    faults: list[Fault] = []
    times = random.randint(1, 2)
    at_ns = moment_leaving(random, scene, times * length_ns)
    for _ in range(times):
        process, for_ns = "raft", scene.elections(random, 1.02, 1.35)
        more = []
        if not is_handing_over and percent(random, 40):
            process, for_ns = "", scene.elections(random, 1.5, 2.4)
            more = [Fault(max(0, at_ns - SECOND // 500), FaultKind.FLOOD)]
        elif is_handing_over:
            for_ns = scene.elections(random, 0.4, 0.8)
            asked_ns = at_ns + spread(random, SECOND // 1_000, for_ns // 3)
            more = [Fault(asked_ns, FaultKind.TRANSFER)]
        pause = Fault(at_ns, FaultKind.PAUSE, node=1, process=process, for_ns=for_ns)
        faults += at_leader(random, [pause, *more])
        at_ns += length_ns
    return faults


def slow_leader(random: Random, scene: Scene) -> list[Fault]:
    """The leader's flush takes longer than the others need to commit, and not so long that it must
    step down (V6): its ring fills up with what the others acknowledged long ago."""
    at_ns = moment_leaving(random, scene, 4 * scene.election_ns)
    for_ns = scene.elections(random, 2.0, 3.5)
    slow = stall(at_ns, 1, for_ns, scene.elections(random, 0.8, 1.8))
    return at_leader(random, [slow, *_floods(at_ns, for_ns)])


def lost_replicators(random: Random, scene: Scene) -> list[Fault]:
    """A leader's replicators die and restart alone; often as the last fault of a run."""
    faults: list[Fault] = []
    for _ in range(random.randint(1, 3)):
        at_ns = moment_leaving(random, scene, 2 * scene.election_ns)
        if percent(random, 30):
            at_ns = max(0, scene.safety_ns - scene.elections(random, 0.3, 1.0))
        process = f"replicator-{random.randint(2, scene.replicas)}"
        fault = Fault(at_ns, FaultKind.KILL_PROCESS, node=1, process=process)
        faults += at_leader(random, [fault])
    return faults


def slow_replicator(random: Random, scene: Scene) -> list[Fault]:
    """A leader's replicator is paused while appends go on: bytes in the payload ring are
    overwritten, and messages to it find no room."""
    faults: list[Fault] = []
    for _ in range(2):
        at_ns = moment_leaving(random, scene, 4 * scene.election_ns)
        for_ns = scene.elections(random, 0.5, 4.0)
        process = f"replicator-{random.randint(2, scene.replicas)}"
        pause = Fault(at_ns, FaultKind.PAUSE, node=1, process=process, for_ns=for_ns)
        faults += at_leader(random, [pause, *_floods(at_ns, for_ns)])
    return faults


def _floods(at_ns: int, for_ns: int) -> list[Fault]:
    """Three during the fault, so that each may come after the one before is acknowledged."""
    return [Fault(at_ns + for_ns * share // 8, FaultKind.FLOOD) for share in (1, 3, 6)]
