"""Replicas of a naive design, whose disks write every payload twice: what log sharing is held
against.

A replicated log store on Raft that shares nothing has payloads in Raft's log and, once applied, in
the log that it serves. Here that is this product with another disk in its writers, `NaiveDisk`, put
there without any setting of the product (`naive_replicas`). For each pair of a segment there is a
third file:

    N.data, N.raft    as ever: frames with payloads; a record of 128 bytes for each entry
    N.twice           the payloads again, as Raft's log of a naive design has them

The second copy is written as efficiently as the first one: by one vectored write a flush group, at
the group's offset in `N.data`, into space that is allocated as that of `N.data` is. It is flushed
once a group, after the frames and before the records.

Where in doubt the naive side is favoured: the second copy has no segment header, no frame headers
(128 bytes an entry), no records and no index of its own, and a group without payloads is not
flushed. What this is not: a log that has records and payloads in one file. It would spare a group
the page of its records, which both sides have here, and the third of its flushes. So groups should
be large: a page is 6 % of a copy of 64 KiB, 1.5 % of one of 256 KiB.

The log is whole all the same: the product reads and recovers it, and ignores `N.twice`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from logstore.errors import DiskFull
from logstore.format.group import FRAME_HEADER_SIZE, FRAME_MAGIC
from logstore.format.segment_header import SEGMENT_HEADER_SIZE
from logstore.storage import disk
from logstore.storage.disk import Buffer, RealDisk
from tests.faults.patched_processes import patched

DATA_SUFFIX = ".data"
COPY_SUFFIX = ".twice"
_ROOT = Path(__file__).resolve().parents[1]
_MAGIC = FRAME_MAGIC.to_bytes(4, "little")
# The checkout comes first: a replica must not find these modules in another one.
_SITE = f"""
import sys

sys.path.insert(0, {str(_ROOT)!r})

from benchmarks.naive import replace_disk

replace_disk()
"""


class _Copy(msgspec.Struct):
    handle: int
    is_flushed: bool = True


class NaiveDisk(RealDisk):
    """The real disk that writes what goes into `N.data` into `N.twice`, too.

    It is a `RealDisk`, not a wrapper around one, so that all the rest stays what it is.
    """

    def __init__(self) -> None:
        super().__init__()
        self._copies: dict[int, _Copy] = {}  # by the handle of the data file

    def create(self, path: str) -> int:
        handle = super().create(path)
        if path.endswith(DATA_SUFFIX):
            try:
                self._copies[handle] = _Copy(super().create(copy_path(path)))
            except DiskFull:
                super().close(handle)
                raise
        return handle

    def open_write(self, path: str) -> int:
        handle = super().open_write(path)
        if path.endswith(DATA_SUFFIX):
            self._copies[handle] = _Copy(super().open_write(copy_path(path)))
        return handle

    def close(self, handle: int) -> None:
        copy = self._copies.pop(handle, None)
        super().close(handle)
        if copy is not None:
            super().close(copy.handle)

    def write(self, handle: int, offset: int, views: Sequence[Buffer]) -> int:
        written = super().write(handle, offset, views)
        copy = self._copies.get(handle)
        if copy is not None and offset >= SEGMENT_HEADER_SIZE and (bodies := without_frames(views)):
            copy.is_flushed = False
            super().write(copy.handle, offset, bodies)
        return written

    def flush(self, handle: int) -> None:
        super().flush(handle)
        copy = self._copies.get(handle)
        if copy is not None and not copy.is_flushed:
            copy.is_flushed = True
            super().flush(copy.handle)

    def allocate(self, handle: int, size: int) -> None:
        super().allocate(handle, size)
        if (copy := self._copies.get(handle)) is not None:
            copy.is_flushed = False
            super().allocate(copy.handle, size)

    def truncate(self, handle: int, size: int) -> None:
        super().truncate(handle, size)
        if (copy := self._copies.get(handle)) is not None:
            super().truncate(copy.handle, size)

    def release_cache(self, handle: int, end: int) -> None:
        super().release_cache(handle, end)
        if (copy := self._copies.get(handle)) is not None:
            super().release_cache(copy.handle, end)

    def unlink(self, path: str) -> None:
        super().unlink(path)
        if path.endswith(DATA_SUFFIX):
            super().unlink(copy_path(path))


def without_frames(views: Sequence[Buffer]) -> list[Buffer]:
    """The bodies of entries, which is where payloads are, without the frame headers before them."""
    return [view for view in views if len(view) != FRAME_HEADER_SIZE or bytes(view[:4]) != _MAGIC]


def copy_path(data_path: str) -> str:
    """Of the second copy of `N.data`."""
    return data_path.removesuffix(DATA_SUFFIX) + COPY_SUFFIX


def naive_replicas(folder: Path) -> AbstractContextManager[None]:
    """Replicas that are started meanwhile are naive. `folder`: for the file that does it."""
    return patched("naive", _SITE, folder)


def replace_disk() -> None:
    """Every disk of this process writes payloads twice. Called before any process of a replica
    imports what takes a disk."""
    disk.RealDisk = NaiveDisk  # type: ignore[misc]  # what is imported from there later is ours


def copied_bytes(folder: Path) -> int:
    """Size of the second copies in a replica's folder; 0: it is not naive."""
    return sum(os.stat(path).st_size for path in folder.glob(f"*{COPY_SUFFIX}"))
