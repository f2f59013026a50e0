"""What the demo and its workers tell each other while they run: counters in one shared file.

Owns the names. One writer a counter. The run writes STOP and END_LSN, each worker its own; nobody
waits for a lock or a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from transport.counters import CountersPage, create_counters

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


def board_path(folder: Path) -> Path:
    return folder / "board"


def create_board(folder: Path, producers: Sequence[str], consumers: Sequence[str]) -> CountersPage:
    names = [STOP, END_LSN]
    names += [f"{name}.{fact}" for name in producers for fact in PRODUCER_FACTS]
    names += [f"{name}.{fact}" for name in consumers for fact in CONSUMER_FACTS]
    return create_counters(board_path(folder), names, 1)


def slot_of(board: CountersPage, name: str, fact: str = "") -> int:
    return board.names.index(f"{name}.{fact}" if fact else name)


def result_path(folder: Path, name: str, what: str) -> Path:
    """Where a worker puts an array: "rows" (see its module) or "digests" (u64 a payload)."""
    return folder / f"{name}.{what}"
