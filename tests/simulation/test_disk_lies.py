"""A device that lies about flushes (FAULTS D33), and what is really durable then."""

from __future__ import annotations

from random import Random

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from actors.simulation.disk.media_faults import RotKind
from logstore.errors import WriteFailed
from logstore.limits import SECTOR_BYTES
from tests.crash.crash_states import crash_states

PATH = "/f/a"


def durable_file(content: bytes) -> tuple[SimulatedDisk, int]:
    disk = SimulatedDisk()
    handle = disk.create(PATH)
    disk.write(handle, 0, [content])
    disk.flush(handle)
    disk.sync_folder("/f")
    return disk, handle


def after_cuts(disk: SimulatedDisk, size: int) -> set[bytes | None]:
    """What the file reads as after power cuts of many seeds."""
    seen: set[bytes | None] = set()
    for seed in range(200):
        fork = disk.fork()
        fork.kill_process()
        fork.power_cut(Random(seed), garble=False)
        is_there = PATH in fork.paths()
        seen.add(fork.read(fork.open_read(PATH), 0, size) if is_there else None)
    return seen


def test_a_lying_flush_returns_and_makes_nothing_durable() -> None:
    disk, handle = durable_file(b"0")
    disk.begin_lying()
    disk.write(handle, 0, [b"1"])
    disk.flush(handle)
    assert disk.read(handle, 0, 1) == b"1"
    assert disk.durable_bytes(PATH, 0, 1) == b"0"
    assert after_cuts(disk, 1) == {b"0", b"1"}
    states = crash_states(disk, states_max=100, random=Random(1))
    assert {state.read(state.open_read(PATH), 0, 1) for state in states} == {b"0", b"1"}


def test_the_next_honest_flush_of_any_file_makes_it_durable() -> None:
    disk, handle = durable_file(b"0")
    other = disk.create("/f/b")
    disk.begin_lying()
    disk.write(handle, 0, [b"1"])
    disk.flush(handle)
    disk.end_lying()
    assert disk.durable_bytes(PATH, 0, 1) == b"0"
    disk.flush(other)
    assert disk.durable_bytes(PATH, 0, 1) == b"1"
    assert after_cuts(disk, 1) == {b"1"}


def test_an_honest_flush_of_a_folder_settles_files_too() -> None:
    disk, handle = durable_file(b"0")
    disk.begin_lying()
    disk.write(handle, 0, [b"1"])
    disk.flush(handle)
    disk.end_lying()
    disk.sync_folder("/elsewhere")
    assert disk.durable_bytes(PATH, 0, 1) == b"1"


def test_an_honest_flush_leaves_what_was_written_after_the_lie_pending() -> None:
    disk, handle = durable_file(b"0")
    other = disk.create("/f/b")
    disk.begin_lying()
    disk.write(handle, 0, [b"1"])
    disk.flush(handle)
    disk.end_lying()
    disk.write(handle, 0, [b"2"])
    assert after_cuts(disk, 1) == {b"0", b"1", b"2"}
    disk.flush(other)
    assert after_cuts(disk, 1) == {b"1", b"2"}
    disk.flush(handle)
    assert after_cuts(disk, 1) == {b"2"}


def test_a_device_lies_about_names_too() -> None:
    disk = SimulatedDisk()
    disk.begin_lying()
    handle = disk.create(PATH)
    disk.write(handle, 0, [b"x"])
    disk.flush(handle)
    disk.sync_folder("/f")
    assert disk.durable_paths() == []
    assert {None, b"x"} <= after_cuts(disk, 1)
    disk.end_lying()
    disk.flush(handle)
    assert disk.durable_paths() == [PATH]
    assert after_cuts(disk, 1) == {b"x"}


def test_a_name_that_was_lied_about_twice_may_stop_in_between() -> None:
    disk = SimulatedDisk()
    disk.begin_lying()
    handle = disk.create(PATH)
    disk.sync_folder("/f")
    disk.unlink(PATH)
    disk.sync_folder("/f")
    assert not disk.is_durable(PATH, 0, 0, counting_lies=True)
    assert after_cuts(disk, 1) == {None, b""}
    disk.close(handle)
    again = disk.create(PATH)
    assert not disk.is_durable(PATH, 0, 0, counting_lies=True)
    disk.flush(again)
    disk.sync_folder("/f")
    assert disk.is_durable(PATH, 0, 0, counting_lies=True)
    assert not disk.is_durable(PATH, 0, 0)


def test_a_lying_flush_takes_on_what_a_failed_one_left() -> None:
    disk, handle = durable_file(b"0")
    disk.write(handle, 0, [b"1"])
    disk.fail_next("flush", "/a")
    with pytest.raises(WriteFailed):
        disk.flush(handle)
    disk.begin_lying()
    disk.write(handle, 0, [b"2"])
    disk.flush(handle)
    assert after_cuts(disk, 1) == {b"0", b"1", b"2"}
    disk.end_lying()
    disk.flush(handle)
    assert after_cuts(disk, 1) == {b"2"}


def test_flushing_a_folder_is_not_flushing_those_in_it() -> None:
    disk = SimulatedDisk()
    disk.close(disk.create("/f/a"))
    disk.close(disk.create("/f/deeper/b"))
    disk.sync_folder("/f")
    assert disk.durable_paths() == ["/f/a"]
    disk.sync_folder("/f/deeper/")
    assert disk.durable_paths() == ["/f/a", "/f/deeper/b"]
    assert disk.list_folder("/f") == ["a"]


