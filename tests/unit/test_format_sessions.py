"""Bodies of session entries: what they refuse, and their bounds (SAFETY E1, E6)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from crc32c import crc32c

from logstore.errors import FormatError, InvalidRequest
from logstore.format.session_entries import (
    SESSION_SNAPSHOT_MAX_BYTES,
    ExpireEntry,
    OpenEntry,
    SessionRow,
    SessionSnapshot,
    WindowRow,
    decode_expire,
    decode_open,
    decode_session_snapshot,
    encode_expire,
    encode_open,
    encode_session_snapshot,
    session_size_max,
)
from logstore.limits import POSITION_MAX, SESSION_WINDOW_MAX, SESSION_WINDOW_SUM_MAX

OPEN = OpenEntry(
    producer_id=7, producer_epoch=1, mode=1, ack_level=1, window=16, window_bytes=1000, name=b"abc"
)
ROW = SessionRow(
    producer_id=7, producer_epoch=1, mode=1, ack_level=1, window=2, window_bytes=1000,
    next_sequence=5, name=b"abc", rows=(WindowRow(3, 1, 2, 11), WindowRow(4, 3, 1, 12)),
)  # fmt: skip


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
        encode_session_snapshot(SessionSnapshot((replaced(ROW, **fields),)))


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
    body = encode_session_snapshot(SessionSnapshot(()))
    assert len(body) == 24
    assert decode_session_snapshot(body) == SessionSnapshot(())


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
        encode_session_snapshot(SessionSnapshot((replaced(ROW, rows=rows),)))


def test_two_sessions_of_one_producer_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="two sessions"):
        encode_session_snapshot(SessionSnapshot((ROW, ROW)))


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (6, b"\1"), (8, b"\0"), (12, b"\2"), (12, b"\xff\xff\xff\xff"), (12, b"\0"),
        (16, b"\xff\xff\xff\xff"), (16, b"\3"), (16, b"\1"), (24 + 14, b"\xff\xff"),
        (24 + 20, b"\xff\xff\xff\x7f"), (24 + 20, b"\1"), (24 + 47, b"\1"), (24, bytes(8)),
    ],
)  # fmt: skip
def test_a_snapshot_with_one_bad_count_or_field_is_refused(at: int, data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_session_snapshot(
            resealed(encode_session_snapshot(SessionSnapshot((ROW,))), 20, at=at, data=data)
        )


def test_windows_are_bounded_in_sum() -> None:
    many = SESSION_WINDOW_SUM_MAX // SESSION_WINDOW_MAX
    sessions = [
        replaced(ROW, producer_id=n + 1, window=SESSION_WINDOW_MAX, rows=()) for n in range(many)
    ]
    assert decode_session_snapshot(encode_session_snapshot(SessionSnapshot(tuple(sessions))))
    sessions.append(replaced(ROW, producer_id=many + 1))
    with pytest.raises(InvalidRequest, match="in all"):
        encode_session_snapshot(SessionSnapshot(tuple(sessions)))


def test_a_snapshot_is_never_larger_than_a_batch_may_be() -> None:
    rows = tuple(WindowRow(n, n + 1, 1, n) for n in range(16))
    sessions = tuple(
        replaced(ROW, producer_id=n + 1, window=16, rows=rows, next_sequence=16, name=b"n" * 255)
        for n in range(SESSION_WINDOW_SUM_MAX // 16)
    )
    fit = (SESSION_SNAPSHOT_MAX_BYTES - 24) // session_size_max(16, 255)
    body = encode_session_snapshot(SessionSnapshot(sessions[:fit]))
    assert SESSION_SNAPSHOT_MAX_BYTES - session_size_max(16, 255) < len(body)
    assert len(body) == 24 + fit * session_size_max(16, 255) <= SESSION_SNAPSHOT_MAX_BYTES
    with pytest.raises(InvalidRequest, match="expire some"):
        encode_session_snapshot(SessionSnapshot(sessions[: fit + 1]))
    with pytest.raises(FormatError, match="at most"):
        decode_session_snapshot(body + bytes(8192))
