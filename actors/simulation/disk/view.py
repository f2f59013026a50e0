"""One process' view of a simulated disk: its handles, its locks, and what its calls cost.

Owns what ends with the process. Must not know what a power cut leaves, nor how a process waits:
`charge` gets the cost of each call.

Invariants: all views of a disk share one page cache; after `kill` a view changes nothing. A hook
that raises anything but an operating error kills the process: each later change raises the same, so
that no `finally` of the dying process reaches the disk.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Sequence
from typing import Protocol

from actors.simulation.disk.file import SimulatedFile
from actors.simulation.disk.medium import Medium
from actors.simulation.disk.read_now import read_now
from logstore.errors import CorruptData, DiskFull, FolderInUse, InvariantViolated, WriteFailed
from logstore.limits import SECTOR_BYTES
from logstore.storage.disk import LOCK_NAME, Buffer


class LocalClock(Protocol):
    """The own time of a process, the cost of its calls included."""

    @property
    def local_now_ns(self) -> int: ...


class _Handles(dict[int, tuple[str, SimulatedFile]]):
    """Handle → (path, file)."""

    def __missing__(self, handle: int) -> tuple[str, SimulatedFile]:
        raise InvariantViolated(f"handle {handle} is not open in this process")


class DiskView:
    """A `logstore.storage.disk.Disk` with hooks: `on_write(path, offset, size, before)` before each
    write, with the bytes that it replaces; `on_read(path, offset, data)` after each read;
    `on_call(what, path)` before each changing call, where it may raise to kill the process."""

    def __init__(self, disk: Medium, charge: Callable[[int], None], clock: LocalClock) -> None:
        self.on_call: Callable[[str, str], None] | None = None
        self.on_write: Callable[[str, int, int, bytes], None] | None = None
        self.on_read: Callable[[str, int, bytes], None] | None = None
        self.locks: dict[str, None] = {}
        self._disk = disk
        self._charge = charge
        self._clock = clock
        self._last_ns = 0  # time of its last change; 0: it has only read
        self._handles = _Handles()
        self._next_handle = 1
        self._death: BaseException | None = None
        self.is_dead = False

    @property
    def is_idle(self) -> bool:
        """It has neither handles nor locks."""
        return not self._handles and not self.locks

    @property
    def open_files(self) -> list[SimulatedFile]:
        return [file for _, file in self._handles.values()]

    @property
    def removed_open(self) -> list[str]:
        """Files that it has open, though their names are gone: they keep their space."""
        files = self._disk.files
        return [path for path, file in self._handles.values() if files.get(path) is not file]

    def kill(self) -> None:
        """The process dies at the end of its last call: its handles and locks are gone."""
        self.is_dead = True
        if self._death is None:
            self._death = InvariantViolated("a dead process used its disk")
        self._disk.deferred.apply_until(self._last_ns)
        self._handles.clear()
        for folder in self.locks:
            self._disk.locked.discard(folder)
        self.locks.clear()

    # --- folders and names ---

    def make_folder(self, folder: str) -> None:
        """Nothing to do: a folder is a prefix of names."""

    def lock_folder(self, folder: str) -> None:
        if self._death is not None:
            raise self._death
        if folder in self._disk.locked:
            raise FolderInUse(f"{folder} is in use by another process")
        path = os.path.join(folder, LOCK_NAME)
        if not self._disk.has_name(path):
            self.close(self.create(path))  # without space for it nothing is locked
        self._disk.locked.add(folder)
        self.locks[folder] = None

    def unlock_folder(self, folder: str) -> None:
        if folder in self.locks:
            del self.locks[folder]
            self._disk.locked.discard(folder)

    def list_folder(self, folder: str) -> list[str]:
        return self._disk.names_in(folder)

    def sync_folder(self, folder: str) -> None:
        begin_ns = self._clock.local_now_ns
        self._charge(self._disk.flush_cost_ns(folder))
        self._before("sync_folder", folder)
        self._disk.flush_names(folder, begin_ns, self._now())

    def create(self, path: str) -> int:
        self._charge(self._disk.latency.write_ns)
        self._before("create", path)
        return self._open(path, self._disk.create_file(path, self._now()))

    def open_read(self, path: str) -> int:
        return self._open(path, self._disk.file_named(path))

    def open_write(self, path: str) -> int:
        return self._open(path, self._disk.file_named(path))

    def close(self, handle: int) -> None:
        if not self.is_dead:
            del self._handles[handle]

    def unlink(self, path: str) -> None:
        if self._disk.has_name(path):
            self._charge(self._disk.latency.write_ns)
            self._before("unlink", path)
            self._disk.remove_name(path, self._now())

    # --- bytes ---

    def read(self, handle: int, offset: int, size: int) -> bytes:
        path, file = self._handles[handle]
        disk = self._disk
        if disk.latency.read_ns:
            self._charge(disk.latency.read_ns)
        if disk.failing and disk.takes_failure("read", path):
            raise CorruptData(path, offset, expected="readable bytes", got="I/O error")
        if file.unreadable:
            disk.deferred.apply_all()
            if (number := file.first_unreadable(offset, size)) is not None:
                position = number * SECTOR_BYTES
                raise CorruptData(path, position, expected="readable bytes", got="I/O error")
        if disk.deferred.has_any and not self._last_ns:
            data = read_now(disk.deferred, file, offset, size)  # another process may be ahead
        else:
            data = file.read(offset, size)
        if self.on_read is not None:
            self.on_read(path, offset, data)
        return data

    def write(self, handle: int, offset: int, views: Sequence[Buffer]) -> int:
        path, file = self._handles[handle]
        disk = self._disk
        self._charge(disk.latency.write_ns)
        self._before("write", path)
        data = b"".join(views)
        end = offset + len(data)
        if self.on_write is not None:
            self.on_write(path, offset, len(data), file.read(offset, len(data)))
        if end > file.size:
            try:
                disk.take_space(path, end - file.size, act="writing")
            except DiskFull as error:
                raise WriteFailed(str(error)) from error
            self._resize(file, end)
        disk.deferred.apply_in_order(self._now(), file, file.mark_dirty, file.write(offset, data))
        return len(data)

    def flush(self, handle: int) -> None:
        path, file = self._handles[handle]
        disk = self._disk
        begin_ns = self._clock.local_now_ns
        self._charge(disk.flush_cost_ns(path))
        try:
            self._before("flush", path)
        except WriteFailed:
            disk.deferred.apply_at(self._now(), file, file.fail_flush)
            raise
        disk.flush_file(file, begin_ns, self._now())

    def allocate(self, handle: int, size: int) -> None:
        path, file = self._handles[handle]
        self._charge(self._disk.latency.write_ns)
        self._before("allocate", path)
        if size > file.size:
            self._disk.take_space(path, size - file.size, act="allocating")
            self._resize(file, size)

    def truncate(self, handle: int, size: int) -> None:
        path, file = self._handles[handle]
        self._charge(self._disk.latency.write_ns)
        self._before("truncate", path)
        self._resize(file, size)

    def size(self, handle: int) -> int:
        return self._handles[handle][1].size

    def drop_cache(self, handle: int) -> None:
        self._drop_cache(self._handles[handle][1], None)

    def release_cache(self, handle: int, end: int) -> None:
        self._drop_cache(self._handles[handle][1], end)

    def read_ahead(self, handle: int) -> None:
        """Nothing to do: reads take no time here."""

    # --- inside ---

    def _now(self) -> int:
        """Hot. The time of a change."""
        self._last_ns = now_ns = self._clock.local_now_ns
        return now_ns

    def _resize(self, file: SimulatedFile, size: int) -> None:
        before, last = file.size, file.resize(size)
        self._disk.deferred.apply_in_order(self._now(), file, file.mark_resized, before, size, last)

    def _drop_cache(self, file: SimulatedFile, end: int | None) -> None:
        if file.failed or file.other_in_cache:
            self._disk.deferred.apply_all()
            file.drop_cache(end)

    def _open(self, path: str, file: SimulatedFile) -> int:
        if self._death is not None:
            raise self._death
        handle = self._next_handle
        self._next_handle += 1
        self._handles[handle] = (path, file)
        return handle

    def _before(self, what: str, path: str) -> None:
        """Hot. Before each changing call: hooks and injected failures."""
        if self._death is not None:
            raise self._death
        if self.on_call is not None:
            self._run_hook(self.on_call, what, path)
        disk = self._disk
        if disk.on_call is not None:
            disk.on_call(what, path)
        if disk.failing and disk.takes_failure(what, path):
            raise WriteFailed(f"{what} {path}: injected I/O error")

    def _run_hook(self, on_call: Callable[[str, str], None], what: str, path: str) -> None:
        try:
            on_call(what, path)
        except (WriteFailed, DiskFull):
            raise
        except BaseException as death:
            self._death = death
            # The process dies in this call: earlier calls take effect.
            self._disk.deferred.apply_until(self._clock.local_now_ns)
            raise
        if self._death is not None:
            raise self._death
