"""How busy each process and each disk is, and which wake-ups are paid: differences of counters.

Pure. A process is busy while it is not idle (parked, or spinning without work): it works, waits for
a processor, or for a disk. What it waits for a processor after a wake-up its loop takes for idle,
and the scheduler tells: so it is busy for as long as either says. A turn is one run of its loop.
One without work ends in a park, and every park ends in a wake-up: by the bell, by a socket, or by a
timer.
"""

from __future__ import annotations

import msgspec

from actors.trace import TracePoint
from logstore.cli.explain.breakdown import percentile
from logstore.cli.explain.readings import Reading


class ProcessUse(msgspec.Struct, frozen=True):
    """One process, and the actors that it runs. Shares of the time, of one core: `busy`; `cpu` of
    all its threads, which may be more than one core; `loop_cpu` of the loop's own, and `waits` of
    it for a processor. The rest is a second: `empty_wakes` are those after which nothing had come.
    """

    node: int
    process: str
    actors: tuple[str, ...]
    busy: float
    cpu: float
    loop_cpu: float
    waits: float
    turns: float
    wakes: float
    bell_wakes: float
    socket_wakes: float
    timer_wakes: float
    empty_wakes: float


class FlushUse(msgspec.Struct, frozen=True):
    """One kind of flush of a node's writer, which does one at a time. `busy`: the share of the time
    in which one was under way, with the write before it."""

    node: int
    kind: str
    per_s: float
    mean_ms: float
    p99_ms: float
    busy: float


class Traffic(msgspec.Struct, frozen=True):
    """What the leader acknowledged. `groups_in_flight`: on average, between proposal and
    acknowledgement. `groups`: how many in all. `waiting`: entries that it had at the end and that
    were not committed."""

    groups_per_s: float
    payloads_per_s: float
    mb_per_s: float
    payloads_per_group: float
    groups_in_flight: float
    groups_in_flight_max: int
    groups: int
    waiting: int


DATA, RECORDS = "data", "records"
_FLUSHES = {
    DATA: ("data_flush_ns", TracePoint.WRITE_BEGUN, TracePoint.DATA_FLUSHED),
    RECORDS: ("record_flush_ns", TracePoint.RECORDS_BEGUN, TracePoint.RECORDS_FLUSHED),
}


def process_uses(node: int, reading: Reading) -> list[ProcessUse]:
    """Every process of a replica whose loop was measured, and that is the same one all the time."""
    before, after = reading.begun, reading.last.processes
    found = []
    for process, now in after.items():
        then = before.get(process, {})
        measured_ns = now["measured_ns"] - then.get("measured_ns", 0)
        if now["pid"] != then.get("pid") or not then["measured_ns"] or measured_ns <= 0:
            continue
        grown = {name: value - then.get(name, 0) for name, value in now.items()}
        scheduled = (grown["run_ns"] + grown["wait_ns"]) / measured_ns
        seconds = measured_ns / 1e9
        kinds = ("bell_wakes", "socket_wakes", "timer_wakes")
        found.append(
            ProcessUse(
                node,
                process,
                reading.last.actors_of(process),
                busy=round(min(1.0, max(0.0, 1 - grown["idle_ns"] / measured_ns, scheduled)), 4),
                cpu=round(grown["cpu_ns"] / measured_ns, 4),
                loop_cpu=round(grown["run_ns"] / measured_ns, 4),
                waits=round(grown["wait_ns"] / measured_ns, 4),
                turns=round(grown["turns"] / seconds, 1),
                wakes=round(sum(grown[kind] for kind in kinds) / seconds, 1),
                **{kind: round(grown[kind] / seconds, 1) for kind in (*kinds, "empty_wakes")},
            )
        )
    return found


def flush_uses(node: int, reading: Reading) -> list[FlushUse]:
    """Both kinds of flushes of a replica; none if it flushed nothing."""
    flushes = reading.grown("flushes") / 2  # the counter has one of each kind for each flush group
    if flushes <= 0:
        return []
    found = []
    for kind, (counter, begun, flushed) in _FLUSHES.items():
        spent_ms = reading.grown(counter) / 1e6
        found.append(
            FlushUse(
                node,
                kind,
                per_s=round(flushes / reading.seconds, 1),
                mean_ms=round(spent_ms / flushes, 4),
                p99_ms=round(percentile(_sampled_ms(reading, begun, flushed), 0.99), 4),
                # A flush counts where it ends, also the part of it that was before.
                busy=round(min(1.0, spent_ms / 1e3 / reading.seconds), 4),
            )
        )
    return found


def traffic_of(leader: Reading, in_flight_s: float) -> Traffic:
    """`in_flight_s`: mean seconds from a group's proposal to its acknowledgement. By Little's law
    their product with the groups a second is how many are in flight."""
    seconds, groups = leader.seconds, leader.grown("groups_committed")
    payloads = leader.grown("payloads_acknowledged")
    return Traffic(
        groups_per_s=round(groups / seconds, 1),
        payloads_per_s=round(payloads / seconds, 1),
        mb_per_s=round(leader.grown("payload_bytes_acknowledged") / 1e6 / seconds, 3),
        payloads_per_group=round(payloads / max(1, groups), 2),
        groups_in_flight=round(groups / seconds * in_flight_s, 2),
        groups_in_flight_max=leader.last.groups_in_flight_max,
        groups=groups,
        waiting=max(0, leader.last.counters["last_index"] - leader.last.counters["commit_index"]),
    )


def _sampled_ms(reading: Reading, begun: TracePoint, flushed: TracePoint) -> list[float]:
    """Each sampled flush once: the entries that one flush made durable have the same stamps."""
    begins, ends = reading.stamps.get(begun, {}), reading.stamps.get(flushed, {})
    spans = {
        (begun_ns, ends[index])
        for index, begun_ns in begins.items()
        if reading.first.now_ns <= begun_ns <= ends.get(index, -1)
    }
    return [(end_ns - begun_ns) / 1e6 for begun_ns, end_ns in spans]
