"""Samples the CPU and memory of each process of the replica into the shared counters."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import psutil

from actors.station import Station

_SECOND_NS = 1_000_000_000
SAMPLE_NS = _SECOND_NS


class ProcessSampler:
    """CPU is the share since the last call, in permille of one core; memory is the resident set in
    bytes, shared rings included in each process that touched them."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._seen: dict[int, tuple[psutil.Process, float, int]] = {}

    def sample(self, pids: Mapping[str, int], *, now_ns: int) -> None:
        """Store cpu and memory of the processes `pids` (name to pid) into the counters."""
        for gone in self._seen.keys() - set(pids.values()):
            del self._seen[gone]
        for name, pid in pids.items():
            # it may have died; its pidfd tells the loop
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                self._sample_one(name, pid, now_ns)

    def _sample_one(self, name: str, pid: int, now_ns: int) -> None:
        known = self._seen.get(pid)
        process = known[0] if known else psutil.Process(pid)
        times = process.cpu_times()
        used_s = times.user + times.system
        slots, slot = self._station.slots, self._station.slot
        slots[slot(f"{name}.rss_bytes")] = process.memory_info().rss
        if known and now_ns > known[2]:
            share = (used_s - known[1]) * _SECOND_NS / (now_ns - known[2])
            slots[slot(f"{name}.cpu_permille")] = max(0, round(1_000 * share))
        self._seen[pid] = (process, used_s, now_ns)
