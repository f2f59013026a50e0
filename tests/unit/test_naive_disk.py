"""The disk of naive replicas: which bytes it writes twice, and when they are flushed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.naive import NaiveDisk, copied_bytes, copy_path, without_frames
from logstore.errors import DiskFull
from logstore.format.group import FRAME_HEADER_SIZE
from logstore.format.segment_header import SEGMENT_HEADER_SIZE
from logstore.storage.disk import RealDisk

START = SEGMENT_HEADER_SIZE
FRAME = b"LGRP" + bytes(FRAME_HEADER_SIZE - 4)
BODIES = [b"first body", memoryview(b"second"), bytes(FRAME_HEADER_SIZE)]


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are flushed from now on, one after the other."""
    names: list[str] = []

    def flush(_: RealDisk, handle: int) -> None:
        names.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)

    monkeypatch.setattr(RealDisk, "flush", flush)
    return names


def test_bodies_are_written_twice_and_frame_headers_once(tmp_path: Path) -> None:
    disk, path = NaiveDisk(), str(tmp_path / "1.data")
    handle = disk.create(path)
    disk.allocate(handle, 3 * START)
    disk.write(handle, 0, [bytes([7]) * 100])  # the segment's header
    views = [FRAME, BODIES[0], FRAME, *BODIES[1:]]
    assert disk.write(handle, START, views) == sum(map(len, views))
    disk.close(handle)
    bodies = b"".join(BODIES)
    copy = Path(copy_path(path)).read_bytes()
    assert len(copy) == os.path.getsize(path) == copied_bytes(tmp_path) == 3 * START
    assert copy.strip(b"\0") == bodies.strip(b"\0")
    assert copy[START : START + len(bodies)] == bodies
    assert without_frames(views) == BODIES


def test_a_group_is_flushed_once_in_each_file_and_what_has_no_bodies_is_not(
    tmp_path: Path, flushed: list[str]
) -> None:
    disk = NaiveDisk()
    data, raft = (disk.create(str(tmp_path / f"1.{kind}")) for kind in ("data", "raft"))
    for offset in (START, 2 * START):
        disk.write(data, offset, [FRAME, *BODIES])
    disk.flush(data)
    disk.write(raft, START, [bytes(128)])
    disk.flush(raft)
    assert flushed == ["1.data", "1.twice", "1.raft"]
    disk.write(data, 3 * START, [FRAME])
    disk.flush(data)
    assert flushed[3:] == ["1.data"]
    assert sorted(os.listdir(tmp_path)) == ["1.data", "1.raft", "1.twice"]


def test_the_second_copy_is_cut_and_removed_with_the_first_one(tmp_path: Path) -> None:
    disk, path = NaiveDisk(), str(tmp_path / "1.data")
    disk.close(disk.create(path))
    handle = disk.open_write(path)
    disk.allocate(handle, 3 * START)
    disk.truncate(handle, START + 1)
    assert copied_bytes(tmp_path) == START + 1
    disk.release_cache(handle, START)
    disk.close(handle)
    disk.unlink(path)
    assert os.listdir(tmp_path) == []


def test_without_space_for_the_second_copy_nothing_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = RealDisk.create

    def refuse(disk: RealDisk, path: str) -> int:
        if path.endswith(".twice"):
            raise DiskFull("no space")
        return create(disk, path)

    monkeypatch.setattr(RealDisk, "create", refuse)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(DiskFull):
        NaiveDisk().create(str(tmp_path / "1.data"))
    assert len(os.listdir("/proc/self/fd")) == before
