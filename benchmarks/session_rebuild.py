"""How long a new leader takes to rebuild the table of 10,000 named sessions, and to write it down.

Everything but the disk: the snapshot's parts are made and read as ingress does it, in its slices,
and behind them as many batches as there may be before the next snapshot.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec

from actors.ingress.rebuild import Rebuild
from logstore import limits
from logstore.errors import InvalidRequest
from logstore.format.batch import encode_batch
from logstore.format.entry import EntryHeader, Row
from logstore.format.segment_header import SegmentHeader
from logstore.limits import SESSION_WINDOW_MIN, SNAPSHOT_EVERY_BATCHES, SNAPSHOT_PART_MAX_BYTES
from logstore.model import EntryKind, Index, Lsn, SequenceMode, Term
from logstore.raft.effects import Admit
from logstore.session.fold import snapshot_parts
from logstore.session.grants import SessionLimits
from logstore.session.session import Session, WindowRow
from logstore.session.table import SessionTable

_BATCHES_PER_GROUP = 64
_MS = 1_000_000


def full_table(sessions: int) -> SessionTable:
    """Every window is full."""
    table = SessionTable(SessionLimits())
    for number in range(1, sessions + 1):
        first = number * SESSION_WINDOW_MIN
        rows = OrderedDict(
            (n, WindowRow(n, 1, n, Lsn(first + n), Index(1))) for n in range(SESSION_WINDOW_MIN)
        )
        table.put(
            Session(
                number, 1, SequenceMode.MONOTONE, 1, SESSION_WINDOW_MIN, 4 << 20,
                b"spark-query-%032x" % number, SESSION_WINDOW_MIN, rows, 1,
            )
        )  # fmt: skip
    return table


class MemoryLog:
    """A log that has its entries in memory."""

    def __init__(self) -> None:
        self.start: Any = SimpleNamespace(index=0)
        self.level = 1
        self._rows: list[Row] = []
        self._bodies: list[bytes] = []
        self._next_lsn = 1 << 30
        self.size_bytes = 0

    def append(self, kind: EntryKind, body: bytes, count: int = 0) -> None:
        chain = self._rows[-1].chain if self._rows else 0
        self.size_bytes += len(body)
        header = EntryHeader(
            kind, count, Term(1), Index(len(self._rows) + 1), Term(1), Lsn(self._next_lsn), 1,
            self.size_bytes, chain, len(body), 0,
        )  # fmt: skip
        self._next_lsn += count
        self._rows.append(Row.of(header))
        self._bodies.append(body)

    def index_of_lsn(self, _lsn: Lsn, _last_index: Index) -> Index:
        raise AssertionError("a rebuild searches for no LSN")

    def pairs(self) -> Sequence[SegmentHeader]:
        raise AssertionError("a rebuild asks for no segments")

    def refresh(self) -> bool:
        return False

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, index: Index) -> Row:
        return self._rows[index - 1]

    def record(self, index: Index) -> Any:
        return self.row(index)

    def body_of(self, record: Any) -> bytes:
        return self.read_body(record.header.index)

    def read_body(self, index: Index) -> bytes:
        return self._bodies[index - 1]

    def newest_of_kind(self, kind: int, last_index: Index) -> Index | None:
        for row in reversed(self._rows[:last_index]):
            if row.header.kind == kind:
                return row.header.index
        return None

    def close(self) -> None:
        """There is nothing to close."""


class SessionRow(msgspec.Struct, frozen=True):
    """What was done, in how many parts or slices, how long all of them took and the longest."""

    what: str
    sessions: int
    slices: int
    mb: float
    ms: float
    longest_ms: float


def written(table: SessionTable, log: MemoryLog) -> SessionRow:
    """The snapshot's parts, and what each of them costs ingress."""
    costs = []
    began_ns = time.perf_counter_ns()
    parts = snapshot_parts(table, term=1, number=1, part_max_bytes=SNAPSHOT_PART_MAX_BYTES)
    while (part := next(parts, None)) is not None:
        costs.append(time.perf_counter_ns() - began_ns)
        log.append(EntryKind.SESSION, part)
        began_ns = time.perf_counter_ns()
    return _row("snapshot", len(table), log, costs)


def fill(log: MemoryLog, sessions: int, batches: int) -> None:
    """So many batches of 100 bytes behind the snapshot, of one session after the other."""
    for first in range(0, batches, _BATCHES_PER_GROUP):
        group = [
            encode_batch(
                [bytes(100)],
                producer_id=1 + n % sessions,
                producer_epoch=1,
                sequence=SESSION_WINDOW_MIN + n // sessions,
                timestamp_ns=1,
            )
            for n in range(first, min(batches, first + _BATCHES_PER_GROUP))
        ]
        log.append(EntryKind.DATA, b"".join(group), len(group))


def rebuilt(log: MemoryLog, sessions: int, what: str) -> SessionRow:
    rebuild = Rebuild(
        Admit(Term(2), 1, Index(len(log)), 0),
        SessionTable(SessionLimits()),
        open_log=lambda: log,
        clock=SimpleNamespace(monotonic_ns=time.perf_counter_ns),
        slots=memoryview(bytearray(1024)).cast("Q"),
    )
    slices = []
    is_done = False
    while not is_done:
        began_ns = time.perf_counter_ns()
        is_done = rebuild.step()
        slices.append(time.perf_counter_ns() - began_ns)
    assert len(rebuild.table) == sessions
    return _row(f"rebuild, {what}", sessions, log, slices)


def measure_sessions(sessions: int) -> list[SessionRow]:
    """What a table of so many sessions costs.

    Raises:
      InvalidRequest: more sessions than there may be.
    """
    if sessions > limits.SESSIONS_MAX:
        raise InvalidRequest(f"{sessions} sessions, at most {limits.SESSIONS_MAX}")
    log = MemoryLog()
    rows = [written(full_table(sessions), log), rebuilt(log, sessions, "the snapshot alone")]
    fill(log, sessions, SNAPSHOT_EVERY_BATCHES - 1)
    return [*rows, rebuilt(log, sessions, f"{SNAPSHOT_EVERY_BATCHES - 1} batches behind it")]


def _row(what: str, sessions: int, log: MemoryLog, slices_ns: Sequence[int]) -> SessionRow:
    return SessionRow(
        what=what,
        sessions=sessions,
        slices=len(slices_ns),
        mb=round(log.size_bytes / 1e6, 3),
        ms=round(sum(slices_ns) / _MS, 1),
        longest_ms=round(max(slices_ns) / _MS, 2),
    )
