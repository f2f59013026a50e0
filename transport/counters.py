"""Counters that other processes can read: a small self-describing file on tmpfs.

Owns the file's bytes. Must not know what a counter means: the names travel in the file, so that an
inspector needs nothing else.

    slot   bytes     what
     0      0..7     magic u64
     1      8..15    version u64
     2     16..23    incarnation u64
     3     24..31    count of counters u64
     4     32..39    size of the names, bytes u64
     5     40..47    start of the counters, bytes u64 (a multiple of 64)
     6..7  48..63    0
           64..      names, UTF-8, joined by line feeds, in slot order
           start..   counters, u64 each

Invariants: one writer a slot; a slot is one aligned 8-byte store or load (SAFETY M4); a file
appears under its path complete or not at all. Counters serve wake-ups, flow control, liveness and
metrics, nothing that needs a term (SAFETY U1).
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from transport.errors import CountersInvalid, RegionUnavailable
from transport.layout import CACHE_LINE_BYTES
from transport.shm import SHARED_MEMORY_FOLDER, create_region, map_region

COUNTERS_MAGIC = int.from_bytes(b"LOGCNTR\x01", "little")
COUNTERS_VERSION = 1
COUNTERS_MAX = 4_096  # 32 KiB of slots: far above what one replica declares
NAMES_BYTES_MAX = COUNTERS_MAX * 64
HEADER_SLOTS = 8
MAGIC, VERSION, INCARNATION, COUNT, NAMES_BYTES, START = range(6)


class CountersPage:
    """A mapped counters file. Hot loops use `slots`: `slots[i] = value`, `slots[i] += n`."""

    def __init__(self, region: mmap.mmap, origin: str) -> None:
        """Check the header of `region`; `origin` names it in errors.

        Raises:
          CountersInvalid: these are not the bytes of a counters file of this version.
        """
        count, names_bytes, start, self.incarnation = _read_header(region, origin)
        names = bytes(region[CACHE_LINE_BYTES : CACHE_LINE_BYTES + names_bytes])
        try:
            self.names = tuple(names.decode().split("\n")) if count else ()
        except UnicodeDecodeError as error:
            raise CountersInvalid(f"{origin}: the names are not UTF-8") from error
        if len(self.names) != count:
            raise CountersInvalid(f"{origin}: {count} counters but {len(self.names)} names")
        self._region = region
        with memoryview(region) as whole, whole[start : start + 8 * count] as part:
            self.slots = part.cast("Q")

    def __getitem__(self, index: int) -> int:
        return self.slots[index]

    def __setitem__(self, index: int, value: int) -> None:
        self.slots[index] = value

    def values(self) -> dict[str, int]:
        """All counters by name, each read once."""
        return dict(zip(self.names, self.slots.tolist(), strict=True))

    def close(self) -> None:
        """Unmap. The file stays until its folder is removed."""
        self.slots.release()
        self._region.close()


def create_counters(path: str | Path, names: Sequence[str], incarnation: int) -> CountersPage:
    """Make a counters file, all zero, and map it for writing; replaces a file of that path.

    Args:
      path: in a folder on tmpfs that only this user may enter.
      names: unique, without line feeds; a name's place is its slot.
      incarnation: of the replica, at least 1.

    Raises:
      CountersInvalid: the names cannot be told apart again, or are too many.
      RegionUnavailable: no room or no permission.
    """
    _check_names(names, incarnation)
    size_bytes = counters_bytes(names)
    final = Path(path)
    try:
        fd, temporary = tempfile.mkstemp(prefix=f".{final.name}-", dir=final.parent)
    except OSError as error:
        raise RegionUnavailable(f"{final}: {error.strerror}; name a writable folder") from error
    try:
        os.posix_fallocate(fd, 0, size_bytes)
        region = mmap.mmap(fd, size_bytes)
        _format(region, names, incarnation)
        Path(temporary).replace(final)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise RegionUnavailable(
            f"{final}: {size_bytes} bytes could not be allocated: {error.strerror}; "
            "enlarge that tmpfs or name another folder"
        ) from error
    finally:
        os.close(fd)
    return CountersPage(region, str(final))


def create_nameless_counters(
    names: Sequence[str], incarnation: int, folder: str = SHARED_MEMORY_FOLDER
) -> int:
    """As `create_counters`, but without a path; the caller owns the descriptor.

    Raises:
      CountersInvalid: the names cannot be told apart, or are too many.
      RegionUnavailable: no room or no permission.
    """
    _check_names(names, incarnation)
    size_bytes = counters_bytes(names)
    fd = create_region(size_bytes, folder)
    try:
        with map_region(fd, size_bytes) as region:
            _format(region, names, incarnation)
    except BaseException:
        os.close(fd)
        raise
    return fd


def counters_bytes(names: Sequence[str]) -> int:
    """Size of the file that holds the counters `names`."""
    return _start(_table(names)) + 8 * max(len(names), 1)


def open_counters(source: str | Path | int) -> CountersPage:
    """Map an existing counters file, by path or descriptor, for reading and writing.

    Raises:
      CountersInvalid: it is no counters file of this version.
      FileNotFoundError: there is none.
    """
    return _attach(source, os.O_RDWR, mmap.ACCESS_WRITE)


def read_counters(path: str | Path) -> dict[str, int]:
    """The counters' values now, by name; for inspectors, who may only have permission to read.

    Raises:
      CountersInvalid: it is no counters file of this version.
      FileNotFoundError: there is none.
    """
    page = _attach(path, os.O_RDONLY, mmap.ACCESS_READ)
    try:
        return page.values()
    finally:
        page.close()


def _check_names(names: Sequence[str], incarnation: int) -> None:
    if len(set(names)) != len(names) or any(not name or "\n" in name for name in names):
        raise CountersInvalid("counter names must be unique, not empty and without line feeds")
    if len(names) > COUNTERS_MAX or len(_table(names)) > NAMES_BYTES_MAX:
        raise CountersInvalid(f"{len(names)} counters: at most {COUNTERS_MAX}, with shorter names")
    if incarnation < 1:
        raise CountersInvalid(f"an incarnation is at least 1, not {incarnation}")


def _table(names: Sequence[str]) -> bytes:
    return "\n".join(names).encode()


def _start(table: bytes) -> int:
    return -(-(CACHE_LINE_BYTES + len(table)) // CACHE_LINE_BYTES) * CACHE_LINE_BYTES


def _format(region: mmap.mmap, names: Sequence[str], incarnation: int) -> None:
    table = _table(names)
    region[CACHE_LINE_BYTES : CACHE_LINE_BYTES + len(table)] = table
    with memoryview(region) as whole, whole.cast("Q") as slots:
        slots[VERSION] = COUNTERS_VERSION
        slots[INCARNATION] = incarnation
        slots[COUNT] = len(names)
        slots[NAMES_BYTES] = len(table)
        slots[START] = _start(table)
        slots[MAGIC] = COUNTERS_MAGIC


def _attach(source: str | Path | int, flags: int, access: int) -> CountersPage:
    fd = os.dup(source) if isinstance(source, int) else os.open(source, flags | os.O_CLOEXEC)
    try:
        size_bytes = os.fstat(fd).st_size
        if size_bytes < CACHE_LINE_BYTES:
            raise CountersInvalid(f"{source}: {size_bytes} bytes are too few for a counters file")
        region = mmap.mmap(fd, size_bytes, access=access)
    finally:
        os.close(fd)
    try:
        return CountersPage(region, str(source))
    except CountersInvalid:
        region.close()
        raise


def _read_header(region: mmap.mmap, origin: str) -> tuple[int, int, int, int]:
    with memoryview(region) as whole, whole[:CACHE_LINE_BYTES] as line, line.cast("Q") as slots:
        magic, version, incarnation, count, names_bytes, start = slots[:6].tolist()
    if magic != COUNTERS_MAGIC:
        raise CountersInvalid(f"{origin}: not a counters file (magic {magic:#x})")
    if version != COUNTERS_VERSION:
        raise CountersInvalid(
            f"{origin}: counters file of version {version}, this side reads {COUNTERS_VERSION}"
        )
    if (
        count > COUNTERS_MAX
        or names_bytes > NAMES_BYTES_MAX
        or start % CACHE_LINE_BYTES
        or start < CACHE_LINE_BYTES + names_bytes
        or start + 8 * count > len(region)
    ):
        raise CountersInvalid(
            f"{origin}: {count} counters at byte {start} after {names_bytes} bytes of names "
            f"do not fit into {len(region)} bytes"
        )
    return count, names_bytes, start, incarnation
