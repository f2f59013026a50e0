"""A small file system under a replica's folder, that can be filled up and emptied again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from logstore.cli.embedded import poll_until

FILLER_NAME = "somebody-elses-file"
CHUNK_BYTES = 1 << 16
UNMOUNT_TIMEOUT_S = 30.0


def why_not() -> str:
    """What this machine lacks for small disks; empty when they can be made."""
    return "" if os.geteuid() == 0 else "small file systems need root (mount)"


class SmallDisk:
    """A tmpfs at `mount_point`."""

    def __init__(self, mount_point: Path, size_bytes: int) -> None:
        self.mount_point = mount_point
        mount_point.mkdir()
        options = f"size={size_bytes},mode=0700"
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(mount_point)], check=True
        )

    def fill(self) -> None:
        """Somebody else takes all the space that is left."""
        with (self.mount_point / FILLER_NAME).open("ab", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(CHUNK_BYTES))
            except OSError:
                return

    def empty(self) -> None:
        (self.mount_point / FILLER_NAME).unlink()

    def close(self) -> None:
        """Fails if somebody goes on using it: no process may outlive its cluster.

        A killed process is a zombie while its other threads still end, and holds its files so long.
        """
        assert poll_until(self._is_unmounted, UNMOUNT_TIMEOUT_S), f"{self.mount_point} is in use"

    def _is_unmounted(self) -> bool:
        command = ["umount", str(self.mount_point)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
