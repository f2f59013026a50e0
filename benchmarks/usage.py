"""What the processes of a cluster use between two marks: processor time, memory, bytes to disk and
to peers.

Owns the reading of it, from the kernel and from the replicas' counters.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from logstore.cli.embedded import EmbeddedCluster
from logstore.errors import Unreachable
from transport.tcp_state import inode_of, tcp_state

DISK_COUNTERS = ("disk_bytes_data", "disk_bytes_raft", "disk_bytes_meta")
BLOCK_BYTES = 512  # the unit of st_blocks and of a device's sectors, whatever its real ones are
_SECTORS_WRITTEN, _BUSY_MS = 6, 9  # fields of /sys/dev/block/MAJOR:MINOR/stat, from 0
_PIDFD_GETFD = 438  # the system call, the same number on every architecture


class Mark(msgspec.Struct, frozen=True):
    """One look. Processes by name, "1.writer" or "client"; counters are the leader's.

    Attributes:
      sent_bytes: what the followers' kernels have acknowledged on the TCP connections of the
        leader's replicators, ZeroMQ's own bytes included; None: the kernel does not let us look.
    """

    leader: int
    cpu_s: dict[str, float]
    rss_mb: dict[str, float]
    counters: dict[str, int]
    sent_bytes: int | None


def take_mark(
    cluster: EmbeddedCluster, processes: Mapping[str, psutil.Process], leader: int
) -> Mark:
    """Look now.

    Raises:
        Unreachable: a process is gone, or the leader is another: the figures would mean nothing.
    """
    cpu_s: dict[str, float] = {}
    rss_mb: dict[str, float] = {}
    replicators = [
        process for name, process in processes.items() if name.startswith(f"{leader}.replicator")
    ]
    try:
        for name, process in processes.items():
            with process.oneshot():
                times = process.cpu_times()
                cpu_s[name] = times.user + times.system
                rss_mb[name] = round(process.memory_info().rss / 1e6, 1)
        sent_bytes = _sent_bytes(replicators)
    except psutil.NoSuchProcess as error:
        raise Unreachable(f"process {error.pid} ended while it was measured") from error
    except (ProcessLookupError, FileNotFoundError) as error:
        raise Unreachable("a replicator ended while it was measured") from error
    if cluster.leader() != leader:
        raise Unreachable("leadership changed while it was measured: measure again")
    if not (counters := cluster.counters(leader)):
        raise Unreachable("the leader shows no counters while it was measured")
    return Mark(leader, cpu_s, rss_mb, counters, sent_bytes)


def cpu_between(first: Mark, second: Mark) -> dict[str, float]:
    """Processor seconds of each process."""
    return {name: round(used - first.cpu_s[name], 3) for name, used in second.cpu_s.items()}


def disk_bytes_between(first: Mark, second: Mark) -> int:
    """Bytes the leader's writer handed to pwrite."""
    return sum(second.counters[name] - first.counters[name] for name in DISK_COUNTERS)


def disk_bytes_per_payload_byte(first: Mark, second: Mark) -> float:
    """Bytes the leader's writer handed to pwrite, over payload bytes it acknowledged."""
    name = "payload_bytes_acknowledged"
    acknowledged = second.counters[name] - first.counters[name]
    return round(disk_bytes_between(first, second) / max(1, acknowledged), 4)


def sent_bytes_between(first: Mark, second: Mark) -> int | None:
    """Bytes the leader's replicators sent to followers; None: unknown. A connection that ended in
    between takes its bytes with it."""
    if first.sent_bytes is None or second.sent_bytes is None:
        return None
    return max(0, second.sent_bytes - first.sent_bytes)


def payloads_per_group(first: Mark, second: Mark) -> float:
    groups = second.counters["groups_committed"] - first.counters["groups_committed"]
    name = "payloads_acknowledged"
    return round((second.counters[name] - first.counters[name]) / max(1, groups), 2)


def allocated_bytes(folder: Path) -> int:
    """Blocks of the file system that the folder's files hold, in bytes: prepared ones count, and
    links are not followed."""
    blocks = 0
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # it was removed meanwhile
            blocks += path.lstat().st_blocks
    return blocks * BLOCK_BYTES


def device_bytes_written(folder: Path) -> int | None:
    """Bytes written since boot to the block device below the folder's file system, by whomever, its
    journal included; None: it is not known which device that is (a file system in layers, say)."""
    sectors = _device_field(folder, _SECTORS_WRITTEN)
    return None if sectors is None else sectors * BLOCK_BYTES


def device_busy_s(folder: Path) -> float | None:
    """Seconds since boot in which that device had requests in flight; None: as above."""
    busy_ms = _device_field(folder, _BUSY_MS)
    return None if busy_ms is None else busy_ms / 1e3


def _device_field(folder: Path, field: int) -> int | None:
    device = os.stat(folder).st_dev
    stat = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    return int(stat.read_text(encoding="ascii").split()[field]) if stat.exists() else None


def _sent_bytes(processes: list[psutil.Process]) -> int | None:
    try:
        return sum(sum(_acknowledged(process.pid)) for process in processes)
    except PermissionError:
        return None


def _acknowledged(pid: int) -> Iterator[int]:
    """What has been acknowledged on each TCP connection of a process that may be another's: each
    socket's descriptor is duplicated, asked and closed."""
    library = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    try:
        for fd in _sockets(pid):
            copy = library.syscall(_PIDFD_GETFD, process, fd, 0)
            if copy < 0:
                if (error := ctypes.get_errno()) == errno.EBADF:  # closed meanwhile
                    continue
                raise OSError(error, os.strerror(error))
            try:
                state = tcp_state(copy, inode_of(copy))
            finally:
                os.close(copy)
            if state is not None:
                yield state.acknowledged
    finally:
        os.close(process)


def _sockets(pid: int) -> Iterator[int]:
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if os.readlink(link).startswith("socket:"):
                yield int(link.name)
