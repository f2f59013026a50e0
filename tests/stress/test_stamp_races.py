"""Stamps that one process puts while another reads them: each cell that is read is of one stamp.

The same file is the other process: `python test_stamp_races.py FD`.
"""

from __future__ import annotations

import itertools
import select
import subprocess
import sys
from pathlib import Path

import pytest

from transport.shm import map_region
from transport.stamp_table import (
    STAMPED_EVERY,
    STAMPS_KEPT,
    StampRow,
    StampTable,
    create_stamp_table,
    stamp_region_bytes,
)

SEEN_MIN = 500 * STAMPS_KEPT
LOOKS_EVERY = 1_000  # stamps between two looks whether to end
TIME_OF_NUMBER = 1_000_003  # a mixed cell has a time that is not this many times its number


def open_row(fd: int) -> StampRow:
    return StampTable(map_region(fd, stamp_region_bytes(1)), incarnation=1).row(0)


@pytest.mark.slow
def test_a_read_never_mixes_two_stamps() -> None:
    fd = create_stamp_table(1, incarnation=1)
    row = open_row(fd)
    other = subprocess.Popen(
        [sys.executable, __file__, str(fd)],
        pass_fds=[fd],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    seen: set[int] = set()
    try:
        while len(seen) < SEEN_MIN and other.poll() is None:
            stamps = row.read()
            assert all(time_ns == n * TIME_OF_NUMBER for n, time_ns in stamps.items())
            seen |= stamps.keys()
        last, _ = other.communicate()
    finally:
        other.kill()
        other.wait()
    assert other.returncode == 0
    assert len(seen) >= SEEN_MIN
    assert max(row.read()) == int(last)


def put_until_told(fd: int) -> int:
    """Put stamps until standard input ends; the number of the last one."""
    row = open_row(fd)
    for sample in itertools.count(1):
        number = sample * STAMPED_EVERY
        row.put(number, number * TIME_OF_NUMBER)
        if sample % LOOKS_EVERY == 0 and select.select([sys.stdin], [], [], 0)[0]:
            return number
    raise AssertionError


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    print(put_until_told(int(sys.argv[1])))
