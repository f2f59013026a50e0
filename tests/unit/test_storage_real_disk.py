"""What only the real disk can show: system calls that fail or fall short, a log on real files."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.supervisor.serve import prepare_folder
from logstore.errors import CorruptData, DiskFull, FolderInUse, FolderRefused, WriteFailed
from logstore.format.entry import Row
from logstore.format.level import NEWEST_LEVEL
from logstore.model import FIRST_LSN, Index, NodeId, Term
from logstore.storage.disk import RealDisk
from logstore.storage.log_reader import LogReader
from logstore.storage.log_writer import LogWriter
from logstore.storage.recovery import create_log, recover
from logstore.storage.segment import SegmentOptions
from tests.crash.storage_trial import CLUSTER, next_header

OPTIONS = SegmentOptions(segment_bytes=64 * 1024, segment_records=64)


def failing(number: int) -> Any:
    def call(*_args: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_is_disk_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """SAFETY S9, FAULTS D27, D31."""
    disk = RealDisk()
    handle = disk.create(str(tmp_path / "a"))
    monkeypatch.setattr(os, "posix_fallocate", failing(number))
    with pytest.raises(DiskFull, match="free some space"):
        disk.allocate(handle, 4096)
    disk.close(handle)


def test_without_space_a_file_keeps_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ext4 grows it into the space that there is, and leaves it so."""

    def grow_and_fail(handle: int, _offset: int, size: int) -> None:
        os.ftruncate(handle, size // 2)
        raise OSError(errno.ENOSPC, "")

    disk = RealDisk()
    handle = disk.create(str(tmp_path / "a"))
    disk.write(handle, 0, [b"there"])
    monkeypatch.setattr(os, "posix_fallocate", grow_and_fail)
    with pytest.raises(DiskFull):
        disk.allocate(handle, 4096)
    assert disk.read(handle, 0, 4096) == b"there"
    disk.close(handle)


def test_no_space_for_the_lock_is_disk_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "open", failing(errno.ENOSPC))
    with pytest.raises(DiskFull, match="free some space"):
        RealDisk().lock_folder(str(tmp_path))


def test_a_lock_that_another_holds_is_waited_for_and_one_that_cannot_be_had_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer tries again after FolderInUse (FAULTS P17): without locks that would be for ever,
    and its reason wrong."""
    holder = RealDisk()
    holder.lock_folder(str(tmp_path))
    with pytest.raises(FolderInUse):
        RealDisk().lock_folder(str(tmp_path))
    holder.unlock_folder(str(tmp_path))
    monkeypatch.setattr(fcntl, "fcntl", failing(errno.ENOLCK))
    with pytest.raises(FolderRefused, match="No locks available") as refused:
        RealDisk().lock_folder(str(tmp_path))
    assert not isinstance(refused.value, FolderInUse)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_failed_write_or_flush_ends_the_incarnation_whatever_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """SAFETY F5, FAULTS D24, D30: on prepared space ENOSPC is a failed write too."""
    disk = RealDisk()
    handle = disk.create(str(tmp_path / "a"))
    for call in ("pwritev", "fdatasync", "fsync", "ftruncate"):
        monkeypatch.setattr(os, call, failing(number))
    with pytest.raises(WriteFailed):
        disk.write(handle, 0, [b"x"])
    with pytest.raises(WriteFailed):
        disk.flush(handle)
    with pytest.raises(WriteFailed):
        disk.sync_folder(str(tmp_path))
    disk.close(handle)


def test_an_io_error_on_read_is_damage_at_that_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SAFETY Q5, FAULTS D26."""
    disk = RealDisk()
    handle = disk.create(str(tmp_path / "a"))
    monkeypatch.setattr(os, "pread", failing(errno.EIO))
    with pytest.raises(CorruptData) as caught:
        disk.read(handle, 512, 100)
    assert (caught.value.position, caught.value.file) == (512, str(tmp_path / "a"))
    disk.close(handle)


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS D29."""
    disk = RealDisk()
    handle = disk.create(str(tmp_path / "a"))
    write = os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, views, at: write(fd, b"".join(views)[:3], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:2], at))
    assert disk.write(handle, 10, [b"abcd", b"efgh"]) == 8
    assert disk.read(handle, 10, 8) == b"abcdefgh"
    disk.close(handle)


def test_files_and_lock_are_not_inherited_by_programs_that_are_started(tmp_path: Path) -> None:
    """SAFETY M2."""
    disk = RealDisk()
    disk.lock_folder(str(tmp_path))
    handle = disk.create(str(tmp_path / "a"))
    for descriptor in (handle, *disk._locks.values()):
        assert fcntl.fcntl(descriptor, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    disk.close(handle)
    disk.unlock_folder(str(tmp_path))


def append(writer: LogWriter, bodies: list[bytes]) -> None:
    entries: list[Any] = []
    last = writer.last
    for body in bodies:
        header = next_header(last, Term(1), body)
        last = Row.of(header)
        entries.append((header, last.chain, 0, [memoryview(body)]))
    if writer.needs_roll(entries):
        writer.roll()
    group = writer.append(entries)
    writer.flush_data(group)
    writer.write_records(group)
    writer.flush_records(group)


@pytest.mark.slow
def test_a_log_on_real_files_comes_back_after_a_restart(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    uuids = itertools.count(1)

    def new_uuid() -> bytes:
        return next(uuids).to_bytes(16, "little")

    def start(disk: RealDisk) -> Any:
        return recover(
            disk, folder, OPTIONS,
            node=NodeId(1), newest_level=NEWEST_LEVEL, new_uuid=new_uuid, tick=lambda: None,
        )  # fmt: skip

    disk = RealDisk()
    found = start(disk)
    writer = create_log(
        disk, folder, OPTIONS, found.meta,
        cluster_id=CLUSTER, first_lsn=FIRST_LSN, new_uuid=new_uuid,
    )  # fmt: skip
    for number in range(12):
        append(writer, [bytes([number]) * 8_000, b"", bytes([number]) * 16])
    writer.truncate(Index(30))
    writer.close()
    found.meta.close()
    disk.unlock_folder(folder)

    again = RealDisk()
    found = start(again)
    assert found.last == writer.last
    assert found.faulty == ()
    append(found.writer, [b"new body"])
    reader = LogReader(RealDisk(), folder)
    assert reader.read_body(Index(28)) == bytes([9]) * 8_000
    assert reader.read_body(Index(30)) == b"new body"
    reader.close()
    found.writer.close()
    found.meta.close()
    again.unlock_folder(folder)


@pytest.mark.parametrize(
    "make", [lambda path: RealDisk().make_folder(str(path)), prepare_folder], ids=["disk", "serve"]
)
def test_a_data_folder_s_name_is_durable_and_those_of_the_parents_that_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object]
) -> None:
    """FAULTS D23: without it a power cut may take the folder of a replica that acknowledged."""
    flushed: list[str] = []

    def fsync(descriptor: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", fsync)
    above, top, between = tmp_path.parent, tmp_path / "a", tmp_path / "a" / "b"
    make(between / "node-1")
    assert flushed == [str(each) for each in (above, tmp_path, top, between)]
    flushed.clear()
    make(between / "node-1")
    assert flushed == [str(between)], "a process that made it may have been killed before that"
