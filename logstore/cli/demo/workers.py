"""The demo's producers and consumers, each a process of its own: what they do, how they are started
and watched, and what they report.

While they run, they and the run exchange counters in one shared file, the board: the run writes
STOP and END_LSN, each worker its own counters, and none waits for a lock or a message. They write
what the cluster told them into files: for each batch a row, in the order of the appends or of
arrival, and a digest of each payload. The comparison is made from these files alone. Invariant: no
worker outlives `Workers.close`.
"""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from random import Random

import msgspec
import numpy as np

import logstore
from actors.child import die_with_parent
from logstore.cli.demo.input_text import iterate_batches
from logstore.cli.demo.outcome import (
    Acknowledged,
    ConsumerRecord,
    Delivered,
    Digests,
    Integers,
    ProducerRecord,
    digests_of,
    spread,
)
from logstore.client.clock import monotonic_ns
from logstore.errors import LogStoreError
from transport.counters import CountersPage, create_counters, open_counters

PRODUCE, CONSUME = "produce", "consume"

# --- counters of the board ---

# Written by the run: 1 once producers shall append no more; the LSN to consume up to, plus 1 (0:
# not known).
STOP = "stop"
END_LSN = "end_lsn"
# Written by a producer.
OFFERED = "offered"
ACKNOWLEDGED = "acknowledged"
ACKNOWLEDGED_BYTES = "acknowledged_bytes"
# Written by a consumer: the newest LSN it was given, and how many payloads.
LSN = "lsn"
CONSUMED = "consumed"
# Written by either: 1 once its session or its position is open.
READY = "ready"
PRODUCER_FACTS = (READY, OFFERED, ACKNOWLEDGED, ACKNOWLEDGED_BYTES)
CONSUMER_FACTS = (READY, LSN, CONSUMED)

PRODUCER_ROW = ("first_lsn", "count", "size_bytes", "appended_ns", "acknowledged_ns")
CONSUMER_ROW = ("first_lsn", "count", "term")
# A producer's appends whose outcome is awaited: above it the oldest is waited for.
APPENDS_MAX = 512
# How long a consumer waits for payloads before it looks at the board again.
POLL_S = 0.2
STDERR_BYTES = 1_500
KILL_TIMEOUT_S = 10.0


class WorkerSpec(msgspec.Struct, frozen=True):
    """What a worker is told at its start, as JSON in its argument.

    Attributes:
      name: of its counters, "producer-1" or "consumer-3".
      number: of the producer, from 0; node id of a consumer's replica.
      producers: how many producers share the input.
      folder: where its results go, and where the board lies.
      endpoints: HOST:PORT of every replica.
      files: the input.
      window_bytes: unacknowledged bytes of a producer.
      timeout_s: patience with the cluster.
    """

    name: str
    number: int
    producers: int
    folder: str
    endpoints: list[str]
    files: list[str]
    window_bytes: int
    timeout_s: float
    parent_pid: int


class WorkerFailed(LogStoreError):
    """A producer or consumer of the demo ended with an error; the message holds what it said."""


