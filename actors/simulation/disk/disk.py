"""The simulated disk as its users hold it: one view a process, and every state that a power cut may
leave.

Owns the views. Each keeps the contract of `logstore.storage.disk.Disk`, and so does the disk
itself, as the only process; the contract suite runs on both. What they share is in `medium`.

  * `crash_states` gives the disks that a power cut now may leave: any subset of the unflushed
    sector writes (each sector in any version written since the last flush), any prefix of the
    unflushed size changes, any prefix of the unflushed changes of each name; `power_cut` makes this
    disk one of them;
  * the death of a process (`DiskView.kill`, `kill_process`) loses nothing but handles and locks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from random import Random

from actors.simulation.disk.crash_states import crashed_files
from actors.simulation.disk.file import SimulatedFile
from actors.simulation.disk.medium import Medium
from actors.simulation.disk.pending import Clock, StillClock
from actors.simulation.disk.view import DiskView, LocalClock
from logstore.errors import InvariantViolated
from logstore.storage.disk import Buffer


class SimulatedDisk(Medium):
    """A disk in memory, as the only process that uses it; each further process takes a `view`."""

    def __init__(
        self,
        *,
        capacity_bytes: int | None = None,
        keep_history: bool = False,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(capacity_bytes=capacity_bytes, keep_history=keep_history, clock=clock)
        self._views: list[DiskView] = []
        self._own = DiskView(self, _charge_nothing, StillClock())

    def view(self, charge: Callable[[int], None], clock: LocalClock | None = None) -> DiskView:
        """The disk as one more process sees it; `charge(ns)` is told what each call costs, `clock`
        is that of the process."""
        view = DiskView(self, charge, clock or StillClock())
        self._views = [*self._living_views, view]
        return view

    # --- the port, as the only process ---

    def make_folder(self, folder: str) -> None:
        self._own.make_folder(folder)

    def lock_folder(self, folder: str) -> None:
        self._own.lock_folder(folder)

    def unlock_folder(self, folder: str) -> None:
        self._own.unlock_folder(folder)

    def list_folder(self, folder: str) -> list[str]:
        return self._own.list_folder(folder)

    def sync_folder(self, folder: str) -> None:
        self._own.sync_folder(folder)

    def create(self, path: str) -> int:
        return self._own.create(path)

    def open_read(self, path: str) -> int:
        return self._own.open_read(path)

    def open_write(self, path: str) -> int:
        return self._own.open_write(path)

    def close(self, handle: int) -> None:
        self._own.close(handle)

    def read(self, handle: int, offset: int, size: int) -> bytes:
        return self._own.read(handle, offset, size)

    def write(self, handle: int, offset: int, views: Sequence[Buffer]) -> int:
        return self._own.write(handle, offset, views)

    def flush(self, handle: int) -> None:
        self._own.flush(handle)

    def allocate(self, handle: int, size: int) -> None:
        self._own.allocate(handle, size)

    def truncate(self, handle: int, size: int) -> None:
        self._own.truncate(handle, size)

    def size(self, handle: int) -> int:
        return self._own.size(handle)

    def drop_cache(self, handle: int) -> None:
        self._own.drop_cache(handle)

    def release_cache(self, handle: int, end: int) -> None:
        self._own.release_cache(handle, end)

    def unlink(self, path: str) -> None:
        self._own.unlink(path)

    def kill_process(self) -> None:
        """The only process dies: every handle and lock of the port ends; the page cache stays."""
        self._own.kill()
        self._own = DiskView(self, _charge_nothing, StillClock())
        self.on_call = None

    def power_cut(self, random: Random, *, garble: bool) -> list[tuple[str, int]]:
        if self._living_views or not self._own.is_idle:
            raise InvariantViolated("a power cut while a process holds the disk")
        return super().power_cut(random, garble=garble)

    def crash_states(self, *, states_max: int, random: Random) -> Iterator[SimulatedDisk]:
        """The disks a power cut now may leave, all of them if there are at most `states_max`, else
        that many: none, all, each alone, all but each, every prefix, then random ones."""
        self.acts.settle()
        for files in crashed_files(self._names, states_max=states_max, random=random):
            disk = SimulatedDisk(capacity_bytes=self.capacity_bytes)
            for path, file in files.items():
                disk._names.put_durably(path, file)
            yield disk

    def copy(self) -> SimulatedDisk:
        """A disk with the same durable content, as after a power cut that lost nothing readable."""
        disk = SimulatedDisk(capacity_bytes=self.capacity_bytes)
        for path, file in self._names.files.items():
            disk._names.put_durably(path, SimulatedFile(file.size, file.sectors, file.unreadable))
        return disk

    def fork(self) -> SimulatedDisk:
        """The same disk at this moment, page cache included, for another future without the
        processes of this one's views."""
        watch, self.on_call = self.on_call, None
        views, self._views = self._living_views, []
        try:
            disk = deepcopy(self)
        finally:
            self.on_call, self._views = watch, views
        for view in views:
            disk.locked.difference_update(view.locks)
        return disk

    @property
    def _living_views(self) -> list[DiskView]:
        return [view for view in self._views if not view.is_dead]


def _charge_nothing(cost_ns: int) -> None:
    """The disk's only process has no clock."""
