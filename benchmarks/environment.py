"""On what a figure was measured: the machine and the libraries, without names of hosts or folders.

Owns that description, and the check that data lies on a real file system: on tmpfs a flush costs
    nothing.
"""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import psutil
import zmq

from logstore.errors import InvalidRequest

MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "devtmpfs"})
Document = dict[str, int | float | str]


def describe_environment(folder: Path) -> Document:
    """What to tell with every figure; `folder` is where the data lay."""
    return {
        "cpu_count": os.cpu_count() or 0,
        "cpu_model": _cpu_model(),
        "memory_mb": psutil.virtual_memory().total // 1_000_000,
        "machine": platform.machine(),
        "kernel": platform.release(),
        "file_system": file_system_of(folder),
        "mount_options": _mount_of(folder)[1],
        "disk": _disk_kind(folder),
        "python": platform.python_version(),
        "pyzmq": zmq.pyzmq_version(),
        "libzmq": zmq.zmq_version(),
        "numpy": version("numpy"),
        "logstore": version("logstore"),
    }


def file_system_of(folder: Path) -> str:
    """The type of the file system that holds the folder, such as "ext4"."""
    return _mount_of(folder)[0]


def _mount_of(folder: Path) -> tuple[str, str]:
    """Type and options of the mount that holds the folder."""
    resolved = folder.resolve()
    best, found = 0, ("unknown", "unknown")
    for mount in psutil.disk_partitions(all=True):
        point = Path(mount.mountpoint)
        if (resolved == point or point in resolved.parents) and len(point.parts) >= best:
            best, found = len(point.parts), (mount.fstype, mount.opts)
    return found


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def _disk_kind(folder: Path) -> str:
    """What the kernel says of the device below the folder, which a virtual machine's host may have
    told it wrongly."""
    device = os.stat(folder).st_dev
    rotational = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/queue/rotational")
    if not rotational.exists():
        return "unknown"
    is_rotational = rotational.read_text(encoding="ascii").strip() == "1"
    return "rotational" if is_rotational else "not rotational"


def require_real_file_system(folder: Path) -> None:
    """Refuse a folder in memory.

    Raises:
        InvalidRequest: it is no folder, or lies on tmpfs.
    """
    if not folder.is_dir():
        raise InvalidRequest(f"{folder} is no folder: make it, or name another with --dir")
    kind = file_system_of(folder)
    if kind in MEMORY_FILE_SYSTEMS:
        raise InvalidRequest(
            f"{folder} lies on {kind}, where flushing costs nothing: name a folder on a disk "
            "with --dir"
        )
