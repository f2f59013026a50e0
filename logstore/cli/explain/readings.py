"""What each replica measured of itself in some seconds: asked again and again, put together.

Owns how often replicas are asked, and whether two answers can be compared. Must not know what the
counters and stamps mean.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from logstore.client.client import LogClient
from logstore.client.clock import milliseconds_until, seconds_from_now
from logstore.client.replica_trace import ReplicaTrace
from logstore.config_layout import process_of

# A replica keeps the stamps of its newest 2,816 entries: asked so often, it forgets none up to
# 5,600 entries a second; a third of it while a node is silent, whose answer is waited for.
ASK_EVERY_S = 0.5
INGRESS = "ingress"


class Reading(msgspec.Struct, frozen=True):
    """One replica between two of its answers.

    Attributes:
      stamps: of all its answers, the newest last.
      begun: what each process had published first after the first answer, or, until it publishes
        again, before it: what happened before does not count.
    """

    first: ReplicaTrace
    last: ReplicaTrace
    stamps: dict[str, dict[int, int]]
    begun: dict[str, dict[str, int]]

    @property
    def seconds(self) -> float:
        return (self.last.now_ns - self.first.now_ns) / 1e9

    def grown(self, counter: str) -> int:
        """By how much a counter grew."""
        return self.last.counters.get(counter, 0) - self.first.counters.get(counter, 0)


class Readings(msgspec.Struct, frozen=True):
    """`replicas`: by node. `silent`: why there is none of a node, or why it ends early."""

    replicas: dict[int, Reading]
    silent: dict[int, str]

    @property
    def nodes(self) -> int:
        """How many nodes the cluster has."""
        return len(self.replicas.keys() | self.silent.keys())

    @property
    def leader(self) -> int:
        """Who says of itself that it leads, in the newest term; 0: nobody does."""
        leading = [
            (each.last.term, node)
            for node, each in self.replicas.items()
            if each.last.leader == node
        ]
        return max(leading, default=(0, 0))[1]

    @property
    def is_leader_new(self) -> bool:
        """The leader did not lead in the same term all the time."""
        reading = self.replicas[self.leader]
        before, after = reading.first, reading.last
        return (before.leader, before.term) != (after.leader, after.term)


def gather(client: LogClient, seconds: float) -> Readings:
    """Ask every replica for so long.

    Raises:
      LogStoreError: no replica told which cluster this is.
    """
    answers = [client.admin.traces()]
    until_ns = seconds_from_now(seconds)
    while left_ms := milliseconds_until(until_ns):
        time.sleep(min(ASK_EVERY_S, left_ms / 1_000))
        answers.append(client.admin.traces())
    return put_together(answers)


def put_together(answers: Iterable[dict[int, ReplicaTrace | str]]) -> Readings:
    """What each node answered, in the order of the answers. One that does not answer once, as a
    busy one may, is measured on."""
    replicas: dict[int, Reading] = {}
    silent: dict[int, str] = {}
    for each in answers:
        for node, trace in each.items():
            if isinstance(trace, str):
                silent[node] = trace
            elif node in replicas and _incarnation(replicas[node].last) == _incarnation(trace):
                replicas[node] = _extended(replicas[node], trace)
                silent.pop(node, None)
            else:
                replicas[node] = Reading(trace, trace, _copy(trace.stamps), {**trace.processes})
                silent.pop(node, None)
    for node, reading in list(replicas.items()):
        if not reading.seconds > 0:
            del replicas[node]
            silent.setdefault(
                node, "it was started again meanwhile, or answered once only: ask again"
            )
    return Readings(replicas, silent)


def _incarnation(trace: ReplicaTrace) -> tuple[int, int]:
    """What tells one start of a replica, with counters that begin at 0, from the next: META's
    count of them, and the pid of the process of ingress, whose death ends all processes (in a
    container a pid may come back)."""
    process = process_of(trace.layout, INGRESS)
    return trace.boot, trace.processes.get(process, {}).get("pid", 0)


def _extended(reading: Reading, trace: ReplicaTrace) -> Reading:
    for point, stamps in trace.stamps.items():
        reading.stamps.setdefault(point, {}).update(stamps)
    for process, row in reading.last.processes.items():
        is_first = reading.begun[process]["measured_ns"] < reading.first.now_ns
        # Only once there is a newer one: a span is wanted.
        is_followed = trace.processes[process]["measured_ns"] > row["measured_ns"]
        if is_first and is_followed and row["measured_ns"] >= reading.first.now_ns:
            reading.begun[process] = row
    return msgspec.structs.replace(reading, last=trace)


def _copy(stamps: dict[str, dict[int, int]]) -> dict[str, dict[int, int]]:
    return {point: dict(each) for point, each in stamps.items()}
