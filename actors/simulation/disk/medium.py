"""What the processes of one machine share of a disk: a page cache over durable sectors that
forgets, rots, fails and fills up.

Owns the names, what of them is durable, space, and what a power cut makes of them. Must not know
what the bytes mean, nor which process plays on it. Durable state and page cache are separate, so:

  * a flush takes effect when it ends, by the clock of the process that flushes; until then what it
    was given may survive or not. Used alone the disk has no clock: everything happens at its call;
  * a failed flush leaves clean pages that the device may never have seen: the next flush succeeds
    and makes nothing durable, `drop_cache` shows the device (SAFETY F5);
  * a device that lies keeps what is flushed in its own cache until its next honest flush.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Unpack

import msgspec

from actors.simulation.disk import media_faults
from actors.simulation.disk.file import SimulatedFile
from actors.simulation.disk.media_faults import RotKind
from actors.simulation.disk.names import DiskNames, Marks
from actors.simulation.disk.pending import Clock, DiskActs, StillClock
from actors.simulation.disk.sectors import ZERO_SECTOR, Landing
from logstore.errors import DiskFull, WriteFailed
from logstore.limits import SECTOR_BYTES


class DiskLatency(msgspec.Struct):
    """What calls cost. `write_ns`: any change; a flush, of a folder too, costs a draw from
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
    """`capacity_bytes` counts file sizes; `on_call(what, path)` runs before every
    call that changes something: it may raise (a process dies there) or look (a crash point).
    `keep_history`: the medium's last versions of each sector are kept, for stale ones. `clock`:
    the world's, for disks of processes that have one."""

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
        self.acts = DiskActs(clock or StillClock())
        self._names = DiskNames()
        self._lied_files: dict[SimulatedFile, None] = {}

    # --- what views stand on ---

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
        self.acts.behind(at_ns, None, self._names.changed, path, file)
        return file

    def remove_name(self, path: str, at_ns: int) -> None:
        self._names.drop(path)
        self.acts.behind(at_ns, None, self._names.changed, path, None)

    def flush_names(self, folder: str, begin_ns: int, end_ns: int) -> None:
        """Every create and unlink in the folder is durable at the end, or the device says so."""
        marks: Marks = {}
        self.acts.behind(begin_ns, None, self._names.begin_flush, folder, marks)
        self.acts.at(end_ns, None, self._end_names, marks)

    def flush_file(self, file: SimulatedFile, begin_ns: int, end_ns: int) -> None:
        """Hot. The file is durable at the end, or the device says so; an honest flush empties its
        cache."""
        landing = Landing()
        self.acts.behind(begin_ns, file, file.begin_flush, landing)
        self.acts.at(end_ns, file, self.end_flush, file, landing)

    def flush_cost_ns(self, path: str) -> int:
        cost_ns = self.latency.flush_ns()
        if self._stalls:
            cost_ns += max(ns if path.endswith(end) else 0 for end, ns in self._stalls.items())
        return cost_ns

    def takes_failure(self, what: str, path: str) -> bool:
        """Whether this call is one that was to fail; it fails once."""
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

    # --- trouble ---

    def fail_next(self, what: str, path_end: str) -> None:
        """The next call `what` on such a path fails: CorruptData of a read, else WriteFailed."""
        self.failing.append((what, path_end))

    fail_once = fail_next

    def fill(self) -> None:
        """No space is left until `free`."""
        self.capacity_bytes = self.used_bytes

    def free(self) -> None:
        self.capacity_bytes = None

    def stall(self, extra_ns: int, path_end: str = "") -> None:
        """Each flush of a path that ends so costs that much more, until that is 0 or `unstall`."""
        self._stalls[path_end] = extra_ns

    def unstall(self) -> None:
        self._stalls.clear()

    def lie(self) -> None:
        """Until `tell_truth`, a flush leaves the sectors in the device's own cache: durable at the
        next honest flush, and at the mercy of a power cut before."""
        self.is_lying = True

    def tell_truth(self) -> None:
        self.is_lying = False

    @property
    def has_lies(self) -> bool:
        """Whether a power cut now may take what a flush has promised."""
        self.acts.settle()
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
        """Hit a durable sector of a wanted file. Without `is_cached_too` the page cache keeps its
        good copy. Returns (path, sector), or None; MISDIRECTED hits a second one, see `rotten`."""
        self.acts.finish()
        files = {
            path: file
            for path, file in self._names.files.items()
            if self._names.durable.get(path) is file and is_wanted(path)
        }
        return media_faults.rot(files, random, kind, is_cached_too=is_cached_too, **options)

    def set_unreadable(self, path: str, sector: int) -> None:
        """Reading the sector is an I/O error until it is written again."""
        media_faults.refuse_sector(self._names.files[path], sector, is_cached_too=True)

    def damage(self, path: str, sector: int, content: bytes) -> None:
        """The medium changes a sector behind everyone's back (rot, a zeroed or misdirected
        write)."""
        content = content.ljust(SECTOR_BYTES, b"\0")[:SECTOR_BYTES]
        media_faults.change_sector(self._names.files[path], sector, content, is_cached_too=True)

    def cut(self, path: str, size: int) -> None:
        """The tail of the file is gone behind everyone's back."""
        media_faults.cut_behind(self._names.files[path], size)

    def remove(self, path: str) -> None:
        """The file is gone behind everyone's back."""
        self._names.lose(path)

    # --- power cuts ---

    def stop(self, at_ns: int) -> None:
        """The power fails at `at_ns`: what was to happen later never will."""
        self.acts.catch_up(at_ns)
        for file in self.acts.drop():
            if file is not None:
                file.is_ahead = True

    def power_cut(self, random: Random, *, garble: bool) -> list[tuple[str, int]]:
        """This disk after a power cut now; all its processes are dead. Each unsettled sector is
        kept (any version), dropped or garbled by itself, with one chance of being kept for the
        whole cut; sizes and names keep a prefix of their changes. Returns the garbled ones."""
        keep_in_eight = random.choice((0, 2, 4, 6, 8))
        self._names.power_cut(random)
        self._lied_files.clear()
        return [
            (path, sector)
            for path, file in self._names.files.items()
            for sector in file.power_cut(random, keep_in_eight=keep_in_eight, garble=garble)
        ]

    # --- looking, as nobody on the machine can ---

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
        """The file is there and the range reads as now whatever a power cut leaves.
        `counting_lies`: what the device claims to have counts as durable. Rot does not count
        against it: `durable_bytes` shows the medium."""
        self.acts.settle_for_asker()
        file = self._names.durable_file(path, counting_lies=counting_lies)
        return file is not None and file.is_durable(offset, size, counting_lies=counting_lies)

    def durable_bytes(self, path: str, offset: int, size: int) -> bytes:
        """What the medium has there, fewer bytes at the end of the file as the medium knows it;
        none of a file whose name is not durable."""
        self.acts.settle_for_asker()
        file = self._names.durable.get(path)
        return b"" if file is None else file.durable_bytes(offset, size)

    def durable_paths(self) -> list[str]:
        self.acts.settle_for_asker()
        return sorted(self._names.durable)

    def rotten(self) -> list[tuple[str, int]]:
        """Every (path, sector) that the medium changed or refuses, and nobody wrote since."""
        return [(path, n) for path in self.paths() for n in sorted(self._names.files[path].rotten)]

    # --- inside ---

    def _end_names(self, marks: Marks) -> None:
        if self.is_lying:
            self._names.flush_into_cache(marks)
            return
        self._settle()
        self._names.end_flush(marks)

    def end_flush(self, file: SimulatedFile, landing: Landing) -> None:
        """Hot."""
        if self.is_lying:
            file.flush_into_cache(landing)
            self._lied_files[file] = None
            return
        if self._lied_files or self._names.lied:
            self._settle()
        file.end_flush(landing, keep_history=self.keep_history)

    def _settle(self) -> None:
        """An honest flush: the device's cache, of all files, is on the medium."""
        self._names.settle()
        for file in self._lied_files:
            if self.keep_history:
                file.remember(file.lied)
            file.settle()
        self._lied_files.clear()
