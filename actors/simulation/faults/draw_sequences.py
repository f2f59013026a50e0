"""Sequences: faults of several classes in an order that finds bugs and that is rare by chance.

Owns the sequences and which classes each needs; one is drawn only where all of those are on. Must
not know how many are drawn. The leader is not known when a script is drawn: a sequence strikes
nodes in turn, hands leadership over first, or is aimed at the leader (`aiming`).
"""

from __future__ import annotations

from random import Random

import msgspec

from actors.simulation.faults.draw_elections import (
    accepted_and_lost,
    dead_target,
    early_election,
    figure_eight,
    late_vote,
    longer_log,
    lost_appends,
    reelected_leader,
    rewritten_in_flight,
    split_vote,
    torn_vote,
)
from actors.simulation.faults.draw_episodes import (
    CALLS_MAX,
    WRITER,
    Episode,
    Scene,
    at_a_segment,
    cut,
    isolation,
    kill,
    power_cut,
    stall,
)
from actors.simulation.faults.draw_ground import MILLISECOND, SECOND, percent, spread
from actors.simulation.faults.draw_members import lost_disk
from actors.simulation.faults.draw_processes import (
    lost_replicators,
    sleeping_raft,
    slow_leader,
    slow_replicator,
    transfer_while_asleep,
)
from actors.simulation.faults.draw_rot import (
    rotten_leader,
    rotten_only_copy,
    rotten_voter,
)
from actors.simulation.faults.script import Fault, FaultClass, FaultKind, Moment


class Sequence(msgspec.Struct, frozen=True):
    """`name`: of its random stream. `is_exact`: faults that would strike meanwhile are left out."""

    name: str
    needs: tuple[FaultClass, ...]
    draw: Episode
    is_exact: bool = False


def _isolate(random: Random, scene: Scene, at_ns: int, node: int, for_ns: int) -> Fault:
    return cut(at_ns, isolation(scene, node, with_clients=percent(random, 15)), for_ns)


def _cut_then_kill(random: Random, scene: Scene) -> list[Fault]:
    """One node is cut off, the others elect a leader, then one of them dies."""
    alone, other = random.sample(scene.nodes, 2)
    at_ns, for_ns = scene.moment(random), scene.elections(random, 1.0, 5.0)
    kill_ns = at_ns + int(for_ns * random.uniform(0.2, 1.0))
    return [
        _isolate(random, scene, at_ns, alone, for_ns),
        kill(kill_ns, other, scene.elections(random, 0.5, 4.0)),
    ]


def _cut_after_truncation(random: Random, scene: Scene) -> list[Fault]:
    """A node that was cut off comes back, truncates, and loses power at one of those calls."""
    at_ns, for_ns = scene.moment(random), scene.elections(random, 1.5, 5.0)
    node = scene.node(random)
    nodes = scene.nodes if percent(random, 30) else (node,)
    cut_ns = at_ns + for_ns + spread(random, 100_000, 300 * MILLISECOND)
    calls = random.randint(0, CALLS_MAX)
    down_ns = spread(random, 10 * MILLISECOND, scene.elections_ns(2))
    return [
        _isolate(random, scene, at_ns, node, for_ns),
        at_a_segment(random, power_cut(cut_ns, nodes, random, for_ns=down_ns, calls=calls)),
    ]


def _unflushed_leader(random: Random, scene: Scene) -> list[Fault]:
    """A node that cannot flush commits what others flushed, then loses it in a power cut. The node
    that had acknowledged it is cut off, and has to truncate what it acknowledged."""
    node, holder = random.sample(scene.nodes, 2)
    at_ns = scene.moment(random)
    delay_ns = scene.elections(random, 1.0, 3.0)
    held_ns = at_ns + spread(random, 20 * MILLISECOND, scene.election_ns)
    cut_ns = held_ns + spread(random, MILLISECOND, 200 * MILLISECOND)
    return [
        stall(at_ns, node, delay_ns, delay_ns),
        _isolate(random, scene, held_ns, holder, scene.elections(random, 3.0, 8.0)),
        power_cut(cut_ns, (node,), random, for_ns=spread(random, 10 * MILLISECOND, SECOND)),
    ]


