"""The load, a process of its own: one producer of the public client that appends random payloads.

Owns the pace (closed loop: as fast as the window lets; open loop: a rate, whatever comes back) and
the raw samples: one per acknowledged batch, in the order of the acknowledgements. Payloads are made
before the first append. Prints two lines: the monotonic time at which it began, so that the parent
can place its marks, and at the end a report as JSON.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import msgspec
import numpy as np

import logstore
from actors.child import die_with_parent
from logstore.cli.embedded import poll_until
from logstore.client.clock import monotonic_ns

SAMPLE_FIELDS = ("acknowledged_ns", "appended_ns", "payloads")
# Random bytes kept ready: far above what any cache of a processor holds.
POOL_BYTES = 64 << 20
# Appends between two looks at the clock in the closed loop, if the window lets so many in.
APPENDS_PER_LOOK = 16
# And in the open loop, where far more may be due than the window lets in: it ends in time.
OFFERS_PER_LOOK = 256
CLOSE_TIMEOUT_S = 60.0


class LoadSpec(msgspec.Struct, frozen=True):
    """What the load is told, as JSON in its argument.

    Attributes:
        payload_bytes: of each payload.
        batch: payloads an append.
        may_pack: whether payloads appended one at a time may share a batch with their neighbours
            (`append`); if not, each is a batch of its own. Batches of more are never packed.
        window_bytes: unacknowledged bytes at most.
        rate: payloads offered a second; 0: closed loop.
        seconds: how long to append, warm-up included.
        samples: the file for the samples, i64 triples of SAMPLE_FIELDS.
    """

    endpoints: list[str]
    payload_bytes: int
    batch: int
    may_pack: bool
    window_bytes: int
    rate: float
    seconds: float
    samples: str
    parent_pid: int


class LoadReport(msgspec.Struct, frozen=True):
    """What a load says at the end. `errors`: payloads that were appended and not acknowledged."""

    appended: int
    errors: int
    error: str


class Sampler:
    """Called by the network thread once per acknowledged batch."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int]] = []

    def on_ack(self, _: int, payloads: int, appended_ns: int, acknowledged_ns: int) -> None:
        self.rows.append((acknowledged_ns, appended_ns, payloads))


def make_batches(spec: LoadSpec) -> list[list[bytes]]:
    """Different random batches, as many as fit into the pool, at least one."""
    size = spec.payload_bytes
    count = max(1, POOL_BYTES // max(1, size * spec.batch))
    count = min(count, 65_536)
    pool = os.urandom(count * spec.batch * size)
    payloads = [pool[at * size : (at + 1) * size] for at in range(count * spec.batch)]
    return [payloads[at : at + spec.batch] for at in range(0, len(payloads), spec.batch)]


def run_load(spec: LoadSpec) -> None:
    """Append for `seconds`, wait for the outcomes, write the samples."""
    batches = make_batches(spec)
    sampler = Sampler()
    options = logstore.ProducerOptions(window_bytes=spec.window_bytes, on_ack=sampler.on_ack)
    with logstore.connect(spec.endpoints) as client:
        producer = client.producer(options)
        began_ns = monotonic_ns()
        print(began_ns, flush=True)
        until_ns = began_ns + int(spec.seconds * 1e9)
        if spec.rate:
            append = _append_one(producer) if is_packed(spec) else producer.append_batch
            appended = offer_at_rate(append, batches, began_ns, until_ns, spec.rate)
        elif is_packed(spec):
            appended = append_singles(producer, batches, until_ns)
        else:
            appended = append_batches(producer, batches, until_ns)
        producer.close(CLOSE_TIMEOUT_S)
    rows = np.array(sampler.rows, dtype=np.int64).reshape(-1, len(SAMPLE_FIELDS))
    if spec.rate:
        rows = counted_from_schedule(rows, began_ns, spec.rate)
    Path(spec.samples).write_bytes(rows.tobytes())
    # Last: the process that reads this line then reads the samples.
    print(msgspec.json.encode(report_of(appended, int(rows[:, 2].sum()))).decode(), flush=True)


def report_of(appended: int, acknowledged: int) -> LoadReport:
    """The report of a load that has waited for the outcomes of all its payloads."""
    errors = appended - acknowledged
    error = f"{errors} of {appended} payloads were not acknowledged" if errors else ""
    return LoadReport(appended, errors, error)


def append_batches(producer: logstore.Producer, batches: list[list[bytes]], until_ns: int) -> int:
    """Append again and again; the producer's window makes us wait. The number of payloads. Hot."""
    source = cycle(batches)
    append_batch = producer.append_batch
    appended = 0
    while monotonic_ns() < until_ns:
        append_batch(next(source))
        appended += 1
    return appended * len(batches[0])


def append_singles(producer: logstore.Producer, batches: list[list[bytes]], until_ns: int) -> int:
    """The same with batches of one payload, which the producer packs. Hot."""
    append = producer.append
    payloads = cycle([batch[0] for batch in batches])
    appended = 0
    while monotonic_ns() < until_ns:
        for _ in range(APPENDS_PER_LOOK):
            append(next(payloads))
        appended += APPENDS_PER_LOOK
    return appended


def offer_at_rate(
    append: Callable[[list[bytes]], object],
    batches: list[list[bytes]],
    began_ns: int,
    until_ns: int,
    rate: float,
) -> int:
    """Append what is due by the schedule, late or not; the schedule never waits for an answer. What
    was due before `until_ns` is offered in a last look, as much as a look takes. The number of
    payloads."""
    source = cycle(batches)
    size = len(batches[0])
    offered = 0
    while True:
        now_ns = monotonic_ns()
        due = int((min(now_ns, until_ns) - began_ns) * rate / 1e9)
        last = min(due, offered + OFFERS_PER_LOOK * size)
        while offered + size <= last:
            append(next(source))
            offered += size
        if now_ns >= until_ns:
            return offered
        if last == due:
            poll_until(lambda: False, 0.001, look_ms=1)


def is_packed(spec: LoadSpec) -> bool:
    """Whether the producer chooses what goes into a batch."""
    return spec.batch == 1 and spec.may_pack


def _append_one(producer: logstore.Producer) -> Callable[[list[bytes]], object]:
    append = producer.append
    return lambda batch: append(batch[0])


def counted_from_schedule(
    rows: np.ndarray[tuple[int, int], np.dtype[np.int64]], began_ns: int, rate: float
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Latency counts from when a payload was due, not from when there was room for it.

    Acknowledgements come in the order of the appends, so a batch's first payload is known by
    counting.
    """
    before = np.cumsum(rows[:, 2]) - rows[:, 2]
    counted = rows.copy()
    counted[:, 1] = began_ns + (before / rate * 1e9).astype(np.int64)
    return counted


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=LoadSpec)
    die_with_parent(spec.parent_pid)
    run_load(spec)


if __name__ == "__main__":
    main()
