"""Regions: nameless, allocated up front, refused where they could fail later (SAFETY M4)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from transport.errors import RegionUnavailable, UnsupportedMachine
from transport.payload_ring import create_payload_ring
from transport.shm import (
    SHARED_MEMORY_FOLDER,
    create_region,
    map_anonymous,
    map_region,
    region_size_bytes,
    require_total_store_order,
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY_FOLDER) as name:
        yield Path(name)


@pytest.fixture
def small_tmpfs(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_region_is_zeroed_shared_and_of_the_size_asked_for(folder: Path) -> None:
    fd = create_region(10_000, str(folder))
    assert region_size_bytes(fd) == 10_000
    one, other = map_region(fd, 10_000), map_region(fd, 10_000)
    os.close(fd)
    assert one[:] == bytes(10_000)
    one[9_999] = 7
    assert other[9_999] == 7


def test_a_region_has_no_name_that_could_be_left_behind(folder: Path) -> None:
    """FAULTS S5."""
    fd = create_region(4096, str(folder))
    assert list(folder.iterdir()) == []
    os.close(fd)


def test_a_region_goes_to_a_child_by_pass_fds_only() -> None:
    fd = create_region(4096)
    assert not os.get_inheritable(fd)
    script = f"import mmap; mmap.mmap({fd}, 4096)[0] = 42"
    subprocess.run([sys.executable, "-c", script], pass_fds=[fd], check=True)
    assert map_region(fd, 4096)[0] == 42
    os.close(fd)


def test_a_tmpfs_without_room_is_an_error_at_creation_not_a_bus_error_later(
    small_tmpfs: Path,
) -> None:
    """FAULTS S6."""
    with pytest.raises(RegionUnavailable, match=r"no room for 2097152 bytes: enlarge that tmpfs"):
        create_region(2 << 20, str(small_tmpfs))
    with pytest.raises(RegionUnavailable, match="lower ring_bytes"):
        create_payload_ring(1 << 20, incarnation=1, folder=str(small_tmpfs))
    os.close(create_region(1 << 19, str(small_tmpfs)))


def test_a_failed_allocation_names_its_reason_and_leaks_no_descriptor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[int] = []

    def fail(fd: int, offset: int, size_bytes: int) -> None:
        opened.append(fd)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(RegionUnavailable, match="Input/output error"):
        create_region(4096)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_a_folder_that_is_none_is_named(folder: Path) -> None:
    with pytest.raises(RegionUnavailable, match="missing"):
        create_region(4096, str(folder / "missing"))


def test_an_empty_region_is_refused() -> None:
    with pytest.raises(RegionUnavailable, match="at least 1"):
        create_region(0)


def test_mapping_with_another_size_is_refused() -> None:
    fd = create_region(4096)
    with pytest.raises(RegionUnavailable, match="has 4096 bytes, 8192 were expected"):
        map_region(fd, 8192)
    os.close(fd)


def test_anonymous_memory_is_zeroed() -> None:
    assert map_anonymous(100)[:] == bytes(100)


@pytest.mark.parametrize("machine", ["aarch64", "riscv64", "ppc64le", ""])
def test_machines_without_total_store_order_are_refused(machine: str) -> None:
    """FAULTS S3."""
    with pytest.raises(UnsupportedMachine, match="x86-64"):
        require_total_store_order(machine)


def test_x86_64_is_accepted() -> None:
    require_total_store_order("x86_64")
