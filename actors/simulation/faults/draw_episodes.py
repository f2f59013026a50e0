"""Episodes: one or a few faults of one class that belong together.

Owns the shapes and ranges of each class; `draw_sequences` has faults of several classes. Must not
know how many are drawn. An episode depends on its `Random` and its `Scene` only, so that no class
changes another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import msgspec
from msgspec.structs import replace

from actors.simulation.faults.draw_ground import (
    LEVEL_MAX,
    MICROSECOND,
    MILLISECOND,
    SECOND,
    percent,
    spread,
)
from actors.simulation.faults.script import Fault, FaultClass, FaultKind, Moment

CLIENTS = 0
SET_BACKS = 3  # of one episode
# A power cut or kill "at the n-th disk call": 40 calls are a start, or a roll and some groups.
CALLS_MAX = 40
# The only process that changes the disk.
WRITER = "writer"
BULK, CONTROL = "bulk", "control"
LANE_PERCENT = 15

Link = tuple[int, int]


class Scene(msgspec.Struct, frozen=True):
    """What an episode may know of the cluster."""

    replicas: int
    safety_ns: int
    heartbeat_ns: int
    election_ns: int
    vulnerable: tuple[int, ...]  # the nodes that may lose data
    machines: int  # with those that may become members
    hardness: float = 0.0  # of the class, 0 to 1

    @property
    def nodes(self) -> range:
        return range(1, self.replicas + 1)

    def moment(self, random: Random) -> int:
        return random.randrange(self.safety_ns)

    def node(self, random: Random) -> int:
        return random.randint(1, self.replicas)

    def elections_ns(self, number: float) -> int:
        return int(self.election_ns * number)

    def elections(self, random: Random, low: float, high: float) -> int:
        """A time between `low` and `high` election timeouts."""
        return int(self.election_ns * random.uniform(low, high))


Episode = Callable[[Random, Scene], list[Fault]]


def both_ways(pairs: Iterable[Link]) -> tuple[Link, ...]:
    return tuple(link for a, b in pairs for link in ((a, b), (b, a)))


def isolation(scene: Scene, node: int, *, with_clients: bool) -> tuple[Link, ...]:
    """Every link of `node`. A leader that keeps its clients takes appends that it cannot commit."""
    others = [other for other in scene.nodes if other != node]
    return both_ways((node, other) for other in ([CLIENTS] if with_clients else []) + others)


def cut(at_ns: int, links: tuple[Link, ...], for_ns: int, mode: str = "drop") -> Fault:
    return Fault(at_ns, FaultKind.PARTITION, links=links, for_ns=for_ns, mode=mode)


def kill(at_ns: int, node: int, for_ns: int, calls: int = -1) -> Fault:
    return Fault(at_ns, FaultKind.KILL_REPLICA, node=node, for_ns=for_ns, calls=calls)


def some_calls(random: Random) -> int:
    """Die at this disk call, sooner ones more likely; -1: at once."""
    return -1 if percent(random, 30) else int((CALLS_MAX + 1) * random.random() ** 2)


def _links(random: Random, scene: Scene) -> tuple[Link, ...]:
    """All links of the replicas, those of one node, one pair, one direction, or the clients'."""
    node, other = random.sample(scene.nodes, 2)
    match random.randrange(6):
        case 0 | 1:
            every = [(a, b) for a in scene.nodes for b in scene.nodes if a < b]
            return both_ways(every)
        case 2:
            return isolation(scene, node, with_clients=percent(random, 50))
        case 3:
            return both_ways([(node, other)])
        case 4:
            return ((node, other),)
        case _:
            return both_ways((CLIENTS, each) for each in scene.nodes)


