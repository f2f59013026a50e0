"""A consumer that reads nothing for a while costs bounded memory and holds up nobody; then it gets
everything, in order and without a gap (SAFETY V8, M5; FAULTS K8).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from random import Random

import numpy as np
import psutil
import pytest

import logstore
from logstore.cli.demo.outcome import Acknowledged, Delivered, Findings, compare, digests_of
from logstore.limits import KIB, MIB
from tests.faults.ledger import OPTIONS
from tests.faults.quick_cluster import QuickCluster, quick_cluster, quick_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]
BATCH_PAYLOADS = 8
PAYLOAD_BYTES = 15 * KIB
APPENDED = 96 * MIB
IN_FLIGHT = 24
# XPUB's queue: 256 groups of at most 128 KiB (quick_config) for the one that does not read, and
# what allocators keep.
EGRESS_GROWTH_MAX = 48 * MIB
READ_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickCluster]:
    folder = tmp_path_factory.mktemp("slow-consumer")
    with quick_cluster(folder, quick_config(segment="16MiB")) as started:
        yield started


def _append_all(cluster: QuickCluster) -> Acknowledged:
    """96 MiB by one producer; what it was told."""
    random = Random(11)
    noise = random.randbytes(MIB)
    firsts, digests = [], []
    in_flight: deque[logstore.AppendFuture] = deque()
    with logstore.connect(cluster.endpoints) as log, log.producer(OPTIONS) as producer:
        for number in range(APPENDED // (BATCH_PAYLOADS * PAYLOAD_BYTES)):
            batch = []
            for _ in range(BATCH_PAYLOADS):
                start = random.randrange(MIB - PAYLOAD_BYTES)
                batch.append(b"%d " % number + noise[start : start + PAYLOAD_BYTES])
            digests.append(digests_of(batch))
            in_flight.append(producer.append_batch(batch))
            if len(in_flight) > IN_FLIGHT:
                firsts.append(in_flight.popleft().result(60).first)
        firsts += [future.result(60).first for future in in_flight]
    counts = np.full(len(firsts), BATCH_PAYLOADS, dtype=np.int64)
    return Acknowledged(np.array(firsts, dtype=np.int64), counts, np.concatenate(digests))


def _consume(consumer: logstore.Consumer, last_lsn: int) -> Delivered:
    lsns: list[int] = []
    digests = []
    while consumer.position <= last_lsn:
        batches = consumer.poll(READ_TIMEOUT_S)
        assert batches, f"nothing came after LSN {consumer.position - 1} of {last_lsn}"
        for batch in batches:
            lsns += range(batch.first_lsn, batch.last_lsn + 1)
            digests.append(digests_of(batch.payloads()))
    return Delivered(np.array(lsns, dtype=np.int64), np.concatenate(digests))


class Follower:
    """A consumer that reads as fast as it can, in a thread."""

    def __init__(self, cluster: QuickCluster, node: int, last_lsn: int) -> None:
        self.delivered: Delivered | None = None
        self._arguments = (cluster.endpoints, node, last_lsn)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        endpoints, node, last_lsn = self._arguments
        with logstore.connect(endpoints) as log, log.consumer(1, replica=node) as consumer:
            self.delivered = _consume(consumer, last_lsn)

    def wait(self) -> Delivered:
        self._thread.join(READ_TIMEOUT_S)
        assert self.delivered is not None
        return self.delivered


def _egress_bytes(cluster: QuickCluster, node: int) -> int:
    memory = psutil.Process(cluster.pid_of(node, "egress")).memory_info()
    return int(memory.rss - memory.shared)


@pytest.mark.long
def test_a_consumer_that_reads_nothing_is_bounded_and_then_gets_everything(
    cluster: QuickCluster,
) -> None:
    node = cluster.followers()[0]
    last = APPENDED // (BATCH_PAYLOADS * PAYLOAD_BYTES) * BATCH_PAYLOADS
    with (
        logstore.connect(cluster.endpoints) as log,
        log.consumer(1, replica=node) as slow,
    ):
        assert slow.poll(0.1) == []  # subscribed; from here on it reads nothing
        before = _egress_bytes(cluster, node)
        fast = Follower(cluster, node, last)
        told = _append_all(cluster)
        assert compare([told], fast.wait()) == Findings()
        growth = _egress_bytes(cluster, node) - before
        assert growth < EGRESS_GROWTH_MAX, f"{growth >> 20} MiB"
        assert compare([told], _consume(slow, last)) == Findings()
