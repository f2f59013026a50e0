"""The file `repairing`: a start is writing to pairs that a start does not flush (SAFETY F6).

Pairs older than the newest are durable, so a start flushes none of them. A kill amid the repair
of such a pair leaves in the page cache what the disk may not hold, and the next start would take
it for durable: while this file is there, a start flushes every pair. The file itself need not be
durable: a power cut drops it together with the page cache, or leaves it, which costs some flushes.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from contextlib import suppress

from logstore.errors import DiskFull
from logstore.storage.disk import Disk
from logstore.storage.segment import remove_dead_pair

REPAIRING_NAME = "repairing"


def is_repairing(disk: Disk, folder: str) -> bool:
    return REPAIRING_NAME in disk.list_folder(folder)


def begin_repair(disk: Disk, folder: str, *, unused: Iterable[int]) -> None:
    """Before anything is written to a pair that may not be the newest. Without space for the name
    the pairs `unused`, of which nothing is left to be read, are removed first.

    Raises:
      DiskFull: that has not made space.
    """
    if is_repairing(disk, folder):
        return
    path = os.path.join(folder, REPAIRING_NAME)
    try:
        handle = disk.create(path)
    except DiskFull:
        for number in unused:
            remove_dead_pair(disk, folder, number)
        handle = disk.create(path)
    disk.close(handle)


def end_repair(disk: Disk, folder: str) -> None:
    """After everything that was written is flushed. There may be nothing to end; a mark that
    cannot be removed without space stays until another start."""
    with suppress(DiskFull):
        disk.unlink(os.path.join(folder, REPAIRING_NAME))
