"""What a process reads of a file that another process, whose clock is ahead, is writing.

The page cache has all calls of the writer's `do_work` at once. A reader must not see those that the
writer makes later than the reader's own time. Names are visible at once.
"""

from __future__ import annotations

from actors.simulation.disk.deferred import DeferredOperations
from actors.simulation.disk.file import SimulatedFile
from actors.simulation.disk.sectors import ZERO_SECTOR
from logstore.limits import SECTOR_BYTES


def read_now(deferred: DeferredOperations, file: SimulatedFile, offset: int, size: int) -> bytes:
    """As `SimulatedFile.read`, without the changes that are still deferred."""
    later = deferred.of(file)
    if not later:
        return file.read(offset, size)
    length = -1
    cut_from = file.size + offset + size
    ahead: set[int] = set()
    for act, args in later:
        if act == file.mark_dirty:
            ahead.update(args[0])
        elif act == file.mark_resized:
            before, after, _ = args
            length = before if length < 0 else length
            cut_from = min(cut_from, after)
    end = min(offset + size, file.size if length < 0 else length)
    if end <= offset:
        return b""
    sectors = []
    for number in range(offset // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
        if number in ahead or (number + 1) * SECTOR_BYTES > cut_from:
            sectors.append(file.written_so_far(number))
        else:
            sectors.append(file.sectors.get(number, ZERO_SECTOR))
    start = offset % SECTOR_BYTES
    return b"".join(sectors)[start : start + end - offset]
