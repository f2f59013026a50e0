"""The simulated disk: a page cache over durable sectors that forgets, rots, fails and fills up.

Owns files in memory, what of them is durable, and every state a power cut may leave. Must not know
what the bytes mean, nor who plays on it. It keeps the contract of `logstore.storage.disk.Disk`;
the contract suite runs on both. Durable state and page cache are separate, so:

  * `crash_states` gives the disks that a power cut now may leave: any subset of the unflushed
    sector writes (each sector in any version written since the last flush), any prefix of the
    unflushed size changes, any prefix of the unflushed changes of each name;
  * the death of a process (`kill_process`) loses nothing but handles and locks;
  * a failed flush leaves clean pages that the device may never have seen: the next flush succeeds
    and makes nothing durable, `drop_cache` shows the device (SAFETY F5).

Invariant: a sector's bytes are immutable objects, so a crash state shares them and costs little.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from random import Random

from actors.simulation.crash import choices_bounded
from logstore.errors import CorruptData, DiskFull, FolderRefused, WriteFailed
from logstore.limits import SECTOR_BYTES
from logstore.storage.disk import LOCK_NAME, Buffer

_ZERO_SECTOR = bytes(SECTOR_BYTES)
_Sectors = dict[int, bytes]  # sector number -> its bytes; an absent sector reads as zeros


class SimulatedFile:
    """One file's cached view, its durable state and what is between them."""

    def __init__(
        self,
        size: int = 0,
        sectors: _Sectors | None = None,
        unreadable: frozenset[int] | set[int] = frozenset(),
    ) -> None:
        self.size = size
        self.sectors: _Sectors = dict(sectors or {})
        self.durable_size = size
        self.durable: _Sectors = dict(self.sectors)
        self.pending: dict[int, list[bytes]] = {}
        self.pending_sizes: list[int] = []
        self.stuck: dict[int, list[bytes]] = {}  # clean pages after a failed flush
        self.unreadable: set[int] = set(unreadable)

    def write_sector(self, number: int, content: bytes) -> None:
        self.sectors[number] = content
        self.pending.setdefault(number, []).append(content)
        self.unreadable.discard(number)

    def resize(self, size: int) -> None:
        if size < self.size:
            cut_sectors(self.sectors, size)
            for number in [n for n in self.pending if n * SECTOR_BYTES >= size]:
                del self.pending[number]
        self.size = size
        self.pending_sizes.append(size)

    def flush(self) -> None:
        for number, versions in self.pending.items():
            self.durable[number] = versions[-1]
        self.pending.clear()
        if self.pending_sizes:
            cut_sectors(self.durable, min(self.pending_sizes))
            self.durable_size = self.size
            self.pending_sizes.clear()

    def fail_flush(self) -> None:
        for number, versions in self.pending.items():
            self.stuck.setdefault(number, []).extend(versions)
        self.pending.clear()

    def drop_cache(self) -> None:
        for number in self.stuck:
            if number not in self.pending:
                self.sectors.pop(number, None)
                if number in self.durable:
                    self.sectors[number] = self.durable[number]
        self.stuck.clear()

    def survivors(self) -> Iterator[tuple[str, int, list[bytes | int]]]:
        """What may or may not survive: (what, sector number, its versions after the durable
        one)."""
        numbers = sorted(self.pending.keys() | self.stuck.keys())
        for number in numbers:
            yield "sector", number, [*self.stuck.get(number, []), *self.pending.get(number, [])]
        if self.pending_sizes:
            yield "size", 0, list(self.pending_sizes)


