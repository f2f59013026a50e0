"""META on disk: two files written in turn, so that one of them is always whole (SAFETY S8).

Owns `meta.a` and `meta.b` and the order of their flushes. Must not know what a term or
vote means, nor segments, except that a log without META is damage (L1). Nothing here
waits for a flush of the log.

    save: write meta.a, flush, write meta.b, flush; then the answer may be sent
    load: the whole copy with the higher generation counts; the other is rewritten

Invariant: after `save` or `load` returned, both copies are durable and equal.
"""

from __future__ import annotations

import os.path

import msgspec

from logstore.errors import (
    CorruptData,
    DiskFull,
    FolderRefused,
    FormatError,
    MetaLost,
    UnsupportedVersion,
)
from logstore.format.meta import META_SIZE, Meta, unpack_meta
from logstore.storage.disk import Disk
from logstore.storage.segment import is_segment_name

META_NAMES = ("meta.a", "meta.b")


class MetaStore:
    """The two open copies. One caller at a time. `bytes_written` counts bytes given to write;
    `copies_whole` is how many copies were whole when they were loaded."""

    def __init__(self, disk: Disk, handles: tuple[int, int], meta: Meta) -> None:
        self._disk = disk
        self._handles = handles
        self.meta = meta
        self.bytes_written = 0
        self.copies_whole = len(META_NAMES)

    def save(self, meta: Meta) -> None:
        """Make `meta` durable in both copies; sets its generation.

        Raises:
          WriteFailed: a write or flush failed; the incarnation ends (F5).
        """
        numbered = msgspec.structs.replace(meta, generation=self.meta.generation + 1)
        image = numbered.pack()
        for handle in self._handles:
            self.bytes_written += self._disk.write(handle, 0, [image])
            self._disk.flush(handle)
        self.meta = numbered

    def close(self) -> None:
        for handle in self._handles:
            self._disk.close(handle)


def create_meta(disk: Disk, folder: str, meta: Meta) -> MetaStore:
    """The first META of a folder without one: both files allocated, their
    names durable, then saved.

    Removes what an earlier attempt left, since `load_meta` found no META.

    Raises:
      DiskFull: there is no space.
    """
    for name in META_NAMES:
        disk.unlink(os.path.join(folder, name))
    handles: list[int] = []
    try:
        for name in META_NAMES:
            handles.append(_create_copy(disk, folder, name))
    except DiskFull:
        _close_all(disk, handles)
        raise
    disk.sync_folder(folder)
    store = MetaStore(disk, (handles[0], handles[1]), meta)
    store.save(meta)
    return store


def load_meta(disk: Disk, folder: str) -> MetaStore | None:
    """META of this folder with both copies whole again; None if there never was one.

    A copy that is damaged, missing or older is rewritten. Two bad copies beside a log are damage
    (L1). Without any segment nothing was ever promised under them, so the folder counts as new.

    Raises:
      MetaLost: no whole copy, but there are segments.
      FolderRefused: written by a newer version (L3).
      DiskFull: no space for a copy that is missing.
    """
    copies = [_read_copy(disk, os.path.join(folder, name)) for name in META_NAMES]
    whole = [meta for meta in copies if meta is not None]
    if not whole:
        names = disk.list_folder(folder)
        if any(is_segment_name(name) for name in names):
            raise MetaLost(
                f"{folder}: meta.a and meta.b are both damaged or missing, the log is there; this"
                " replica may have voted, so add it under a new uuid, in an empty folder: `logstore"
                " reset` moves this one aside"
            )
        return None
    newest = max(whole, key=lambda meta: meta.generation)
    handles: list[int] = []
    try:
        for name, copy in zip(META_NAMES, copies, strict=True):
            handle = _open_copy(disk, folder, name)
            handles.append(handle)
            if copy != newest:
                disk.write(handle, 0, [newest.pack()])
            disk.flush(handle)
    except DiskFull:
        _close_all(disk, handles)
        raise
    disk.sync_folder(folder)
    store = MetaStore(disk, (handles[0], handles[1]), newest)
    store.copies_whole = len(whole)
    return store


def newest_meta(disk: Disk, folder: str) -> Meta | None:
    """META from its newer whole copy, for readers: repairs nothing."""
    copies = [_read_copy(disk, os.path.join(folder, name)) for name in META_NAMES]
    whole = [meta for meta in copies if meta is not None]
    return max(whole, key=lambda meta: meta.generation) if whole else None


def read_meta(disk: Disk, path: str) -> Meta:
    """The META of one file.

    Raises:
      FormatError, CorruptData: damaged. UnsupportedVersion: newer. FileNotFoundError: missing.
    """
    handle = disk.open_read(path)
    try:
        # After a failed flush, the page cache is not what the disk holds (F5).
        disk.drop_cache(handle)
        return unpack_meta(disk.read(handle, 0, META_SIZE))
    finally:
        disk.close(handle)


def _read_copy(disk: Disk, path: str) -> Meta | None:
    try:
        return read_meta(disk, path)
    except UnsupportedVersion as error:
        raise FolderRefused(f"{path}: {error}; upgrade this side") from error
    except (FormatError, CorruptData, FileNotFoundError):
        return None


def _open_copy(disk: Disk, folder: str, name: str) -> int:
    path = os.path.join(folder, name)
    try:
        handle = disk.open_write(path)
    except FileNotFoundError:
        return _create_copy(disk, folder, name)
    if disk.size(handle) < META_SIZE:
        disk.close(handle)
        disk.unlink(path)
        return _create_copy(disk, folder, name)
    return handle


def _create_copy(disk: Disk, folder: str, name: str) -> int:
    """Create a copy with its space allocated; without space, nothing is left."""
    path = os.path.join(folder, name)
    handle = disk.create(path)
    try:
        disk.allocate(handle, META_SIZE)
    except DiskFull:
        disk.close(handle)
        disk.unlink(path)
        raise
    return handle


def _close_all(disk: Disk, handles: list[int]) -> None:
    for handle in handles:
        disk.close(handle)
