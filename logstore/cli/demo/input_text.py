"""The demo's input: files as batches of lines, of mixed sizes, read round and round.

Owns what a line is (what stands between two line feeds; carriage returns stay; an unterminated last
line is one) and how lines are put together. Holds one batch at a time, whatever the files' sizes.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from logstore.cli.lines import read_lines
from logstore.errors import BatchTooLarge, InvalidRequest
from logstore.limits import BATCH_MAX_BYTES, KIB

# A batch of one payload has a header, two offsets and padding beside it.
LINE_BYTES_MAX = BATCH_MAX_BYTES - KIB
BATCH_LINES = (1, 2, 8, 32, 64, 128, 256, 512)
# A batch takes no further line once it holds this much; a longer line is a batch of its own.
BATCH_BYTES = 128 * KIB


def standard_library() -> list[Path]:
    """The source text of Python's standard library on this machine, file by file."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found = sorted(path for path in root.rglob("*.py") if "site-packages" not in path.parts)
    if not found:
        raise InvalidRequest(f"no Python source in {root}: name files to read")
    return found


def check_files(files: Sequence[Path]) -> bool:
    """Whether there is any line at all in readable files.

    Raises:
      InvalidRequest: a file cannot be read.
      BatchTooLarge: a line is longer than a batch may be.
    """
    has_lines = False
    for path in files:
        try:
            has_lines = _check_file(path) or has_lines
        except OSError as error:
            raise InvalidRequest(
                f"{path}: cannot be read: {error.strerror}; name another file"
            ) from error
    return has_lines


def iterate_batches(files: Sequence[Path], random: Random) -> Iterator[list[bytes]]:
    """Batches of lines, over all files again and again; ends only if there is no line at all."""
    lines = _iterate_lines(files)
    batch: list[bytes] = []
    size, wanted = 0, random.choice(BATCH_LINES)
    for line in lines:
        batch.append(line)
        size += len(line)
        if len(batch) >= wanted or size >= BATCH_BYTES:
            yield batch
            batch, size, wanted = [], 0, random.choice(BATCH_LINES)


def _iterate_lines(files: Sequence[Path]) -> Iterator[bytes]:
    has_lines = True
    while has_lines:
        has_lines = False
        for path in files:
            with open(path, "rb") as file:
                for lines in read_lines(file, line_bytes_max=LINE_BYTES_MAX):
                    has_lines = True
                    yield from lines


def _check_file(path: Path) -> bool:
    """Whether the file holds a line; only files that could hold one too long are read."""
    size_bytes = path.stat().st_size
    with open(path, "rb") as file:
        if size_bytes > LINE_BYTES_MAX:
            try:
                for _ in read_lines(file, line_bytes_max=LINE_BYTES_MAX):
                    pass
            except BatchTooLarge as error:
                raise BatchTooLarge(f"{path}: {error}") from error
    return size_bytes > 0
