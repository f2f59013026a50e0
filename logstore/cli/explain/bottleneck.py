"""Which stage bounds throughput now, in words with the reasoning.

Pure. A stage that does one thing at a time (a process' loop, one kind of flush) bounds the others
when it is busy nearly all the time. Only nodes that commits wait for count: of three replicas the
slower follower may be as busy as it likes. If no stage is that busy, the bound is the machines'
processors, for which stages wait, or how many groups may be in flight, or nothing in the cluster:
then more could be offered, and the question is where an append waits. Nothing is claimed of a node
that was not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from actors.supervisor.restarts import VITAL
from actors.topology import REPLICATOR, WRITER
from logstore.cli.explain.breakdown import AWAY, MAJORITY, TOTAL, PathTime, StageTime
from logstore.cli.explain.utilisation import FlushUse, ProcessUse, Traffic
from logstore.raft.quorum import majority

# A stage that is busy more than this bounds: the rest is the time between two of its jobs.
BUSY_FROM = 0.8
# So much of groups_in_flight: the rest is groups that wait for the next turn of ingress.
IN_FLIGHT_FROM = 0.9
# A process that waits for a processor for this share of the time in which it is busy lacks one.
WAITS_FROM = 0.3
# And so long, of all processes that appends pass: below, nobody would feel it.
WAITED_FROM = 0.4
# Flushes of groups below this would carry more for the same time.
SMALL_GROUP_KB = 64

IN_FLIGHT, PROCESSORS, STUCK = "groups in flight", "processors", "stuck"
NOTHING, IDLE = "nothing", "idle"
# An append waits …
_WAITS = {
    "ingress": "in ingress, for its group to be formed and proposed",
    "raft": "for raft to append it",
    "send": "to be sent to node {node}",
    "network": "on the way to node {node} and back",
    "writer": "for the writer of node {node}",
    "data_flush": "for its data to be flushed on node {node}",
    "records_wait": "for an earlier record flush on node {node}",
    "records_flush": "for its record to be flushed on node {node}",
    "answer": "for the answer of node {node}",
    AWAY: "for node {node}, which does not tell for what",
    "commit": "for raft to commit it",
    "acknowledgement": "for ingress to acknowledge it",
}


class Bound(msgspec.Struct, frozen=True):
    """`kind`: the name of a process, with the word "process" if it runs several actors; "data
    flush", "records flush", or one of the others above. `node`: where; 0: nowhere. `busy`: the
    share of the time."""

    kind: str
    node: int
    busy: float
    words: str


class _Stage(msgspec.Struct, frozen=True):
    kind: str
    node: int
    busy: float
    reason: str

    @property
    def name(self) -> str:
        return f"{self.kind} of node {self.node}"


def find_bound(
    leader: int,
    nodes: int,
    traffic: Traffic,
    times: Sequence[StageTime],
    paths: Sequence[PathTime],
    processes: Iterable[ProcessUse],
    flushes: Iterable[FlushUse],
) -> Bound:
    """What bounds the leader's throughput. `nodes`: how many the cluster has; `times`: of the
    leader's stages; `paths`, `processes` and `flushes`: of all nodes."""
    if not traffic.groups:
        return _without_groups(traffic)
    awaited = awaited_nodes(paths, nodes) or {leader}
    uses = list(processes)
    passed = [each for each in uses if _counts(each, leader, awaited)]
    stages = [_of_process(each) for each in passed]
    stages += [_of_flush(each, traffic) for each in flushes if each.node in awaited]
    stages.sort(key=lambda each: -each.busy)
    if stages and stages[0].busy >= BUSY_FROM:
        first = stages[0]
        following = f"; next is {stages[1].name}, {stages[1].busy:.0%}" if stages[1:] else ""
        words = f"The {first.name} bounds throughput now: {first.reason}{following}."
        return Bound(first.kind, first.node, first.busy, words)
    busiest = "no stage was measured"
    if stages:
        busiest = f"the busiest stage, {stages[0].name}, is busy {stages[0].busy:.0%} of the time"
    longest = _longest_wait(times, paths)
    wanted = sum(each.loop_cpu + each.waits for each in passed)
    waited = sum(each.waits for each in passed)
    if waited >= max(WAITS_FROM * wanted, WAITED_FROM):
        words = (
            "Processors bound throughput now: the processes that appends pass want one for "
            f"{wanted:.0%} of the time together, and wait for it in {waited / wanted:.0%} of that; "
            f"{busiest}.{longest}"
        )
        return Bound(PROCESSORS, 0, waited, words)
    if traffic.groups_in_flight >= IN_FLIGHT_FROM * traffic.groups_in_flight_max:
        words = (
            f"The number of groups in flight bounds throughput now: {traffic.groups_in_flight:.1f}"
            f" of at most {traffic.groups_in_flight_max} on average, while {busiest}.{longest}"
        )
        return Bound(IN_FLIGHT, leader, 0.0, words)
    unseen = awaited - {each.node for each in uses}
    if unseen:
        words = (
            f"Nothing that was measured bounds throughput now: {busiest}. Commits wait for node "
            f"{min(unseen)}, of which nothing is known.{longest}"
        )
        return Bound(NOTHING, min(unseen), stages[0].busy if stages else 0.0, words)
    words = (
        f"Nothing in the cluster bounds throughput now: {busiest}; more can be offered.{longest}"
    )
    return Bound(NOTHING, 0, stages[0].busy if stages else 0.0, words)


