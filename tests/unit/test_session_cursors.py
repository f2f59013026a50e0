"""Cursors in the session table: which changes are refused, the fold and the snapshot (E5, E6)."""

from __future__ import annotations

import pytest

from logstore.errors import ErrorCode, FormatError, InvariantViolated
from logstore.format.cursor_entries import ANY_LSN, Cursor, encode_cursor
from logstore.limits import CURSOR_NAME_MAX_BYTES, CURSORS_MAX, POSITION_MAX
from logstore.model import EntryKind, Index, Lsn
from logstore.session.cursors import CursorRequest, CursorTable
from logstore.session.grants import SessionLimits
from logstore.session.table import SessionTable
from tests.unit.session_logs import encode_snapshot, fold_entry


def cursor(name, lsn, is_held=False):
    return Cursor(name, Lsn(lsn), is_held)


def cursor_request(name, lsn, expected=ANY_LSN, *, is_held=False):
    return CursorRequest(cursor(name, lsn, is_held), Lsn(expected))


def folded(*cursors):
    table = SessionTable(SessionLimits())
    for index, each in enumerate(cursors, start=1):
        counted = fold_entry(table, EntryKind.CURSOR, Index(index), Lsn(1), encode_cursor(each))
        assert counted == 1
    return table


def full_table():
    table = CursorTable()
    for number in range(CURSORS_MAX):
        table.apply(cursor(b"%0255d" % number, number + 1))
    return table


@pytest.mark.parametrize(
    ("asked", "lsn_now"),
    [
        (cursor_request(b"a", 20), None),
        (cursor_request(b"a", 20, 7), None),
        (cursor_request(b"a", 20, 0), 7),
        (cursor_request(b"a", 20, 8), 7),
        (cursor_request(b"b", 20, 0), None),
        (cursor_request(b"b", 20, 7), 0),
        (cursor_request(b"a", 0, 7), None),
        (cursor_request(b"a", 0, 8), 7),
        (cursor_request(b"b", 0), None),
    ],
)
def test_a_change_is_compared_with_where_the_cursor_stands(asked, lsn_now):
    table = CursorTable()
    table.apply(cursor(b"a", 7))
    refused = table.refusal_of(asked)
    if lsn_now is None:
        assert refused is None
    else:
        assert (refused.code, refused.detail) == (ErrorCode.CURSOR_MOVED, lsn_now)
        assert (str(lsn_now) if lsn_now else "does not exist") in refused.text
    assert table.rows() == (cursor(b"a", 7),), "a question changes nothing"


def test_a_full_table_takes_changes_but_no_further_name():
    table = full_table()
    refused = table.refusal_of(cursor_request(b"one more", 1))
    assert refused.code is ErrorCode.TOO_MANY_CURSORS
    assert "delete one first" in refused.text
    known = b"%0255d" % 0
    assert table.refusal_of(cursor_request(known, 99)) is None
    assert table.refusal_of(cursor_request(b"one more", 0)) is None
    table.apply(cursor(known, 0))
    assert table.refusal_of(cursor_request(b"one more", 1)) is None


@pytest.mark.parametrize(
    "asked",
    [
        cursor_request(b"", 1),
        cursor_request(b"n" * (CURSOR_NAME_MAX_BYTES + 1), 1),
        cursor_request(b"\xff", 1),
        cursor_request(b"n", POSITION_MAX + 1),
        cursor_request(b"n", 0, is_held=True),
    ],
)
def test_a_request_that_no_cursor_can_fulfil_is_invalid(asked):
    assert CursorTable().refusal_of(asked).code is ErrorCode.INVALID_REQUEST


def test_the_fold_keeps_the_newest_change_of_each_name():
    table = folded(
        cursor(b"b", 5, True), cursor(b"a", 9), cursor(b"b", 3), cursor(b"c", 1), cursor(b"c", 0),
        cursor(b"never", 0),
    )  # fmt: skip
    assert table.cursors.rows() == (cursor(b"a", 9), cursor(b"b", 3))
    assert (table.cursors.lsn_of(b"a"), table.cursors.lsn_of(b"c")) == (9, 0)
    assert len(table.cursors) == 2


def test_a_snapshot_holds_the_cursors_and_replaces_what_was_there():
    kept = encode_snapshot(folded(cursor(b"a", 9, True), cursor(b"b", 3)))
    table = folded(cursor(b"stale", 1))
    fold_entry(table, EntryKind.SESSION, Index(50), Lsn(1), kept)
    assert table.cursors.rows() == (cursor(b"a", 9, True), cursor(b"b", 3))
    assert encode_snapshot(table) == kept


def test_one_cursor_too_many_in_the_log_breaks_an_invariant():
    table = full_table()
    with pytest.raises(InvariantViolated):
        table.apply(cursor(b"one more", 1))


def test_a_cursor_entry_that_does_not_decode_is_told_as_such():
    with pytest.raises(FormatError):
        fold_entry(SessionTable(SessionLimits()), EntryKind.CURSOR, Index(1), Lsn(1), b"\0" * 32)
