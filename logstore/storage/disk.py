"""The disk port and the real disk: the only file of the system that flushes.

Owns system calls on files, their error mapping and the lock of the data folder. Must not know what
the bytes mean. All other code takes a `Disk`, so the simulated disk, which loses, tears and damages
writes and fills up, can replace it; one contract suite runs on both.

Invariants: a failed flush is reported and never retried here (SAFETY F5); log files are never
mapped (Q5); nothing is opened inheritably.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from logstore.errors import CorruptData, DiskFull, FolderInUse, FolderRefused, WriteFailed

Buffer = bytes | bytearray | memoryview

# IOV_MAX of Linux: one pwritev takes at most this many views (SAFETY S9).
VIEWS_MAX = 1_024
LOCK_NAME = "lock"

# struct flock of x86-64 Linux: type, whence, start, length, pid. OFD locks want pid 0.
_FLOCK = struct.Struct("@hhqqi4x")
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
LOCK_HELD = (errno.EAGAIN, errno.EACCES)


class Disk(Protocol):
    """What storage asks of a disk. Paths are strings, a handle is a small integer, sizes are bytes.

    Durability, which both implementations keep:
      * `write`, `allocate` and `truncate` change at once what is read. They survive a power cut for
        certain only after `flush` of that handle has returned. Before, any subset of the written
        512-byte sectors may survive; one sector is never half new.
      * `create` and `unlink` survive for certain only after `sync_folder`. Flushing a file does not
        make its name durable.
      * The death of a process loses nothing that `write` returned for.

    Errors: `DiskFull` from `create` and `allocate` (ENOSPC, EDQUOT), and from `unlink` and
    `truncate`, which take space on a copy-on-write file system: nothing has changed; `WriteFailed`
    from every other failed change or flush: the incarnation ends, no retry (SAFETY F5, S9);
    `CorruptData` from a read that the device refuses (Q5); `FileNotFoundError` from opening what is
    not there.
    """

    def make_folder(self, folder: str) -> None:
        """Create the folder, private to the user, and its parents, durably, unless they exist."""
        ...

    def lock_folder(self, folder: str) -> None:
        """Lock the folder until `unlock_folder` or the end of the process (M2).

        Raises:
          FolderInUse: another process holds the lock.
          FolderRefused: its file system has no locks.
          DiskFull: the lock's file does not exist, and there is no space for it.
        """
        ...

    def unlock_folder(self, folder: str) -> None: ...

    def list_folder(self, folder: str) -> list[str]:
        """The names in the folder, sorted. A missing folder is empty."""
        ...

    def sync_folder(self, folder: str) -> None:
        """Make every create and unlink in the folder durable."""
        ...

    def create(self, path: str) -> int:
        """Make an empty file, open for reading and writing. `WriteFailed` if the name exists."""
        ...

    def open_read(self, path: str) -> int: ...

    def open_write(self, path: str) -> int:
        """Open an existing file for reading and writing."""
        ...

    def close(self, handle: int) -> None: ...

    def read(self, handle: int, offset: int, size: int) -> bytes:
        """Up to `size` bytes at `offset`, fewer only at the end of the file."""
        ...

    def write(self, handle: int, offset: int, views: Sequence[Buffer]) -> int:
        """Write all views, one after the other, at `offset`; returns the bytes
        written. Not durable."""
        ...

    def flush(self, handle: int) -> None:
        """fdatasync: what was written to this file, and its size, is durable when this returns."""
        ...

    def allocate(self, handle: int, size: int) -> None:
        """Reserve space for bytes [0, size) and grow the file to it; new bytes read as zero."""
        ...

    def truncate(self, handle: int, size: int) -> None:
        """Cut or grow the file to `size` bytes, and release allocation above it."""
        ...

    def size(self, handle: int) -> int: ...

    def drop_cache(self, handle: int) -> None:
        """Drop clean cached pages, so that the next read shows what the device holds."""
        ...

    def release_cache(self, handle: int, end: int) -> None:
        """A hint that bytes [0, `end`) are not read again soon: drop their clean cached pages."""
        ...

    def read_ahead(self, handle: int) -> None:
        """A hint that the whole file is read soon: have the device begin."""
        ...

    def unlink(self, path: str) -> None:
        """Remove the name, if it exists; an open handle can still be read."""
        ...


def flush_path(path: Path) -> None:
    """Flush a file, or a folder with its names, that is no part of a log.

    Raises:
      OSError: it cannot be opened or flushed.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder_durable(folder: Path) -> None:
    """Create the folder, private to the user, and its parents, unless they exist, and flush their
    names: else a power cut may take them with all that is flushed inside. That of a folder that was
    there is flushed, too, for who made it may have been killed before: where its parent may not be
    opened, whoever made both has seen to that.

    Raises:
      OSError: one cannot be created, or the folder that it lies in cannot be flushed.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    there = missing[-1].parent if missing else folder
    with suppress(PermissionError):
        flush_path(there.parent)
    for each in reversed(missing[1:]):
        each.mkdir(exist_ok=True)
        flush_path(each.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    if missing:
        flush_path(folder.parent)


def lock_file(descriptor: int, kind: int) -> None:
    """Lock a whole file at once, for this open file description. `kind`: F_WRLCK or F_RDLCK.

    Raises:
      OSError: with an errno of LOCK_HELD, another one has it; else there are no locks here.
    """
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0))


class RealDisk:
    """The operating system's files. One per process; keeps the path of each
    handle for its errors."""

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}
        self._locks: dict[str, int] = {}

    def make_folder(self, folder: str) -> None:
        make_folder_durable(Path(folder))

    def lock_folder(self, folder: str) -> None:
        path = os.path.join(folder, LOCK_NAME)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise write_error("creating", path, error) from error
        try:
            lock_file(descriptor, fcntl.F_WRLCK)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in LOCK_HELD:
                # a wait for this lock would never end
                raise FolderRefused(
                    f"{folder} cannot be locked: {error.strerror}; take a folder on a local disk"
                ) from error
            raise FolderInUse(
                f"{folder} is in use by another process: stop it, or take another folder"
            ) from error
        self._locks[folder] = descriptor

    def unlock_folder(self, folder: str) -> None:
        descriptor = self._locks.pop(folder, None)
        if descriptor is not None:
            os.close(descriptor)

    def list_folder(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def sync_folder(self, folder: str) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise WriteFailed(f"flushing folder {folder}: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def create(self, path: str) -> int:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise write_error("creating", path, error) from error
        self._paths[handle] = path
        return handle

    def open_read(self, path: str) -> int:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._paths[handle] = path
        return handle

    def open_write(self, path: str) -> int:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._paths[handle] = path
        return handle

    def close(self, handle: int) -> None:
        del self._paths[handle]
        os.close(handle)

    def read(self, handle: int, offset: int, size: int) -> bytes:
        try:
            piece = os.pread(handle, size, offset)
            if len(piece) == size or not piece:
                return piece
            pieces = [piece]
            done = len(piece)
            while done < size and (piece := os.pread(handle, size - done, offset + done)):
                pieces.append(piece)
                done += len(piece)
            return b"".join(pieces)
        except OSError as error:
            raise CorruptData(
                self._paths[handle],
                offset,
                expected=f"{size} readable bytes",
                got=str(error.strerror),
            ) from error

    def write(self, handle: int, offset: int, views: Sequence[Buffer]) -> int:
        position = offset
        try:
            for start in range(0, len(views), VIEWS_MAX):
                position += _write_all(handle, position, list(views[start : start + VIEWS_MAX]))
        except OSError as error:
            # The space was allocated before, so ENOSPC here is a failed write, too (SAFETY S9).
            path = self._paths[handle]
            raise WriteFailed(f"writing {path} at byte {position}: {error.strerror}") from error
        return position - offset

    def flush(self, handle: int) -> None:
        try:
            os.fdatasync(handle)
        except OSError as error:
            raise WriteFailed(f"flushing {self._paths[handle]}: {error.strerror}") from error

    def allocate(self, handle: int, size: int) -> None:
        before = self.size(handle)
        try:
            os.posix_fallocate(handle, 0, size)
        except OSError as error:
            # ext4 has grown the file into all the space that there was: others need it
            if self.size(handle) > before:
                with suppress(OSError):
                    os.ftruncate(handle, before)
            raise write_error("allocating", self._paths[handle], error) from error

    def truncate(self, handle: int, size: int) -> None:
        try:
            os.ftruncate(handle, size)
        except OSError as error:
            raise write_error("truncating", self._paths[handle], error) from error

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def drop_cache(self, handle: int) -> None:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)

    def release_cache(self, handle: int, end: int) -> None:
        os.posix_fadvise(handle, 0, end, os.POSIX_FADV_DONTNEED)

    def read_ahead(self, handle: int) -> None:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_WILLNEED)

    def unlink(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise write_error("removing", path, error) from error


def _write_all(handle: int, offset: int, views: list[Buffer]) -> int:
    """pwritev until all is written: a short write is continued."""
    total = sum(len(view) for view in views)
    done = os.pwritev(handle, views, offset)
    while done < total:
        rest = b"".join(views)[done:]
        more = os.pwrite(handle, rest, offset + done)
        if more == 0:
            raise OSError(errno.EIO, "no progress")
        done += more
    return done


def write_error(act: str, path: str, error: OSError) -> DiskFull | WriteFailed:
    """The error that a failed change of a file raises."""
    if error.errno in _NO_SPACE:
        return DiskFull(f"{act} {path}: {error.strerror}; free some space on this file system")
    return WriteFailed(f"{act} {path}: {error.strerror}")
