"""Samples the CPU and memory of each process of the replica into the shared counters.

Reads /proc itself: one file a process, 20 us, and nothing to import.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from actors.station import Station

_SECOND_NS = 1_000_000_000
SAMPLE_NS = _SECOND_NS
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessUsage(msgspec.Struct, frozen=True):
    """What a process has used, by /proc/PID/stat."""

    cpu_ticks: int
    rss_bytes: int


def usage_of(pid: int) -> ProcessUsage | None:
    """None: there is no such process, or no descriptor to look at it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return None
    # The name in parentheses may hold anything. The fields after it begin with the third.
    fields = stat[stat.rindex(b")") + 2 :].split()
    user, system, rss_pages = (int(fields[number - 3]) for number in (14, 15, 24))
    return ProcessUsage(user + system, rss_pages * _PAGE_BYTES)


class ProcessSampler:
    """CPU is the share since the last call, in permille of one core; memory is the resident set in
    bytes, shared rings included in each process that touched them."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._seen: dict[int, tuple[int, int]] = {}  # by pid: ticks used, when

    def sample(self, pids: Mapping[str, int], *, now_ns: int) -> None:
        """Store cpu and memory of the processes `pids` (name to pid) into the counters. None of
        them was reaped yet, so no pid is another process'."""
        seen, self._seen = self._seen, {}
        slots, slot = self._station.slots, self._station.slot
        for name, pid in pids.items():
            usage = usage_of(pid)
            if usage is None:
                continue
            slots[slot(f"{name}.rss_bytes")] = usage.rss_bytes
            if pid in seen and now_ns > seen[pid][1]:
                ticks, since_ns = seen[pid]
                used_ns = (usage.cpu_ticks - ticks) * _SECOND_NS // _TICKS_PER_SECOND
                permille = round(1_000 * used_ns / (now_ns - since_ns))
                slots[slot(f"{name}.cpu_permille")] = max(0, permille)
            self._seen[pid] = (usage.cpu_ticks, now_ns)
