"""What only the simulated disk can show: power cuts, failed flushes, full and damaged disks."""

from __future__ import annotations

from random import Random

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import CorruptData, DiskFull, WriteFailed
from tests.crash.crash_states import choices_bounded, crash_states


def read(disk: SimulatedDisk, path: str, size: int) -> bytes | None:
    try:
        handle = disk.open_read(path)
    except FileNotFoundError:
        return None
    return disk.read(handle, 0, size)


def states(disk: SimulatedDisk) -> list[SimulatedDisk]:
    return list(crash_states(disk, states_max=1_000, random=Random(1)))


def durable_file(disk: SimulatedDisk, path: str, content: bytes) -> int:
    handle = disk.create(path)
    disk.write(handle, 0, [content])
    disk.flush(handle)
    disk.sync_folder("/f")
    return handle


def test_a_power_cut_leaves_any_subset_of_unflushed_sectors() -> None:
    disk = SimulatedDisk()
    handle = durable_file(disk, "/f/a", bytes(1024))
    disk.write(handle, 0, [b"A" * 512 + b"B" * 512])
    seen = {(read(s, "/f/a", 1024) or b"")[::512] for s in states(disk)}
    assert seen == {b"\0\0", b"A\0", b"\0B", b"AB"}


def test_a_sector_written_twice_may_survive_in_any_version() -> None:
    disk = SimulatedDisk()
    handle = durable_file(disk, "/f/a", b"0" * 512)
    disk.write(handle, 0, [b"1"])
    disk.write(handle, 1, [b"2"])
    assert {(read(s, "/f/a", 2)) for s in states(disk)} == {b"00", b"10", b"12"}


def test_flushed_bytes_survive_and_an_unsynced_name_may_not() -> None:
    disk = SimulatedDisk()
    handle = disk.create("/f/a")
    disk.write(handle, 0, [b"x"])
    disk.flush(handle)
    assert {read(s, "/f/a", 1) for s in states(disk)} == {None, b"x"}
    disk.sync_folder("/f")
    assert {read(s, "/f/a", 1) for s in states(disk)} == {b"x"}


def test_an_unlink_is_durable_only_after_the_folder_is_synced() -> None:
    disk = SimulatedDisk()
    durable_file(disk, "/f/a", b"x")
    disk.unlink("/f/a")
    assert {read(s, "/f/a", 1) for s in states(disk)} == {None, b"x"}
    disk.sync_folder("/f")
    assert {read(s, "/f/a", 1) for s in states(disk)} == {None}


def test_the_death_of_a_process_loses_no_written_byte() -> None:
    disk = SimulatedDisk()
    handle = durable_file(disk, "/f/a", b"x")
    disk.write(handle, 0, [b"y"])
    disk.kill_process()
    assert read(disk, "/f/a", 1) == b"y"
    assert {read(s, "/f/a", 1) for s in states(disk)} == {b"x", b"y"}


def test_after_a_failed_flush_the_next_one_succeeds_and_makes_nothing_durable() -> None:
    """SAFETY F5, FAULTS D25."""
    disk = SimulatedDisk()
    handle = durable_file(disk, "/f/a", b"x")
    disk.write(handle, 0, [b"y"])
    disk.fail_next("flush", "/a")
    with pytest.raises(WriteFailed):
        disk.flush(handle)
    disk.flush(handle)
    assert read(disk, "/f/a", 1) == b"y"
    assert {read(s, "/f/a", 1) for s in states(disk)} == {b"x", b"y"}
    disk.drop_cache(handle)
    assert read(disk, "/f/a", 1) == b"x"


def test_a_full_disk_refuses_to_allocate_and_keeps_what_it_has() -> None:
    disk = SimulatedDisk(capacity_bytes=2_000)
    handle = durable_file(disk, "/f/a", b"x" * 1_000)
    other = disk.create("/f/b")
    with pytest.raises(DiskFull):
        disk.allocate(other, 1_500)
    with pytest.raises(WriteFailed):
        disk.write(other, 0, [b"z" * 1_500])
    disk.write(handle, 0, [b"y" * 1_000])
    assert read(disk, "/f/a", 1) == b"y"


def test_an_unreadable_sector_is_damage_until_it_is_written_again() -> None:
    disk = SimulatedDisk()
    handle = durable_file(disk, "/f/a", b"x" * 1_024)
    disk.set_unreadable("/f/a", 1)
    assert disk.read(handle, 0, 512) == b"x" * 512
    with pytest.raises(CorruptData, match="at byte 512"):
        disk.read(handle, 0, 1_024)
    disk.write(handle, 512, [b"y" * 512])
    assert disk.read(handle, 512, 1) == b"y"


def test_bounded_choices_are_distinct_and_begin_with_nothing_and_everything() -> None:
    chosen = list(choices_bounded([2] * 20, choices_max=200, random=Random(3)))
    assert len(set(chosen)) == len(chosen) == 200
    assert chosen[0] == (0,) * 20
    assert chosen[1] == (1,) * 20
    assert len(list(choices_bounded([2, 3], choices_max=6, random=Random(3)))) == 6
