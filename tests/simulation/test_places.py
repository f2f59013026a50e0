"""Where entries lie on a medium, and whether they still read as they were written."""

from __future__ import annotations

from itertools import repeat
from random import Random

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from actors.simulation.disk.media_faults import change_content
from actors.simulation.faults.script import RotPlace
from actors.simulation.oracle.durability import DiskDurability
from logstore.limits import SECTOR_BYTES
from tests.crash.storage_trial import FOLDER, StorageTrial

NODE = 1
FIRST_SECTOR = 4096 // SECTOR_BYTES


class Stage:
    """Nine entries of one sector each, eight to a segment, all known to be flushed."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.is_excused = False
        self.durability = DiskDurability(
            lambda _: self.disk, lambda _: FOLDER, lambda _: self.is_excused
        )
        self.trial = StorageTrial(self.disk)
        self.trial.create_log()
        for _ in range(9):
            self.trial.commit(1, [8])
        self.tell()

    def tell(self) -> None:
        for index, chain in self.trial.acknowledged.items():
            assert self.durability.has_entry(NODE, index, chain)

    def rot(self, path: str, entry: int, content: bytes = b"rot") -> None:
        """The sector of an entry of the segment, counted from 0."""
        self.is_excused = True
        self.disk.damage(f"{FOLDER}/{path}", FIRST_SECTOR + entry, content)
        self.durability.disk_changed(NODE)

    def held(self) -> list[tuple[int, bool, bool, bool]]:
        self.durability.started(NODE)
        return [
            (held.index, held.is_record_whole, held.is_frame_whole, held.is_read_at_start)
            for held in self.durability.held_at_start(NODE)
        ]


OLD, NEW = "0000000000000001", "0000000000000002"


def test_a_disk_that_is_whole_has_no_damage() -> None:
    stage = Stage()
    assert stage.durability.places(NODE).damaged() == []
    assert stage.held() == []
    stage.is_excused = True
    assert stage.held() == [(index, True, True, index == 9) for index in range(1, 10)]


def test_each_half_of_an_entry_is_judged_by_itself() -> None:
    stage = Stage()
    stage.rot(f"{OLD}.data", 2)
    stage.rot(f"{NEW}.raft", 0)
    assert stage.durability.places(NODE).damaged() == [3, 9]
    damaged = [each for each in stage.held() if not (each[1] and each[2])]
    assert damaged == [(3, True, False, False), (9, False, True, True)]


def test_nothing_is_known_of_a_sector_that_is_still_to_be_written() -> None:
    """A sound copy of it is in the page cache, and lands before a start reads the medium."""
    stage = Stage()
    handle = stage.disk.open_write(f"{FOLDER}/{NEW}.raft")
    stage.disk.write(handle, (FIRST_SECTOR + 1) * SECTOR_BYTES - 8, [b"the next"])
    stage.rot(f"{OLD}.data", 2)
    stage.rot(f"{NEW}.raft", 0)
    assert [index for index, *_ in stage.held()] == list(range(1, 9))
    stage.disk.flush(handle)
    assert [index for index, *_ in stage.held()] == list(range(1, 10))


def test_nothing_is_known_of_what_only_the_page_cache_has_with_damage() -> None:
    """The medium took a sector away, and a second fault gave it back: a reader sees the cache."""
    stage = Stage()
    whole = stage.disk.durable_bytes(f"{FOLDER}/{NEW}.raft", FIRST_SECTOR * SECTOR_BYTES, 512)
    stage.rot(f"{NEW}.raft", 0)
    file = stage.disk.file_named(f"{FOLDER}/{NEW}.raft")
    change_content(file, FIRST_SECTOR, whole, is_cached_too=False)
    assert [index for index, *_ in stage.held()] == list(range(1, 9))
    file.drop_cache()
    assert [index for index, *_ in stage.held()] == list(range(1, 10))


def test_the_records_of_one_sector_rot_together() -> None:
    stage = Stage()
    stage.disk.set_unreadable(f"{FOLDER}/{OLD}.raft", FIRST_SECTOR)
    assert stage.durability.places(NODE).damaged() == [1, 2, 3, 4]


def test_zeros_that_the_device_refuses_may_be_called_damaged_or_not() -> None:
    stage = Stage()
    stage.trial._bodies = repeat(0)
    stage.trial.commit(1, [SECTOR_BYTES])
    stage.tell()
    stage.is_excused = True
    stage.disk.set_unreadable(f"{FOLDER}/{NEW}.data", FIRST_SECTOR + 2)
    assert [index for index, *_ in stage.held()] == list(range(1, 10))
    stage.disk.set_unreadable(f"{FOLDER}/{NEW}.data", FIRST_SECTOR + 1)
    assert stage.held()[-1] == (10, True, False, True)


def test_bytes_after_a_frame_may_rot() -> None:
    stage = Stage()
    whole = stage.disk.durable_bytes(f"{FOLDER}/{OLD}.data", 4096, SECTOR_BYTES)
    stage.rot(f"{OLD}.data", 0, whole[:-1] + b"x")
    assert stage.durability.places(NODE).damaged() == []


def test_what_recovery_writes_anew_is_whole_again() -> None:
    stage = Stage()
    stage.rot(f"{NEW}.raft", 0)
    stage.trial.restart()
    assert stage.durability.places(NODE).damaged() == []


def test_what_was_rotten_when_it_was_looked_at_is_not_taken_for_what_was_written() -> None:
    stage = Stage()
    stage.trial.commit(1, [8])
    stage.rot(f"{NEW}.data", 1)
    stage.tell()
    assert stage.durability.places(NODE).damaged() == []
    assert [each[0] for each in stage.held()] == list(range(1, 10))


def test_what_is_truncated_is_no_longer_held() -> None:
    stage = Stage()
    stage.is_excused = True
    stage.trial.truncate(9)
    stage.durability.truncated(NODE, 9)
    assert [each[0] for each in stage.held()] == list(range(1, 9))
    assert all(not each[3] for each in stage.held())


def test_nothing_is_held_once_the_medium_has_changed() -> None:
    stage = Stage()
    stage.is_excused = True
    assert len(stage.held()) == 9
    stage.rot(f"{OLD}.data", 2)
    assert list(stage.durability.held_at_start(NODE)) == []


def test_of_a_device_that_owes_a_flush_nothing_is_held() -> None:
    stage = Stage()
    stage.is_excused = True
    stage.disk.begin_lying()
    stage.trial.commit(1, [8])
    assert stage.held() == []


# --- what must not rot ---


def proved(stage: Stage) -> tuple[bool, set[tuple[str, int]]]:
    """(is a loss unprovable, what must not rot: file and sector after the header block)."""
    places = stage.durability.places(NODE)
    needed = {
        (path.removeprefix(f"{FOLDER}/"), at - FIRST_SECTOR)
        for path, at in places.sectors_to_spare()
    }
    return places.has_unprovable_loss(), needed


def test_a_whole_frame_needs_no_record_and_a_whole_record_no_frame() -> None:
    stage = Stage()
    assert proved(stage) == (False, set())
    stage.rot(f"{NEW}.raft", 0)
    assert proved(stage) == (False, {(f"{NEW}.data", 0)})
    stage = Stage()
    stage.rot(f"{NEW}.data", 0)
    assert proved(stage) == (False, {(f"{NEW}.raft", 0)})


def test_the_loss_of_both_halves_of_the_last_entries_is_unprovable() -> None:
    stage = Stage()
    stage.rot(f"{NEW}.data", 0)
    stage.rot(f"{NEW}.raft", 0)
    assert proved(stage)[0]
    stage.trial.restart()
    assert stage.trial.recovered.last.header.index == 8


def test_a_later_record_proves_an_entry_that_has_lost_both_halves() -> None:
    stage = Stage()
    for _ in range(4):
        stage.trial.commit(1, [8])
    stage.tell()
    stage.rot(f"{NEW}.data", 1)
    assert proved(stage) == (False, set())
    stage.rot(f"{NEW}.raft", 0)
    assert proved(stage) == (False, {(f"{NEW}.raft", 1)})
    stage.trial.restart()
    assert [(each.first, each.last) for each in stage.trial.recovered.faulty] == [(10, 12)]


# --- where rot is aimed ---


def aimed(stage: Stage, place: RotPlace, amount: int) -> set[tuple[str, int]]:
    """(file, sector after the header block) of everything that 40 draws aim at."""
    places = stage.durability.places(NODE)
    return {
        (extent.path.removeprefix(f"{FOLDER}/"), extent.start // SECTOR_BYTES - FIRST_SECTOR)
        for seed in range(40)
        for extent in places.aim(place, Random(seed), amount)
    }


@pytest.mark.parametrize(
    ("place", "amount", "hit"),
    [
        (RotPlace.FRAME, 2, {(f"{NEW}.data", 1), (f"{NEW}.data", 2)}),
        (RotPlace.FRAMES, 1, {(f"{NEW}.data", 2)}),
        (RotPlace.RECORD, 1, {(f"{NEW}.raft", 0)}),
        (RotPlace.ENTRY, 2, {(f"{NEW}.data", 0), (f"{NEW}.raft", 0)}),
        (RotPlace.ENTRY, 3, set()),
        (RotPlace.HEADER, 1, {(f"{NEW}.data", -8), (f"{NEW}.raft", -8)}),
    ],
)
def test_rot_is_aimed_at_the_newest_segment(
    place: RotPlace, amount: int, hit: set[tuple[str, int]]
) -> None:
    stage = Stage()
    for _ in range(2):
        stage.trial.commit(1, [8])
    stage.tell()
    assert aimed(stage, place, amount) == hit


def test_rot_of_frames_strikes_all_of_the_newest_at_once() -> None:
    stage = Stage()
    for _ in range(2):
        stage.trial.commit(1, [8])
    stage.tell()
    extents = stage.durability.places(NODE).aim(RotPlace.FRAMES, Random(1), 2)
    sectors = [extent.start // SECTOR_BYTES - FIRST_SECTOR for extent in extents]
    assert sectors == [1, 2]


def test_headers_of_older_segments_are_aimed_at_too() -> None:
    files = {f"{number}.{role}" for number in (OLD, NEW) for role in ("data", "raft")}
    assert aimed(Stage(), RotPlace.HEADER, 2) == {(file, -8) for file in files}


def test_without_entries_nothing_is_aimed_at() -> None:
    durability = DiskDurability(lambda _: SimulatedDisk(), lambda _: FOLDER, lambda _: False)
    for place in RotPlace:
        assert durability.places(NODE).aim(place, Random(1), 2) == []
