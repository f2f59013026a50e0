"""Rot of the medium and failing calls: which bytes change, and what is reported."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from actors.simulation.disk.media_faults import RotKind
from actors.simulation.disk.view import DiskView
from logstore.errors import CorruptData, DiskFull, WriteFailed
from logstore.limits import SECTOR_BYTES
from tests.crash.crash_states import crash_states

SECTORS = 6
CONTENT = b"".join(bytes([n]) * SECTOR_BYTES for n in range(1, SECTORS + 1))


def free(cost_ns: int) -> None:
    """A process whose calls cost nothing."""


def everywhere(path: str) -> bool:
    return True


def one_file(*, keep_history: bool = False) -> tuple[SimulatedDisk, DiskView, int]:
    """A disk with a durable file /f/a, each sector of another byte."""
    disk = SimulatedDisk(keep_history=keep_history)
    view = disk.view(free)
    handle = view.create("/f/a")
    view.write(handle, 0, [CONTENT])
    view.flush(handle)
    view.sync_folder("/f")
    return disk, view, handle


def sectors(content: bytes) -> list[bytes]:
    return [content[at : at + SECTOR_BYTES] for at in range(0, len(content), SECTOR_BYTES)]


def changed(before: bytes, after: bytes) -> list[int]:
    pairs = zip(sectors(before), sectors(after), strict=True)
    return [number for number, (old, new) in enumerate(pairs) if old != new]


def bits_apart(one: bytes, other: bytes) -> int:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).bit_count()


def is_one_bit(old: bytes, new: bytes) -> bool:
    return bits_apart(old, new) == 1


def is_zeros(old: bytes, new: bytes) -> bool:
    return new == bytes(SECTOR_BYTES) and old != new


def is_garbage(old: bytes, new: bytes) -> bool:
    return bits_apart(old, new) > SECTOR_BYTES and len(set(new)) > 100


SHAPES: dict[RotKind, Callable[[bytes, bytes], bool]] = {
    RotKind.FLIPPED_BIT: is_one_bit,
    RotKind.ZEROED: is_zeros,
    RotKind.GARBAGE: is_garbage,
}


@pytest.mark.parametrize("kind", SHAPES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("is_cached_too", [True, False])
def test_rot_changes_one_sector_as_its_kind_says(kind: RotKind, is_cached_too: bool) -> None:
    hits = set()
    for seed in range(40):
        disk, view, handle = one_file()
        hit = disk.rot(Random(seed), kind, everywhere, is_cached_too=is_cached_too)
        assert hit is not None
        path, number = hit
        after = disk.durable_bytes(path, 0, len(CONTENT))
        assert changed(CONTENT, after) == [number]
        assert SHAPES[kind](sectors(CONTENT)[number], sectors(after)[number])
        assert view.read(handle, 0, len(CONTENT)) == (after if is_cached_too else CONTENT)
        assert disk.rotten() == [hit]
        hits.add(number)
    assert hits == set(range(SECTORS))


@pytest.mark.parametrize("show", ["drop_cache", "release_cache", "power_cut"])
def test_a_good_cached_copy_is_lost_with_the_cache(show: str) -> None:
    disk, view, handle = one_file()
    disk.rot(Random(1), RotKind.ZEROED, everywhere, is_cached_too=False)
    assert view.read(handle, 0, len(CONTENT)) == CONTENT
    if show == "drop_cache":
        view.drop_cache(handle)
    elif show == "release_cache":
        view.release_cache(handle, len(CONTENT))
    else:
        view.kill()
        disk.power_cut(Random(1), garble=False)
        view = disk.view(free)
        handle = view.open_read("/f/a")
    after = view.read(handle, 0, len(CONTENT))
    assert len(changed(CONTENT, after)) == 1
    assert after == disk.durable_bytes("/f/a", 0, len(CONTENT))


def test_a_released_cache_keeps_the_good_copies_behind_its_end() -> None:
    disk, view, handle = one_file()
    hit = disk.rot(Random(1), RotKind.ZEROED, everywhere, is_cached_too=False)
    assert hit is not None
    view.release_cache(handle, hit[1] * SECTOR_BYTES)
    assert view.read(handle, 0, len(CONTENT)) == CONTENT
    view.release_cache(handle, (hit[1] + 1) * SECTOR_BYTES)
    assert changed(CONTENT, view.read(handle, 0, len(CONTENT))) == [hit[1]]


def test_a_misdirected_write_swaps_two_sectors_and_names_both() -> None:
    for seed in range(40):
        disk, view, handle = one_file()
        hit = disk.rot(Random(seed), RotKind.MISDIRECTED, everywhere, is_cached_too=True)
        assert hit is not None
        after = view.read(handle, 0, len(CONTENT))
        one, other = changed(CONTENT, after)
        assert hit[1] in (one, other)
        assert sectors(after)[one] == sectors(CONTENT)[other]
        assert sectors(after)[other] == sectors(CONTENT)[one]
        assert disk.rotten() == [("/f/a", one), ("/f/a", other)]


def test_sectors_of_two_files_may_be_swapped() -> None:
    paths = set()
    for seed in range(40):
        disk, view, _ = one_file()
        other = view.create("/f/b")
        view.write(other, 0, [b"B" * SECTOR_BYTES])
        view.flush(other)
        view.sync_folder("/f")
        disk.rot(Random(seed), RotKind.MISDIRECTED, everywhere, is_cached_too=True)
        paths.add(tuple(path for path, _ in disk.rotten()))
    assert paths == {("/f/a", "/f/a"), ("/f/a", "/f/b")}


def test_a_stale_sector_is_one_the_medium_had_before() -> None:
    disk, view, handle = one_file(keep_history=True)
    for version in (b"v", b"w", b"x"):
        view.write(handle, 2 * SECTOR_BYTES, [version * SECTOR_BYTES])
        view.flush(handle)
    view.write(handle, 2 * SECTOR_BYTES, [b"y" * SECTOR_BYTES])
    seen = set()
    for seed in range(40):
        fork = disk.fork()
        fork.kill_process()
        fork.power_cut(Random(0), garble=False)
        hit = fork.rot(Random(seed), RotKind.STALE, everywhere, is_cached_too=True)
        assert hit is not None
        seen.add((hit[1], fork.durable_bytes("/f/a", hit[1] * SECTOR_BYTES, 1)))
    assert {each for each in seen if each[0] == 2} == {(2, b"v"), (2, b"w")}
    assert {number for number, _ in seen} == set(range(SECTORS))
    assert {content for number, content in seen if number != 2} == {b"\0"}


def test_the_same_bytes_again_are_not_stale() -> None:
    disk = SimulatedDisk(keep_history=True)
    handle = disk.create("/f/a")
    disk.sync_folder("/f")
    for _ in range(3):
        disk.write(handle, 0, [bytes(SECTOR_BYTES)])
        disk.flush(handle)
    assert disk.rot(Random(1), RotKind.STALE, everywhere, is_cached_too=True) is None


def test_what_a_lie_replaced_can_be_stale() -> None:
    disk, view, handle = one_file(keep_history=True)
    disk.begin_lying()
    view.write(handle, 0, [b"new"])
    view.flush(handle)
    disk.end_lying()
    view.flush(handle)
    seen = set()
    for seed in range(60):
        fork = disk.fork()
        if fork.rot(Random(seed), RotKind.STALE, everywhere, is_cached_too=True) == ("/f/a", 0):
            seen.add(fork.durable_bytes("/f/a", 0, 3))
    assert seen == {bytes(3), CONTENT[:3]}


def test_rot_beyond_a_cut_is_gone_with_it() -> None:
    for kind in (RotKind.GARBAGE, RotKind.UNREADABLE):
        disk, view, handle = one_file()
        seed = 0
        while len(disk.rotten()) < SECTORS:
            disk.rot(Random(seed), kind, everywhere, is_cached_too=False)
            seed += 1
        view.truncate(handle, 100)
        view.drop_cache(handle)
        view.allocate(handle, len(CONTENT))
        rest = len(CONTENT) - SECTOR_BYTES
        if kind is RotKind.GARBAGE:
            assert view.read(handle, SECTOR_BYTES, rest) == bytes(rest)
        view.flush(handle)
        assert disk.rotten() == []
        assert view.read(handle, SECTOR_BYTES, rest) == bytes(rest)


def test_without_history_nothing_is_stale() -> None:
    disk, view, handle = one_file()
    view.write(handle, 0, [b"new"])
    view.flush(handle)
    assert disk.rot(Random(1), RotKind.STALE, everywhere, is_cached_too=True) is None
    assert disk.rotten() == []


@pytest.mark.parametrize("is_cached_too", [True, False])
def test_an_unreadable_sector_is_an_error_until_it_is_written(is_cached_too: bool) -> None:
    disk, view, handle = one_file()
    hit = disk.rot(Random(3), RotKind.UNREADABLE, everywhere, is_cached_too=is_cached_too)
    assert hit is not None
    start = hit[1] * SECTOR_BYTES
    if not is_cached_too:
        assert view.read(handle, 0, len(CONTENT)) == CONTENT
        view.drop_cache(handle)
    with pytest.raises(CorruptData, match=f"at byte {start}"):
        view.read(handle, 0, len(CONTENT))
    assert view.read(handle, 0, start) == CONTENT[:start]
    view.write(handle, start, [b"n" * SECTOR_BYTES])
    assert view.read(handle, start, SECTOR_BYTES) == b"n" * SECTOR_BYTES
    view.flush(handle)
    view.drop_cache(handle)
    assert view.read(handle, start, SECTOR_BYTES) == b"n" * SECTOR_BYTES
    assert disk.rotten() == []


def test_a_sector_stays_unreadable_where_the_write_over_it_was_dropped() -> None:
    outcomes = set()
    for seed in range(40):
        disk, view, handle = one_file()
        hit = disk.rot(Random(3), RotKind.UNREADABLE, everywhere, is_cached_too=True)
        assert hit is not None
        view.write(handle, hit[1] * SECTOR_BYTES, [b"n" * SECTOR_BYTES])
        view.kill()
        disk.power_cut(Random(seed), garble=False)
        after = disk.view(free)
        try:
            outcomes.add(after.read(after.open_read("/f/a"), hit[1] * SECTOR_BYTES, 1))
        except CorruptData:
            outcomes.add(b"unreadable")
    assert outcomes == {b"n", b"unreadable"}


def test_crash_states_have_a_sector_readable_that_was_written_again() -> None:
    disk, view, handle = one_file()
    disk.set_unreadable("/f/a", 2)
    view.write(handle, 2 * SECTOR_BYTES, [b"n" * SECTOR_BYTES])
    dropped, kept = crash_states(disk, states_max=10, random=Random(1))
    with pytest.raises(CorruptData):
        dropped.read(dropped.open_read("/f/a"), 2 * SECTOR_BYTES, 1)
    assert kept.read(kept.open_read("/f/a"), 2 * SECTOR_BYTES, 1) == b"n"


@pytest.mark.parametrize("kind", RotKind, ids=lambda kind: kind.name)
def test_only_durable_sectors_of_wanted_files_are_hit(kind: RotKind) -> None:
    disk, view, handle = one_file(keep_history=True)
    other = view.create("/f/b")
    view.write(other, 0, [b"B" * 3 * SECTOR_BYTES])
    view.flush(other)
    view.write(handle, 0, [b"unflushed"])
    for seed in range(30):
        fork = disk.fork()
        hit = fork.rot(Random(seed), kind, everywhere, is_cached_too=True)
        assert hit is not None
        assert hit[0] == "/f/a"  # the name of /f/b is not durable
        assert hit[1] > 0
        assert fork.rot(Random(seed), kind, lambda path: path == "/f/b", is_cached_too=True) is None
    view.sync_folder("/f")
    found = disk.rot(Random(1), RotKind.ZEROED, lambda p: p.endswith("b"), is_cached_too=True)
    assert found is not None
    assert found[0] == "/f/b"


def test_an_empty_disk_has_nothing_to_rot() -> None:
    for kind in RotKind:
        assert SimulatedDisk().rot(Random(1), kind, everywhere, is_cached_too=True) is None


def test_a_flipped_bit_lies_within_the_file() -> None:
    for seed in range(60):
        disk = SimulatedDisk()
        handle = disk.create("/f/a")
        disk.write(handle, 0, [b"ab"])
        disk.flush(handle)
        disk.sync_folder("/f")
        disk.rot(Random(seed), RotKind.FLIPPED_BIT, everywhere, is_cached_too=True)
        assert bits_apart(disk.read(handle, 0, 2), b"ab") == 1


def test_rot_can_be_kept_within_some_bytes() -> None:
    within = range(2 * SECTOR_BYTES - 3, 2 * SECTOR_BYTES + 5)
    flipped = set()
    for seed in range(60):
        disk, view, handle = one_file()
        hit = disk.rot(
            Random(seed), RotKind.FLIPPED_BIT, everywhere, is_cached_too=True, within=within
        )
        after = view.read(handle, 0, len(CONTENT))
        (at,) = [place for place in range(len(CONTENT)) if after[place] != CONTENT[place]]
        assert hit == ("/f/a", at // SECTOR_BYTES)
        flipped.add(at)
    assert flipped == set(within)
    beyond = range(len(CONTENT) + SECTOR_BYTES, len(CONTENT) + 2 * SECTOR_BYTES)
    disk, _, _ = one_file()
    rotted = disk.rot(Random(1), RotKind.ZEROED, everywhere, is_cached_too=True, within=beyond)
    assert rotted is None


def test_writing_a_rotten_sector_heals_it() -> None:
    disk, view, handle = one_file()
    hit = disk.rot(Random(1), RotKind.GARBAGE, everywhere, is_cached_too=False)
    assert hit is not None
    view.write(handle, 0, [CONTENT])
    assert disk.rotten() == [hit]
    view.flush(handle)
    assert disk.rotten() == []
    view.drop_cache(handle)
    assert view.read(handle, 0, len(CONTENT)) == CONTENT


def test_the_same_random_rots_the_same() -> None:
    def rotted(kind: RotKind) -> object:
        disk, _, _ = one_file(keep_history=True)
        hit = disk.rot(Random(11), kind, everywhere, is_cached_too=True)
        return hit, disk.fingerprint()

    for kind in RotKind:
        assert rotted(kind) == rotted(kind)


def test_a_failing_read_fails_once_for_the_path_it_was_meant_for() -> None:
    """FAULTS D26."""
    disk, view, handle = one_file()
    disk.fail_next("read", "/b")
    assert view.read(handle, 0, 4) == CONTENT[:4]
    disk.fail_next("read", "/a")
    with pytest.raises(CorruptData, match="I/O error"):
        view.read(handle, 0, 4)
    assert view.read(handle, 0, 4) == CONTENT[:4]
    assert disk.failing == [("read", "/b")]


def test_a_failing_write_writes_nothing_and_fails_once() -> None:
    disk, view, handle = one_file()
    disk.fail_next("write", "/a")
    with pytest.raises(WriteFailed, match="I/O error"):
        view.write(handle, 0, [b"new"])
    assert view.read(handle, 0, len(CONTENT)) == CONTENT
    view.write(handle, 0, [b"new"])
    assert view.read(handle, 0, 3) == b"new"


def test_a_failing_flush_fails_once_for_whichever_view_comes_first() -> None:
    """FAULTS D24, D25: the next flush succeeds and makes nothing durable."""
    disk, view, handle = one_file()
    other = disk.view(free)
    view.write(handle, 0, [b"new"])
    disk.fail_next("flush", ".a")
    disk.fail_next("flush", "/a")
    with pytest.raises(WriteFailed, match="I/O error"):
        other.flush(other.open_write("/f/a"))
    view.flush(handle)
    assert disk.failing == [("flush", ".a")]
    assert view.read(handle, 0, 3) == b"new"
    assert disk.durable_bytes("/f/a", 0, 3) == CONTENT[:3]
    view.drop_cache(handle)
    assert view.read(handle, 0, 3) == CONTENT[:3]


def test_a_filled_disk_takes_no_more_until_it_is_freed() -> None:
    """FAULTS D27."""
    disk, view, handle = one_file()
    disk.fill()
    with pytest.raises(DiskFull):
        view.create("/f/b")
    with pytest.raises(DiskFull):
        view.allocate(handle, len(CONTENT) + 1)
    with pytest.raises(WriteFailed):
        view.write(handle, len(CONTENT), [b"x"])
    view.write(handle, 0, [b"inside"])
    assert view.read(handle, 0, len(CONTENT) + 9) == b"inside" + CONTENT[6:]
    disk.free_space()
    view.allocate(handle, len(CONTENT) + 1)
    assert view.size(handle) == len(CONTENT) + 1
    assert view.list_folder("/f") == ["a"]
