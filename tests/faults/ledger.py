"""Producers under way while something breaks, and the comparison of what they were told with what
every replica holds.

The producers are two, with batches of mixed sizes and several in flight each. Every append must
come to a good end: a retry that the client hides is welcome, a failed future is not.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from random import Random

import numpy as np

import logstore
from logstore.cli.demo.outcome import Acknowledged, Delivered, Findings, compare, digests_of
from logstore.cli.embedded import poll_until
from tests.faults.quick_cluster import RECOVERY_TIMEOUT_S, QuickCluster

PRODUCERS = 2
IN_FLIGHT = 12
BATCH_COUNTS = (1, 1, 3, 17, 120)
PAYLOAD_BYTES_MAX = 400
# Two producers at this pace are a few MB/s: always something in flight, little to compare.
PACE_S = 0.004
OPTIONS = logstore.ProducerOptions(append_timeout_s=60, delivery_timeout_s=60)


class LoadingProducer:
    """One producer in a thread of its own, and all it was told, in the order of its appends."""

    def __init__(
        self, endpoints: list[str], number: int, stop: threading.Event, *, payload_bytes_max: int
    ) -> None:
        self.acknowledged = 0  # batches
        self.failures: list[str] = []
        self._endpoints = endpoints
        self._random = Random(number)
        self._number = number
        self._payload_bytes_max = payload_bytes_max
        self._stop = stop
        self._serial = 0
        self._told: list[tuple[int, list[bytes]]] = []
        self._in_flight: deque[tuple[list[bytes], logstore.AppendFuture]] = deque()
        self.thread = threading.Thread(target=self._run, name=f"load-{number}")
        self.thread.start()

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def told(self, base_lsn: int) -> Acknowledged:
        """What was acknowledged, with LSNs counted from `base_lsn`."""
        return Acknowledged(
            first_lsns=np.array([first - base_lsn for first, _ in self._told], dtype=np.int64),
            counts=np.array([len(batch) for _, batch in self._told], dtype=np.int64),
            digests=digests_of([payload for _, batch in self._told for payload in batch]),
        )

    def _run(self) -> None:
        try:
            with (
                logstore.connect(self._endpoints, timeout=60) as log,
                log.producer(OPTIONS) as producer,
            ):
                while not self._stop.is_set():
                    batch = self._make_batch()
                    self._in_flight.append((batch, producer.append_batch(batch)))
                    self._settle(IN_FLIGHT)
                    self._stop.wait(PACE_S)
                self._settle(0)
        except Exception as error:
            self.failures.append(repr(error))

    def _make_batch(self) -> list[bytes]:
        """Payloads that tell whose they are and in which order they came; some are empty."""
        batch = []
        for _ in range(self._random.choice(BATCH_COUNTS)):
            self._serial += 1
            filler = self._random.randbytes(self._random.randrange(self._payload_bytes_max))
            batch.append(b"%d/%d " % (self._number, self._serial) + filler)
        return [*batch, b""]

    def _settle(self, left_max: int) -> None:
        while len(self._in_flight) > left_max or (self._in_flight and self._in_flight[0][1].done()):
            batch, future = self._in_flight[0]
            lsns = future.result(90)
            assert lsns.last - lsns.first + 1 == len(batch)
            self._told.append((lsns.first, batch))
            self.acknowledged += 1
            self._in_flight.popleft()


def stop_the_leader_under_load(cluster: QuickCluster) -> None:
    """It hands leadership over before it is gone, so nobody waits for an election timeout."""
    with Load(cluster) as load:
        leader = cluster.wait_for_leader()
        assert cluster.stop(leader), "the stop needed SIGKILL"
        assert cluster.leader() not in (0, leader)
        load.wait_for_progress(20)
        cluster.start(leader)
    load.assert_kept()


class Load:
    """All producers. Use as a context manager: `finish` is called whatever happens."""

    def __init__(
        self,
        cluster: QuickCluster,
        nodes: list[int] | None = None,
        *,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
    ) -> None:
        """`nodes`: those that are expected to be whole at the beginning; None: all."""
        self._cluster = cluster
        self.base_lsn = cluster.visible_everywhere(nodes)
        self._stop = threading.Event()
        self.producers = [
            LoadingProducer(
                cluster.endpoints, number, self._stop, payload_bytes_max=payload_bytes_max
            )
            for number in range(PRODUCERS)
        ]

    def __enter__(self) -> Load:
        self.wait_for_progress(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    @property
    def in_flight(self) -> int:
        return sum(producer.in_flight for producer in self.producers)

    def wait_until_in_flight(self) -> None:
        """Until an append is under way: between two of them there may be none for a moment."""
        assert poll_until(lambda: self.in_flight > 0, RECOVERY_TIMEOUT_S)

    def progress(self) -> tuple[int, ...]:
        """Batches acknowledged so far, by producer."""
        return tuple(producer.acknowledged for producer in self.producers)

    def wait_for_progress(self, batches: int, timeout_s: float = RECOVERY_TIMEOUT_S) -> None:
        """Wait until each producer was told of that many more batches than now, beyond those
        that are in flight now.
        """
        targets = [
            producer.acknowledged + producer.in_flight + batches for producer in self.producers
        ]

        def is_there() -> bool:
            return any(producer.failures for producer in self.producers) or all(
                producer.acknowledged >= target
                for producer, target in zip(self.producers, targets, strict=True)
            )

        assert poll_until(is_there, timeout_s), f"{self.progress()} of {targets} in {timeout_s} s"
        self._assert_no_failures()

    def finish(self) -> None:
        """No more appends; every one so far has come to a good end."""
        self._stop.set()
        for producer in self.producers:
            producer.thread.join(120)
            assert not producer.thread.is_alive()
        self._assert_no_failures()

    def assert_kept(self) -> None:
        """Every replica gives back exactly what was acknowledged since the load began, whole, once
        and in order, and their chains are equal.
        """
        last = self._cluster.visible_everywhere()
        told = [producer.told(self.base_lsn) for producer in self.producers]
        with logstore.connect(self._cluster.endpoints, timeout=30) as log:
            for node in self._cluster.nodes:
                delivered = read_all(log, node, first_lsn=self.base_lsn + 1, last_lsn=last)
                assert compare(told, delivered) == Findings(), f"node {node}"
            verification = log.admin.verify()
        assert verification.is_good, verification

    def _assert_no_failures(self) -> None:
        failures = [failure for producer in self.producers for failure in producer.failures]
        assert not failures, f"{failures}\n{self._cluster.said()}"


def read_all(
    log: logstore.LogClient, node: int | None, *, first_lsn: int, last_lsn: int
) -> Delivered:
    """What a replica holds from `first_lsn` on, with LSNs counted from it."""
    lsns: list[int] = []
    payloads: list[bytes] = []
    if last_lsn >= first_lsn:
        for batch in log.read(first_lsn, last_lsn, replica=node, min_lsn=last_lsn):
            lsns += range(batch.first_lsn - first_lsn + 1, batch.last_lsn - first_lsn + 2)
            payloads += batch.payloads()
    return Delivered(np.array(lsns, dtype=np.int64), digests_of(payloads))


def log_of(cluster: QuickCluster, node: int) -> str:
    """All that a replica has said since its folder was made."""
    return (Path(cluster.node_folder(node)) / "log").read_text(errors="replace")
