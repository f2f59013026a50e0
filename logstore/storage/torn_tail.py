"""Whether bytes that a crash tore follow the last entry of the newest segment (SAFETY section 4).

Owns that question, and what must be known before those bytes may be discarded: that no record of an
entry is among them. It only reads. Must not know the entries before, nor what is done about a tail.
"""

from __future__ import annotations

from collections.abc import Callable

from logstore.errors import CorruptData
from logstore.format.raft_record import RECORD_SIZE
from logstore.format.segment_header import FileRole, SegmentHeader
from logstore.limits import KIB, MIB
from logstore.model import Index
from logstore.storage.disk import Disk
from logstore.storage.folder_scan import read_salvaged
from logstore.storage.segment import aligned, record_position, segment_name

_CHUNK_BYTES = 1 * MIB
# What an operating system reads at once. Of a bad sector it refuses the whole block.
_BLOCK_BYTES = 4 * KIB


class Refused:
    """Up to where in each file of the newest pair the device has refused to read something while
    the entries were looked for, in bytes; 0: nowhere. What it reads now, it may have refused then.
    """

    def __init__(self) -> None:
        self.raft_end = self.data_end = 0

    def in_raft(self, end: int) -> None:
        self.raft_end = max(self.raft_end, end)

    def in_data(self, end: int) -> None:
        self.data_end = max(self.data_end, end)


def has_torn_tail(
    disk: Disk,
    header: SegmentHeader,
    *,
    data: int,
    raft: int,
    data_end: int,
    next_index: Index,
    refused: Refused,
    tick: Callable[[], None],
) -> bool:
    """Whether any bytes follow the last entry. Nothing may be appended among them: nothing is
    overwritten in place, and an old frame after a new one could pass for its successor (S7). An
    unreadable sector may have some: it may be read again later.

    Args:
      data, raft: handles of the newest segment's files.
      data_end: where the last entry's frame ends, in bytes.
      next_index: of the entry that would be next.
      refused: by the reads that found no further entry.

    Raises:
      CorruptData: there are some, and they may be entries: a record that would prove them cannot be
        read, or was lost with the end of the Raft file.
    """
    place = record_position(header, next_index)
    if not (
        _has_bytes(disk, data, data_end, tick=tick) or _has_bytes(disk, raft, place, tick=tick)
    ):
        return False
    name = segment_name(header.number, FileRole.RAFT)
    if disk.size(raft) < place + RECORD_SIZE:
        # The file was allocated before the first entry, with space for the record of each.
        raise CorruptData(
            name, place, expected=f"the record of entry {next_index}, or unwritten space",
            got="the end of the file, a part of which was lost, and bytes in the data file that may"
            " be entries; replace this replica, or take what is whole with `logstore salvage`",
        )  # fmt: skip
    if refused.raft_end > place or not _is_readable(disk, raft, place, tick=tick):
        # The block of the last record may be what cannot be read, and the tail torn: one fault and
        # a crash. Two faults, or a block that has records of lost entries only, are neither.
        after_block = aligned(place, _BLOCK_BYTES)
        if not (
            refused.raft_end <= after_block
            and refused.data_end <= data_end
            and _is_readable(disk, raft, after_block, tick=tick)
            and _is_readable(disk, data, data_end, tick=tick)
        ):
            raise CorruptData(
                name, place, expected=f"the record of entry {next_index}, or unwritten space",
                got="sectors that the device refuses to read, as may be entries from there on: if"
                " it reads them again, start it again; else replace this replica",
            )  # fmt: skip
    return True


def _has_bytes(disk: Disk, handle: int, start: int, *, tick: Callable[[], None]) -> bool:
    while raw := read_salvaged(disk, handle, start, _CHUNK_BYTES, unreadable=b"?"):
        if raw.count(0) != len(raw):
            return True
        start += len(raw)
        tick()
    return False


def _is_readable(disk: Disk, handle: int, start: int, *, tick: Callable[[], None]) -> bool:
    """Whether the device returns every byte from `start` to the end of the file."""
    try:
        while raw := disk.read(handle, start, _CHUNK_BYTES):
            start += len(raw)
            tick()
    except CorruptData:
        return False
    return True
