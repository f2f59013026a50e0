"""One of the demo's producers, a process of its own: appends its share of the input until told to
stop.

Owns the record of what the cluster told it: for each acknowledged batch, in the order of the
    appends, a row of
ROW_FIELDS, and a digest of each payload. The comparison is made from these files alone.
"""

from __future__ import annotations

import sys
from collections import deque
from itertools import islice
from pathlib import Path
from random import Random

import msgspec
import numpy as np

import logstore
from actors.child import die_with_parent
from logstore.cli.demo import board as demo_board
from logstore.cli.demo.board import WorkerSpec, board_path, result_path, slot_of
from logstore.cli.demo.compare import digests_of
from logstore.cli.demo.source import iterate_batches
from logstore.client.clock import monotonic_ns
from transport.counters import open_counters

ROW_FIELDS = ("first_lsn", "count", "size_bytes", "appended_ns", "acknowledged_ns")
# Appends whose outcome is awaited: above it the oldest is waited for.
APPENDS_MAX = 512


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


class ProducerWorker:
    """Appends, and writes down what became of it."""

    def __init__(self, spec: WorkerSpec) -> None:
        folder = Path(spec.folder)
        self._spec = spec
        self._board = open_counters(board_path(folder))
        self._stop = slot_of(self._board, demo_board.STOP)
        self._offered = slot_of(self._board, spec.name, demo_board.OFFERED)
        self._acknowledged = slot_of(self._board, spec.name, demo_board.ACKNOWLEDGED)
        self._bytes = slot_of(self._board, spec.name, demo_board.ACKNOWLEDGED_BYTES)
        self._rows = open(result_path(folder, spec.name, "rows"), "wb")  # noqa: SIM115  # closed in run
        self._digests = open(result_path(folder, spec.name, "digests"), "wb")  # noqa: SIM115
        self._appends: deque[_Append] = deque()

    def run(self) -> None:
        """Append until told to stop, then wait for every outcome.

        Raises:
            LogStoreError: an append failed for good; the demo is over then.
        """
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
            slots[slot_of(self._board, spec.name, demo_board.READY)] = 1
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


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=WorkerSpec)
    die_with_parent(spec.parent_pid)
    ProducerWorker(spec).run()


if __name__ == "__main__":
    main()
