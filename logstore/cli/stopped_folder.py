"""The data folder of a replica that must not run: which one is meant, and its lock, for commands
that work on files.

Owns the check that no replica works in it (M2). A supervisor holds the lock's file with flock, its
writer by an OFD lock: both are asked for, so a replica is found whichever of the two is left of it.
Nothing in the folder changes, not even if it is on a disk that can only be read: a folder without a
lock's file was copied, and no replica runs in it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from logstore.client.clock import wall_ns
from logstore.errors import FolderInUse, FolderRefused, InvalidRequest
from logstore.storage.disk import LOCK_HELD, LOCK_NAME, RealDisk, flush_path, lock_file
from logstore.storage.meta_store import META_NAMES, newest_meta
from logstore.storage.segment import is_segment_name


def has_log(folder: Path) -> bool:
    """Whether there are files of a replica's log or META."""
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise InvalidRequest(
            f"{folder}: {error.strerror}: name a folder that can be read"
        ) from error
    return any(is_segment_name(name) or name in META_NAMES for name in names)


def node_of(folder: Path) -> int:
    """Which node's folder it is, as META says; 0: META is damaged or gone."""
    meta = newest_meta(RealDisk(), str(folder))
    return meta.node if meta is not None else 0


@contextmanager
def stopped(folder: Path) -> Iterator[None]:
    """Keep replicas out of the folder.

    Raises:
      FolderInUse: a replica runs there, or another command works there.
      FolderRefused: its file system has no locks, or the lock's file cannot be read.
    """
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    except OSError as error:
        raise FolderRefused(
            f"{folder / LOCK_NAME}: {error.strerror}: run this as the user whose replica it is"
        ) from error
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def move_aside(folder: Path) -> Path:
    """Rename the folder, durably, with the time in its name; the new name. A crash leaves the one
    name or the other, and all of the folder.

    Raises:
      FolderRefused: it cannot be renamed.
    """
    aside = folder.with_name(f"{folder.name}.aside-{_stamp()}")
    if os.path.lexists(aside):
        raise FolderRefused(f"{aside} is there already: run it again in a second")
    try:
        folder.rename(aside)
        flush_path(folder.parent)
    except OSError as error:
        what = "it is where a file system is mounted: move what is in it, or mount another there"
        words = what if error.errno in (errno.EBUSY, errno.EXDEV) else f"{error.strerror}"
        raise FolderRefused(f"{folder} cannot be moved to {aside}: {words}") from error
    return aside


def _stamp() -> str:
    """The time, to the second, as a name may hold it."""
    return datetime.fromtimestamp(wall_ns() / 1e9, UTC).strftime("%Y%m%dT%H%M%SZ")


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock_file(descriptor, fcntl.F_RDLCK)
    except OSError as error:
        if error.errno not in LOCK_HELD:
            raise FolderRefused(
                f"{folder} cannot be locked: {error.strerror}; copy it to a local disk"
            ) from error
        node = node_of(folder)
        replica = f"the replica of node {node}" if node else "a replica"
        raise FolderInUse(
            f"{replica} runs in {folder}, or another command works there: stop it first"
        ) from error
