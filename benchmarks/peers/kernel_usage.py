"""What processes of any program use, from the kernel: processor time, memory, bytes to disk.

Owns the reading of it, by pid.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec
import psutil

from logstore.client.clock import monotonic_ns
from logstore.errors import Unreachable


class Look(msgspec.Struct, frozen=True):
    """Processor seconds so far: of all servers, of the client, of everything on this machine."""

    at_ns: int
    servers_s: float
    client_s: float
    machine_s: float


def look(servers: Sequence[int], client: int) -> Look:
    """Look now.

    Raises:
      Unreachable: one of them is gone.
    """
    machine = psutil.cpu_times()
    busy = (machine.user, machine.nice, machine.system, machine.irq, machine.softirq, machine.steal)
    return Look(
        monotonic_ns(), sum(map(_cpu_seconds, servers)), _cpu_seconds(client), float(sum(busy))
    )


def _cpu_seconds(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess as error:
        raise _gone(pid) from error
    return float(times.user + times.system)


def written_bytes(pids: Sequence[int]) -> int:
    """Bytes that these processes had written to disks or dirtied in the page cache, whole pages of
    4 KiB: small flushed appends count the same page again, as the disk sees it. The journal of the
    file system is not in it.

    Raises:
      Unreachable: one of them is gone.
    """
    total = 0
    for pid in pids:
        try:
            total += psutil.Process(pid).io_counters().write_bytes
        except psutil.NoSuchProcess as error:
            raise _gone(pid) from error
    return total


def pss_mb(pids: Sequence[int]) -> float:
    """Resident memory, a page that several share counted once over all who share it. The page cache
    of files that are only read and written is not in it.

    Raises:
      Unreachable: one of them is gone.
    """
    total = 0
    for pid in pids:
        try:
            total += psutil.Process(pid).memory_full_info().pss
        except psutil.NoSuchProcess as error:
            raise _gone(pid) from error
    return round(total / 1e6, 1)


def write_back() -> None:
    """Have the kernel write whatever any process left in the page cache, and wait for it."""
    os.sync()  # noqa: TID251 - of the machine; no log relies on it


def _gone(pid: int) -> Unreachable:
    return Unreachable(f"process {pid} ended while it was measured")
