"""One of the demo's consumers, a process of its own: follows one replica from the first LSN to the
end.

Owns the record of what it was given: for each batch, in the order it came, a row of ROW_FIELDS, and
    a digest of
each payload.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import numpy as np

import logstore
from actors.child import die_with_parent
from logstore.cli.demo import board as demo_board
from logstore.cli.demo.board import WorkerSpec, board_path, result_path, slot_of
from logstore.cli.demo.compare import digests_of
from transport.counters import open_counters

ROW_FIELDS = ("first_lsn", "count", "term")
POLL_S = 0.2


def follow(spec: WorkerSpec) -> None:
    """Consume until END_LSN is known and reached.

    Raises:
        LogStoreError: the replica cannot be read for good, or stays silent for too long.
    """
    folder = Path(spec.folder)
    board = open_counters(board_path(folder))
    slots = board.slots
    end, lsn = slot_of(board, demo_board.END_LSN), slot_of(board, spec.name, demo_board.LSN)
    consumed = slot_of(board, spec.name, demo_board.CONSUMED)
    with (
        open(result_path(folder, spec.name, "rows"), "wb") as rows,
        open(result_path(folder, spec.name, "digests"), "wb") as digests,
        logstore.connect(spec.endpoints, timeout=spec.timeout_s) as client,
        client.consumer(1, replica=spec.number) as consumer,
    ):
        slots[slot_of(board, spec.name, demo_board.READY)] = 1
        while not slots[end] or slots[lsn] < slots[end] - 1:
            for batch in consumer.poll(POLL_S):
                payloads = batch.payloads()
                row = (batch.first_lsn, len(payloads), batch.term)
                rows.write(np.array(row, dtype=np.int64).tobytes())
                digests.write(digests_of(payloads).tobytes())
                slots[lsn] = batch.last_lsn
                slots[consumed] += len(payloads)


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=WorkerSpec)
    die_with_parent(spec.parent_pid)
    follow(spec)


if __name__ == "__main__":
    main()
