"""The body of a TRIM entry: what comes back, and what is refused."""

from __future__ import annotations

import msgspec
import pytest

from logstore.errors import FormatError, InvalidRequest
from logstore.format.meta import LogStart
from logstore.format.trim_entry import TrimEntry, TrimReason, decode_trim, encode_trim
from logstore.limits import POSITION_MAX
from logstore.model import Index, Lsn, Term
from tests.unit.test_format_sessions import resealed

START = LogStart(Index(7), Term(2), (1 << 64) - 1, Lsn(31))
TRIM = TrimEntry(TrimReason.OPERATOR, START, 4_096, 10**18)


@pytest.mark.parametrize("reason", TrimReason)
@pytest.mark.parametrize("start", [START, LogStart(Index(1), Term(1), 0, Lsn(1))])
def test_every_log_start_comes_back(reason: TrimReason, start: LogStart) -> None:
    entry = TrimEntry(reason, start, 0, POSITION_MAX, level=3)
    body = encode_trim(entry)
    assert len(body) == 64
    assert decode_trim(body) == entry


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"index": 0}, "entry 0"),
        ({"term": 0}, "term 0"),
        ({"index": POSITION_MAX + 1}, "entry"),
        ({"next_lsn": 0}, "LSN 0"),
        ({"next_lsn": POSITION_MAX + 1}, "LSN"),
    ],
)
def test_a_log_start_that_cannot_be_is_not_encoded(change: dict[str, int], says: str) -> None:
    start = msgspec.structs.replace(START, **change)
    with pytest.raises(InvalidRequest, match=says):
        encode_trim(msgspec.structs.replace(TRIM, start=start))


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (4, b"\2"), (6, b"\0"), (6, b"\5"), (8, bytes(8)), (8, b"\xff" * 8), (16, bytes(8)),
        (32, bytes(8)), (40, b"\xff" * 8), (48, b"\xff" * 8), (56, bytes(4)), (56, b"\1"),
        (56, b"\x40"),
    ],
)  # fmt: skip
def test_a_trim_body_with_one_bad_field_is_refused(at: int, data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_trim(resealed(encode_trim(TRIM), 60, at=at, data=data))


def test_a_longer_trim_body_is_refused() -> None:
    with pytest.raises(FormatError):
        decode_trim(resealed(encode_trim(TRIM) + bytes(8), 60, at=64, data=b"\0"))
