"""The demo's course: start, append, kill the leader, restart it, catch up, compare.

Owns the order of events and how long each may take. What is appended and consumed is the workers',
what came of it is `outcome`'s, how it is shown is the caller's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec

import logstore
from logstore.cli.demo.outcome import ConsumerRecord, Facts, ProducerRecord, Report, make_report
from logstore.cli.demo.workers import (
    ACKNOWLEDGED,
    CONSUME,
    CONSUMED,
    END_LSN,
    OFFERED,
    PRODUCE,
    READY,
    STOP,
    Workers,
    WorkerSpec,
    create_board,
    read_consumer_record,
    read_producer_record,
    slot_of,
)
from logstore.cli.embedded import EmbeddedCluster, make_small_config, poll_until
from logstore.client.clock import monotonic_ns
from logstore.errors import LogStoreError
from logstore.limits import KIB

PRODUCERS = 2
# Small enough that three consumers on two cores keep up, large enough that appends overlap.
PRODUCER_WINDOW_BYTES = 256 * KIB
# Patience with the cluster, beyond the seconds of the demo: a restart of a busy small machine.
PATIENCE_S = 90.0
RESTART_AT = 0.75  # of the time
LOOK_MS = 20


class DemoSettings(msgspec.Struct, frozen=True):
    """What is asked for. `has_lines`: whether the files hold any line at all."""

    files: list[Path]
    has_lines: bool
    replicas: int
    seconds: float


class Progress(msgspec.Struct, frozen=True):
    """How far the demo is."""

    stage: str
    done: float  # of 1, in time
    acknowledged: int
    consumed: list[int]


Show = Callable[[Progress], None]


class DemoFailed(LogStoreError):
    """The demo could not be carried through; the message says at what it stopped."""


def run_demo(settings: DemoSettings, folder: Path, show: Show) -> Report:
    """Run it in `folder`, an empty one that the caller removes; call from the main thread.

    Raises:
      LogStoreError: it could not be carried through.
    """
    config = make_small_config(settings.replicas, Random(os.urandom(8)))
    workers = Workers(folder)
    with EmbeddedCluster(folder, config) as cluster:
        try:
            return _Demo(settings, folder, cluster, workers, show).run()
        finally:
            workers.close()


class _Demo:
    """One run; its methods are its stages."""

    def __init__(
        self,
        settings: DemoSettings,
        folder: Path,
        cluster: EmbeddedCluster,
        workers: Workers,
        show: Show,
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._cluster = cluster
        self._workers = workers
        self._show = show
        self._patience_s = settings.seconds + PATIENCE_S
        self._producers = [f"producer-{number}" for number in range(PRODUCERS)]
        self._consumers = [f"consumer-{node}" for node in cluster.nodes]
        self._board = create_board(folder, self._producers, self._consumers)
        self._stage = "starting the replicas"
        self._began_ns = 0
        self._killed_ns = 0
        self._led_again_ns = 0
        # Of the killed replica: its node once it is started again, when, and what it must show.
        self._restarted = 0
        self._restarted_ns = 0
        self._restart_lsn = 0
        self._restart_ns = 0

    def run(self) -> Report:
        cluster, span_ns = self._cluster, int(self._settings.seconds * 1e9)
        self._tick()
        cluster.start_all()
        cluster.wait_for_leader()
        self._start_workers()
        self._began_ns = monotonic_ns()
        processes = len(cluster.all_processes())
        before = {node: cluster.counters(node) for node in cluster.nodes}
        self._append_until(span_ns // 2, "appending")
        leader = cluster.wait_for_leader()
        after = cluster.counters(leader)
        in_flight = self._kill(leader)
        self._append_until(int(span_ns * RESTART_AT), "leader killed, appending")
        self._restart(leader)
        self._append_until(span_ns, "replica restarted, appending")
        ended_ns = monotonic_ns()
        chains_equal = self._finish()
        facts = Facts(
            replicas=self._settings.replicas,
            processes=processes,
            has_input=self._settings.has_lines,
            began_ns=self._began_ns,
            ended_ns=ended_ns,
            killed_ns=self._killed_ns,
            killed_term=after.get("term", 0),
            led_again_ns=self._led_again_ns,
            restart_ns=self._restart_ns,
            in_flight_at_kill=in_flight,
            chains_equal=chains_equal,
            disk_bytes=_disk_bytes(after) - _disk_bytes(before[leader]),
            payload_bytes=_payload_bytes(after) - _payload_bytes(before[leader]),
        )
        return make_report(facts, self._producer_records(), self._consumer_records())

    # --- stages ---

    def _start_workers(self) -> None:
        self._stage = "opening producers and consumers"
        for node, name in zip(self._cluster.nodes, self._consumers, strict=True):
            self._workers.start(CONSUME, self._spec(name, node))
        for number, name in enumerate(self._producers):
            self._workers.start(PRODUCE, self._spec(name, number))
        names = [*self._producers, *self._consumers]
        self._wait(lambda: all(self._value(name, READY) for name in names))

    def _append_until(self, elapsed_ns: int, stage: str) -> None:
        """Let the producers append until so much time has passed since the beginning."""
        self._stage = stage
        self._wait(lambda: monotonic_ns() >= self._began_ns + elapsed_ns)

    def _kill(self, leader: int) -> int:
        """SIGKILL the leader's replica with appends of every producer in flight; payloads in
        flight.

        What was offered before the kill and not acknowledged after it was in flight at it.
        """
        offered: dict[str, int] = {}

        def are_all_in_flight() -> bool:
            for name in self._producers:
                offered[name] = self._value(name, OFFERED)
            return all(offered[name] > self._value(name, ACKNOWLEDGED) for name in self._producers)

        if self._settings.has_lines:
            self._wait(are_all_in_flight, look_ms=1)
        self._killed_ns = monotonic_ns()
        self._cluster.kill(leader)
        left = [count - self._value(name, ACKNOWLEDGED) for name, count in offered.items()]
        return sum(max(0, count) for count in left)

    def _restart(self, node: int) -> None:
        """Start the killed replica; it is back once it shows what the others showed now."""
        shown = (self._cluster.visible_lsn(other) for other in self._cluster.nodes)
        self._restart_lsn = max(0, *shown)
        self._restarted_ns = monotonic_ns()
        self._cluster.start(node)
        self._restarted = node

    def _finish(self) -> bool:
        """Stop the producers, let the consumers catch up; whether all chains are equal."""
        self._stage = "waiting for the last acknowledgements"
        slots = self._board.slots
        slots[slot_of(self._board, STOP)] = 1
        self._wait(lambda: self._workers.are_done(self._producers))
        last_lsn = max(record.last_lsn for record in self._producer_records())
        # Payloads after the last acknowledged one, if there are any, are to be read, too.
        shown = (self._cluster.visible_lsn(node) for node in self._cluster.nodes)
        slots[slot_of(self._board, END_LSN)] = max(last_lsn, *shown) + 1
        self._stage = "replica and consumers catch up"
        self._wait(lambda: self._restart_ns > 0)
        self._wait(lambda: self._workers.are_done(self._consumers))
        self._stage = "comparing"
        self._tick()
        with logstore.connect(self._cluster.endpoints, timeout=self._patience_s) as client:
            verification = client.admin.verify()
        return verification.is_good and len(verification.replicas) == self._settings.replicas

    # --- beside the course ---

    def _wait(self, is_reached: Callable[[], bool], *, look_ms: int = LOOK_MS) -> None:
        """Show progress and watch the workers until the condition holds.

        Raises:
          WorkerFailed: a worker ended with an error.
          DemoFailed: the condition did not hold in time.
        """

        def look() -> bool:
            self._tick()
            self._workers.are_done([])
            return is_reached()

        if not poll_until(look, self._patience_s, look_ms=look_ms):
            raise DemoFailed(f"nothing moves while {self._stage}: {self._board.values()}")

    def _tick(self) -> None:
        if self._killed_ns and not self._led_again_ns and self._cluster.leader():
            self._led_again_ns = monotonic_ns()
        if self._restarted and not self._restart_ns:
            if self._cluster.visible_lsn(self._restarted) >= self._restart_lsn:
                self._restart_ns = monotonic_ns() - self._restarted_ns
        elapsed_ns = monotonic_ns() - self._began_ns if self._began_ns else 0
        self._show(
            Progress(
                stage=self._stage,
                done=min(1.0, elapsed_ns / 1e9 / self._settings.seconds),
                acknowledged=sum(self._value(name, ACKNOWLEDGED) for name in self._producers),
                consumed=[self._value(name, CONSUMED) for name in self._consumers],
            )
        )

    def _spec(self, name: str, number: int) -> WorkerSpec:
        return WorkerSpec(
            name=name,
            number=number,
            producers=PRODUCERS,
            folder=str(self._folder),
            endpoints=self._cluster.endpoints,
            files=[str(path) for path in self._settings.files],
            window_bytes=PRODUCER_WINDOW_BYTES,
            timeout_s=self._patience_s,
            parent_pid=os.getpid(),
        )

    def _value(self, name: str, fact: str) -> int:
        return self._board.slots[slot_of(self._board, name, fact)]

    def _producer_records(self) -> list[ProducerRecord]:
        return [read_producer_record(self._folder, name) for name in self._producers]

    def _consumer_records(self) -> list[ConsumerRecord]:
        return [read_consumer_record(self._folder, name) for name in self._consumers]


def _disk_bytes(counters: dict[str, int]) -> int:
    return sum(counters.get(f"disk_bytes_{kind}", 0) for kind in ("data", "raft", "meta"))


def _payload_bytes(counters: dict[str, int]) -> int:
    return counters.get("payload_bytes_acknowledged", 0)
