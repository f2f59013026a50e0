"""The fold of log entries and the SESSION snapshot (SAFETY E5, E6)."""

from __future__ import annotations

import pytest

from logstore.errors import FormatError, InvariantViolated
from logstore.format.batch import encode_batch
from logstore.format.session_entries import (
    ExpireEntry,
    OpenEntry,
    encode_expire,
    encode_open,
)
from logstore.model import EntryKind, Index, Lsn, SequenceMode
from logstore.session.grants import SessionLimits
from logstore.session.session import Duplicate
from logstore.session.table import SessionTable
from tests.unit.session_logs import encode_snapshot, fold_entry


def open_body(producer_id=7, epoch=1, mode=SequenceMode.DENSE, name=b""):
    return encode_open(OpenEntry(producer_id, epoch, mode, 1, 16, 1 << 20, name))


def batch(sequence, payloads=(b"a", b"bc"), producer_id=7, epoch=1):
    return encode_batch(
        list(payloads),
        producer_id=producer_id,
        producer_epoch=epoch,
        sequence=sequence,
        timestamp_ns=1,
    )


def folded(entries):
    table = SessionTable(SessionLimits())
    lsn = 1
    for index, (kind, body, count) in enumerate(entries, start=1):
        fold_entry(table, kind, Index(index), Lsn(lsn), body)
        lsn += count
    return table


HISTORY = [
    (EntryKind.NOOP, b"", 0),
    (EntryKind.OPEN, open_body(), 0),
    (EntryKind.DATA, batch(0) + batch(1, [b""] * 3), 5),
    (EntryKind.DATA, batch(2), 2),
    (EntryKind.OPEN, open_body(9, name=b"spark", mode=SequenceMode.MONOTONE), 0),
    (EntryKind.DATA, batch(40, producer_id=9) + batch(3), 4),
]


def test_the_fold_gives_every_batch_its_lsns_and_index():
    session = folded(HISTORY).get(7)
    assert [(r.sequence, r.first_lsn, r.index) for r in session.rows.values()] == [
        (0, 1, 3),
        (1, 3, 3),
        (2, 6, 4),
        (3, 10, 6),
    ]
    assert session.next_sequence == 4


def test_a_snapshot_and_what_follows_gives_the_same_table_as_the_whole_log():
    for cut in range(2, len(HISTORY) + 1):
        whole = folded(HISTORY)
        snapshot = encode_snapshot(folded(HISTORY[:cut]))
        lsn = 1 + sum(count for _, _, count in HISTORY[:cut])
        table = SessionTable(SessionLimits())
        fold_entry(table, EntryKind.SESSION, Index(cut + 1), Lsn(lsn), snapshot)
        for at, (kind, body, count) in enumerate(HISTORY[cut:], start=cut + 2):
            fold_entry(table, kind, Index(at), Lsn(lsn), body)
            lsn += count
        assert encode_snapshot(table) == encode_snapshot(whole)


def test_rows_of_a_snapshot_look_committed_only_when_the_snapshot_is():
    snapshot = encode_snapshot(folded(HISTORY))
    table = SessionTable(SessionLimits())
    fold_entry(table, EntryKind.SESSION, Index(50), Lsn(12), snapshot)
    verdict = table.check(7, 1, 3, 2, table.get(7).rows[3].crc)
    assert isinstance(verdict, Duplicate)
    assert not verdict.row.is_committed(Index(49))
    assert verdict.row.is_committed(Index(50))


def test_expiry_in_the_log_forgets_the_session():
    table = folded([*HISTORY, (EntryKind.EXPIRE, encode_expire(ExpireEntry(7, 1)), 0)])
    assert table.get(7) is None
    assert len(table) == 1


def test_a_snapshot_is_not_taken_while_a_batch_has_no_lsn():
    table = folded(HISTORY)
    table.offer(7, 1, 4, 1, 1)
    with pytest.raises(InvariantViolated):
        encode_snapshot(table)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (EntryKind.DATA, batch(5)),
        (EntryKind.DATA, batch(3)),
        (EntryKind.DATA, batch(0, producer_id=8)),
        (EntryKind.DATA, batch(0, epoch=2)),
        (EntryKind.DATA, batch(40, producer_id=9)),
        (EntryKind.OPEN, open_body()),
        (EntryKind.EXPIRE, encode_expire(ExpireEntry(8, 1))),
    ],
)
def test_entries_no_leader_could_have_proposed_break_an_invariant(kind, body):
    with pytest.raises(InvariantViolated):
        folded([*HISTORY, (kind, body, 0)])


def test_a_body_that_does_not_decode_is_told_as_such():
    with pytest.raises(FormatError):
        folded([(EntryKind.SESSION, b"\0" * 64, 0)])
