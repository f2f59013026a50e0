"""What the entries around a damaged range say of its LSNs."""

from __future__ import annotations

import pytest

from logstore.errors import CorruptData
from logstore.format.entry import EntryHeader, Row
from logstore.format.meta import LogStart
from logstore.model import EntryKind
from logstore.storage.damaged_lsns import damaged_lsns


class Log:
    """Entries 1 to 6 of two payloads each; the log begins at LSN 11."""

    start = LogStart(0, 0, 0, 11)

    def __init__(self, damaged):
        self.damaged = damaged

    def row(self, index):
        if index == 0:
            raise LookupError(index)
        if index in self.damaged or index > 6:
            raise CorruptData("1.raft", 0, expected="a record", got="rot")
        header = EntryHeader(
            kind=EntryKind.DATA, count=2, term=1, index=index, prev_term=1,
            first_lsn=9 + 2 * index, timestamp_ns=0, cumulative_bytes=8, prev_chain=0, body_size=8,
            body_crc=0,
        )  # fmt: skip
        return Row(header, 0)


@pytest.mark.parametrize(
    ("damaged", "first", "last", "lsns"),
    [
        ((), 2, 3, (13, 16)),  # their frames are damaged, their records are whole
        ((2, 3), 2, 3, (13, 16)),
        ((1,), 1, 1, (11, 12)),
        ((6,), 6, 6, (21, 0)),
        ((1, 2, 3, 4), 2, 3, (0, 0)),
    ],
)
def test_q1_a_damaged_range_is_named_by_the_lsns_that_whole_records_around_it_tell(
    damaged, first, last, lsns
):
    assert damaged_lsns(Log(damaged), first, last) == lsns
