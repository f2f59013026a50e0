"""A device that refuses to read for a while, amid a recovery: a path, or a controller, resets."""

from __future__ import annotations

from typing import Any, cast

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import CorruptData
from tests.crash.storage_trial import StorageTrial
from tests.unit.test_storage_recovery import DATA, RAFT, started

ENTRIES = 6  # all in the first pair


class RefusingDisk:
    """A disk that refuses the reads of the pair with these numbers, counted from 1."""

    def __init__(self, disk: SimulatedDisk, refused: range) -> None:
        self._disk = disk
        self._refused = refused
        self._paths: dict[int, str] = {}
        self._reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def open_read(self, path: str) -> int:
        handle = self._disk.open_read(path)
        self._paths[handle] = path
        return handle

    def read(self, handle: int, offset: int, size: int) -> bytes:
        path = self._paths.get(handle, "")
        self._reads += path in (DATA, RAFT)
        if path in (DATA, RAFT) and self._reads in self._refused:
            raise CorruptData(path, offset, expected="readable bytes", got="Input/output error")
        return self._disk.read(handle, offset, size)


@pytest.mark.parametrize("first", range(1, 60))
def test_reads_that_are_refused_for_a_while_lose_no_entry(first: int) -> None:
    trial = started(*[[8]] * ENTRIES)
    stopped = 0
    counts = [2**power for power in range(14)]
    for count in counts:
        disk = trial.disk.fork()
        disk.kill_process()
        refusing = cast(SimulatedDisk, RefusingDisk(disk, range(first, first + count)))
        try:
            found = StorageTrial(refusing).recovered
        except CorruptData:
            stopped += 1
        else:
            assert found.last.header.index == ENTRIES, count
    assert stopped < len(counts)