class SimulatedDisk:
    """A disk in memory. `capacity_bytes` counts file sizes; `on_call(what, path)` runs before every
    call that changes something: it may raise (a process dies there) or look (a crash point)."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.on_call: Callable[[str, str], None] | None = None
        self.failing: set[tuple[str, str]] = set()  # (what, end of the path): fails, once
        self._names: dict[str, SimulatedFile] = {}
        self._durable_names: dict[str, SimulatedFile] = {}
        self._pending_names: dict[str, list[SimulatedFile | None]] = {}
        self._handles: dict[int, tuple[str, SimulatedFile]] = {}
        self._next_handle = 1
        self._locks: set[str] = set()

    # --- the port ---

    def make_folder(self, folder: str) -> None:
        """Folders are prefixes of names; there is nothing to make."""

    def lock_folder(self, folder: str) -> None:
        if folder in self._locks:
            raise FolderRefused(f"{folder} is in use by another process")
        self._locks.add(folder)
        if os.path.join(folder, LOCK_NAME) not in self._names:
            self.close(self.create(os.path.join(folder, LOCK_NAME)))

    def unlock_folder(self, folder: str) -> None:
        self._locks.discard(folder)

    def list_folder(self, folder: str) -> list[str]:
        return sorted(os.path.basename(p) for p in self._names if os.path.dirname(p) == folder)

    def sync_folder(self, folder: str) -> None:
        self._call("sync_folder", folder)
        for path in [p for p in self._pending_names if os.path.dirname(p) == folder]:
            last = self._pending_names.pop(path)[-1]
            if last is None:
                self._durable_names.pop(path, None)
            else:
                self._durable_names[path] = last

    def create(self, path: str) -> int:
        self._call("create", path)
        if path in self._names:
            raise WriteFailed(f"creating {path}: it exists")
        self._take_space(path, 0, act="creating")
        file = SimulatedFile()
        self._names[path] = file
        self._pending_names.setdefault(path, []).append(file)
        return self._open(path)

    def open_read(self, path: str) -> int:
        return self._open(path)

    def open_write(self, path: str) -> int:
        return self._open(path)

    def close(self, handle: int) -> None:
        del self._handles[handle]

    def read(self, handle: int, offset: int, size: int) -> bytes:
        path, file = self._handles[handle]
        end = min(offset + size, file.size)
        if end <= offset:
            return b""
        first, last = offset // SECTOR_BYTES, (end - 1) // SECTOR_BYTES
        if file.unreadable:
            for number in range(first, last + 1):
                if number in file.unreadable:
                    raise CorruptData(
                        path, number * SECTOR_BYTES, expected="readable bytes", got="I/O error"
                    )
        get = file.sectors.get
        whole = b"".join([get(number, _ZERO_SECTOR) for number in range(first, last + 1)])
        start = offset - first * SECTOR_BYTES
        return whole[start : start + end - offset]

    def write(self, handle: int, offset: int, views: Sequence[Buffer]) -> int:
        path, file = self._handles[handle]
        self._call("write", path)
        data = b"".join(views)
        if offset + len(data) > file.size:
            try:
                self._take_space(path, offset + len(data) - file.size, act="writing")
            except DiskFull as error:
                raise WriteFailed(str(error)) from error
            file.resize(offset + len(data))
        position = 0
        while position < len(data):
            number, inside = divmod(offset + position, SECTOR_BYTES)
            piece = data[position : position + SECTOR_BYTES - inside]
            old = file.sectors.get(number, _ZERO_SECTOR)
            file.write_sector(number, old[:inside] + piece + old[inside + len(piece) :])
            position += len(piece)
        return len(data)

    def flush(self, handle: int) -> None:
        path, file = self._handles[handle]
        try:
            self._call("flush", path)
        except WriteFailed:
            file.fail_flush()
            raise
        file.flush()

    def allocate(self, handle: int, size: int) -> None:
        path, file = self._handles[handle]
        self._call("allocate", path)
        if size > file.size:
            self._take_space(path, size - file.size, act="allocating")
            file.resize(size)

    def truncate(self, handle: int, size: int) -> None:
        path, file = self._handles[handle]
        self._call("truncate", path)
        file.resize(size)

    def size(self, handle: int) -> int:
        return self._handles[handle][1].size

    def drop_cache(self, handle: int) -> None:
        self._handles[handle][1].drop_cache()

    def release_cache(self, handle: int, end: int) -> None:
        """A hint this disk does not take."""

    def unlink(self, path: str) -> None:
        if path not in self._names:
            return
        self._call("unlink", path)
        del self._names[path]
        self._pending_names.setdefault(path, []).append(None)

    # --- trouble ---

    def fail_once(self, what: str, path_end: str) -> None:
        """The next call `what` on a path that ends so raises WriteFailed (a flush: pages go
        clean)."""
        self.failing.add((what, path_end))

    def set_unreadable(self, path: str, sector: int) -> None:
        """Reading the sector is an I/O error until it is written again."""
        self._names[path].unreadable.add(sector)

    def damage(self, path: str, sector: int, content: bytes) -> None:
        """The medium changes a sector behind everyone's back (rot, a zeroed or misdirected
        write)."""
        file = self._names[path]
        for sectors in (file.sectors, file.durable):
            sectors[sector] = content.ljust(SECTOR_BYTES, b"\0")[:SECTOR_BYTES]

    def cut(self, path: str, size: int) -> None:
        """The tail of the file is gone behind everyone's back."""
        file = self._names[path]
        file.size = file.durable_size = size
        cut_sectors(file.sectors, size)
        cut_sectors(file.durable, size)

    def remove(self, path: str) -> None:
        """The file is gone behind everyone's back."""
        self._names.pop(path, None)
        self._durable_names.pop(path, None)
        self._pending_names.pop(path, None)

    def kill_process(self) -> None:
        """Every handle and lock ends; the page cache stays."""
        self._handles.clear()
        self._locks.clear()
        self.on_call = None

    # --- power cuts ---

    def content(self, path: str) -> dict[int, bytes]:
        """The sectors that are not all zeros, as a reader sees them."""
        return {n: s for n, s in self._names[path].sectors.items() if s != _ZERO_SECTOR}

    def paths(self) -> list[str]:
        return sorted(self._names)

    def fingerprint(self) -> tuple[object, ...]:
        """Equal for two disks that read the same."""
        return tuple(
            (path, self._names[path].size, frozenset(self.content(path).items()))
            for path in self.paths()
        )

    def copy(self) -> SimulatedDisk:
        """A disk with the same durable content, as after a power cut that lost nothing readable."""
        disk = SimulatedDisk(capacity_bytes=self.capacity_bytes)
        for path, file in self._names.items():
            disk._put(path, SimulatedFile(file.size, file.sectors, file.unreadable))
        return disk

    def fork(self) -> SimulatedDisk:
        """The same disk at this moment, page cache included, for another future."""
        watch, self.on_call = self.on_call, None
        try:
            return deepcopy(self)
        finally:
            self.on_call = watch

    def crash_states(self, *, states_max: int, random: Random) -> Iterator[SimulatedDisk]:
        """The disks a power cut now may leave, all of them if there are at most `states_max`, else
        that many: none, all, each alone, all but each, every prefix, then random ones."""
        variables: list[tuple[object, int, list[bytes | int | SimulatedFile | None]]] = []
        files = {id(f): f for f in self._durable_names.values()}
        for path, versions in self._pending_names.items():
            variables.append((path, -1, list(versions)))
            files.update({id(f): f for f in versions if f is not None})
        for file in files.values():
            for what, number, survivors in file.survivors():
                variables.append((file, number if what == "sector" else -1, list(survivors)))
        sizes = [len(versions) + 1 for _, _, versions in variables]
        for choice in choices_bounded(sizes, choices_max=states_max, random=random):
            yield self._crashed(variables, choice)

    def _crashed(
        self,
        variables: list[tuple[object, int, list[bytes | int | SimulatedFile | None]]],
        choice: tuple[int, ...],
    ) -> SimulatedDisk:
        names = dict(self._durable_names)
        sectors: dict[SimulatedFile, _Sectors] = {}
        sizes: dict[SimulatedFile, list[int]] = {}
        for (owner, number, versions), taken in zip(variables, choice, strict=True):
            if taken == 0:
                continue
            value = versions[taken - 1]
            if isinstance(owner, SimulatedFile):
                if isinstance(value, bytes):
                    sectors.setdefault(owner, {})[number] = value
                else:
                    sizes[owner] = [v for v in versions[:taken] if isinstance(v, int)]
            elif isinstance(owner, str):
                if isinstance(value, SimulatedFile):
                    names[owner] = value
                else:
                    names.pop(owner, None)
        disk = SimulatedDisk(capacity_bytes=self.capacity_bytes)
        for path, file in names.items():
            disk._put(path, crashed_file(file, sectors.get(file, {}), sizes.get(file, [])))
        return disk

    # --- inside ---

    def _put(self, path: str, file: SimulatedFile) -> None:
        self._names[path] = file
        self._durable_names[path] = file

    def _open(self, path: str) -> int:
        if path not in self._names:
            raise FileNotFoundError(path)
        handle = self._next_handle
        self._next_handle += 1
        self._handles[handle] = (path, self._names[path])
        return handle

    def _call(self, what: str, path: str) -> None:
        if self.on_call is not None:
            self.on_call(what, path)
        for failing in self.failing:
            if failing[0] == what and path.endswith(failing[1]):
                self.failing.discard(failing)
                raise WriteFailed(f"{what} {path}: injected I/O error")

    def _take_space(self, path: str, more: int, *, act: str) -> None:
        if self.capacity_bytes is None:
            return
        used = sum(file.size for file in self._names.values())
        if used + more > self.capacity_bytes or (act == "creating" and used >= self.capacity_bytes):
            raise DiskFull(f"{act} {path}: no space left; free some space on this file system")


def crashed_file(file: SimulatedFile, sectors: _Sectors, sizes: list[int]) -> SimulatedFile:
    """The file after a power cut that left these unflushed sectors and size changes."""
    content = dict(file.durable)
    if sizes:
        cut_sectors(content, min(sizes))
    content.update(sectors)
    size = sizes[-1] if sizes else file.durable_size
    cut_sectors(content, size)
    return SimulatedFile(size, content, file.unreadable)


def cut_sectors(sectors: _Sectors, size: int) -> None:
    """Drop what lies at or beyond byte `size`."""
    for number in [n for n in sectors if (n + 1) * SECTOR_BYTES > size]:
        inside = size - number * SECTOR_BYTES
        if inside <= 0:
            del sectors[number]
        else:
            sectors[number] = sectors[number][:inside].ljust(SECTOR_BYTES, b"\0")
