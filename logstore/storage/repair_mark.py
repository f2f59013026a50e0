"""The file `repairing`: a start is writing to pairs that a start does not flush (SAFETY F6).

Pairs older than the newest are durable, so a start flushes none of them. A kill amid the repair
of such a pair leaves in the page cache what the disk may not hold, and the next start would take
it for durable: while this file is there, a start flushes every pair. The file itself need not be
durable: a power cut drops it together with the page cache, or leaves it, which costs some flushes.
"""

from __future__ import annotations

import os.path
from contextlib import suppress

from logstore.errors import DiskFull
from logstore.storage.disk import Disk

REPAIRING_NAME = "repairing"


def is_repairing(disk: Disk, folder: str) -> bool:
    return REPAIRING_NAME in disk.list_folder(folder)


def begin_repair(disk: Disk, folder: str) -> None:
    """Before anything is written to a pair older than the newest.

    Raises:
      DiskFull: there is no space for the name.
    """
    if not is_repairing(disk, folder):
        disk.close(disk.create(os.path.join(folder, REPAIRING_NAME)))


def end_repair(disk: Disk, folder: str) -> None:
    """After everything that was written is flushed. There may be nothing to end; a mark that
    cannot be removed without space stays until another start."""
    with suppress(DiskFull):
        disk.unlink(os.path.join(folder, REPAIRING_NAME))
