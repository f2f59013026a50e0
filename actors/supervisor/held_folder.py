"""The data folder of a replica that runs: its lock against a second supervisor, and whether it is
still where it was.

A process goes on writing and flushing files that have no name any more, and nothing fails. So the
supervisor looks once a second whether that folder is still at its path, and has the lock's file or
META (SAFETY M2).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logstore.errors import FolderInUse, FolderRefused, LogStoreError
from logstore.storage.meta_store import META_NAMES

LOCK_NAME = "supervisor.lock"


class HeldFolder:
    """The folder at `path`, and in it the lock's file, which is open as `lock`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock
        self._identity = os.stat(path)

    def loss(self) -> str:
        """Why its replica must end: what became of the folder, and what to do. Empty: it is there,
        or that is not known now. Where the lock's file alone was removed, nothing is lost: it is
        made again, unless another supervisor was first."""
        try:
            is_same = os.path.samestat(os.stat(self.path), self._identity)
            if is_same and not self._has_lock() and self._has_meta():
                self._lock_again()
            if is_same and self._has_lock():
                return ""
        except (FileNotFoundError, NotADirectoryError):
            pass
        except BlockingIOError:
            return (
                f"the {LOCK_NAME} in the data folder {self.path} was removed while the replica "
                "ran, and another start has that folder now: two of them must not write there"
            )
        except OSError:
            return ""
        if self._has_lock():
            return (
                f"the data folder is not at {self.path} any more: it was moved, or a file system "
                "was mounted or unmounted there while the replica ran. Put it back, then start the "
                "replica again"
            )
        return (
            f"the data folder {self.path} was removed, or emptied, while the replica ran: what was "
            "there is lost, and all that was stored since. Started again on an empty folder, the "
            "replica is one whose disk was lost"
        )

    def close(self) -> None:
        os.close(self._lock)

    def _lock_again(self) -> None:
        taken = _locked(self.path)
        os.close(self._lock)
        self._lock = taken

    def _has_lock(self) -> bool:
        return os.fstat(self._lock).st_nlink > 0

    def _has_meta(self) -> bool:
        return any((self.path / name).exists() for name in META_NAMES)


@contextmanager
def sole_supervisor(folder: Path, *, is_new: bool = False) -> Iterator[HeldFolder]:
    """Lock `folder` against a second supervisor, which would die of the writer's lock (M2), but
    only after it has redirected inspectors to itself.

    Args:
      folder: the data folder.
      is_new: created by this call; removed again if the replica is refused before it wrote there.

    Raises:
      FolderInUse: another supervisor runs this folder.
      FolderRefused: the lock's file cannot be created.
    """
    try:
        held = HeldFolder(folder, _locked(folder))
    except BlockingIOError as error:
        raise FolderInUse(
            f"{folder} is in use by another supervisor: stop it, or take another folder"
        ) from error
    except OSError as error:
        raise FolderRefused(
            f"{folder}: its {LOCK_NAME} cannot be made: {error.strerror}; free some space, make "
            "the folder writable, or name another one"
        ) from error
    try:
        yield held
    except LogStoreError:
        if is_new and [path.name for path in folder.iterdir()] == [LOCK_NAME]:
            (folder / LOCK_NAME).unlink()
            folder.rmdir()
        raise
    finally:
        held.close()


def _locked(folder: Path) -> int:
    """The descriptor of the folder's lock, taken.

    Raises:
      BlockingIOError: another process has it.
      OSError: it cannot be made.
    """
    descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(descriptor).st_nlink:  # its last holder removed it
            raise BlockingIOError
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
