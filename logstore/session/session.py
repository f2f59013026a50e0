"""One producer's session: its numbers, its window, and what the table answers about a batch
(SAFETY E1).

Owns no decision: `table` decides, `grants` bounds. Invariants: a window holds at most
`window_max` rows, in the order of their sequences; a dense window's rows are the newest of the
producer epoch without a hole.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from logstore.errors import ErrorCode
from logstore.limits import POSITION_MAX
from logstore.model import NO_INDEX, Index, Lsn, SequenceMode

# The highest sequence, so that the one after it fits every format.
SEQUENCE_MAX = POSITION_MAX - 1


class WindowRow(msgspec.Struct, gc=False):
    """One batch of a window. `index` and `first_lsn` are 0 until raft has accepted its group (E3).

    A row read back from a SESSION snapshot has the snapshot's index: at least its own, so it
    never looks committed too early.
    """

    sequence: int
    count: int
    crc: int
    first_lsn: Lsn = Lsn(0)
    index: Index = NO_INDEX

    def is_committed(self, commit: Index) -> bool:
        return 0 < self.index <= commit


class Session(msgspec.Struct):
    """A row of the table. `next_sequence` is the lowest sequence that is new; `last_used_ns` the
    timestamp of the newest accepted entry with a batch or an OPEN of it, 0: none is known.

    `rows` is an OrderedDict because the oldest leaves all the time: a plain dict finds its first
    key only behind the places of those that left (1.8 µs against 0.1 µs at 4,096 rows, 2026-11-20).
    """

    producer_id: int
    producer_epoch: int
    mode: SequenceMode
    ack_level: int
    window_max: int
    window_bytes: int
    name: bytes
    next_sequence: int
    rows: OrderedDict[int, WindowRow]
    last_used_ns: int = 0

    @property
    def is_dense(self) -> bool:
        return self.mode is SequenceMode.DENSE

    def add(self, row: WindowRow) -> None:
        """Append `row`; the oldest leaves when the window is full."""
        rows = self.rows
        if len(rows) >= self.window_max:
            rows.popitem(last=False)
        rows[row.sequence] = row
        self.next_sequence = row.sequence + 1

    def use_up(self) -> None:
        """A log of an earlier version holds a sequence above SEQUENCE_MAX: from then on none is
        new. No row is kept of it, for no snapshot could hold one."""
        self.next_sequence = POSITION_MAX


class Duplicate(msgspec.Struct, frozen=True, gc=False):
    """The batch is in the log or on its way there: acknowledge it as `row` once that is
    committed.
    """

    row: WindowRow


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The batch or request changes nothing. `detail`: the expected sequence for GAP, else 0."""

    code: ErrorCode
    detail: int
    text: str
