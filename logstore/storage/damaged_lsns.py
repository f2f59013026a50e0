"""Which LSNs a damaged range of entries holds, as far as the entries around it say.

Reads at most four records. For status and logs only: nothing is decided by it.
"""

from __future__ import annotations

from typing import Protocol

from logstore.errors import CorruptData
from logstore.format.entry import Row
from logstore.format.meta import LogStart
from logstore.model import Index, Lsn

UNKNOWN_LSNS = (Lsn(0), Lsn(0))


class Rows(Protocol):
    """The part of a log reader that is used here."""

    start: LogStart

    def row(self, index: Index) -> Row: ...


def damaged_lsns(log: Rows, first: Index, last: Index) -> tuple[Lsn, Lsn]:
    """The first and the last LSN of the entries [first, last]; 0 where unknown. The last is below
    the first where they hold no payload."""
    row = _row(log, first)
    if row is not None:
        first_lsn = row.header.first_lsn
    elif first == log.start.index + 1:
        first_lsn = log.start.next_lsn
    else:
        before = _row(log, Index(first - 1))
        first_lsn = before.header.next_lsn if before is not None else Lsn(0)
    row = _row(log, last)
    if row is not None:
        return first_lsn, Lsn(row.header.next_lsn - 1)
    after = _row(log, Index(last + 1))
    return first_lsn, Lsn(after.header.first_lsn - 1) if after is not None else Lsn(0)


def _row(log: Rows, index: Index) -> Row | None:
    try:
        return log.row(index)
    except (CorruptData, LookupError, OSError):
        return None
