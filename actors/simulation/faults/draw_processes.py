"""Sequences around one process of whoever leads, while the others beside it go on.

Owns their order and timing; node 1 is the leader, as in `draw_aimed`. Must not know which classes
they need.
"""

from __future__ import annotations

from random import Random

from actors.simulation.faults.draw_aimed import moment_before, surely_aimed
from actors.simulation.faults.draw_episodes import Scene, stall
from actors.simulation.faults.draw_ground import SECOND, percent, spread
from actors.simulation.faults.script import Fault, FaultKind


def sleeping_raft(random: Random, scene: Scene) -> list[Fault]:
    """Raft sleeps while ingress goes on proposing to it. When it wakes up its quorum has not heard
    of it for an election timeout, mostly before somebody else could be elected, so it gives up its
    term with proposals unread. Or the whole replica sleeps, longer, with appends of what is an old
    term by then still to be sent."""
    return _asleep(random, scene, 4 * scene.election_ns, is_handing_over=False)


def asked_asleep(random: Random, scene: Scene) -> list[Fault]:
    """Raft sleeps for less than an election timeout, and a handover is the first thing it hears of
    when it wakes up: the proposals behind it come too late (E3)."""
    return _asleep(random, scene, 3 * scene.election_ns, is_handing_over=True)


def _asleep(random: Random, scene: Scene, length_ns: int, *, is_handing_over: bool) -> list[Fault]:
    """Once or twice, whoever leads then."""
    faults: list[Fault] = []
    times = random.randint(1, 2)
    at_ns = moment_before(random, scene, times * length_ns)
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
        faults += surely_aimed(random, [pause, *more])
        at_ns += length_ns
    return faults


def slow_leader(random: Random, scene: Scene) -> list[Fault]:
    """The leader's disk takes longer for a flush than it takes others to commit, and less than it
    takes the leader to let go (V6): its ring fills up behind what others have long acknowledged."""
    at_ns = moment_before(random, scene, 4 * scene.election_ns)
    for_ns = scene.elections(random, 2.0, 3.5)
    slow = stall(at_ns, 1, for_ns, scene.elections(random, 0.8, 1.8))
    return surely_aimed(random, [slow, *_floods(at_ns, for_ns)])


def lost_replicators(random: Random, scene: Scene) -> list[Fault]:
    """A leader's replicators die and start alone; often as the last thing that happens."""
    faults: list[Fault] = []
    for _ in range(random.randint(1, 3)):
        at_ns = moment_before(random, scene, 2 * scene.election_ns)
        if percent(random, 30):
            at_ns = max(0, scene.safety_ns - scene.elections(random, 0.3, 1.0))
        process = f"replicator-{random.randint(2, scene.replicas)}"
        fault = Fault(at_ns, FaultKind.KILL_PROCESS, node=1, process=process)
        faults += surely_aimed(random, [fault])
    return faults


def slow_replicator(random: Random, scene: Scene) -> list[Fault]:
    """A leader's replicator stands still while appends go on: the rings' bytes do not wait, and
    what is said to it finds no room."""
    faults: list[Fault] = []
    for _ in range(2):
        at_ns = moment_before(random, scene, 4 * SECOND)
        for_ns = spread(random, SECOND // 2, 4 * SECOND)
        process = f"replicator-{random.randint(2, scene.replicas)}"
        pause = Fault(at_ns, FaultKind.PAUSE, node=1, process=process, for_ns=for_ns)
        faults += surely_aimed(random, [pause, *_floods(at_ns, for_ns)])
    return faults


def _floods(at_ns: int, for_ns: int) -> list[Fault]:
    """While it lasts, each as soon as the one before it may be acknowledged."""
    return [Fault(at_ns + for_ns * share // 8, FaultKind.FLOOD) for share in (1, 3, 6)]
