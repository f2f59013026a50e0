"""This process' own memory, and the limit on its descriptors.

Must not know what the memory is for.
"""

from __future__ import annotations

import ctypes
import os
import resource

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM = "/proc/self/statm"
_STATM_MAX_BYTES = 256
# of glibc's malloc.h
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_KEPT_BYTES = 32 << 20
# The most that mallopt(3) allows, and what glibc's own threshold grows to. It does not grow once it
# is set, and a buffer that is mapped is faulted in whole each time: at 4 MiB a message took three
# times the CPU (2026-11-26).
_MAPPED_FROM_BYTES = 32 << 20
_GROW_BYTES = 1 << 20


def private_bytes() -> int:
    """Resident memory that no other process shares: without rings and files. Takes 5 µs; a file
    object would take twice that."""
    descriptor = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _, resident, shared, *_ = os.read(descriptor, _STATM_MAX_BYTES).split()
    finally:
        os.close(descriptor)
    return (int(resident) - int(shared)) * _PAGE_BYTES


def keep_freed_memory() -> None:
    """Let glibc's allocator keep freed memory for the next messages, up to _KEPT_BYTES a heap, and
    map none for a batch by itself: the largest is far below _MAPPED_FROM_BYTES. It overrides what
    MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_ and MALLOC_TOP_PAD_ say.

    By default it gives a buffer of 64 KiB back and faults it in again with the next message: 7,000
    faults a second in each of ZeroMQ's threads at 56 MB/s (2 cores, 2026-11-26). `mallopt(3)` has
    the parameters; other allocators have none, and nothing is changed there.
    """
    set_parameter = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_parameter is not None:
        set_parameter(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        set_parameter(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
        set_parameter(_M_TOP_PAD, _GROW_BYTES)


def give_back_memory() -> None:
    """Make the allocator return free memory to the system: 5 ms for 130 MiB (2026-11-22)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def raise_descriptor_limit() -> int:
    """Raise the limit on descriptors to this user's hard limit; returns it. Shells give 1,024 where
    the hard limit is 20,000 or more; above the limit libzmq spins, accepting in vain."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def descriptor_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
