"""One load of the public client, under threads or under asyncio, run as a script.

Prints what it took as JSON. `singles`: as fast as the window lets it, every outcome looked at;
`flushed`: the same with one flush at the end, and `room` awaited before each append; `one at a
time`: the next append once the last one is acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from statistics import median

import uvloop

import logstore
from logstore import aio

PATIENCE_S = 60.0
# Futures that are gathered at a time; the next ones are appended before that.
GATHERED = 4_096


def singles(endpoints: str, payload: bytes, count: int) -> dict[str, float]:
    with logstore.connect(endpoints, timeout=PATIENCE_S) as log, log.producer() as producer:
        producer.append(payload).result(PATIENCE_S)
        started_s, cpu_s = time.perf_counter(), time.process_time()
        earlier: list[logstore.AppendFuture] = []
        for _ in range(0, count, GATHERED):
            later = [producer.append(payload) for _ in range(GATHERED)]
            for future in earlier:
                future.result(PATIENCE_S)
            earlier = later
        for future in earlier:
            future.result(PATIENCE_S)
        return _took(started_s, cpu_s, count)


def flushed(endpoints: str, payload: bytes, count: int) -> dict[str, float]:
    with logstore.connect(endpoints, timeout=PATIENCE_S) as log, log.producer() as producer:
        producer.append(payload).result(PATIENCE_S)
        started_s, cpu_s = time.perf_counter(), time.process_time()
        for _ in range(count):
            producer.append(payload)
        producer.flush(PATIENCE_S)
        return _took(started_s, cpu_s, count)


def one_at_a_time(endpoints: str, payload: bytes, count: int) -> dict[str, float]:
    with logstore.connect(endpoints, timeout=PATIENCE_S) as log, log.producer() as producer:
        producer.append(payload).result(PATIENCE_S)
        started_s, cpu_s = time.perf_counter(), time.process_time()
        times = []
        for _ in range(count):
            begun_s = time.perf_counter()
            producer.append(payload).result(PATIENCE_S)
            times.append(time.perf_counter() - begun_s)
        return {**_took(started_s, cpu_s, count), "p50_ms": median(times) * 1e3}


async def aio_singles(endpoints: str, payload: bytes, count: int) -> dict[str, float]:
    async with aio.connect(endpoints, timeout=PATIENCE_S) as log, log.producer() as producer:
        await producer.append(payload)
        started_s, cpu_s = time.perf_counter(), time.process_time()
        earlier: list[asyncio.Future[logstore.LsnRange]] = []
        for _ in range(0, count, GATHERED):
            later = [producer.append(payload) for _ in range(GATHERED)]
            await asyncio.gather(*earlier)
            earlier = later
        await asyncio.gather(*earlier)
        return _took(started_s, cpu_s, count)


async def aio_flushed(endpoints: str, payload: bytes, count: int) -> dict[str, float]:
    async with aio.connect(endpoints, timeout=PATIENCE_S) as log, log.producer() as producer:
        await producer.append(payload)
        started_s, cpu_s = time.perf_counter(), time.process_time()
        for _ in range(count):
            await producer.room()
            producer.append(payload)
        await producer.flush(PATIENCE_S)
        return _took(started_s, cpu_s, count)


async def aio_one_at_a_time(endpoints: str, payload: bytes, count: int) -> dict[str, float]:
    async with aio.connect(endpoints, timeout=PATIENCE_S) as log, log.producer() as producer:
        await producer.append(payload)
        started_s, cpu_s = time.perf_counter(), time.process_time()
        times = []
        for _ in range(count):
            begun_s = time.perf_counter()
            await producer.append(payload)
            times.append(time.perf_counter() - begun_s)
        return {**_took(started_s, cpu_s, count), "p50_ms": median(times) * 1e3}


def _took(started_s: float, cpu_started_s: float, count: int) -> dict[str, float]:
    seconds, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_started_s
    return {"payloads_per_s": count / seconds, "cpu_us_per_payload": cpu_s / count * 1e6}


WITH_THREADS: dict[str, Callable[[str, bytes, int], dict[str, float]]] = {
    "singles": singles,
    "flushed": flushed,
    "one at a time": one_at_a_time,
}
WITH_ASYNCIO = {
    "singles": aio_singles,
    "flushed": aio_flushed,
    "one at a time": aio_one_at_a_time,
}


def main() -> None:
    client, endpoints, load, payload_bytes, count = sys.argv[1:]
    payload = os.urandom(int(payload_bytes))
    if client == "threads":
        took = WITH_THREADS[load](endpoints, payload, int(count))
    else:
        factory = uvloop.new_event_loop if client == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            took = runner.run(WITH_ASYNCIO[load](endpoints, payload, int(count)))
    print(json.dumps(took))


if __name__ == "__main__":
    main()