def _stall_and_roll(random: Random, scene: Scene) -> list[Fault]:
    """One disk is slow while leaders change: flushes end for entries overwritten since
    (FAULTS.R24), and a leader is deposed with a flush in flight."""
    slow, *others = random.sample(scene.nodes, 3)
    at_ns = scene.moment(random)
    delay_ns = scene.elections(random, 0.3, 1.5)
    faults = [stall(at_ns, slow, scene.elections(random, 4.0, 10.0), delay_ns)]
    for node in random.sample([slow, *others, *others], 4):
        for_ns = scene.elections(random, 0.5, 2.5)
        faults.append(_isolate(random, scene, at_ns, node, for_ns))
        at_ns += int(for_ns * random.uniform(0.6, 1.3))
    return faults


def _pause_and_cut(random: Random, scene: Scene) -> list[Fault]:
    """Some nodes are paused, another loses power, they resume and others pause (FAULTS.P6)."""
    order = random.sample(scene.nodes, scene.replicas)
    half = scene.replicas // 2
    sleepers, victim, later = order[:half], order[half], order[half + 1 :]
    at_ns, for_ns = scene.moment(random), scene.elections(random, 1.0, 4.0)
    cut_ns = at_ns + int(for_ns * random.uniform(0.2, 0.9))
    down_ns = scene.elections(random, 0.2, 2.0)
    again_ns = at_ns + for_ns + scene.elections(random, 0.0, 0.5)
    return [
        *(Fault(at_ns, FaultKind.PAUSE, node=node, for_ns=for_ns) for node in sleepers),
        power_cut(cut_ns, (victim,), random, for_ns=down_ns),
        *(Fault(again_ns, FaultKind.PAUSE, node=node, for_ns=for_ns) for node in later),
    ]


def _transfer(random: Random, scene: Scene) -> tuple[Fault, int]:
    """A handover, and a moment shortly after it."""
    at_ns = scene.moment(random)
    fault = Fault(at_ns, FaultKind.TRANSFER, node=scene.node(random))
    return fault, at_ns + spread(random, 100_000, scene.election_ns)


def _transfer_then_kill(random: Random, scene: Scene) -> list[Fault]:
    """The target of a handover, or another node, dies (FAULTS.R17)."""
    handover, then_ns = _transfer(random, scene)
    node = handover.node if percent(random, 60) else scene.node(random)
    return [handover, kill(then_ns, node, scene.elections(random, 0.5, 3.0))]


def _transfer_then_cut(random: Random, scene: Scene) -> list[Fault]:
    """The target of a handover, mostly the new leader, is cut off from the other nodes."""
    handover, then_ns = _transfer(random, scene)
    for_ns = scene.elections(random, 0.5, 4.0)
    return [handover, _isolate(random, scene, then_ns, handover.node, for_ns)]


def _transfer_while_stalled(random: Random, scene: Scene) -> list[Fault]:
    handover, _ = _transfer(random, scene)
    node = scene.node(random)
    stall_ns = max(0, handover.at_ns - scene.elections(random, 0.0, 1.0))
    delay_ns = scene.elections(random, 0.2, 2.5)
    return [stall(stall_ns, node, delay_ns * 2, delay_ns), handover]


def _full_then_kill(random: Random, scene: Scene) -> list[Fault]:
    """A restart without free space, and space again later (SAFETY S9)."""
    node, at_ns = scene.node(random), scene.moment(random)
    for_ns = scene.elections(random, 2.0, 8.0)
    kill_ns = at_ns + int(for_ns * random.uniform(0.1, 0.9))
    return [
        Fault(at_ns, FaultKind.DISK_FULL, node=node, for_ns=for_ns),
        kill(kill_ns, node, spread(random, 10 * MILLISECOND, SECOND)),
    ]