class Workers:
    """Child processes by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, work: str, spec: WorkerSpec) -> None:
        """Start a process that does `work`, PRODUCE or CONSUME; call from the main thread."""
        encoded = msgspec.json.encode(spec).decode()
        command = [sys.executable, "-m", "logstore.cli.demo.workers", work, encoded]
        with open(self._stderr_path(spec.name), "wb") as errors:
            self._children[spec.name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
            )

    def are_done(self, names: Sequence[str]) -> bool:
        """Whether all of these have ended well.

        Raises:
          WorkerFailed: one, of these or the others, ended with an error.
        """
        for name, child in self._children.items():
            if child.poll():
                raise WorkerFailed(f"{name} failed:\n{self._stderr(name)}")
        return all(self._children[name].returncode == 0 for name in names)

    def close(self) -> None:
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
            child.wait(KILL_TIMEOUT_S)

    def _stderr_path(self, name: str) -> Path:
        return self._folder / f"{name}.stderr"

    def _stderr(self, name: str) -> str:
        return self._stderr_path(name).read_bytes()[-STDERR_BYTES:].decode(errors="replace")


def create_board(folder: Path, producers: Sequence[str], consumers: Sequence[str]) -> CountersPage:
    names = [STOP, END_LSN]
    names += [f"{name}.{fact}" for name in producers for fact in PRODUCER_FACTS]
    names += [f"{name}.{fact}" for name in consumers for fact in CONSUMER_FACTS]
    return create_counters(_board_path(folder), names, 1)


def slot_of(board: CountersPage, name: str, fact: str = "") -> int:
    return board.names.index(f"{name}.{fact}" if fact else name)


def read_producer_record(folder: Path, name: str) -> ProducerRecord:
    """What a producer wrote down. Its last digests may be of appends without an outcome."""
    first_lsns, counts, size_bytes, appended_ns, acknowledged_ns = _read_rows(
        folder, name, PRODUCER_ROW
    )
    told = Acknowledged(first_lsns, counts, _read_digests(folder, name)[: counts.sum()])
    return ProducerRecord(told, size_bytes, appended_ns, acknowledged_ns)


def read_consumer_record(folder: Path, name: str) -> ConsumerRecord:
    first_lsns, counts, terms = _read_rows(folder, name, CONSUMER_ROW)
    delivered = Delivered(spread(first_lsns, counts), _read_digests(folder, name))
    return ConsumerRecord(first_lsns, terms, delivered)


# --- in the worker's process ---


class _Append:
    """One append on its way. The network thread stores when its outcome came."""

    __slots__ = ("acknowledged_ns", "appended_ns", "count", "future", "size_bytes")

    def __init__(self, producer: logstore.Producer, batch: list[bytes]) -> None:
        self.count = len(batch)
        self.size_bytes = sum(map(len, batch))
        self.acknowledged_ns = 0
        self.appended_ns = monotonic_ns()
        self.future = producer.append_batch(batch)
        self.future.add_done_callback(self._on_done)

    def _on_done(self, _: logstore.AppendFuture) -> None:
        self.acknowledged_ns = monotonic_ns()


class _Producer:
    """Appends, and writes down what became of it."""

    def __init__(self, spec: WorkerSpec) -> None:
        folder = Path(spec.folder)
        self._spec = spec
        self._board = open_counters(_board_path(folder))
        self._stop = slot_of(self._board, STOP)
        self._offered = slot_of(self._board, spec.name, OFFERED)
        self._acknowledged = slot_of(self._board, spec.name, ACKNOWLEDGED)
        self._bytes = slot_of(self._board, spec.name, ACKNOWLEDGED_BYTES)
        self._rows = open(result_path(folder, spec.name, "rows"), "wb")  # noqa: SIM115  # closed in run
        self._digests = open(result_path(folder, spec.name, "digests"), "wb")  # noqa: SIM115
        self._appends: deque[_Append] = deque()

    def run(self) -> None:
        """Append until told to stop, then wait for every outcome."""
        spec, slots = self._spec, self._board.slots
        # Everybody reads the same batches and takes its own share of them.
        batches = iterate_batches([Path(name) for name in spec.files], Random(1))
        mine = islice(batches, spec.number, None, spec.producers)
        options = logstore.ProducerOptions(
            window_bytes=spec.window_bytes,
            append_timeout_s=spec.timeout_s,
            delivery_timeout_s=spec.timeout_s,
        )
        with (
            self._rows,
            self._digests,
            logstore.connect(spec.endpoints, timeout=spec.timeout_s) as client,
            client.producer(options) as producer,
        ):
            slots[slot_of(self._board, spec.name, READY)] = 1
            while not slots[self._stop]:
                batch = next(mine, None)
                if batch is None:
                    break  # there is not one line in all files
                slots[self._offered] += len(batch)
                self._appends.append(_Append(producer, batch))
                self._digests.write(digests_of(batch).tobytes())
                self._settle(APPENDS_MAX)
            self._settle(0)

    def _settle(self, left_max: int) -> None:
        """Write down what has an outcome, oldest first; wait until at most `left_max` have none."""
        while self._appends and (len(self._appends) > left_max or self._appends[0].future.done()):
            append = self._appends.popleft()
            lsns = append.future.result(self._spec.timeout_s)
            row = (
                lsns.first,
                append.count,
                append.size_bytes,
                append.appended_ns,
                append.acknowledged_ns or monotonic_ns(),
            )
            self._rows.write(np.array(row, dtype=np.int64).tobytes())
            self._board.slots[self._acknowledged] += append.count
            self._board.slots[self._bytes] += append.size_bytes


def produce(spec: WorkerSpec) -> None:
    """Append this producer's share of the input until STOP.

    Raises:
      LogStoreError: an append failed for good; the demo is over then.
    """
    _Producer(spec).run()


def consume(spec: WorkerSpec) -> None:
    """Follow one replica from the first LSN until END_LSN is known and reached.

    Raises:
      LogStoreError: the replica cannot be read for good, or stays silent for too long.
    """
    folder = Path(spec.folder)
    board = open_counters(_board_path(folder))
    slots = board.slots
    end, lsn = slot_of(board, END_LSN), slot_of(board, spec.name, LSN)
    consumed = slot_of(board, spec.name, CONSUMED)
    with (
        open(result_path(folder, spec.name, "rows"), "wb") as rows,
        open(result_path(folder, spec.name, "digests"), "wb") as digests,
        logstore.connect(spec.endpoints, timeout=spec.timeout_s) as client,
        client.consumer(1, replica=spec.number) as consumer,
    ):
        slots[slot_of(board, spec.name, READY)] = 1
        while not slots[end] or slots[lsn] < slots[end] - 1:
            for batch in consumer.poll(POLL_S):
                payloads = batch.payloads()
                row = (batch.first_lsn, len(payloads), batch.term)
                rows.write(np.array(row, dtype=np.int64).tobytes())
                digests.write(digests_of(payloads).tobytes())
                slots[lsn] = batch.last_lsn
                slots[consumed] += len(payloads)


WORKS: dict[str, Callable[[WorkerSpec], None]] = {PRODUCE: produce, CONSUME: consume}


def main() -> None:
    work, spec = sys.argv[1], msgspec.json.decode(sys.argv[2], type=WorkerSpec)
    die_with_parent(spec.parent_pid)
    WORKS[work](spec)


# --- files ---


def result_path(folder: Path, name: str, what: str) -> Path:
    """Where a worker puts an array: "rows" or "digests" (u64 a payload)."""
    return folder / f"{name}.{what}"


def _board_path(folder: Path) -> Path:
    return folder / "board"


def _read_rows(folder: Path, name: str, fields: Sequence[str]) -> list[Integers]:
    rows = np.fromfile(result_path(folder, name, "rows"), dtype=np.int64)
    return list(rows.reshape(-1, len(fields)).T)


def _read_digests(folder: Path, name: str) -> Digests:
    return np.fromfile(result_path(folder, name, "digests"), dtype=np.uint64)


if __name__ == "__main__":
    main()
