"""The rows of a run: made from the seed and their number alone, and what a log has of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import chain, count, islice, zip_longest
from random import Random

import msgspec

CHUNK_ROWS = 250
NUMBER_BYTES = 12
FILL_BYTES = 88
PROBLEMS_MAX = 10


class Comparison(msgspec.Struct, frozen=True):
    """What a log has, against what it should have.

    Attributes:
      rows: how many it has.
      checksum: over LSN and payload of each, in order.
      problems: the first ones in words; none: every row is there once, at its LSN.
      missing, doubled: row numbers.
    """

    rows: int
    checksum: str
    problems: list[str]
    missing: int
    doubled: int


def chunk(seed: int, number: int) -> list[bytes]:
    """CHUNK_ROWS payloads: the row's number, then bytes of its own."""
    fill = Random(f"{seed}/{number}").randbytes(CHUNK_ROWS * FILL_BYTES)
    first = number * CHUNK_ROWS
    return [
        b"%0*d" % (NUMBER_BYTES, first + row) + fill[row * FILL_BYTES : (row + 1) * FILL_BYTES]
        for row in range(CHUNK_ROWS)
    ]


def expected(seed: int, rows: int) -> Iterator[tuple[int, bytes]]:
    """LSN and payload of every row."""
    payloads = chain.from_iterable(chunk(seed, number) for number in count())
    return enumerate(islice(payloads, rows), 1)


def compare(found: Iterable[tuple[int, bytes]], seed: int, rows: int) -> Comparison:
    """Every row of a log (LSN, payload) with what should be there."""
    digest = blake2b(digest_size=16)
    problems: list[str] = []
    seen = [0] * rows
    total = 0
    for want, got in zip_longest(expected(seed, rows), found):
        if got is not None:
            total += 1
            digest.update(got[0].to_bytes(8, "little") + got[1])
            number = _number(got[1])
            if number < rows:
                seen[number] += 1
        if want != got and len(problems) < PROBLEMS_MAX:
            problems.append(f"{_words(got)} where {_words(want)} should be")
    return Comparison(
        rows=total,
        checksum=digest.hexdigest(),
        problems=problems,
        missing=seen.count(0),
        doubled=sum(times > 1 for times in seen),
    )


def _number(payload: bytes) -> int:
    text = payload[:NUMBER_BYTES]
    return int(text) if text.isdigit() else 1 << 62


def _words(row: tuple[int, bytes] | None) -> str:
    return "nothing" if row is None else f"LSN {row[0]} with row {row[1][:NUMBER_BYTES]!r}"
