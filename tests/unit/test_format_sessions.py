"""Bodies of session entries: what they refuse, and their bounds (SAFETY E1, E6)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from crc32c import crc32c

from logstore.errors import FormatError, InvalidRequest
from logstore.format.cursor_entries import Cursor
from logstore.format.session_entries import (
    ExpireEntry,
    OpenEntry,
    decode_expire,
    decode_open,
    encode_expire,
    encode_open,
)
from logstore.format.session_snapshot import (
    KeptName,
    PartHead,
    SessionPart,
    SessionRow,
    WindowRow,
    decode_session_part,
    encode_session_parts,
    read_part_head,
)
from logstore.limits import POSITION_MAX, SESSION_WINDOW_MAX
from logstore.model import Lsn
from tests.unit.session_logs import encode_part

OPEN = OpenEntry(
    producer_id=7, producer_epoch=1, mode=1, ack_level=1, window=16, window_bytes=1000, name=b"abc"
)
ROW = SessionRow(
    producer_id=7, producer_epoch=1, mode=1, ack_level=1, window=2, window_bytes=1000,
    next_sequence=5, last_used_ns=9, name=b"abc",
    rows=(WindowRow(3, 1, 2, 11), WindowRow(4, 3, 1, 12)),
)  # fmt: skip


def snapshot(*rows: SessionRow) -> SessionPart:
    return SessionPart(PartHead(3, 1, 0, True), rows, (), ())


def replaced(value: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(value, **fields)


def resealed(body: bytes, crc_at: int, *, at: int, data: bytes) -> bytes:
    changed = bytearray(body)
    changed[at : at + len(data)] = data
    crc = crc32c(changed[crc_at + 4 :], crc32c(changed[:crc_at]))
    changed[crc_at : crc_at + 4] = crc.to_bytes(4, "little")
    return bytes(changed)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 255])
def test_names_of_all_lengths_come_back(size: int) -> None:
    entry = replaced(OPEN, name=b"n" * size)
    body = encode_open(entry)
    assert len(body) % 8 == 0
    assert decode_open(body) == entry


@pytest.mark.parametrize(
    "fields",
    [
        {"producer_id": 0}, {"mode": 0}, {"mode": 3}, {"ack_level": 0}, {"window": 0},
        {"window": SESSION_WINDOW_MAX + 1}, {"name": b"n" * 256}, {"name": b"\xff"},
    ],
    ids=str,
)  # fmt: skip
def test_a_session_that_no_producer_can_have_is_not_encoded(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        encode_open(replaced(OPEN, **fields))
    with pytest.raises(InvalidRequest):
        encode_part(snapshot(replaced(ROW, **fields)))


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (6, b"\3"),
        (26, b"\1"),
        (47, b"\1"),
        (24, b"\0"),
        (24, b"\x09"),
        (40, b"\xff"),
        (8, bytes(8)),
    ],
)
def test_an_open_body_with_one_bad_field_is_refused(at: int, data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_open(resealed(encode_open(OPEN), 28, at=at, data=data))


def test_an_expire_body_is_exactly_its_fields() -> None:
    body = encode_expire(ExpireEntry(7, 2))
    assert decode_expire(body) == ExpireEntry(7, 2)
    for at, data in ((6, b"\1"), (8, bytes(8)), (24, bytes(8))):
        with pytest.raises(FormatError):
            decode_expire(resealed(body, 20, at=at, data=data))
    with pytest.raises(InvalidRequest):
        encode_expire(ExpireEntry(0, 2))
    with pytest.raises(FormatError, match="magic"):
        decode_expire(encode_open(OPEN))


def test_an_empty_table_has_a_snapshot() -> None:
    body = encode_part(snapshot())
    assert len(body) == 48
    assert decode_session_part(body) == snapshot()


@pytest.mark.parametrize(
    "rows",
    [
        (WindowRow(4, 1, 2, 11), WindowRow(4, 3, 1, 12)),
        (WindowRow(3, 5, 2, 11), WindowRow(4, 3, 1, 12)),
        (WindowRow(3, 0, 2, 11),),
        (WindowRow(3, 1, 0, 11),),
        (WindowRow(3, 1, 2, 11), WindowRow(5, 3, 1, 12)),
        (WindowRow(2, 1, 1, 11), WindowRow(3, 2, 1, 12), WindowRow(4, 3, 1, 13)),
        (WindowRow(3, POSITION_MAX, 2, 11),),
    ],
)
def test_a_window_out_of_order_or_too_long_is_not_encoded(rows: tuple[WindowRow, ...]) -> None:
    with pytest.raises(InvalidRequest):
        encode_part(snapshot(replaced(ROW, rows=rows)))


def test_two_sessions_of_one_producer_are_refused() -> None:
    with pytest.raises(FormatError, match="two sessions"):
        decode_session_part(encode_part(snapshot(ROW, ROW)))


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (6, b"\1"), (8, b"\0"), (12, b"\2"), (12, b"\xff\xff\xff\xff"), (12, b"\0"),
        (16, b"\xff\xff\xff\xff"), (16, b"\3"), (16, b"\1"), (24, bytes(8)),
        (24, b"\xff" * 8), (40, b"\1"), (40, b"\xff" * 4), (44, b"\2"), (47, b"\1"),
        (48 + 14, b"\xff\xff"), (48 + 20, b"\xff\xff\xff\x7f"), (48 + 20, b"\1"),
        (48 + 40, b"\xff" * 8), (48 + 55, b"\1"), (48, bytes(8)),
    ],
)  # fmt: skip
def test_a_snapshot_with_one_bad_count_or_field_is_refused(at: int, data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_session_part(resealed(encode_part(snapshot(ROW)), 20, at=at, data=data))


def rows_of(window: int, count: int) -> tuple[WindowRow, ...]:
    return tuple(WindowRow(n, Lsn(n + 1), 1, n) for n in range(window - count, window))


def parts_of(part: SessionPart, part_max_bytes: int) -> list[SessionPart]:
    bodies = list(
        encode_session_parts(
            part.sessions, part.cursors, part.kept, term=part.head.term,
            number=part.head.number, part_max_bytes=part_max_bytes,
        )
    )  # fmt: skip
    assert max(map(len, bodies)) <= part_max_bytes
    parts = [decode_session_part(body) for body in bodies]
    assert [read_part_head(body) for body in bodies] == [each.head for each in parts]
    return parts


def joined(parts: list[SessionPart]) -> SessionPart:
    """The snapshot that these parts make."""
    sessions: dict[int, SessionRow] = {}
    for part in parts:
        for row in part.sessions:
            before = sessions.get(row.producer_id)
            rows = row.rows if before is None else before.rows + row.rows
            sessions[row.producer_id] = replaced(row, rows=rows)
    return SessionPart(
        PartHead(3, 1, 0, True),
        tuple(sessions.values()),
        tuple(each for part in parts for each in part.cursors),
        tuple(each for part in parts for each in part.kept),
    )


@pytest.mark.parametrize("part_max_bytes", [512, 4_096, 1 << 18, 4 << 20])
def test_a_snapshot_of_any_size_is_made_of_parts_that_fit(part_max_bytes: int) -> None:
    """SAFETY E6: no entry is larger than a group."""
    whole = SessionPart(
        PartHead(3, 1, 0, True),
        tuple(
            replaced(
                ROW, producer_id=n + 1, window=4_096, rows=rows_of(n * 16, min(n * 16, 300)),
                next_sequence=n * 16, name=b"n" * (n % 256),
            )
            for n in range(60)
        ),
        tuple(Cursor(b"%0255d" % n, Lsn(1), False) for n in range(20)),
        tuple(KeptName(n + 1_000, 3, POSITION_MAX, b"%0255d" % n) for n in range(20)),
    )  # fmt: skip
    parts = parts_of(whole, part_max_bytes)
    heads = [each.head for each in parts]
    last = len(parts) - 1
    assert heads == [PartHead(3, 1, number, number == last) for number in range(last + 1)]
    assert joined(parts) == whole
    assert (len(parts) > 1) == (part_max_bytes < 4 << 20)


def test_a_name_is_kept_of_somebody() -> None:
    for kept in (
        KeptName(0, 1, 1, b"a"),
        KeptName(1, 1, 1, b""),
        KeptName(1, 1, POSITION_MAX + 1, b"a"),
        KeptName(1, 1, 1, b"\xff"),
    ):
        with pytest.raises(InvalidRequest):
            encode_part(SessionPart(PartHead(3, 1, 0, True), (), (), (kept,)))
