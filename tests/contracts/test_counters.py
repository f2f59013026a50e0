"""Contract of the counters file: its writer, an inspector, and what is no counters file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from transport.counters import NAMED_BYTES_MAX, create_counters, open_counters, read_counters
from transport.errors import CountersInvalid, RegionUnavailable

NAMES = ("raft.loops", "ring.full", "größe")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "counters"


def set_slot(path: Path, slot: int, value: int) -> None:
    data = bytearray(path.read_bytes())
    data[8 * slot : 8 * slot + 8] = value.to_bytes(8, "little")
    path.write_bytes(data)


def test_what_the_writer_counts_others_read_by_name(path: Path) -> None:
    page = create_counters(path, NAMES, incarnation=4)
    assert read_counters(path) == {"raft.loops": 0, "ring.full": 0, "größe": 0}
    page.slots[0] += 5
    page[2] = (1 << 64) - 1
    assert page[2] == (1 << 64) - 1
    assert read_counters(path) == {"raft.loops": 5, "ring.full": 0, "größe": (1 << 64) - 1}
    page.close()
    assert read_counters(path)["raft.loops"] == 5


def test_another_process_attaches_by_path_or_descriptor(path: Path) -> None:
    page = create_counters(path, NAMES, incarnation=4)
    by_path = open_counters(path)
    fd = os.open(path, os.O_RDWR)
    by_descriptor = open_counters(fd)
    os.close(fd)
    by_path[1] = 17
    assert page[1] == by_descriptor[1] == 17
    assert by_path.names == NAMES
    assert by_path.incarnation == by_descriptor.incarnation == 4
    for each in (page, by_path, by_descriptor):
        each.close()


def test_named_values_come_and_go_beside_the_counters(path: Path) -> None:
    page, other = create_counters(path, NAMES, incarnation=4), open_counters(path)
    assert other.published() == {}
    page.publish({"lag.größe": 7, "raft.loops": 9, "lag.x\ny": (1 << 64) - 1})
    page[0] = 3
    assert other.published() == {"lag.größe": 7, "raft.loops": 9, "lag.x\ny": (1 << 64) - 1}
    assert other.values()["lag.größe"] == 7
    assert other.values()["raft.loops"] == 3, "a counter keeps its name"
    assert read_counters(path) == {"raft.loops": 3, "ring.full": 0, "größe": 0}
    page.publish({"other": 1})
    assert other.published() == {"other": 1}
    page.publish({})
    assert other.published() == {}
    page.close()
    other.close()


def test_named_values_are_bounded_and_a_half_written_map_is_not_shown(path: Path) -> None:
    page = create_counters(path, NAMES, incarnation=4)
    page.publish({"x" * (NAMED_BYTES_MAX - 16): 1})
    assert list(page.published().values()) == [1]
    with pytest.raises(CountersInvalid, match="fit"):
        page.publish({"x" * NAMED_BYTES_MAX: 1})
    assert list(page.published().values()) == [1]
    page._named_head[0] += 1  # its writer is amid the next
    assert page.published() == {}
    page.close()


def test_a_new_incarnation_replaces_the_file_whole(path: Path) -> None:
    old = create_counters(path, NAMES, incarnation=1)
    old[0] = 9
    new = create_counters(path, ["other"], incarnation=2)
    assert read_counters(path) == {"other": 0}
    assert os.listdir(path.parent) == ["counters"]
    old.close()
    new.close()


def test_no_counters_are_counters_too(path: Path) -> None:
    create_counters(path, [], incarnation=1).close()
    assert read_counters(path) == {}


def test_only_this_user_may_read_the_file(path: Path) -> None:
    create_counters(path, NAMES, incarnation=1).close()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["a", "a"], "unique"),
        ([""], "not empty"),
        (["a\nb"], "line feeds"),
        ([str(number) for number in range(4_097)], "at most 4096"),
        (["x" * 300_000], "shorter names"),
    ],
)
def test_names_that_could_not_be_told_apart_are_refused(
    path: Path, names: list[str], reason: str
) -> None:
    with pytest.raises(CountersInvalid, match=reason):
        create_counters(path, names, incarnation=1)
    assert not path.exists()


def test_incarnation_zero_is_refused(path: Path) -> None:
    with pytest.raises(CountersInvalid, match="at least 1"):
        create_counters(path, NAMES, incarnation=0)


@pytest.mark.parametrize(
    ("slot", "value", "reason"),
    [
        (0, 1, "not a counters file"),
        (1, 3, "version 3, this side reads 2"),
        (3, 5_000, "do not fit"),
        (3, 2, "2 counters but 3 names"),
        (4, 1 << 40, "do not fit"),
        (4, 200, "do not fit"),
        (5, 100, "do not fit"),
        (5, 1 << 20, "do not fit"),
        (6, 64, "do not fit"),
        (6, 1 << 20, "do not fit"),
    ],
)
def test_a_damaged_header_is_a_typed_error(path: Path, slot: int, value: int, reason: str) -> None:
    create_counters(path, NAMES, incarnation=1).close()
    set_slot(path, slot, value)
    with pytest.raises(CountersInvalid, match=reason):
        read_counters(path)


def test_names_that_are_no_text_are_a_typed_error(path: Path) -> None:
    create_counters(path, NAMES, incarnation=1).close()
    set_slot(path, 8, (1 << 64) - 1)
    with pytest.raises(CountersInvalid, match="not UTF-8"):
        read_counters(path)


@pytest.mark.parametrize("content", [b"", b"text", bytes(4096)])
def test_a_file_that_is_something_else_is_a_typed_error(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(CountersInvalid, match="counters"):
        read_counters(path)


def test_a_missing_file_and_a_missing_folder_say_so(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_counters(path)
    with pytest.raises(RegionUnavailable, match="name a writable folder"):
        create_counters(path / "deeper", NAMES, incarnation=1)


def test_no_room_leaves_no_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(fd: int, offset: int, size_bytes: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(RegionUnavailable, match="enlarge that tmpfs"):
        create_counters(path, NAMES, incarnation=1)
    assert os.listdir(path.parent) == []
