"""Consumers that follow the end of the log, several threads in a process of their own.

Owns both ends of such a process: the child, which consumes until its standard input ends, and the
parent's view of it. Up to CONSUMERS_PER_PROCESS share a process and a client, each with a consumer
of its own: a hundred processes of Python would take more memory, and no fewer cycles on two cores.

     batches: i64 rows of BATCH_FIELDS      cpu: i64 rows of CPU_FIELDS, taken all the time
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

import logstore
from actors.child import die_with_parent
from logstore.client.clock import monotonic_ns
from logstore.errors import Unreachable

CONSUMERS_PER_PROCESS = 10
BATCH_FIELDS = ("consumer", "seen_ns", "last_lsn", "payloads")
CPU_FIELDS = ("at_ns", "used_ns")
CPU_EVERY_MS = 50
POLL_S = 0.2
CONNECT_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 60.0
_READY = b"ready\n"
_LIFELINE = 0
EXIT_FAILED = 1
Rows = npt.NDArray[np.int64]


class TailSpec(msgspec.Struct, frozen=True):
    """What the child is told, as JSON in its argument. `replicas`: the node that each consumer
    reads; `first`: the number of the first one. The files are `stem` with .batches and .cpu."""

    endpoints: list[str]
    replicas: list[int]
    first: int
    stem: str
    parent_pid: int


class Seen(msgspec.Struct, frozen=True):
    """What consumers saw: rows of BATCH_FIELDS, and for each process rows of CPU_FIELDS."""

    batches: Rows
    cpu: list[Rows]


class TailConsumers:
    """`replicas`: the node that each consumer reads. They have begun at the end of the log when
    this is made. Close it, or use it as a context manager.

    Raises:
      Unreachable: one of the processes ended before it was ready.
    """

    def __init__(self, endpoints: list[str], replicas: Sequence[int], folder: Path) -> None:
        self._stems = []
        self._children: list[subprocess.Popen[bytes]] = []
        try:
            for first in range(0, len(replicas), CONSUMERS_PER_PROCESS):
                part = list(replicas[first : first + CONSUMERS_PER_PROCESS])
                stem = folder / f"consumers-{first}"
                spec = TailSpec(endpoints, part, first, str(stem), os.getpid())
                self._stems.append(stem)
                self._children.append(_start(spec))
            for child in self._children:
                if child.stdout is None or child.stdout.readline() != _READY:
                    raise Unreachable("a consumer's process ended; what it said is above")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> TailConsumers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def processes(self) -> int:
        return len(self._children)

    def stop(self) -> Seen:
        """Have all of them end, and return what they saw.

        Raises:
          Unreachable: one of them failed.
        """
        for child in self._children:
            if child.stdin is not None:
                child.stdin.close()
        for child in self._children:
            if child.wait(CLOSE_TIMEOUT_S):
                raise Unreachable("a consumer's process failed; what it said is above")
        empty = np.empty((0, len(BATCH_FIELDS)), dtype=np.int64)
        batches = [_read(stem, ".batches", len(BATCH_FIELDS)) for stem in self._stems]
        cpu = [_read(stem, ".cpu", len(CPU_FIELDS)) for stem in self._stems]
        return Seen(np.concatenate([empty, *batches]), cpu)

    def close(self) -> None:
        """Kill what still runs."""
        for child in self._children:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()


def cpu_between(cpu: Rows, start_ns: int, end_ns: int) -> float:
    """Processor seconds of one process between two monotonic times, from rows of CPU_FIELDS."""
    used = np.interp([start_ns, end_ns], cpu[:, 0], cpu[:, 1])
    return float(used[1] - used[0]) / 1e9


def _start(spec: TailSpec) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.tail_consumers"]
    return subprocess.Popen(
        [*command, msgspec.json.encode(spec).decode()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def _read(stem: Path, suffix: str, fields: int) -> Rows:
    return np.fromfile(f"{stem}{suffix}", dtype=np.int64).reshape(-1, fields)


# --- the child ---


class _Reader(threading.Thread):
    """One consumer's thread. It has begun when `is_ready` is set."""

    def __init__(self, log: logstore.LogClient, number: int, replica: int) -> None:
        super().__init__(name=f"consumer-{number}", daemon=True)
        self.rows: list[tuple[int, int, int, int]] = []
        self.is_ready = threading.Event()
        self.must_stop = threading.Event()
        self._number = number
        self._consumer = log.consumer("latest", replica=replica)

    def run(self) -> None:
        """Consume until told to stop. A consumer that fails ends the process: the parent waits."""
        try:
            self._consume()
        except BaseException:
            traceback.print_exc()
            os._exit(EXIT_FAILED)

    def _consume(self) -> None:
        """Hot."""
        consumer, number, rows = self._consumer, self._number, self.rows
        consumer.poll(POLL_S)  # it subscribes
        self.is_ready.set()
        while not self.must_stop.is_set():
            batches = consumer.poll(POLL_S)
            seen_ns = monotonic_ns()
            for batch in batches:
                rows.append((number, seen_ns, batch.last_lsn, len(batch)))
        consumer.close()


def run_consumers(spec: TailSpec) -> None:
    """Consume until the lifeline ends, then write what was seen."""
    cpu: list[tuple[int, int]] = []
    with logstore.connect(spec.endpoints, timeout=CONNECT_TIMEOUT_S) as log:
        readers = [
            _Reader(log, number, replica)
            for number, replica in enumerate(spec.replicas, spec.first)
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.is_ready.wait()
        os.write(1, _READY)
        lifeline = select.poll()
        lifeline.register(_LIFELINE, select.POLLIN | select.POLLHUP)
        while not lifeline.poll(CPU_EVERY_MS):
            cpu.append((monotonic_ns(), time.process_time_ns()))
        for reader in readers:
            reader.must_stop.set()
        for reader in readers:
            reader.join()
    rows = [row for reader in readers for row in reader.rows]
    for suffix, values in ((".batches", rows), (".cpu", cpu)):
        Path(f"{spec.stem}{suffix}").write_bytes(np.array(values, dtype=np.int64).tobytes())


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=TailSpec)
    die_with_parent(spec.parent_pid)
    run_consumers(spec)


if __name__ == "__main__":
    main()
