"""Memory that processes of one host share: nameless tmpfs files behind a descriptor.

Owns how a region is created and mapped. Must not know its contents. Invariants (SAFETY M4):
  - every page is allocated before it is touched: too small a tmpfs is an error here, not a SIGBUS
    later. What a region has not got at first, its owner allocates before anybody uses it;
  - a region never has a name (O_TMPFILE), so it cannot be opened by path and no kill -9 leaks it:
    the memory is freed with the last descriptor and mapping;
  - the descriptor is close-on-exec; a child has it only if its parent gives it.
"""

from __future__ import annotations

import errno
import mmap
import os
import platform

from transport.errors import RegionUnavailable, UnsupportedMachine

SHARED_MEMORY_FOLDER = "/dev/shm"  # the tmpfs of every Linux; callers may name another
TOTAL_STORE_ORDER_MACHINES = frozenset({"x86_64", "AMD64"})


def require_total_store_order(machine: str | None = None) -> None:
    """Refuse machines on which "payload first, cursor last" needs a fence (SAFETY M4).

    Args:
      machine: the machine's name, as `platform.machine()` returns it; None asks the platform.

    Raises:
      UnsupportedMachine: stores may be seen out of order here.
    """
    name = platform.machine() if machine is None else machine
    if name not in TOTAL_STORE_ORDER_MACHINES:
        raise UnsupportedMachine(
            f"processor {name}: the shared-memory rings rely on the store order of x86-64; "
            "run on an x86-64 machine"
        )


def create_region(
    size_bytes: int, folder: str = SHARED_MEMORY_FOLDER, *, allocated_bytes: int | None = None
) -> int:
    """Create a nameless, zeroed file on tmpfs, fully allocated.

    Args:
      size_bytes: size of the region; at least 1.
      folder: where; it must be on tmpfs, or the kernel would write the pages to a disk.
      allocated_bytes: only so many of the first bytes get memory; `allocate_region` gives the rest.

    Returns:
      Its descriptor, owned by the caller; give it to a child by its number.

    Raises:
      RegionUnavailable: the tmpfs is too small or cannot create nameless files.
    """
    require_total_store_order()
    if size_bytes < 1:
        raise RegionUnavailable(f"a region of {size_bytes} bytes was asked for: ask for at least 1")
    try:
        fd = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise RegionUnavailable(
            f"no nameless file can be made in {folder}: {error.strerror}; "
            "name a writable folder on a tmpfs"
        ) from error
    try:
        os.ftruncate(fd, size_bytes)
        os.posix_fallocate(fd, 0, size_bytes if allocated_bytes is None else allocated_bytes)
    except OSError as error:
        os.close(fd)
        raise RegionUnavailable(_why_not_allocated(error, size_bytes, folder)) from error
    return fd


def allocate_region(fd: int) -> None:
    """Give memory to all of a region that was created with less. Done before, it changes nothing.

    Raises:
      RegionUnavailable: the tmpfs has no room for it now.
    """
    size_bytes = region_size_bytes(fd)
    try:
        os.posix_fallocate(fd, 0, size_bytes)
    except OSError as error:
        raise RegionUnavailable(_why_not_allocated(error, size_bytes, "the tmpfs")) from error


def map_region(fd: int, size_bytes: int) -> mmap.mmap:
    """Map a region created by `create_region`; the mapping outlives the descriptor.

    Raises:
      RegionUnavailable: the file does not have exactly this size (touching it could be SIGBUS), or
        this process may map no more.
    """
    actual = os.fstat(fd).st_size
    if actual != size_bytes:
        raise RegionUnavailable(
            f"descriptor {fd} has {actual} bytes, {size_bytes} were expected: "
            "the processes do not agree on the settings; restart the replica"
        )
    return _map(fd, size_bytes)


def room_bytes(folder: str = SHARED_MEMORY_FOLDER) -> int | None:
    """The bytes left for regions in `folder`; None: its tmpfs has no bound of its own."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize if found.f_blocks else None


def region_size_bytes(fd: int) -> int:
    """Size of the region of `fd`, for a process that got only the descriptor."""
    return os.fstat(fd).st_size


def map_anonymous(size_bytes: int) -> mmap.mmap:
    """Memory of the same kind without a descriptor, for actors that share one process.

    Pages are taken when they are touched: if the machine has too few then, the kernel ends a
    process, as for any other memory.

    Raises:
      RegionUnavailable: this process may map no more.
    """
    require_total_store_order()
    return _map(-1, size_bytes)


def _map(fd: int, size_bytes: int) -> mmap.mmap:
    try:
        return mmap.mmap(fd, size_bytes)
    except OSError as error:
        raise RegionUnavailable(
            f"{size_bytes} bytes of memory cannot be mapped: {error.strerror}; raise the limit of "
            "address space (ulimit -v), free memory, or lower ring_bytes"
        ) from error


def _why_not_allocated(error: OSError, size_bytes: int, folder: str) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM):
        return (
            f"{folder} has no room for {size_bytes} bytes: enlarge that tmpfs "
            "(mount -o remount,size=...), name another one, or lower ring_bytes"
        )
    return f"{size_bytes} bytes could not be allocated in {folder}: {error.strerror}"
