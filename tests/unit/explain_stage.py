"""A cluster of three as `logstore explain` is told of it: traces with known times.

Every replica has its own clock, far from the others'. Times of stages are in ms.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from actors.loop_usage import USAGE
from actors.topology import PROCESS_GAUGES, Counter
from logstore.cli.explain.readings import Reading, Readings, put_together
from logstore.client.replica_trace import ReplicaTrace
from logstore.config_layout import actor_names

MS = 1_000_000
SECOND = 1_000 * MS
NODES = (1, 2, 3)
CLOCKS = {1: 10**15, 2: 5 * 10**12, 3: 7 * 10**16}
LEADER = ("received", "proposed", "appended")
WRITES = ("write_begun", "data_flushed", "records_begun", "records_flushed")
INSIDE = ("received", "proposed", "appended", *WRITES, "answered")
# What each stage takes. The leader: ingress, raft; its writer: wait, data, wait, records.
FORMED, APPENDED = 1, 2
WRITTEN = (3, 4, 0, 5)
# A follower: send, network; ingress, raft, wait, data, wait, records, answer.
SENT, NETWORK = 1, 1
FAST, SLOW = (1, 1, 1, 2, 0, 2, 1), (1, 1, 1, 20, 0, 2, 1)
COMMITTED = ACKNOWLEDGED = 1
TOTAL = FORMED + APPENDED + sum(WRITTEN) + COMMITTED + ACKNOWLEDGED  # the leader's disk decides


class Times:
    """Stamps of all replicas."""

    def __init__(self) -> None:
        self.stamps: dict[int, dict[str, dict[int, int]]] = {node: {} for node in NODES}

    def put(self, node: int, points: tuple[str, ...], index: int, *at_ms: float) -> None:
        for point, at in zip(points, at_ms, strict=True):
            time_ns = CLOCKS[node] + int(at * MS)
            self.stamps[node].setdefault(point, {})[index] = time_ns

    def append(self, index: int, *, at_ms: float = 0, slower_ms: float = 0) -> None:
        """An entry that begins at `at_ms` of its leader's clock. `slower_ms`: its data flush there
        takes so much longer."""
        wait, data, hold, records = WRITTEN
        writes = (wait, data + slower_ms, hold, records)
        times = [*accumulate((FORMED, APPENDED, *writes), initial=at_ms)]
        self.put(1, (*LEADER, *WRITES), index, *times)
        appended_ms = times[2]
        away = {2: FAST, 3: SLOW}
        for node, stages in away.items():
            sent_ms = appended_ms + SENT
            confirmed_ms = sent_ms + NETWORK + sum(stages)
            self.put(1, (f"sent.{node}", f"confirmed.{node}"), index, sent_ms, confirmed_ms)
            self.put(node, INSIDE, index, *accumulate(stages, initial=at_ms / 3))
        durable = sorted(
            [times[-1], *(appended_ms + SENT + NETWORK + sum(s) for s in away.values())]
        )
        committed_ms = durable[1] + COMMITTED
        self.put(1, ("committed", "acknowledged"), index, committed_ms, committed_ms + ACKNOWLEDGED)


def trace(
    node: int,
    *,
    at_s: float = 0.0,
    leader: int = 1,
    term: int = 4,
    counters: dict[str, int] | None = None,
    use: dict[str, dict[str, int]] | None = None,
    stamps: dict[str, dict[int, int]] | None = None,
) -> ReplicaTrace:
    """The answer of a node. `use`: what the loops of some processes count; the others did nothing
    but wait."""
    now_ns = CLOCKS[node] + int(at_s * SECOND)
    rows: dict[str, dict[str, int]] = {}
    for number, process in enumerate(("supervisor", *actor_names(node, NODES))):
        idle = {"pid": 100 * node + number, "measured_ns": now_ns, "idle_ns": int(at_s * SECOND)}
        if process == "supervisor":
            idle = {"pid": 100 * node}
        rows[process] = dict.fromkeys((*PROCESS_GAUGES, *USAGE), 0) | idle
        rows[process] |= (use or {}).get(process, {})
    counted = {counter.name.lower(): 0 for counter in Counter}
    return ReplicaTrace(
        node, leader, term, now_ns, 16, counted | (counters or {}), rows, stamps or {}
    )


def readings(
    times: Times | None = None,
    *,
    seconds: float = 2.0,
    silent: tuple[int, ...] = (),
    counters: dict[int, dict[str, int]] | None = None,
    use: dict[int, dict[str, dict[str, int]]] | None = None,
    **fields: Any,
) -> Readings:
    """Two answers of each node, so many seconds apart; everything was counted in between."""
    stamps = (times or Times()).stamps
    first = {node: trace(node, **fields) for node in NODES}
    last = {
        node: trace(
            node,
            at_s=seconds,
            counters=(counters or {}).get(node),
            use=(use or {}).get(node),
            stamps=stamps[node],
            **fields,
        )
        for node in NODES
    }
    missing = dict.fromkeys(silent, "it does not answer")
    return put_together([first | missing, last | missing])


def busy(share: float, *, cpu: float | None = None, seconds: float = 2.0, **more: int) -> dict:
    """What the loop of a process counts that is busy for this share of the seconds."""
    used = share if cpu is None else cpu
    idle_ns, cpu_ns = int((1 - share) * seconds * SECOND), int(used * seconds * SECOND)
    return {"idle_ns": idle_ns, "cpu_ns": cpu_ns, **more}


def reading_of(found: Readings, node: int) -> Reading:
    return found.replicas[node]
