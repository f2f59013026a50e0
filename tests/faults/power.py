"""Power cuts: each replica's folder on an ext4 file system of its own, on a loop device, shut
down by ioctl.

`cut` forgets everything that was not flushed, journal included (EXT4_IOC_SHUTDOWN with
NOLOGFLUSH), as a power cut does; from then on every call answers EIO until `restore` mounts it
again. Needs root, losetup and mkfs.ext4; `why_not` says what is missing.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from logstore.cli.embedded import poll_until

EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, u32), linux/fs/ext4/ext4.h
NO_LOG_FLUSH = 2
DISK_BYTES = 256 << 20
UNMOUNT_TIMEOUT_S = 30.0


def why_not() -> str:
    """What this machine lacks for power cuts; empty when they can be made."""
    if os.geteuid() != 0:
        return "power cuts need root (mount, loop devices)"
    missing = [
        tool for tool in ("losetup", "mkfs.ext4", "mount", "umount") if not shutil.which(tool)
    ]
    return f"power cuts need {', '.join(missing)}" if missing else ""


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


class PowerDisk:
    """One file system that can lose its power."""

    def __init__(self, folder: Path, mount_point: Path) -> None:
        self._image = folder / f"{mount_point.name}.img"
        with self._image.open("wb") as image:
            image.truncate(DISK_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self._device = _run("losetup", "--find", "--show", str(self._image))
        self.mount_point = mount_point
        mount_point.mkdir()
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-t", "ext4", self._device, str(self.mount_point))

    def cut(self) -> None:
        """The power goes. Whoever uses the folder gets EIO from now on."""
        handle = os.open(self.mount_point, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(handle, EXT4_IOC_SHUTDOWN, bytes(ctypes.c_uint32(NO_LOG_FLUSH)))
        finally:
            os.close(handle)

    def restore(self) -> None:
        """The power is back: what was flushed is there. Waits for killed processes to be gone."""
        if not poll_until(self._is_unmounted, UNMOUNT_TIMEOUT_S):
            raise OSError(f"{self.mount_point} is still in use after {UNMOUNT_TIMEOUT_S} s")
        self._mount()

    def _is_unmounted(self) -> bool:
        """Everywhere: another test's mount namespace may have a copy, and a file system that is
        still mounted somewhere would come back as it was, without its power."""
        subprocess.run(["umount", str(self.mount_point)], capture_output=True, check=False)
        try:
            handle = os.open(self._device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
        except OSError:
            return False
        os.close(handle)
        return True

    def close(self) -> None:
        subprocess.run(
            ["umount", "--lazy", str(self.mount_point)], check=False, capture_output=True
        )
        _run("losetup", "--detach", self._device)
        self._image.unlink()
