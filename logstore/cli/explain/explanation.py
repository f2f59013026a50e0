"""The whole answer of `logstore explain`, from what the replicas measured. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec

from logstore.cli.explain.bottleneck import Bound, find_bound
from logstore.cli.explain.breakdown import (
    FORMING,
    TOTAL,
    PathTime,
    Sample,
    StageTime,
    join_samples,
    path_times,
    stage_times,
)
from logstore.cli.explain.readings import Readings
from logstore.cli.explain.utilisation import (
    FlushUse,
    ProcessUse,
    Traffic,
    flush_uses,
    process_uses,
    traffic_of,
)


class Explanation(msgspec.Struct, frozen=True):
    """What `--json` gives.

    Attributes:
      leader: 0: nobody leads, and there is only what each process and disk does.
      silent: nodes of which nothing is known, or nothing of the end, and why.
      sampled: of how many entries the times are; one in STAMPED_EVERY is stamped.
      stages, paths: where an append's time goes, on the leader and until it is on each disk.
      wakes_per_group: wake-ups of all processes of all replicas but supervisors; None: no group.
    """

    leader: int
    term: int
    seconds: float
    silent: dict[int, str]
    flushes: list[FlushUse]
    processes: list[ProcessUse]
    traffic: Traffic | None = None
    sampled: int = 0
    stages: list[StageTime] = []
    paths: list[PathTime] = []
    wakes_per_group: float | None = None
    bound: Bound | None = None


def explain_readings(readings: Readings) -> Explanation:
    """What the readings of all replicas say."""
    rows = sorted(readings.replicas.items())
    flushes = [use for node, each in rows for use in flush_uses(node, each)]
    processes = [use for node, each in rows for use in process_uses(node, each)]
    found = Explanation(
        leader=readings.leader,
        term=max((each.last.term for _, each in rows), default=0),
        seconds=round(max((each.seconds for _, each in rows), default=0.0), 3),
        silent=readings.silent,
        flushes=flushes,
        processes=processes,
    )
    return _of_leader(found, readings) if readings.leader else found


def _of_leader(found: Explanation, readings: Readings) -> Explanation:
    """With what only a leader shows."""
    leader, reading = readings.leader, readings.replicas[readings.leader]
    others = (readings.replicas.keys() | readings.silent.keys()) - {leader}
    samples = join_samples(reading, {node: readings.replicas.get(node) for node in others})
    stages, paths = stage_times(samples), path_times(samples, leader)
    traffic = traffic_of(reading, _in_flight_s(samples))
    wakes = sum(each.wakes for each in found.processes)
    return msgspec.structs.replace(
        found,
        seconds=round(reading.seconds, 3),
        traffic=traffic,
        sampled=len(samples),
        stages=stages,
        paths=paths,
        wakes_per_group=round(wakes * reading.seconds / traffic.groups, 1)
        if traffic.groups
        else None,
        bound=find_bound(
            leader, readings.nodes, traffic, stages, paths, found.processes, found.flushes
        ),
    )


def _in_flight_s(samples: Sequence[Sample]) -> float:
    """Mean time between proposal and acknowledgement; 0.0: nothing was sampled."""
    spent_ns = [each.stages[TOTAL] - each.stages[FORMING] for each in samples]
    return fmean(spent_ns) / 1e9 if spent_ns else 0.0