def test_a_device_lies_about_sizes_too() -> None:
    disk, handle = durable_file(b"xyz")
    disk.begin_lying()
    disk.truncate(handle, 1)
    disk.flush(handle)
    disk.allocate(handle, 3)
    disk.flush(handle)
    assert after_cuts(disk, 9) == {b"xyz", b"x", b"x\0\0"}
    assert disk.durable_bytes(PATH, 0, 9) == b"xyz"
    disk.end_lying()
    disk.flush(handle)
    assert disk.durable_bytes(PATH, 0, 9) == b"x\0\0"


def test_dropping_the_cache_shows_what_the_device_has_in_its_own() -> None:
    disk, handle = durable_file(b"0")
    disk.begin_lying()
    disk.write(handle, 0, [b"1"])
    disk.flush(handle)
    disk.drop_cache(handle)
    assert disk.read(handle, 0, 1) == b"1"
    disk.write(handle, 0, [b"2"])
    disk.fail_next("flush", "/a")
    with pytest.raises(WriteFailed):
        disk.flush(handle)
    disk.drop_cache(handle)
    assert disk.read(handle, 0, 1) == b"1"


def test_a_lying_device_goes_on_lying_after_a_power_cut() -> None:
    disk, _ = durable_file(b"0")
    disk.begin_lying()
    disk.kill_process()
    disk.power_cut(Random(1), garble=False)
    handle = disk.open_write(PATH)
    disk.write(handle, 0, [b"1"])
    disk.flush(handle)
    assert disk.is_lying
    assert disk.durable_bytes(PATH, 0, 1) == b"0"


def test_lies_count_as_durable_only_where_asked() -> None:
    disk, handle = durable_file(b"0")
    disk.begin_lying()
    disk.write(handle, 0, [b"1"])
    assert not disk.is_durable(PATH, 0, 1, counting_lies=True)
    disk.flush(handle)
    assert disk.is_durable(PATH, 0, 1, counting_lies=True)
    assert not disk.is_durable(PATH, 0, 1)
    new = disk.create("/f/b")
    disk.write(new, 0, [b"n"])
    disk.flush(new)
    assert not disk.is_durable("/f/b", 0, 1, counting_lies=True)
    disk.sync_folder("/f")
    assert disk.is_durable("/f/b", 0, 1, counting_lies=True)
    assert not disk.is_durable("/f/b", 0, 1)
    disk.end_lying()
    disk.flush(handle)
    assert disk.is_durable(PATH, 0, 1)
    assert disk.is_durable("/f/b", 0, 1)


def test_a_flushed_record_stays_durable_while_its_sector_is_written_again() -> None:
    disk, handle = durable_file(b"record-1")
    disk.write(handle, 8, [b"record-2"])
    assert disk.is_durable(PATH, 0, 8)
    assert not disk.is_durable(PATH, 8, 8)
    assert not disk.is_durable(PATH, 0, 16)
    disk.flush(handle)
    assert disk.is_durable(PATH, 0, 16)


def test_bytes_are_durable_only_with_their_size_and_their_name() -> None:
    disk = SimulatedDisk()
    handle = disk.create(PATH)
    disk.allocate(handle, 4 * SECTOR_BYTES)
    disk.flush(handle)
    assert not disk.is_durable(PATH, 0, SECTOR_BYTES)
    disk.sync_folder("/f")
    assert disk.is_durable(PATH, 0, 4 * SECTOR_BYTES)
    assert not disk.is_durable(PATH, 0, 4 * SECTOR_BYTES + 1)
    disk.truncate(handle, SECTOR_BYTES)
    assert disk.is_durable(PATH, 0, SECTOR_BYTES)
    assert not disk.is_durable(PATH, 0, SECTOR_BYTES + 1)
    disk.unlink(PATH)
    assert not disk.is_durable(PATH, 0, 1)
    assert disk.durable_paths() == [PATH]


def test_a_version_in_between_that_a_power_cut_may_leave_counts() -> None:
    disk, handle = durable_file(b"0")
    disk.write(handle, 0, [b"1"])
    disk.write(handle, 0, [b"0"])
    assert not disk.is_durable(PATH, 0, 1)
    assert after_cuts(disk, 1) == {b"0", b"1"}


def test_stuck_bytes_are_not_durable() -> None:
    disk, handle = durable_file(b"0")
    disk.write(handle, 0, [b"1"])
    disk.fail_next("flush", "/a")
    with pytest.raises(WriteFailed):
        disk.flush(handle)
    disk.flush(handle)
    assert not disk.is_durable(PATH, 0, 1)


@pytest.mark.parametrize("is_cached_too", [True, False])
def test_rot_is_not_counted_against_durability_but_is_seen_on_the_medium(
    is_cached_too: bool,
) -> None:
    disk, handle = durable_file(b"x" * SECTOR_BYTES)
    disk.rot(Random(1), RotKind.GARBAGE, lambda path: True, is_cached_too=is_cached_too)
    assert disk.durable_bytes(PATH, 0, SECTOR_BYTES) != b"x" * SECTOR_BYTES
    assert disk.is_durable(PATH, 0, SECTOR_BYTES)
    disk.write(handle, 500, [b"y"])
    assert disk.is_durable(PATH, 0, 500)
    assert not disk.is_durable(PATH, 500, 1)


def test_durable_bytes_end_with_the_durable_file() -> None:
    disk, handle = durable_file(b"x" * 700)
    disk.write(handle, 600, [b"y" * 500])
    assert disk.durable_bytes(PATH, 600, 500) == b"x" * 100
    assert disk.durable_bytes(PATH, 700, 500) == b""
    assert disk.durable_bytes("/f/nothing", 0, 1) == b""
    disk.flush(handle)
    assert disk.durable_bytes(PATH, 600, 900) == b"y" * 500