def _full_and_torn(random: Random, scene: Scene) -> list[Fault]:
    """The power fails amid the first frames of a segment, and there is no space for another: the
    next start finds a torn tail and no spare. Of all nodes at once, or of each one by itself."""
    at_ns = scene.moment(random)
    faults = []
    for _ in range(3):
        for_ns = scene.elections(random, 3.0, 6.0)
        faults += [
            Fault(at_ns, FaultKind.DISK_FULL, node=each, for_ns=for_ns) for each in scene.nodes
        ]
        for nodes in [scene.nodes] if percent(random, 40) else [[each] for each in scene.nodes]:
            down_ns = spread(random, 10 * MILLISECOND, SECOND // 2)
            fault = power_cut(at_ns + MILLISECOND, nodes, random, for_ns=down_ns, calls=1)
            faults.append(msgspec.structs.replace(fault, process=Moment.FIRST_GROUP, mode="garble"))
        at_ns += for_ns + scene.elections(random, 1.0, 2.0)
    return faults


def _writer_dies_while_alone(random: Random, scene: Scene) -> list[Fault]:
    """The writer of a node with a forked log dies at a disk call around its truncation."""
    node, at_ns = scene.node(random), scene.moment(random)
    for_ns = scene.elections(random, 1.5, 4.0)
    kill_ns = at_ns + for_ns + spread(random, 100_000, 200 * MILLISECOND)
    calls = random.randint(0, CALLS_MAX)
    return [
        _isolate(random, scene, at_ns, node, for_ns),
        Fault(kill_ns, FaultKind.KILL_PROCESS, node=node, process=WRITER, calls=calls),
    ]


def _jump_while_paused(random: Random, scene: Scene) -> list[Fault]:
    """A node is paused, its clock jumps, and it resumes (FAULTS.P4, R10)."""
    node, at_ns = scene.node(random), scene.moment(random)
    for_ns = scene.elections(random, 1.5, 4.0)
    jump_ns = at_ns + int(for_ns * random.uniform(0.3, 1.0))
    amount = spread(random, 10 * MILLISECOND, 60 * SECOND)
    kind = random.choice((FaultKind.MONOTONIC_JUMP, FaultKind.WALL_JUMP))
    return [
        Fault(at_ns, FaultKind.PAUSE, node=node, for_ns=for_ns),
        Fault(jump_ns, kind, node=node, amount=amount),
    ]


def _torn_groups(random: Random, scene: Scene) -> list[Fault]:
    """The power fails several times amid a group, or a roll and the group after it, and again
    during recovery; volatile bytes share their sectors with acknowledged ones."""
    at_ns = scene.moment(random)
    faults = []
    for _ in range(random.randint(3, 6)):
        node, calls = scene.node(random), random.randrange(9)
        down_ns = spread(random, 10 * MILLISECOND, SECOND // 3)
        fault = power_cut(at_ns, (node,), random, for_ns=down_ns, calls=calls)
        faults.append(at_a_segment(random, msgspec.structs.replace(fault, mode="garble")))
        if percent(random, 40):
            calls = random.randint(0, CALLS_MAX)
            again_ns = at_ns + down_ns + SECOND // 10
            faults.append(power_cut(again_ns, (node,), random, for_ns=down_ns, calls=calls))
        at_ns += scene.elections(random, 0.7, 2.0)
    return faults


def _left_behind(random: Random, scene: Scene) -> list[Fault]:
    """A node is away while the log start passes it. When it comes back it drops its log, and mostly
    loses power or dies then, at one of the calls from the mark in META to the answer and a little
    after it (SAFETY G5a)."""
    at_ns = scene.moment(random)
    faults = []
    for _ in range(2):
        node, away_ns = scene.node(random), scene.elections(random, 1.0, 8.0)
        back_ns = at_ns + away_ns
        faults.append(cut(at_ns, isolation(scene, node, with_clients=False), away_ns))
        down_ns, calls = spread(random, 10 * MILLISECOND, SECOND), random.randint(1, 24)
        if percent(random, 50):
            strike = kill(back_ns, node, down_ns, calls)
        else:
            strike = power_cut(back_ns, (node,), random, for_ns=down_ns, calls=calls)
        if percent(random, 80):
            faults.append(msgspec.structs.replace(strike, process=Moment.INSTALL))
        at_ns = back_ns + down_ns + scene.elections(random, 1.0, 3.0)
    return faults


SEQUENCES: tuple[Sequence, ...] = (
    Sequence("cut-then-kill", (FaultClass.PARTITION, FaultClass.KILL_REPLICA), _cut_then_kill),
    Sequence("figure-eight", (FaultClass.PARTITION, FaultClass.KILL_REPLICA), figure_eight, True),
    Sequence(
        "rewritten-in-flight",
        (FaultClass.DISK_STALL, FaultClass.PARTITION),
        rewritten_in_flight,
        True,
    ),
    Sequence("held-in-flight", (FaultClass.DISK_STALL, FaultClass.CLOG), rewritten_in_flight, True),
    Sequence("split-vote", (FaultClass.DISK_STALL, FaultClass.PARTITION), split_vote, True),
    Sequence("torn-vote", (FaultClass.POWER_CUT, FaultClass.PARTITION), torn_vote, True),
    Sequence("longer-log", (FaultClass.PARTITION,), longer_log, True),
    Sequence("led-again", (FaultClass.PARTITION,), reelected_leader, True),
    Sequence("late-vote", (FaultClass.DISK_STALL, FaultClass.PARTITION), late_vote, True),
    Sequence("lost-appends", (FaultClass.PARTITION,), lost_appends, True),
    Sequence("dead-target", (FaultClass.OPERATOR,), dead_target),
    Sequence(
        "accepted-and-lost", (FaultClass.DISK_STALL, FaultClass.KILL_REPLICA), accepted_and_lost
    ),
    Sequence("early-election", (FaultClass.CLOCK, FaultClass.PARTITION), early_election),
    Sequence("lost-replicators", (FaultClass.KILL_PROCESS,), lost_replicators),
    Sequence("sleeping-raft", (FaultClass.PAUSE,), sleeping_raft, True),
    Sequence("slow-leader", (FaultClass.DISK_STALL,), slow_leader, True),
    Sequence("asked-asleep", (FaultClass.PAUSE, FaultClass.OPERATOR), transfer_while_asleep, True),
    Sequence("torn-groups", (FaultClass.POWER_CUT,), _torn_groups),
    Sequence("rotten-voter", (FaultClass.ROT,), rotten_voter, True),
    Sequence("rotten-leader", (FaultClass.ROT,), rotten_leader, True),
    Sequence("lone-rot", (FaultClass.ROT,), rotten_only_copy, True),
    Sequence("lost-disk", (FaultClass.ROT,), lost_disk),
    Sequence("slow-replicator", (FaultClass.PAUSE,), slow_replicator),
    Sequence(
        "cut-after-truncation", (FaultClass.PARTITION, FaultClass.POWER_CUT), _cut_after_truncation
    ),
    Sequence(
        "unflushed-leader",
        (FaultClass.DISK_STALL, FaultClass.PARTITION, FaultClass.POWER_CUT),
        _unflushed_leader,
    ),
    Sequence("stall-and-roll", (FaultClass.DISK_STALL, FaultClass.PARTITION), _stall_and_roll),
    Sequence("pause-and-cut", (FaultClass.PAUSE, FaultClass.POWER_CUT), _pause_and_cut),
    Sequence(
        "transfer-then-kill", (FaultClass.OPERATOR, FaultClass.KILL_REPLICA), _transfer_then_kill
    ),
    Sequence("transfer-then-cut", (FaultClass.OPERATOR, FaultClass.PARTITION), _transfer_then_cut),
    Sequence(
        "transfer-while-stalled",
        (FaultClass.OPERATOR, FaultClass.DISK_STALL),
        _transfer_while_stalled,
    ),
    Sequence("full-then-kill", (FaultClass.DISK_FULL, FaultClass.KILL_REPLICA), _full_then_kill),
    Sequence("full-and-torn", (FaultClass.DISK_FULL, FaultClass.POWER_CUT), _full_and_torn, True),
    Sequence(
        "writer-dies-while-alone",
        (FaultClass.PARTITION, FaultClass.KILL_PROCESS),
        _writer_dies_while_alone,
    ),
    Sequence(
        "left-behind",
        (FaultClass.PARTITION, FaultClass.KILL_REPLICA, FaultClass.POWER_CUT),
        _left_behind,
    ),
    Sequence("jump-while-paused", (FaultClass.PAUSE, FaultClass.CLOCK), _jump_while_paused),
)
