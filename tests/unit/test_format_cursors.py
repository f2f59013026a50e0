"""Bodies of CURSOR entries, rows of cursors and those in SESSION bodies: what they refuse."""

from __future__ import annotations

import pytest

from logstore.errors import FormatError, InvalidRequest
from logstore.format.cursor_entries import (
    CURSOR_ROWS_MAX_BYTES,
    Cursor,
    decode_cursor,
    decode_cursors,
    encode_cursor,
    encode_cursors,
)
from logstore.format.session_snapshot import PartHead, SessionPart, decode_session_part
from logstore.limits import CURSOR_NAME_MAX_BYTES, CURSORS_MAX, POSITION_MAX
from logstore.model import Lsn
from tests.unit.session_logs import encode_part
from tests.unit.test_format_sessions import ROW, resealed

CURSOR = Cursor(b"abc", Lsn(7), True)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 255])
@pytest.mark.parametrize(("lsn", "is_held"), [(0, False), (1, True), (POSITION_MAX, False)])
def test_names_of_all_lengths_and_places_come_back(size: int, lsn: int, is_held: bool) -> None:
    cursor = Cursor(b"n" * size, Lsn(lsn), is_held)
    body = encode_cursor(cursor)
    assert len(body) % 8 == 0
    assert decode_cursor(body) == cursor


@pytest.mark.parametrize(
    ("cursor", "says"),
    [
        (Cursor(b"", Lsn(1), False), "1 to 255 bytes"),
        (Cursor(b"n" * 256, Lsn(1), False), "1 to 255 bytes"),
        (Cursor(b"\xff", Lsn(1), False), "UTF-8"),
        (Cursor(b"n", Lsn(POSITION_MAX + 1), False), "at most"),
        (Cursor(b"n", Lsn(0), True), "holds nothing"),
    ],
)
def test_a_cursor_that_cannot_be_is_not_encoded(cursor: Cursor, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        encode_cursor(cursor)
    with pytest.raises(InvalidRequest, match=says):
        encode_cursors([cursor])


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (6, b"\2"), (7, b"\0"), (7, b"\x09"), (8, bytes(8)), (8, b"\xff" * 8),
        (20, b"\1"), (24, b"\xff"), (31, b"\1"),
    ],
)  # fmt: skip
def test_a_cursor_body_with_one_bad_field_is_refused(at: int, data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_cursor(resealed(encode_cursor(CURSOR), 16, at=at, data=data))


def test_as_many_cursors_as_there_may_be_have_rows_and_one_more_has_not() -> None:
    names = [b"%0255d" % n for n in range(CURSORS_MAX + 1)]
    assert len(names[0]) == CURSOR_NAME_MAX_BYTES
    cursors = tuple(Cursor(name, Lsn(1), False) for name in names)
    rows = encode_cursors(cursors[:-1])
    assert len(rows) == CURSOR_ROWS_MAX_BYTES
    assert decode_cursors(rows) == cursors[:-1]
    with pytest.raises(InvalidRequest, match="at most 256"):
        encode_cursors(cursors)
    with pytest.raises(FormatError, match="more than 256"):
        decode_cursors(rows + encode_cursors(cursors[-1:]))


@pytest.mark.parametrize(
    "cursors",
    [
        (Cursor(b"b", Lsn(1), False), Cursor(b"a", Lsn(1), False)),
        (Cursor(b"a", Lsn(1), False), Cursor(b"a", Lsn(2), False)),
        (Cursor(b"a", Lsn(0), False),),
    ],
)
def test_rows_out_of_order_or_of_no_place_are_refused(cursors: tuple[Cursor, ...]) -> None:
    with pytest.raises(InvalidRequest):
        encode_cursors(cursors)


@pytest.mark.parametrize(
    ("at", "data"), [(0, bytes(8)), (8, b"\2"), (9, b"\0"), (10, b"\1"), (12, b"\1"), (19, b"\1")]
)
def test_a_row_with_one_bad_field_is_refused(at: int, data: bytes) -> None:
    rows = bytearray(encode_cursors([CURSOR]))
    rows[at : at + len(data)] = data
    with pytest.raises(FormatError):
        decode_cursors(bytes(rows))


def test_a_snapshot_says_how_many_cursors_it_has() -> None:
    snapshot = SessionPart(PartHead(3, 1, 0, True), (ROW,), (CURSOR,), ())
    body = encode_part(snapshot)
    assert decode_session_part(body) == snapshot
    for count in (b"\0", b"\2", b"\xff\xff"):
        with pytest.raises(FormatError):
            decode_session_part(resealed(body, 20, at=6, data=count))
