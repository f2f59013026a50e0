"""Contract of the table of stamps: what a writer puts others read, whole or not at all."""

from __future__ import annotations

import mmap

import pytest

from transport.command_ring import format_command_ring
from transport.errors import LayoutMismatch
from transport.layout import CONTROL_BYTES
from transport.shm import map_region
from transport.stamp_table import (
    STAMPED_EVERY,
    STAMPS_KEPT,
    StampTable,
    create_stamp_table,
    format_stamp_table,
    stamp_region_bytes,
)

ROWS = 3


@pytest.fixture
def region() -> mmap.mmap:
    region = mmap.mmap(-1, stamp_region_bytes(ROWS))
    format_stamp_table(region, incarnation=7)
    return region


def test_what_one_process_stamps_another_reads(region: mmap.mmap) -> None:
    rows = [StampTable(region, incarnation=7).row(number) for number in range(ROWS)]
    rows[1].put(STAMPED_EVERY, 100)
    rows[1].put(3 * STAMPED_EVERY, (1 << 63) - 1)
    other = StampTable(region, incarnation=7)
    assert other.row(1).read() == {STAMPED_EVERY: 100, 3 * STAMPED_EVERY: (1 << 63) - 1}
    assert other.row(0).read() == other.row(2).read() == {}


def test_the_newest_numbers_are_kept(region: mmap.mmap) -> None:
    row = StampTable(region, incarnation=7).row(ROWS - 1)
    count = 2 * STAMPS_KEPT + 3
    for sample in range(1, count + 1):
        row.put(sample * STAMPED_EVERY, sample)
    kept = range(count - STAMPS_KEPT + 1, count + 1)
    assert row.read() == {sample * STAMPED_EVERY: sample for sample in kept}


def test_a_number_that_is_stamped_again_has_the_newer_time(region: mmap.mmap) -> None:
    row = StampTable(region, incarnation=7).row(0)
    row.put(STAMPED_EVERY, 1)
    row.put(STAMPED_EVERY, 2)
    assert row.read() == {STAMPED_EVERY: 2}


def test_a_cell_that_is_being_written_is_not_read(region: mmap.mmap) -> None:
    """The number is taken away first: whoever reads then sees no cell instead of a mixed one."""
    table = StampTable(region, incarnation=7)
    row = table.row(0)
    row.put(STAMPED_EVERY, 1)
    with memoryview(region) as whole, whole[CONTROL_BYTES:] as data, data.cast("Q") as words:
        words[2] = 0  # the writer of sample 1 is there
        assert row.read() == {}


def test_a_table_of_another_incarnation_or_kind_is_refused(region: mmap.mmap) -> None:
    with pytest.raises(LayoutMismatch, match="incarnation"):
        StampTable(region, incarnation=8)
    ring = mmap.mmap(-1, stamp_region_bytes(ROWS))
    format_command_ring(ring, incarnation=7)
    with pytest.raises(LayoutMismatch, match="kind"):
        StampTable(ring, incarnation=7)


def test_a_table_in_shared_memory_is_one_descriptor() -> None:
    fd = create_stamp_table(ROWS, incarnation=2)
    here, there = (map_region(fd, stamp_region_bytes(ROWS)) for _ in range(2))
    StampTable(here, incarnation=2).row(2).put(STAMPED_EVERY, 9)
    assert StampTable(there, incarnation=2).row(2).read() == {STAMPED_EVERY: 9}
