"""Lines of a byte stream: what stands between two line feeds, and nothing else.

`\\r` stays, an unterminated last line is a line, an empty stream has none. Constant memory: a chunk
and one line, whose size is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from logstore.errors import BatchTooLarge
from logstore.limits import MIB

CHUNK_BYTES = 1 * MIB


class ByteSource(Protocol):
    """What lines are read from: a raw or buffered binary file."""

    def read1(self, size: int = -1, /) -> bytes: ...


def read_lines(source: ByteSource, *, line_bytes_max: int) -> Iterator[list[bytes]]:
    """The lines, without their line feeds, in lists of those that came together.

    A pipe's lines are handed on as they arrive.

    Raises:
      BatchTooLarge: a line is longer than `line_bytes_max`; says which one.
    """
    pieces: list[bytes] = []  # of the line that has no end yet
    pending_bytes = 0
    count = 0
    while chunk := source.read1(CHUNK_BYTES):
        *ended, rest = chunk.split(b"\n")
        if ended:
            ended[0] = b"".join((*pieces, ended[0]))
            pieces, pending_bytes = [], 0
            if len(max(ended, key=len)) > line_bytes_max:
                raise _too_long(count, ended, line_bytes_max)
            count += len(ended)
            yield ended
        if rest:
            pieces.append(rest)
            pending_bytes += len(rest)
            if pending_bytes > line_bytes_max:
                raise _too_long(count, [b"".join(pieces)], line_bytes_max)
    if pieces:
        yield [b"".join(pieces)]


def _too_long(before: int, lines: list[bytes], line_bytes_max: int) -> BatchTooLarge:
    place = next(n for n, line in enumerate(lines, 1) if len(line) > line_bytes_max)
    return BatchTooLarge(
        f"line {before + place} is longer than a payload may be, {line_bytes_max} bytes: split it, "
        "or raise batch_max on every replica"
    )
