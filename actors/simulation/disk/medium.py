"""What all processes of a machine share of its disk: a page cache over durable sectors.

Owns names, files, free space and faults. Must not know what the bytes mean, nor which process uses
it. Page cache and durable state are separate:

  * a flush takes effect when it ends, by the clock of the process that flushes (`deferred`); a
    power cut before may keep or lose what it was given;
  * a failed flush leaves clean pages that the device may never have received: the next flush
    succeeds and makes nothing durable; `drop_cache` shows what the device has (SAFETY F5);
  * a lying device keeps what is flushed in its own cache until its next honest flush.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Unpack

import msgspec

from actors.simulation.disk import media_faults
from actors.simulation.disk.deferred import Clock, DeferredOperations, StillClock
from actors.simulation.disk.directory import Directory, FlushedNames
from actors.simulation.disk.file import SimulatedFile
from actors.simulation.disk.media_faults import RotKind
from actors.simulation.disk.sectors import ZERO_SECTOR, Flush
from logstore.errors import DiskFull, WriteFailed
from logstore.limits import SECTOR_BYTES


class DiskLatency(msgspec.Struct):
    """What calls cost: any change `write_ns`, a flush of a file or folder a random time of
    [flush_min_ns, flush_max_ns]."""

    random: Random
    write_ns: int
    flush_min_ns: int
    flush_max_ns: int
    read_ns: int = 0

    def flush_ns(self) -> int:
        span = self.flush_max_ns - self.flush_min_ns
        if span == 0:
            return self.flush_min_ns
        return self.flush_min_ns + (self.random.getrandbits(32) * (span + 1) >> 32)


class Medium:
    """`capacity_bytes` limits the sum of file sizes. `on_call(what, path)` runs before every
    changing call; it may raise to kill the process there. `keep_history`: keep former versions of
    sectors, for stale ones. `clock`: None where no world has a time."""

    def __init__(
        self,
        *,
        capacity_bytes: int | None = None,
        keep_history: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.keep_history = keep_history
        self.on_call: Callable[[str, str], None] | None = None
        self.latency = DiskLatency(Random(0), write_ns=0, flush_min_ns=0, flush_max_ns=0)
        self.failing: list[tuple[str, str]] = []  # (what, end of the path): fails, once
        self.locked: set[str] = set()
        self.is_lying = False
        self._stalls: dict[str, int] = {}  # end of a path -> what a flush of it costs more
        self.deferred = DeferredOperations(clock or StillClock())
        self._names = Directory()
        self._lied_files: dict[SimulatedFile, None] = {}

    # --- for views ---

    @property
    def files(self) -> Mapping[str, SimulatedFile]:
        """By name, as processes see them now."""
        return self._names.files

    def has_name(self, path: str) -> bool:
        return path in self._names.files

    def file_named(self, path: str) -> SimulatedFile:
        if path not in self._names.files:
            raise FileNotFoundError(path)
        return self._names.files[path]

    def names_in(self, folder: str) -> list[str]:
        return self._names.in_folder(folder)

    def create_file(self, path: str, at_ns: int) -> SimulatedFile:
        if path in self._names.files:
            raise WriteFailed(f"creating {path}: it exists")
        self.take_space(path, 0, act="creating")
        file = SimulatedFile()
        self._names.add(path, file)
        self.deferred.apply_in_order(at_ns, None, self._names.changed, path, file)
        return file

    def remove_name(self, path: str, at_ns: int) -> None:
        self._names.drop(path)
        self.deferred.apply_in_order(at_ns, None, self._names.changed, path, None)

    def flush_names(self, folder: str, begin_ns: int, end_ns: int) -> None:
        """Every create and unlink in the folder is durable at `end_ns`, or the device claims it."""
        flushed: FlushedNames = {}
        self.deferred.apply_in_order(begin_ns, None, self._names.begin_flush, folder, flushed)
        self.deferred.apply_at(end_ns, None, self._end_names, flushed)

    def flush_file(self, file: SimulatedFile, begin_ns: int, end_ns: int) -> None:
        """Hot. The file is durable at `end_ns`, or the device claims it."""
        flush = Flush()
        self.deferred.apply_in_order(begin_ns, file, file.begin_flush, flush)
        self.deferred.apply_at(end_ns, file, self.end_flush, file, flush)

    def flush_cost_ns(self, path: str) -> int:
        cost_ns = self.latency.flush_ns()
        if self._stalls:
            cost_ns += max(ns if path.endswith(end) else 0 for end, ns in self._stalls.items())
        return cost_ns

    def takes_failure(self, what: str, path: str) -> bool:
        """Whether `fail_next` wants this call to fail."""
        for failing in self.failing:
            if failing[0] == what and path.endswith(failing[1]):
                self.failing.remove(failing)
                return True
        return False

    def take_space(self, path: str, more: int, *, act: str) -> None:
        if self.capacity_bytes is None:
            return
        used = self.used_bytes
        if used + more > self.capacity_bytes or (act == "creating" and used >= self.capacity_bytes):
            raise DiskFull(f"{act} {path}: no space left; free some space on this file system")

    # --- faults ---

    def fail_next(self, what: str, path_end: str) -> None:
        """The next call `what` on such a path fails: a read with CorruptData, else WriteFailed."""
        self.failing.append((what, path_end))

    def fill(self) -> None:
        """No space is left until `free_space`."""
        self.capacity_bytes = self.used_bytes

    def free_space(self) -> None:
        self.capacity_bytes = None

    def stall(self, extra_ns: int, path_end: str = "") -> None:
        """Until `end_stalls`, each flush of a path with this end costs `extra_ns` more."""
        self._stalls[path_end] = extra_ns

    def end_stalls(self) -> None:
        self._stalls.clear()

    def begin_lying(self) -> None:
        """Until `end_lying`, flushed sectors stay in the device's own cache. The next honest flush
        makes them durable; a power cut before may lose them."""
        self.is_lying = True

    def end_lying(self) -> None:
        self.is_lying = False

    @property
    def has_lies(self) -> bool:
        """Whether a power cut now may lose what the device called flushed."""
        self.deferred.apply_due()
        return any(file.lied or file.lied_sizes for file in self._names.files.values())

    def rot(
        self,
        random: Random,
        kind: RotKind,
        is_wanted: Callable[[str], bool],
        *,
        is_cached_too: bool,
        **options: Unpack[media_faults.RotOptions],
    ) -> tuple[str, int] | None:
        """Damage a durable sector of a wanted file. Without `is_cached_too` the page cache keeps
        a good copy. Returns (path, sector) or None; MISDIRECTED hits a second one, see `rotten`.
        """
        self.deferred.apply_all()
        files = {
            path: file
            for path, file in self._names.files.items()
            if self._names.durable.get(path) is file and is_wanted(path)
        }
        return media_faults.rot(files, random, kind, is_cached_too=is_cached_too, **options)

    def set_unreadable(self, path: str, sector: int) -> None:
        """Reading the sector fails until it is written again."""
        media_faults.make_unreadable(self._names.files[path], sector, is_cached_too=True)

    def damage(self, path: str, sector: int, content: bytes) -> None:
        """The medium changes a sector: rot, a zeroed or misdirected write."""
        content = content.ljust(SECTOR_BYTES, b"\0")[:SECTOR_BYTES]
        media_faults.change_content(self._names.files[path], sector, content, is_cached_too=True)

    def cut(self, path: str, size: int) -> None:
        """The tail of the file is gone, and no process was told."""
        media_faults.cut_tail(self._names.files[path], size)

    def remove(self, path: str) -> None:
        """The file is gone, and no process was told."""
        self._names.lose(path)

    # --- power cuts ---

    def drop_after(self, at_ns: int) -> None:
        """The power fails at `at_ns`: discard operations that are due later."""
        self.deferred.apply_until(at_ns)
        for file in self.deferred.discard():
            if file is not None:
                file.is_ahead = True

    def power_cut(self, random: Random, *, garble: bool) -> list[tuple[str, int]]:
        """Make this the disk after a power cut; all its processes are dead. Each volatile sector is
        kept (in any version), dropped or garbled by itself; sizes and names keep a prefix of their
        changes. What comes back, a removed file or the end of a cut one, had its space all along: a
        full disk is no smaller than that. Returns the garbled (path, sector)."""
        keep_in_eight = random.choice((0, 2, 4, 6, 8))  # one chance for the whole cut
        self._names.power_cut(random)
        self._lied_files.clear()
        garbled = [
            (path, sector)
            for path, file in self._names.files.items()
            for sector in file.power_cut(random, keep_in_eight=keep_in_eight, garble=garble)
        ]
        if self.capacity_bytes is not None:
            self.capacity_bytes = max(self.capacity_bytes, self.used_bytes)
        return garbled

    # --- what no process of the machine can see ---

    @property
    def used_bytes(self) -> int:
        return sum(file.size for file in self._names.files.values())

    def content(self, path: str) -> dict[int, bytes]:
        """The sectors that are not all zeros, as a reader sees them."""
        return {n: s for n, s in self._names.files[path].sectors.items() if s != ZERO_SECTOR}

    def paths(self) -> list[str]:
        return sorted(self._names.files)

    def fingerprint(self) -> tuple[object, ...]:
        """Equal for two disks that read the same."""
        return tuple(
            (path, self._names.files[path].size, frozenset(self.content(path).items()))
            for path in self.paths()
        )

    def is_durable(self, path: str, offset: int, size: int, *, counting_lies: bool = False) -> bool:
        """The file exists and the range reads as now after any power cut; see
        `SimulatedFile.is_durable`."""
        self.deferred.apply_due_locally()
        file = self._names.durable_file(path, counting_lies=counting_lies)
        return file is not None and file.is_durable(offset, size, counting_lies=counting_lies)

    def durable_bytes(self, path: str, offset: int, size: int) -> bytes:
        """The range on the medium, up to the durable end; nothing if the name is not durable."""
        self.deferred.apply_due_locally()
        file = self._names.durable.get(path)
        return b"" if file is None else file.durable_bytes(offset, size)

    def durable_paths(self) -> list[str]:
        self.deferred.apply_due_locally()
        return sorted(self._names.durable)

    def rotten(self) -> list[tuple[str, int]]:
        """Every (path, sector) that the medium damaged and that was not written since."""
        return [(path, n) for path in self.paths() for n in sorted(self._names.files[path].rotten)]

    # --- inside ---

    def _end_names(self, flushed: FlushedNames) -> None:
        if self.is_lying:
            self._names.flush_into_cache(flushed)
            return
        self._persist_lied()
        self._names.end_flush(flushed)

    def end_flush(self, file: SimulatedFile, flush: Flush) -> None:
        """Hot."""
        if self.is_lying:
            file.flush_into_cache(flush)
            self._lied_files[file] = None
            return
        if self._lied_files or self._names.lied:
            self._persist_lied()
        file.end_flush(flush, keep_history=self.keep_history)

    def _persist_lied(self) -> None:
        """An honest flush empties the device's cache, of all files."""
        self._names.persist_lied()
        for file in self._lied_files:
            if self.keep_history:
                file.record_history(file.lied)
            file.persist_lied()
        self._lied_files.clear()
