"""The contract of the Disk port, run on the real disk and on the simulated one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import FolderRefused, WriteFailed
from logstore.storage.disk import VIEWS_MAX, Disk, RealDisk


class Place:
    """A disk and a folder on it; `other()` is another process's view of the same disk."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self.disk = disk
        self.folder = folder

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def other(self) -> Disk:
        return RealDisk() if isinstance(self.disk, RealDisk) else self.disk


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "real":
        made = Place(RealDisk(), str(tmp_path / "folder"))
    else:
        made = Place(SimulatedDisk(), "/folder")
    made.disk.make_folder(made.folder)
    yield made
    made.disk.unlock_folder(made.folder)


def test_what_was_written_is_read_back_at_its_offset(place: Place) -> None:
    handle = place.disk.create(place.path("a"))
    assert (
        place.disk.write(handle, 700, [b"one", memoryview(b"two"), b"", bytearray(b"three")]) == 11
    )
    assert place.disk.read(handle, 698, 13) == b"\0\0onetwothree"
    assert place.disk.size(handle) == 711
    place.disk.close(handle)


def test_more_views_than_one_system_call_takes_are_all_written(place: Place) -> None:
    handle = place.disk.create(place.path("a"))
    views = [index.to_bytes(2, "little") for index in range(2 * VIEWS_MAX + 5)]
    assert place.disk.write(handle, 3, views) == 2 * len(views)
    assert place.disk.read(handle, 3, 2 * len(views)) == b"".join(views)
    place.disk.close(handle)


def test_a_read_is_short_only_at_the_end_of_the_file(place: Place) -> None:
    handle = place.disk.create(place.path("a"))
    place.disk.write(handle, 0, [b"x" * 1000])
    assert place.disk.read(handle, 990, 100) == b"x" * 10
    assert place.disk.read(handle, 1000, 1) == b""
    assert place.disk.read(handle, 5000, 1) == b""
    place.disk.close(handle)


def test_allocated_space_reads_as_zeros_and_keeps_what_was_there(place: Place) -> None:
    handle = place.disk.create(place.path("a"))
    place.disk.write(handle, 0, [b"abc"])
    place.disk.allocate(handle, 3000)
    assert place.disk.size(handle) == 3000
    assert place.disk.read(handle, 0, 3000) == b"abc" + bytes(2997)
    place.disk.allocate(handle, 100)
    assert place.disk.size(handle) == 3000
    place.disk.close(handle)


def test_a_file_that_was_cut_and_grown_again_has_zeros_there(place: Place) -> None:
    handle = place.disk.create(place.path("a"))
    place.disk.write(handle, 0, [b"y" * 2000])
    place.disk.flush(handle)
    place.disk.truncate(handle, 700)
    assert place.disk.read(handle, 690, 100) == b"y" * 10
    place.disk.truncate(handle, 2000)
    place.disk.flush(handle)
    assert place.disk.read(handle, 690, 20) == b"y" * 10 + bytes(10)
    place.disk.close(handle)


def test_names_are_listed_in_order_and_a_missing_folder_is_empty(place: Place) -> None:
    for name in ("b", "a", "c"):
        place.disk.close(place.disk.create(place.path(name)))
    place.disk.sync_folder(place.folder)
    assert place.disk.list_folder(place.folder) == ["a", "b", "c"]
    assert place.disk.list_folder(place.path("nothing")) == []


def test_creating_a_name_twice_is_refused(place: Place) -> None:
    place.disk.close(place.disk.create(place.path("a")))
    with pytest.raises(WriteFailed):
        place.disk.create(place.path("a"))


def test_opening_what_is_not_there_says_so(place: Place) -> None:
    for open_it in (place.disk.open_read, place.disk.open_write):
        with pytest.raises(FileNotFoundError):
            open_it(place.path("nothing"))


def test_an_unlinked_file_is_still_read_through_its_handle(place: Place) -> None:
    handle = place.disk.create(place.path("a"))
    place.disk.write(handle, 0, [b"still here"])
    place.disk.unlink(place.path("a"))
    place.disk.unlink(place.path("a"))
    assert place.disk.list_folder(place.folder) == []
    assert place.disk.read(handle, 0, 10) == b"still here"
    place.disk.close(handle)


def test_two_handles_of_one_file_see_the_same_bytes(place: Place) -> None:
    writing = place.disk.create(place.path("a"))
    reading = place.disk.open_read(place.path("a"))
    place.disk.write(writing, 0, [b"shared"])
    assert place.disk.read(reading, 0, 6) == b"shared"
    place.disk.close(writing)
    place.disk.close(reading)


def test_dropping_the_cache_loses_nothing_whether_flushed_or_not(place: Place) -> None:
    handle = place.disk.create(place.path("a"))
    place.disk.write(handle, 0, [b"flushed"])
    place.disk.flush(handle)
    place.disk.write(handle, 600, [b"dirty"])
    place.disk.drop_cache(handle)
    place.disk.release_cache(handle, 512)
    assert place.disk.read(handle, 0, 7) == b"flushed"
    assert place.disk.read(handle, 600, 5) == b"dirty"
    place.disk.close(handle)


def test_a_locked_folder_is_refused_to_everyone_else_until_it_is_unlocked(place: Place) -> None:
    """SAFETY M2."""
    place.disk.lock_folder(place.folder)
    other = place.other()
    with pytest.raises(FolderRefused, match="in use"):
        other.lock_folder(place.folder)
    place.disk.unlock_folder(place.folder)
    other.lock_folder(place.folder)
    other.unlock_folder(place.folder)
