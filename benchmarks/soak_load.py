"""The loads of a soak, each a process of its own: a producer at a rate, and consumers that check
every payload.

A payload begins with its number, and its other bytes follow from that. The payload with number n
has LSN `first_lsn` + n: a consumer knows from the LSN alone which bytes have to be there, so that
a payload that is lost, repeated, moved or changed shows at its LSN. A load that finds something
wrong ends with exit status 1 and says it; else it prints its `LoadResult`.
"""

from __future__ import annotations

import select
import sys
from collections import deque
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

import logstore
from actors.child import die_with_parent
from benchmarks.saturate import weighted_percentile
from logstore.cli.embedded import poll_until
from logstore.client.clock import monotonic_ns
from logstore.client.records import RecordBatch

NUMBER_BYTES = 8
POOL_ROWS = 4_096
SEED = 1
# A leader may be gone for some seconds; a consumer waits for its node while it is down.
TIMEOUT_S = 120.0
POLL_S = 1.0


class LoadSpec(msgspec.Struct, frozen=True):
    """What a load is told, as JSON in its argument.

    Attributes:
      node: that a consumer reads; 0 for the producer.
      payload_bytes: of each payload, NUMBER_BYTES at least.
      rate: payloads offered a second, `batch` an append, for `seconds`.
      first_lsn: of the payload with number 0.
    """

    role: Literal["producer", "consumer"]
    endpoints: list[str]
    node: int
    payload_bytes: int
    batch: int
    rate: float
    seconds: float
    first_lsn: int
    parent_pid: int


class LoadResult(msgspec.Struct, frozen=True):
    """`payloads`: acknowledged, or read and found right. Latencies are from append to outcome."""

    payloads: int
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    slowest_ms: float = 0.0


class WrongPayload(Exception):
    """The log does not hold what was appended."""


class Payloads:
    """Payloads by their numbers."""

    def __init__(self, payload_bytes: int) -> None:
        random = np.random.default_rng(SEED)
        shape = (POOL_ROWS, payload_bytes - NUMBER_BYTES)
        self._bodies = random.integers(0, 256, shape, dtype=np.uint8)
        self._size = payload_bytes

    def make(self, first: int, count: int) -> list[bytes]:
        data = self._rows(first, count).tobytes()
        return [data[at : at + self._size] for at in range(0, len(data), self._size)]

    def check(self, batch: RecordBatch, first: int) -> None:
        """Whether the batch has the payloads from number `first` on.

        Raises:
          WrongPayload: it does not.
        """
        sizes = np.diff(batch.offsets)
        start, end = int(batch.offsets[0]), int(batch.offsets[-1])
        found = batch.values[start:end]
        wanted = self._rows(first, len(batch))
        if np.all(sizes == self._size) and np.array_equal(found, wanted.reshape(-1)):
            return
        raise WrongPayload(
            f"LSNs {batch.first_lsn} to {batch.last_lsn} do not hold the payloads with numbers "
            f"from {first} on"
        )

    def _rows(self, first: int, count: int) -> npt.NDArray[np.uint8]:
        numbers = np.arange(first, first + count, dtype="<u8")
        rows = np.empty((count, self._size), dtype=np.uint8)
        rows[:, :NUMBER_BYTES] = numbers.view(np.uint8).reshape(count, NUMBER_BYTES)
        rows[:, NUMBER_BYTES:] = self._bodies[numbers % POOL_ROWS]
        return rows


def produce(spec: LoadSpec) -> LoadResult:
    """Offer what is due, late or not, and check the LSN of every acknowledgement."""
    payloads = Payloads(spec.payload_bytes)
    waits: list[tuple[float, int]] = []
    waiting: deque[tuple[int, int, logstore.AppendFuture]] = deque()

    def on_ack(_bytes: int, count: int, appended_ns: int, acknowledged_ns: int) -> None:
        waits.append(((acknowledged_ns - appended_ns) / 1e6, count))

    def settle(left_max: int) -> None:
        while waiting and (len(waiting) > left_max or waiting[0][2].done()):
            number, count, future = waiting.popleft()
            lsns = future.result(TIMEOUT_S)
            first = spec.first_lsn + number
            if (lsns.first, lsns.last) != (first, first + count - 1):
                raise WrongPayload(f"number {number} was acknowledged at LSN {lsns.first}")

    options = logstore.ProducerOptions(
        on_ack=on_ack, append_timeout_s=TIMEOUT_S, delivery_timeout_s=TIMEOUT_S
    )
    offered = 0
    with (
        logstore.connect(spec.endpoints, timeout=TIMEOUT_S) as client,
        client.producer(options) as producer,
    ):
        began_ns = monotonic_ns()
        end_ns = began_ns + int(spec.seconds * 1e9)
        while (now_ns := monotonic_ns()) < end_ns:
            due = int((now_ns - began_ns) * spec.rate / 1e9)
            while offered + spec.batch <= due:
                future = producer.append_batch(payloads.make(offered, spec.batch))
                waiting.append((offered, spec.batch, future))
                offered += spec.batch
                settle(10_000)
            settle(10_000)
            poll_until(lambda: False, 0.002, look_ms=2)
        settle(0)
    wait_ms, counts = np.array([each for each, _ in waits]), np.array([n for _, n in waits])
    p50, p99, slowest = (weighted_percentile(wait_ms, counts, part) for part in (0.5, 0.99, 1.0))
    return LoadResult(offered, p50, p99, slowest)


def consume(spec: LoadSpec) -> LoadResult:
    """Follow one node until the LSN that comes on the standard input, and check every payload."""
    payloads = Payloads(spec.payload_bytes)
    next_lsn, end_lsn = spec.first_lsn, 0
    with (
        logstore.connect(spec.endpoints, timeout=TIMEOUT_S) as client,
        client.consumer(spec.first_lsn, replica=spec.node) as consumer,
    ):
        while not end_lsn or next_lsn <= end_lsn:
            for batch in consumer.poll(POLL_S):
                if batch.first_lsn != next_lsn:
                    raise WrongPayload(f"LSN {batch.first_lsn} came instead of {next_lsn}")
                payloads.check(batch, next_lsn - spec.first_lsn)
                next_lsn += len(batch)
            if not end_lsn and select.select([sys.stdin], [], [], 0)[0]:
                end_lsn = int(sys.stdin.readline())
    return LoadResult(next_lsn - spec.first_lsn)


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=LoadSpec)
    die_with_parent(spec.parent_pid)
    try:
        result = produce(spec) if spec.role == "producer" else consume(spec)
    except (WrongPayload, logstore.LogStoreError) as error:
        sys.exit(f"{spec.role} {spec.node or ''}: {type(error).__name__}: {error}")
    print(msgspec.json.encode(result).decode())


if __name__ == "__main__":
    main()
