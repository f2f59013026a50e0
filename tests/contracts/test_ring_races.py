"""Two processes on one ring: no torn cursor, no overwritten byte taken for a good one (SAFETY M4).

The same file is the other process: `python test_ring_races.py ROLE FD SIZE`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from transport.layout import line_slot
from transport.payload_ring import (
    PayloadRingReader,
    PayloadRingWriter,
    RingFreer,
    create_payload_ring,
    payload_region_bytes,
)
from transport.shm import create_region, map_region

RING_BYTES = 1 << 18
CHUNK_BYTES = 1 << 14
WORD = 8
CURSOR, STOP = line_slot(1), line_slot(2)
UNUSED = line_slot(63)  # of a payload ring's control page: tells the other process to end
VALUES = (0x0123456789ABCDEF, 0xFEDCBA9876543210)


@contextmanager
def other_process(role: str, fd: int, size_bytes: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, __file__, role, str(fd), str(size_bytes)],
        pass_fds=[fd],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    try:
        yield process
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_cursor_is_never_seen_half_written() -> None:
    """FAULTS S2: `struct.pack_into` would show readers a zero here."""
    fd = create_region(4096)
    region = map_region(fd, 4096)
    with memoryview(region) as whole, whole.cast("Q") as slots:
        slots[CURSOR] = VALUES[0]
        with other_process("toggle", fd, 4096) as other:
            seen: set[int] = set()
            while len(seen) < 2:
                assert other.poll() is None
                seen.update(slots[CURSOR] for _ in range(200_000))
            slots[STOP] = 1
    assert seen == set(VALUES)
    os.close(fd)


@pytest.mark.slow
def test_a_copy_is_right_or_refused_while_the_ring_is_overwritten() -> None:
    """Every word is its own position; everything is freed at once, as if nobody held it."""
    fd = create_payload_ring(RING_BYTES, incarnation=1)
    size_bytes = payload_region_bytes(RING_BYTES)
    region = map_region(fd, size_bytes)
    reader = PayloadRingReader(region, incarnation=1)
    right = refused = 0
    with other_process("overwrite", fd, size_bytes) as other:
        while right < 300 or refused < 300:
            assert other.poll() is None
            end = reader.head
            back = min(end, RING_BYTES - (right + refused) % 8 * CHUNK_BYTES)
            start = end - back
            copy = reader.copy_out(start, min(end, start + 4 * CHUNK_BYTES))
            if copy is None:
                refused += 1
                continue
            words = np.frombuffer(copy, "<u8")
            assert np.array_equal(words, np.arange(len(words), dtype="<u8") + start // WORD)
            right += len(words) > 0
        with memoryview(region) as whole, whole[:4096] as page, page.cast("Q") as slots:
            slots[UNUSED] = 1
    os.close(fd)


def toggle(fd: int, size_bytes: int) -> None:
    region = map_region(fd, size_bytes)
    with memoryview(region) as whole, whole.cast("Q") as slots:
        first, second = VALUES
        while not slots[STOP]:
            for _ in range(1_000):
                slots[CURSOR] = first
                slots[CURSOR] = second


def overwrite(fd: int, size_bytes: int) -> None:
    region = map_region(fd, size_bytes)
    writer = PayloadRingWriter(region, incarnation=1)
    freer = RingFreer(region, incarnation=1)
    words_per_chunk = CHUNK_BYTES // WORD
    words = np.arange(words_per_chunk, dtype="<u8")
    with memoryview(region) as whole, whole[:4096] as page, page.cast("Q") as slots:
        while not slots[UNUSED]:
            written = writer.try_write([memoryview(words).cast("B")])
            assert written is not None
            freer.set_free(written[1])
            words += words_per_chunk


if __name__ == "__main__":
    {"toggle": toggle, "overwrite": overwrite}[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
