"""Where the time of each sampled append went: the stamps of all replicas, joined by index.

Pure. Stamps are subtracted only where one replica made both. What a follower did is known from its
own clock, the way there and back is what its leader waited for besides:

    leader    APPENDED ── send ── SENT ─────────────────────────────────── CONFIRMED
                                    └ network ┐                     ┌ network ┘
    follower                               RECEIVED ── its stages ── ANSWERED

An entry is durable on a majority when the last replica that it takes has it: that replica decides,
and the time until then is the time of its path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import ceil

import msgspec

from actors.trace import TracePoint
from logstore.cli.explain.readings import Reading
from logstore.model import NodeId
from logstore.raft.quorum import majority

Stamps = Mapping[str, Mapping[int, int]]
# The points of a leader before and after the majority, and what lies between two of them.
BEFORE = (TracePoint.RECEIVED, TracePoint.PROPOSED, TracePoint.APPENDED)
AFTER = (TracePoint.COMMITTED, TracePoint.ACKNOWLEDGED)
FORMING, MAJORITY, TOTAL = "ingress", "majority", "total"
STAGES = (FORMING, "raft", MAJORITY, "commit", "acknowledgement", TOTAL)
# The points that every writer has, and what lies between.
WRITING = (
    TracePoint.APPENDED,
    TracePoint.WRITE_BEGUN,
    TracePoint.DATA_FLUSHED,
    TracePoint.RECORDS_BEGUN,
    TracePoint.RECORDS_FLUSHED,
)
_WRITING_STAGES = ("writer", "data_flush", "records_wait", "records_flush")
_INSIDE = (TracePoint.RECEIVED, TracePoint.PROPOSED, *WRITING, TracePoint.ANSWERED)
_INSIDE_STAGES = ("ingress", "raft", *_WRITING_STAGES, "answer")
AWAY = "away"  # all of it but `send`, where the follower does not tell what it took
PATH_STAGES = ("send", "network", *_INSIDE_STAGES, AWAY, TOTAL)


class Sample(msgspec.Struct, frozen=True):
    """One entry: ns by stage. `paths`: by node, the stages until it had the entry durable there;
    what is not known is left out. `decided_by`: the node that made the majority."""

    stages: dict[str, int]
    paths: dict[int, dict[str, int]]
    decided_by: int


class StageTime(msgspec.Struct, frozen=True):
    """How long `count` entries were in a stage. `share`: of the time of all of them in all."""

    stage: str
    count: int
    median_ms: float
    p99_ms: float
    share: float


class PathTime(msgspec.Struct, frozen=True):
    """The way of an entry to a node's disk. `decides`: the share of entries whose majority it made;
    shares of the stages are of this path."""

    node: int
    is_leader: bool
    decides: float
    stages: list[StageTime]


def join_samples(leader: Reading, followers: Mapping[int, Reading | None]) -> list[Sample]:
    """The entries that passed the leader while it was measured. `followers`: all of them; None: one
    that did not answer.

    An entry is left out where a stamp is missing, or older than the one before it: it was
    overwritten, or is of an entry that was truncated.
    """
    own, samples = leader.stamps, []
    for index, received_ns in sorted(own.get(TracePoint.RECEIVED, {}).items()):
        before, after = _times(own, BEFORE, index), _times(own, AFTER, index)
        if received_ns < leader.first.now_ns or before is None or after is None:
            continue
        paths = {leader.last.node: _leaders_path(own, index)} | {
            node: _path(node, own, each, index) for node, each in followers.items()
        }
        decided_by = _decided_by(paths, len(paths))
        durable_ns = before[-1] + paths.get(decided_by, {}).get(TOTAL, -1)
        if before[-1] <= durable_ns <= after[0]:
            passed = (*before, durable_ns, *after)
            spent = [later - earlier for earlier, later in pairwise(passed)]
            stages = dict(zip(STAGES, (*spent, sum(spent)), strict=True))
            samples.append(Sample(stages, {n: p for n, p in paths.items() if p}, decided_by))
    return samples


def stage_times(samples: Sequence[Sample]) -> list[StageTime]:
    """Every stage of the leader, in the order of the way."""
    return _stage_times(STAGES, [each.stages for each in samples])


def path_times(samples: Sequence[Sample], leader: int) -> list[PathTime]:
    """Every node's path, the leader's first."""
    nodes = {node for each in samples for node in each.paths}
    return [
        PathTime(
            node,
            node == leader,
            round(sum(each.decided_by == node for each in samples) / len(samples), 4),
            _stage_times(PATH_STAGES, [each.paths[node] for each in samples if node in each.paths]),
        )
        for node in sorted(nodes, key=lambda node: (node != leader, node))
    ]


def percentile(values: Iterable[float], fraction: float) -> float:
    """The lowest value that at least `fraction` of them do not exceed; 0.0: there is none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[max(1, ceil(fraction * len(ordered))) - 1]


def _times(stamps: Stamps, points: Sequence[str], index: int) -> list[int] | None:
    """When the entry passed each point; None: not all are known, or they do not rise."""
    times = [stamps.get(point, {}).get(index) for point in points]
    known = [each for each in times if each is not None]
    return known if len(known) == len(times) and known == sorted(known) else None


def _leaders_path(own: Stamps, index: int) -> dict[str, int]:
    times = _times(own, WRITING, index)
    return {} if times is None else _stages_between(_WRITING_STAGES, times)


def _path(node: int, own: Stamps, follower: Reading | None, index: int) -> dict[str, int]:
    """The way to a follower and back. Without its own stamps all after `send` is one stage."""
    points = (
        TracePoint.APPENDED,
        *(f"{point}.{NodeId(node)}" for point in (TracePoint.SENT, TracePoint.CONFIRMED)),
    )
    outside = _times(own, points, index)
    if outside is None:
        return {}
    send_ns, away_ns = (later - earlier for earlier, later in pairwise(outside))
    total = {TOTAL: send_ns + away_ns}
    times = None if follower is None else _times(follower.stamps, _INSIDE, index)
    if times is None:
        return {"send": send_ns, AWAY: away_ns, **total}
    inside_ns = times[-1] - times[0]
    if inside_ns > away_ns:
        return {}
    inside = _stages_between(_INSIDE_STAGES, times)
    return {"send": send_ns, "network": away_ns - inside_ns, **inside, **total}


def _stages_between(names: Sequence[str], times: Sequence[int]) -> dict[str, int]:
    spent = [later - earlier for earlier, later in pairwise(times)]
    return dict(zip(names, spent, strict=True)) | {TOTAL: sum(spent)}


def _decided_by(paths: Mapping[int, Mapping[str, int]], nodes: int) -> int:
    """The node whose path made the majority; 0: too few paths are known."""
    ordered = sorted((path[TOTAL], node) for node, path in paths.items() if path)
    needed = majority(nodes)
    return ordered[needed - 1][1] if len(ordered) >= needed else 0


def _stage_times(names: Sequence[str], spent: Sequence[Mapping[str, int]]) -> list[StageTime]:
    total_ns = sum(each[TOTAL] for each in spent)
    found = []
    for name in names:
        values = [each[name] / 1e6 for each in spent if name in each]
        if values:
            found.append(
                StageTime(
                    name,
                    len(values),
                    round(percentile(values, 0.5), 4),
                    round(percentile(values, 0.99), 4),
                    round(sum(values) * 1e6 / max(1, total_ns), 4),
                )
            )
    return found
