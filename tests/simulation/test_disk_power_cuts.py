"""Power cuts in place: what is kept, dropped and garbled, and that nothing else changes."""

from __future__ import annotations

from random import Random

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import DiskFull, InvariantViolated
from logstore.limits import SECTOR_BYTES
from tests.crash.crash_states import crash_states

SEEDS = 300


def free(cost_ns: int) -> None:
    """A process whose calls cost nothing."""


def durable_file(disk: SimulatedDisk, path: str, content: bytes) -> int:
    handle = disk.create(path)
    disk.write(handle, 0, [content])
    disk.flush(handle)
    disk.sync_folder("/f")
    return handle


def read(disk: SimulatedDisk, path: str) -> bytes | None:
    """The whole file, or None."""
    if path not in disk.paths():
        return None
    view = disk.view(free)
    handle = view.open_read(path)
    content = view.read(handle, 0, view.size(handle))
    view.kill()
    return content


def after_cuts(disk: SimulatedDisk, path: str, *, garble: bool = False) -> list[bytes | None]:
    """The file after a power cut of every seed, each on a fork of this moment."""
    seen = []
    for seed in range(SEEDS):
        fork = disk.fork()
        fork.kill_process()
        fork.power_cut(Random(seed), garble=garble)
        seen.append(read(fork, path))
    return seen


def test_each_unflushed_sector_is_kept_or_dropped_by_itself() -> None:
    disk = SimulatedDisk()
    handle = durable_file(disk, "/f/a", b"." * 3 * SECTOR_BYTES)
    disk.write(handle, 0, [b"".join(bytes([n]) * SECTOR_BYTES for n in b"ABC")])
    seen = {content[::SECTOR_BYTES] for content in after_cuts(disk, "/f/a") if content}
    assert seen == {b"...", b"A..", b".B.", b"..C", b"AB.", b"A.C", b".BC", b"ABC"}


def test_a_sector_is_kept_in_any_version_since_the_flush() -> None:
    disk = SimulatedDisk()
    handle = durable_file(disk, "/f/a", b"0")
    for version in (b"1", b"2", b"3"):
        disk.write(handle, 0, [version])
    assert set(after_cuts(disk, "/f/a")) == {b"0", b"1", b"2", b"3"}
    disk.flush(handle)
    assert set(after_cuts(disk, "/f/a")) == {b"3"}


def test_only_unflushed_sectors_are_garbled_and_only_where_asked() -> None:
    disk = SimulatedDisk()
    handle = durable_file(disk, "/f/a", b"." * 3 * SECTOR_BYTES)
    disk.write(handle, SECTOR_BYTES, [b"B" * SECTOR_BYTES])
    plain = {b"." * SECTOR_BYTES, b"B" * SECTOR_BYTES}
    garbled = 0
    for content in after_cuts(disk, "/f/a", garble=True):
        assert content is not None
        assert content[:SECTOR_BYTES] == content[2 * SECTOR_BYTES :] == b"." * SECTOR_BYTES
        garbled += content[SECTOR_BYTES : 2 * SECTOR_BYTES] not in plain
    assert 0 < garbled < SEEDS / 2
    assert {(c or b"")[SECTOR_BYTES : 2 * SECTOR_BYTES] for c in after_cuts(disk, "/f/a")} == plain


def test_a_power_cut_returns_what_it_garbled() -> None:
    disk = SimulatedDisk()
    handle = durable_file(disk, "/f/a", b"." * SECTOR_BYTES)
    disk.write(handle, 0, [b"B" * SECTOR_BYTES])
    told = []
    for seed in range(SEEDS):
        fork = disk.fork()
        fork.kill_process()
        garbled = fork.power_cut(Random(seed), garble=True)
        is_whole = read(fork, "/f/a") in (b"." * SECTOR_BYTES, b"B" * SECTOR_BYTES)
        assert garbled == ([] if is_whole else [("/f/a", 0)])
        assert fork.rotten() == garbled
        told.extend(garbled)
    assert told


def test_sizes_keep_a_prefix_of_their_changes() -> None:
    disk = SimulatedDisk()
    handle = durable_file(disk, "/f/a", b"x" * 1_000)
    disk.truncate(handle, 600)
    disk.allocate(handle, 2_000)
    assert set(after_cuts(disk, "/f/a")) == {
        b"x" * 1_000, b"x" * 600, (b"x" * 600).ljust(2_000, b"\0"),
    }  # fmt: skip


def test_names_keep_a_prefix_of_their_changes() -> None:
    disk = SimulatedDisk()
    durable_file(disk, "/f/a", b"old")
    disk.unlink("/f/a")
    new = disk.create("/f/a")
    disk.write(new, 0, [b"new"])
    disk.flush(new)
    assert set(after_cuts(disk, "/f/a")) == {b"old", None, b"new"}
    disk.sync_folder("/f")
    assert set(after_cuts(disk, "/f/a")) == {b"new"}