def _without_groups(traffic: Traffic) -> Bound:
    if not traffic.waiting:
        return Bound(IDLE, 0, 0.0, "Nothing was appended meanwhile: nothing is bounded.")
    words = (
        f"Nothing was acknowledged meanwhile, and {traffic.waiting:,} entries wait to be "
        "committed: a majority's disks or links stand still. See `logstore status` and `logstore "
        "lag`."
    )
    return Bound(STUCK, 0, 0.0, words)


def awaited_nodes(paths: Sequence[PathTime], nodes: int) -> set[int]:
    """The nodes whose disks commits wait for: the quickest ones that are a majority of all."""
    ordered = sorted((each.stages[-1].median_ms, each.node) for each in paths if each.stages)
    return {node for _, node in ordered[: majority(nodes)]}


def _counts(use: ProcessUse, leader: int, awaited: set[int]) -> bool:
    """Whether appends pass this process."""
    return any(_passes(actor, use.node, leader, awaited) for actor in use.actors)


def _passes(actor: str, node: int, leader: int, awaited: set[int]) -> bool:
    if actor in VITAL:
        return node == leader or node in awaited
    kind, _, peer = actor.partition("-")
    return kind == REPLICATOR and node == leader and int(peer) in awaited


def _of_process(use: ProcessUse) -> _Stage:
    # A writer that waits for its disk is no stage by itself: the flushes are.
    does_wait = use.actors == (WRITER,)
    busy = min(use.busy, use.loop_cpu + use.waits) if does_wait else use.busy
    reason = f"it is busy {busy:.0%} of the time, {use.cpu:.0%} on a processor"
    if use.waits >= WAITS_FROM * busy > 0:
        reason += f", and waits for one {use.waits:.0%} of it: the machine has too few free"
    kind = use.process if len(use.actors) == 1 else f"{use.process} process"
    return _Stage(kind, use.node, busy, reason)


def _of_flush(use: FlushUse, traffic: Traffic) -> _Stage:
    reason = (
        f"one is under way {use.busy:.0%} of the time, {use.per_s:.0f}/s of {use.mean_ms:.2f} ms"
    )
    group_kb = traffic.mb_per_s * 1e3 / traffic.groups_per_s if traffic.groups_per_s else 0.0
    if use.busy >= BUSY_FROM and group_kb < SMALL_GROUP_KB:
        reason += (
            f", for groups of {group_kb:.1f} kB, which would carry more in about the same time if "
            "more were in flight or batches were larger"
        )
    return _Stage(f"{use.kind} flush", use.node, use.busy, reason)


def _longest_wait(times: Sequence[StageTime], paths: Sequence[PathTime]) -> str:
    """Where an append spends most of its time: a stage of the leader, or of the path that decides
    most often."""
    parts = [(each.share, each.stage, 0) for each in times if each.stage not in (TOTAL, MAJORITY)]
    share = sum(each.share for each in times if each.stage == MAJORITY)
    deciding = max(paths, key=lambda path: path.decides, default=None)
    if deciding is not None:
        parts += [
            (share * each.share, each.stage, deciding.node)
            for each in deciding.stages
            if each.stage != TOTAL
        ]
    if not parts:
        return ""
    share, stage, node = max(parts)
    words = _WAITS[stage].format(node=node)
    if node and stage in ("ingress", "raft"):
        words = f"for {stage} of node {node}"
    return f" An append waits longest {words}: {share:.0%} of its time."