def _long(random: Random, scene: Scene) -> int:
    """From a moment to most of the run."""
    return spread(random, scene.election_ns // 2, scene.safety_ns)


def _bad_link(random: Random, scene: Scene) -> Fault:
    at_ns, links = scene.moment(random), _links(random, scene)
    return Fault(at_ns, FaultKind.LINK_QUALITY, links=links, for_ns=_long(random, scene))


def _delay(random: Random, scene: Scene) -> list[Fault]:
    highest_ns = 20 * MILLISECOND + int(400 * MILLISECOND * scene.hardness)
    delay_ns = spread(random, MILLISECOND, highest_ns)
    return [replace(_bad_link(random, scene), delay_ns=delay_ns)]


def _of_1_000(random: Random, scene: Scene, most: int) -> int:
    return spread(random, 2, 10 + int(most * scene.hardness))


def _loss(random: Random, scene: Scene) -> list[Fault]:
    return [replace(_bad_link(random, scene), loss=_of_1_000(random, scene, 290))]


def _duplication(random: Random, scene: Scene) -> list[Fault]:
    return [replace(_bad_link(random, scene), duplication=_of_1_000(random, scene, 190))]


def _reordering(random: Random, scene: Scene) -> list[Fault]:
    return [replace(_bad_link(random, scene), reordering=_of_1_000(random, scene, 190))]


def _partition(random: Random, scene: Scene) -> list[Fault]:
    at_ns = scene.moment(random)
    for_ns = spread(random, SECOND // 10, scene.elections_ns(2 + 10 * scene.hardness))
    match random.randrange(10):
        case 0 | 1 | 2:
            return [cut(at_ns, _links_of_one_node(random, scene), for_ns)]
        case 3:
            return [cut(at_ns, _two_sides(random, scene), for_ns)]
        case 4 | 5:
            return [cut(at_ns, _one_way(random, scene), for_ns)]
        case 6:
            return [cut(at_ns, _partial_mesh(random, scene), for_ns)]
        case 7 | 8:
            return _rolling_isolation(random, scene, at_ns)
        case _:
            return _flapping(random, scene, at_ns)


def _links_of_one_node(random: Random, scene: Scene) -> tuple[Link, ...]:
    return isolation(scene, scene.node(random), with_clients=percent(random, 25))


def _two_sides(random: Random, scene: Scene) -> tuple[Link, ...]:
    """A majority and a minority; the clients are on one side or reach both."""
    order = random.sample(scene.nodes, scene.replicas)
    majority = scene.replicas // 2 + 1
    left, right = order[:majority], order[majority:]
    match random.randrange(4):
        case 0:
            left = [*left, CLIENTS]
        case 1:
            right = [*right, CLIENTS]
    return both_ways((a, b) for a in left for b in right)


def _one_way(random: Random, scene: Scene) -> tuple[Link, ...]:
    """A node that receives nothing, one whose messages are lost, or one dead direction."""
    node, other = random.sample(scene.nodes, 2)
    others = [each for each in scene.nodes if each != node]
    match random.randrange(3):
        case 0:
            return tuple((each, node) for each in others)
        case 1:
            return tuple((node, each) for each in others)
        case _:
            return ((node, other),)


def _partial_mesh(random: Random, scene: Scene) -> tuple[Link, ...]:
    """A chain of three; of five, one sees only a second and another only a third (FAULTS.N4)."""
    order = random.sample(scene.nodes, scene.replicas)
    if scene.replicas < 5:
        return both_ways([(order[0], order[-1])])
    a, b, c, d, e = order
    return both_ways([(d, a), (d, c), (d, e), (e, a), (e, b)])


def _rolling_isolation(random: Random, scene: Scene, at_ns: int) -> list[Fault]:
    """One node after the other, so that one of them is the leader; the log forks."""
    faults = []
    for node in random.sample(scene.nodes, 3):
        for_ns = scene.elections(random, 0.7, 4.0)
        faults.append(cut(at_ns, isolation(scene, node, with_clients=False), for_ns))
        at_ns += int(for_ns * random.uniform(0.6, 1.2))
    return faults


def _flapping(random: Random, scene: Scene, at_ns: int) -> list[Fault]:
    node = scene.node(random)
    links = isolation(scene, node, with_clients=False)
    up_ns, down_ns = (spread(random, 50 * MILLISECOND, SECOND) for _ in range(2))
    flaps = range(random.randint(3, 6))
    return [cut(at_ns + flap * (up_ns + down_ns), links, down_ns) for flap in flaps]


def _clog(random: Random, scene: Scene) -> list[Fault]:
    """Swizzle: hold links one by one, release them in another order (FAULTS.N11)."""
    at_ns = scene.moment(random)
    for_ns = spread(random, SECOND // 10, scene.elections_ns(2 + 6 * scene.hardness))
    if percent(random, 50):
        return [cut(at_ns, _links(random, scene), for_ns, "hold")]
    places = (CLIENTS, *scene.nodes)
    every = [(a, b) for a in places for b in places if a != b]
    chosen = random.sample(every, random.randint(2, 6))
    step_ns = for_ns // len(chosen)
    ends = random.sample(range(len(chosen)), len(chosen))
    return [
        cut(at_ns + begin * step_ns, (link,), for_ns + (end - begin) * step_ns, "hold")
        for begin, (link, end) in enumerate(zip(chosen, ends, strict=True))
    ]


def _disconnect(random: Random, scene: Scene) -> list[Fault]:
    """Connections end, once or several times."""
    at_ns, links = scene.moment(random), _links(random, scene)
    times = random.randint(2, 5) if random.random() < scene.hardness / 2 else 1
    step_ns = spread(random, 50 * MILLISECOND, SECOND)
    return [
        Fault(at_ns + number * step_ns, FaultKind.DISCONNECT, links=links)
        for number in range(times)
    ]


def _kill_process(random: Random, scene: Scene) -> list[Fault]:
    node = scene.node(random)
    peer = random.choice([each for each in scene.nodes if each != node])
    process = random.choice((WRITER, WRITER, "raft", "ingress", "egress", f"replicator-{peer}"))
    calls = some_calls(random) if process == WRITER else -1
    return [
        Fault(scene.moment(random), FaultKind.KILL_PROCESS, node=node, process=process, calls=calls)
    ]


def draw_down_ns(random: Random, scene: Scene) -> int:
    """How long a replica stays dead: shorter than an election timeout, or several elections."""
    return spread(random, 10 * MILLISECOND, scene.elections_ns(1 + 7 * scene.hardness))


def _kill_replica(random: Random, scene: Scene) -> list[Fault]:
    at_ns, for_ns = scene.moment(random), draw_down_ns(random, scene)
    every = percent(random, 20)
    nodes = scene.nodes if every else (scene.node(random),)
    kills = [kill(at_ns, node, for_ns, some_calls(random)) for node in nodes]
    if not percent(random, 20):
        return kills
    return [replace(each, process=Moment.REMOVAL, calls=random.randrange(6)) for each in kills]


def power_cut(
    at_ns: int, nodes: Iterable[int], random: Random, *, for_ns: int, calls: int = -1
) -> Fault:
    return Fault(
        at_ns, FaultKind.POWER_CUT, nodes=tuple(nodes), for_ns=for_ns, calls=calls,
        pick=random.getrandbits(32), mode="garble" if percent(random, 50) else "",
    )  # fmt: skip


def at_a_segment(random: Random, fault: Fault) -> Fault:
    """Many cuts count their calls from the next segment's opening or first frames, which are mostly
    written and not yet flushed then (S7), or from the next removal of one (G4)."""
    match random.randrange(8):
        case 0 | 1 | 2:
            return fault
        case 3:
            return replace(fault, process=Moment.ROLL, calls=random.randrange(8))
        case 4 | 5:
            return replace(fault, process=Moment.REMOVAL, calls=random.randrange(8))
        case _:
            calls = random.choice((1, 1, 1, 2, 3))
            return replace(fault, process=Moment.FIRST_GROUP, calls=calls, mode="garble")


def _power_cut(random: Random, scene: Scene) -> list[Fault]:
    """Of one node, several or all; now and then again while they recover."""
    at_ns, for_ns = scene.moment(random), draw_down_ns(random, scene)
    nodes = sorted(random.sample(scene.nodes, random.choice((1, 1, 2, scene.replicas))))
    first = power_cut(at_ns, nodes, random, for_ns=for_ns, calls=some_calls(random))
    first = at_a_segment(random, first)
    if not percent(random, 35):
        return [first]
    # A start makes disk calls enough to reach the next cut.
    again_ns = at_ns + for_ns + spread(random, MICROSECOND, 300 * MILLISECOND)
    calls = random.randint(0, CALLS_MAX)
    return [first, power_cut(again_ns, nodes, random, for_ns=for_ns, calls=calls)]


def _pause(random: Random, scene: Scene) -> list[Fault]:
    """Of a replica or one process, often longer than the election timeout (FAULTS.P4)."""
    node = scene.node(random)
    process = random.choice(("", "", "", "raft", "ingress", WRITER, "egress"))
    if percent(random, 50):
        for_ns = scene.elections(random, 1.0, 2.5 + 3 * scene.hardness)
    else:
        for_ns = spread(random, 10 * MILLISECOND, scene.election_ns)
    return [Fault(scene.moment(random), FaultKind.PAUSE, node=node, process=process, for_ns=for_ns)]


def _clock(random: Random, scene: Scene) -> list[Fault]:
    at_ns, node = scene.moment(random), scene.node(random)
    amount = spread(random, 10 * MILLISECOND, SECOND + int(3_600 * SECOND * scene.hardness))
    if percent(random, 40):
        return [Fault(at_ns, FaultKind.MONOTONIC_JUMP, node=node, amount=amount)]
    sign = random.choice((-1, 1))
    return [Fault(at_ns, FaultKind.WALL_JUMP, node=node, amount=sign * amount)]


def stall(at_ns: int, node: int, for_ns: int, delay_ns: int, end: str = "") -> Fault:
    """`end`: flushes of paths with this end are slow."""
    return Fault(
        at_ns, FaultKind.DISK_STALL, node=node, for_ns=for_ns, delay_ns=delay_ns, process=end
    )


def _disk_stall(random: Random, scene: Scene) -> list[Fault]:
    """Slow flushes; some take longer than two elections, so a leader must step down (V6)."""
    if percent(random, 40):
        delay_ns = scene.elections(random, 1.0, 2.5 + scene.hardness)
    else:
        delay_ns = spread(random, 5 * MILLISECOND, scene.election_ns)
    for_ns = spread(random, SECOND // 5, scene.elections_ns(2 + 6 * scene.hardness))
    end = random.choice(("", "", ".raft", ".data"))
    return [stall(scene.moment(random), scene.node(random), for_ns, delay_ns, end)]


def _disk_error(random: Random, scene: Scene) -> list[Fault]:
    """EIO. Of reads only where data may be lost: a reader takes it for damage; of many reads of a
    start, which the device may answer again before it is over."""
    at_ns, node, amount = scene.moment(random), scene.node(random), 1
    mode = random.choice(("write", "flush", "flush"))
    if scene.vulnerable and percent(random, 20):
        node, mode = random.choice(scene.vulnerable), "read"
    end = random.choice(("", ".data", ".raft", "meta.a", "meta.b"))
    faults = []
    if mode == "read" and percent(random, 60):
        end, amount = random.choice(("", ".data", ".raft", ".raft")), random.choice((2, 8, 24, 64))
        faults = [kill(at_ns, node, draw_down_ns(random, scene))]
    error = Fault(at_ns, FaultKind.DISK_ERROR, node=node, mode=mode, process=end, amount=amount)
    return [*faults, error]


def _disk_full(random: Random, scene: Scene) -> list[Fault]:
    at_ns = scene.moment(random)
    for_ns = scene.elections(random, 0.5, 3 + 7 * scene.hardness)
    many = random.sample(scene.nodes, random.choice((1, 1, 1, 2, scene.replicas)))
    return [Fault(at_ns, FaultKind.DISK_FULL, node=node, for_ns=for_ns) for node in sorted(many)]


def _lying_flush(random: Random, scene: Scene) -> list[Fault]:
    """The power fails while the device lies, so that it may lose what it called flushed."""
    if not scene.vulnerable:
        return []
    at_ns, node = scene.moment(random), random.choice(scene.vulnerable)
    for_ns = spread(random, 20 * MILLISECOND, scene.elections_ns(1 + 2 * scene.hardness))
    cut_ns = at_ns + int(for_ns * random.uniform(0.5, 1.0))
    down_ns = draw_down_ns(random, scene)
    return [
        Fault(at_ns, FaultKind.LYING_FLUSH, node=node, for_ns=for_ns),
        power_cut(cut_ns, (node,), random, for_ns=down_ns, calls=some_calls(random)),
    ]


def _operator(random: Random, scene: Scene) -> list[Fault]:
    """A handover, a restart, or a rolling restart."""
    at_ns = scene.moment(random)
    match random.randrange(5):
        case 0 | 1 | 2:
            return [Fault(at_ns, FaultKind.TRANSFER, node=random.randint(0, scene.replicas))]
        case 3:
            return [Fault(at_ns, FaultKind.RESTART, node=scene.node(random))]
        case _:
            step_ns = spread(random, SECOND // 5, scene.elections_ns(3))
            order = random.sample(scene.nodes, scene.replicas)
            return [
                Fault(at_ns + number * step_ns, FaultKind.RESTART, node=node)
                for number, node in enumerate(order)
            ]


def on_one_lane(random: Random, faults: list[Fault]) -> list[Fault]:
    """Some link faults strike one lane only, as a path MTU or a blocked port does."""
    if not percent(random, LANE_PERCENT):
        return faults
    lane = random.choice((BULK, BULK, CONTROL))
    return [replace(fault, lane=lane) for fault in faults]


def _version(random: Random, scene: Scene) -> list[Fault]:
    """A rolling upgrade, sooner or later; or one replica after the other is set back, and mended a
    little later."""
    at_ns, level = scene.moment(random), random.randint(2, LEVEL_MAX)
    if percent(random, 40):
        return [fault for _ in range(SET_BACKS) for fault in _set_back(random, scene)]
    step_ns = spread(random, SECOND // 10, scene.elections_ns(2))
    order = random.sample(scene.nodes, scene.replicas)
    return [
        Fault(at_ns // 2 + number * step_ns, FaultKind.VERSION, node=node, amount=level)
        for number, node in enumerate(order)
    ]


def _set_back(random: Random, scene: Scene) -> list[Fault]:
    """For an election timeout after its stop a leader still raises the level."""
    at_ns, node = scene.moment(random), scene.node(random)
    newest = 0 if percent(random, 70) else random.randint(1, LEVEL_MAX)
    away_ns = spread(random, MILLISECOND, scene.election_ns)
    mended_ns = at_ns + away_ns + scene.elections(random, 1.0, 5.0)
    return [
        Fault(at_ns, FaultKind.VERSION, node=node, amount=newest, for_ns=away_ns),
        Fault(mended_ns, FaultKind.VERSION, node=node, amount=LEVEL_MAX),
    ]


# RINGS is in the ground only, ROT in `draw_rot`.
EPISODES: dict[FaultClass, Episode] = {
    FaultClass.DELAY: _delay,
    FaultClass.LOSS: _loss,
    FaultClass.DUPLICATION: _duplication,
    FaultClass.REORDERING: _reordering,
    FaultClass.PARTITION: _partition,
    FaultClass.CLOG: _clog,
    FaultClass.DISCONNECT: _disconnect,
    FaultClass.KILL_PROCESS: _kill_process,
    FaultClass.KILL_REPLICA: _kill_replica,
    FaultClass.POWER_CUT: _power_cut,
    FaultClass.PAUSE: _pause,
    FaultClass.CLOCK: _clock,
    FaultClass.DISK_STALL: _disk_stall,
    FaultClass.DISK_ERROR: _disk_error,
    FaultClass.DISK_FULL: _disk_full,
    FaultClass.LYING_FLUSH: _lying_flush,
    FaultClass.OPERATOR: _operator,
    FaultClass.VERSION: _version,
}
