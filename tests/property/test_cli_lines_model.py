"""Lines against `bytes.split`, however the stream is cut into chunks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.cli.lines import read_lines
from logstore.errors import BatchTooLarge

CHUNKS = st.lists(st.text("ab\r\n\0", min_size=1, max_size=6).map(str.encode), max_size=12)


class Pieces:
    """A stream that hands out given chunks, then its end."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = [*chunks]

    def read1(self, size: int = -1, /) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""


@given(CHUNKS)
def test_lines_are_what_stands_between_line_feeds(chunks: list[bytes]) -> None:
    expected = b"".join(chunks).split(b"\n")
    if expected[-1] == b"":  # nothing stands after the last line feed, or there is nothing at all
        expected.pop()
    lines = [line for some in read_lines(Pieces(chunks), line_bytes_max=100) for line in some]
    assert lines == expected


@given(CHUNKS, st.integers(1, 8))
def test_the_first_line_that_is_too_long_is_named(chunks: list[bytes], limit: int) -> None:
    lengths = [len(line) for line in b"".join(chunks).split(b"\n")]
    too_long = [number for number, length in enumerate(lengths, 1) if length > limit]
    if not too_long:
        list(read_lines(Pieces(chunks), line_bytes_max=limit))
        return
    with pytest.raises(BatchTooLarge, match=f"line {too_long[0]} "):
        list(read_lines(Pieces(chunks), line_bytes_max=limit))
