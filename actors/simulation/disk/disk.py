"""The simulated disk as its users have it: one view per process over one medium.

Owns the views. Each keeps the contract of `logstore.storage.disk.Disk`. So does the disk itself,
which tests use as if they were its only process; the contract suite runs on both. The death of a
process (`DiskView.kill`, `kill_process`) loses handles and locks, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from random import Random

from actors.simulation.disk.deferred import Clock, StillClock
from actors.simulation.disk.file import SimulatedFile
from actors.simulation.disk.medium import Medium
from actors.simulation.disk.view import DiskView, LocalClock
from logstore.errors import InvariantViolated


class SimulatedDisk(Medium):
    """A disk in memory for one process; each further process takes a `view`."""

    def __init__(
        self,
        *,
        capacity_bytes: int | None = None,
        keep_history: bool = False,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(capacity_bytes=capacity_bytes, keep_history=keep_history, clock=clock)
        self._views: list[DiskView] = []
        self._open_own_view()

    def _open_own_view(self) -> None:
        """The disk's own methods of the `Disk` contract are those of a view."""
        own = self._own = DiskView(self, lambda _cost_ns: None, StillClock())
        self.make_folder, self.sync_folder = own.make_folder, own.sync_folder
        self.lock_folder, self.unlock_folder = own.lock_folder, own.unlock_folder
        self.list_folder, self.unlink = own.list_folder, own.unlink
        self.create, self.close = own.create, own.close
        self.open_read, self.open_write = own.open_read, own.open_write
        self.read, self.write, self.flush = own.read, own.write, own.flush
        self.allocate, self.truncate, self.size = own.allocate, own.truncate, own.size
        self.drop_cache, self.release_cache = own.drop_cache, own.release_cache
        self.read_ahead = own.read_ahead

    def view(self, charge: Callable[[int], None], clock: LocalClock | None = None) -> DiskView:
        """The disk as one more process sees it. `charge(ns)` gets the cost of each call; `clock` is
        that of the process."""
        view = DiskView(self, charge, clock or StillClock())
        self._views = [*self._living_views, view]
        return view

    def kill_process(self) -> None:
        """The only process dies: handles and locks are gone, the page cache stays."""
        self._own.kill()
        self._open_own_view()
        self.on_call = None

    def power_cut(self, random: Random, *, garble: bool) -> list[tuple[str, int]]:
        if self._living_views or not self._own.is_idle:
            raise InvariantViolated("a power cut while a process holds the disk")
        return super().power_cut(random, garble=garble)

    @property
    def used_bytes(self) -> int:
        """Removed files keep their space while a process has them open."""
        views = (self._own, *self._living_views)
        opened = {file for view in views for file in view.open_files}
        removed = opened.difference(self.files.values())
        return super().used_bytes + sum(file.size for file in removed)

    def with_files(self, files: dict[str, SimulatedFile]) -> SimulatedDisk:
        """A disk of the same capacity on which these files are durable."""
        disk = SimulatedDisk(capacity_bytes=self.capacity_bytes)
        for path, file in files.items():
            disk._names.put_durably(path, file)
        return disk

    def copy(self) -> SimulatedDisk:
        """A disk on which everything that reads well here is durable."""
        return self.with_files(
            {
                path: SimulatedFile(file.size, file.sectors, file.unreadable)
                for path, file in self._names.files.items()
            }
        )

    def fork(self) -> SimulatedDisk:
        """A copy of the disk with its page cache, but without the processes of its views."""
        on_call, self.on_call = self.on_call, None
        views, self._views = self._living_views, []
        try:
            disk = deepcopy(self)
        finally:
            self.on_call, self._views = on_call, views
        for view in views:
            disk.locked.difference_update(view.locks)
        return disk

    @property
    def _living_views(self) -> list[DiskView]:
        return [view for view in self._views if not view.is_dead]
