"""The load of `benchmarks compression`: one producer that appends the lines of files, as batches of
text, again and again, as fast as its window lets it. A process of its own.

Prints a line of JSON. Every batch is packed before the clock starts: what is measured is sending.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, cycle
from pathlib import Path

import logstore
from logstore.cli.lines import read_lines
from logstore.format.batch import PackedPayloads
from logstore.limits import KIB, MIB

BATCH_BYTES = 64 * KIB
WARM_UP_S = 2.0
WINDOW_BYTES = 16 * MIB
TIMEOUT_S = 120.0
LINE_BYTES_MAX = 1 * MIB


def batches_of_lines(files: Sequence[Path], batch_bytes: int) -> Iterator[list[bytes]]:
    """The lines of each file, in order, about `batch_bytes` at a time; empty ones are left out."""
    batch: list[bytes] = []
    size = 0
    for path in files:
        with open(path, "rb") as file:
            for lines in read_lines(file, line_bytes_max=LINE_BYTES_MAX):
                for line in lines:
                    if line:
                        batch.append(line)
                        size += len(line)
                    if size >= batch_bytes:
                        yield batch
                        batch, size = [], 0
    if batch:
        yield batch


def packed(lines: Sequence[bytes]) -> PackedPayloads:
    return PackedPayloads(array("i", accumulate(map(len, lines), initial=0)), b"".join(lines))


class Acknowledged:
    """What was acknowledged so far; the network thread counts."""

    def __init__(self) -> None:
        self.payloads = 0

    def count(self, _size: int, payloads: int, _opened_ns: int, _acked_ns: int) -> None:
        self.payloads += payloads


def load(
    endpoints: str, compression: str, seconds: float, files: Sequence[Path]
) -> dict[str, float]:
    """Payloads a second once it is warm, and this process's CPU time for each."""
    batches = [packed(lines) for lines in batches_of_lines(files, BATCH_BYTES)]
    payload_bytes = sum(len(each.values) for each in batches)
    payloads = sum(map(len, batches))
    acknowledged, done = Acknowledged(), threading.Event()
    options = logstore.ProducerOptions(
        compression=compression, window_bytes=WINDOW_BYTES, on_ack=acknowledged.count
    )
    with logstore.connect(endpoints) as log, log.producer(options) as producer:

        def append() -> None:
            for batch in cycle(batches):
                if done.is_set():
                    return
                last = producer.append_batch(batch)
            last.result(TIMEOUT_S)

        appender = threading.Thread(target=append)
        appender.start()
        try:
            time.sleep(WARM_UP_S)
            before, started_s = acknowledged.payloads, time.perf_counter()
            cpu_before_s = time.process_time()
            time.sleep(seconds)
            count = acknowledged.payloads - before
            took_s = time.perf_counter() - started_s
            cpu_s = time.process_time() - cpu_before_s
        finally:
            done.set()
            appender.join(TIMEOUT_S)
        producer.flush(TIMEOUT_S)
    return {
        "payloads_per_s": count / took_s,
        "mb_per_s": count / took_s * payload_bytes / payloads / 1e6,
        "client_cpu_us_per_payload": cpu_s / max(1, count) * 1e6,
    }


def main() -> None:
    endpoints, compression, seconds, *files = sys.argv[1:]
    print(json.dumps(load(endpoints, compression, float(seconds), list(map(Path, files)))))


if __name__ == "__main__":
    main()