def test_a_stuck_sector_is_kept_or_dropped() -> None:
    """SAFETY F5, FAULTS D25."""
    disk = SimulatedDisk()
    handle = durable_file(disk, "/f/a", b"0")
    disk.write(handle, 0, [b"1"])
    disk.fail_next("flush", "/a")
    with pytest.raises(Exception, match="injected"):
        disk.flush(handle)
    disk.flush(handle)
    assert set(after_cuts(disk, "/f/a")) == {b"0", b"1"}


def test_what_a_failed_flush_left_never_comes_back_over_a_later_good_flush() -> None:
    disk = SimulatedDisk()
    handle = durable_file(disk, "/f/a", b"0")
    disk.write(handle, 0, [b"1"])
    disk.fail_next("flush", "/a")
    with pytest.raises(Exception, match="injected"):
        disk.flush(handle)
    disk.write(handle, 0, [b"2"])
    disk.flush(handle)
    assert set(after_cuts(disk, "/f/a")) == {b"2"}
    states = crash_states(disk, states_max=100, random=Random(1))
    assert {read(state, "/f/a") for state in states} == {b"2"}


def test_a_flush_after_cutting_and_growing_keeps_what_was_written_then() -> None:
    disk = SimulatedDisk()
    handle = durable_file(disk, "/f/a", b"x" * 1_024)
    disk.truncate(handle, 520)
    disk.write(handle, 600, [b"new"])
    disk.flush(handle)
    expected = b"x" * 520 + bytes(80) + b"new"
    assert disk.durable_bytes("/f/a", 0, 2_000) == expected
    assert set(after_cuts(disk, "/f/a")) == {expected}


def test_all_and_nothing_occur_however_much_is_pending() -> None:
    disk = SimulatedDisk()
    size = 100 * SECTOR_BYTES
    handle = durable_file(disk, "/f/a", b"." * size)
    disk.write(handle, 0, [b"#" * size])
    seen = set(after_cuts(disk, "/f/a"))
    assert {b"." * size, b"#" * size} < seen
    assert len(seen) > 50


def test_a_power_cut_is_refused_while_a_process_lives() -> None:
    disk = SimulatedDisk()
    view = disk.view(free)
    with pytest.raises(InvariantViolated, match="process"):
        disk.power_cut(Random(1), garble=False)
    view.kill()
    handle = disk.create("/f/a")
    with pytest.raises(InvariantViolated, match="process"):
        disk.power_cut(Random(1), garble=False)
    disk.close(handle)
    disk.power_cut(Random(1), garble=False)
    assert disk.paths() in ([], ["/f/a"])


def test_the_cache_is_the_medium_after_a_power_cut() -> None:
    disk = SimulatedDisk()
    handle = durable_file(disk, "/f/a", b"." * 40 * SECTOR_BYTES)
    disk.write(handle, 0, [b"#" * 50 * SECTOR_BYTES])
    disk.kill_process()
    disk.power_cut(Random(5), garble=True)
    assert read(disk, "/f/a") == disk.durable_bytes("/f/a", 0, 50 * SECTOR_BYTES)
    assert len(read(disk, "/f/a") or b"") in (40 * SECTOR_BYTES, 50 * SECTOR_BYTES)
    assert disk.is_durable("/f/a", 0, 40 * SECTOR_BYTES)


def test_the_same_seed_leaves_the_same_disk() -> None:
    def left(seed: int) -> object:
        disk = SimulatedDisk()
        handle = durable_file(disk, "/f/a", b"." * 40 * SECTOR_BYTES)
        disk.write(handle, 0, [b"#" * 40 * SECTOR_BYTES])
        disk.create("/f/b")
        disk.kill_process()
        disk.power_cut(Random(seed), garble=True)
        return disk.fingerprint()

    assert left(1) == left(1)
    assert len({left(seed) for seed in range(20)}) > 5


def test_preallocation_and_a_power_cut_after_it_touch_no_sector() -> None:
    disk = SimulatedDisk()
    handle = disk.create("/f/a")
    disk.allocate(handle, 1 << 40)
    disk.flush(handle)
    disk.sync_folder("/f")
    disk.write(handle, 1 << 39, [b"x"])
    file = disk.file_named("/f/a")
    assert (len(file.sectors), len(file.durable), len(file.pending)) == (1, 0, 1)
    disk.kill_process()
    disk.power_cut(Random(1), garble=False)
    assert len(file.sectors) == len(file.durable) <= 1
    assert file.size == 1 << 40


def test_what_comes_back_on_a_full_disk_had_its_space_all_along() -> None:
    """A disk is filled after a file was cut, and the cut was not flushed: once the file is removed,
    there is room for one of its size (seed 667)."""
    disk = SimulatedDisk()
    handle = durable_file(disk, "/f/a", b"." * 4 * SECTOR_BYTES)
    disk.truncate(handle, SECTOR_BYTES)
    disk.fill()
    sizes = set()
    for seed in range(SEEDS):
        fork = disk.fork()
        fork.kill_process()
        fork.power_cut(Random(seed), garble=False)
        size = fork.used_bytes
        sizes.add(size)
        with pytest.raises(DiskFull):
            fork.create("/f/b")
        fork.unlink("/f/a")
        fork.allocate(fork.create("/f/b"), size)
    assert sizes == {SECTOR_BYTES, 4 * SECTOR_BYTES}
