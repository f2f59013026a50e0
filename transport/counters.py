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
     6     48..55    start of the named values, bytes u64 (a multiple of 64)
     7     56..63    0
           64..      names, UTF-8, joined by line feeds, in slot order
           start..   counters, u64 each
           values..  sequence u64, size u64, then `size` bytes: a msgpack map of names to u64

The named values are for metrics whose names come and go. They have one writer, which makes the
sequence odd while it replaces them; a reader that sees it odd, or changed, reads again.

Invariants: one writer a slot; a slot is one aligned 8-byte store or load (SAFETY M4); a file
appears under its path complete or not at all. Counters serve wake-ups, flow control, liveness and
metrics, nothing that needs a term (SAFETY U1).
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from transport.errors import CountersInvalid, RegionUnavailable
from transport.layout import CACHE_LINE_BYTES
from transport.shm import SHARED_MEMORY_FOLDER, create_region, map_region

COUNTERS_MAGIC = int.from_bytes(b"LOGCNTR\x01", "little")
COUNTERS_VERSION = 2
COUNTERS_MAX = 4_096  # 32 KiB of slots: far above what one replica declares
NAMES_BYTES_MAX = COUNTERS_MAX * 64
# With the counters below 64 KiB, which is what the supervisor keeps free for this file.
NAMED_BYTES_MAX = 48 * 1_024
HEADER_SLOTS = 8
MAGIC, VERSION, INCARNATION, COUNT, NAMES_BYTES, START, NAMED = range(7)
_SEQUENCE, _SIZE = range(2)
_NAMED_HEAD_BYTES = 16
# A replacement takes some us: a reader that meets as many in a row shows no named value this time.
_READS_MAX = 8


class CountersPage:
    """A mapped counters file. Hot loops use `slots`: `slots[i] = value`, `slots[i] += n`."""

    def __init__(self, region: mmap.mmap, origin: str) -> None:
        """Check the header of `region`; `origin` names it in errors.

        Raises:
          CountersInvalid: these are not the bytes of a counters file of this version.
        """
        count, names_bytes, start, named, self.incarnation = _read_header(region, origin)
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
        self._named = named
        with memoryview(region) as whole, whole[named : named + _NAMED_HEAD_BYTES] as head:
            self._named_head = head.cast("Q")

    def __getitem__(self, index: int) -> int:
        return self.slots[index]

    def __setitem__(self, index: int, value: int) -> None:
        self.slots[index] = value

    def values(self) -> dict[str, int]:
        """All counters by name, each read once, and the named values."""
        return self.published() | self.counted()

    def counted(self) -> dict[str, int]:
        """The counters only."""
        return dict(zip(self.names, self.slots.tolist(), strict=True))

    def publish(self, values: Mapping[str, int]) -> None:
        """Replace all named values.

        Raises:
          CountersInvalid: they take more than NAMED_BYTES_MAX; the caller must bound them.
        """
        encoded = msgspec.msgpack.encode(values)
        if len(encoded) > NAMED_BYTES_MAX:
            raise CountersInvalid(f"named values of {len(encoded)} bytes, {NAMED_BYTES_MAX} fit")
        head, start = self._named_head, self._named + _NAMED_HEAD_BYTES
        head[_SEQUENCE] += 1
        head[_SIZE] = len(encoded)
        self._region[start : start + len(encoded)] = encoded
        head[_SEQUENCE] += 1

    def published(self) -> dict[str, int]:
        """The named values, all of one `publish`; empty before the first."""
        head, start = self._named_head, self._named + _NAMED_HEAD_BYTES
        for _ in range(_READS_MAX):
            sequence, size = head[_SEQUENCE], min(head[_SIZE], NAMED_BYTES_MAX)
            encoded = self._region[start : start + size]
            if not sequence % 2 and head[_SEQUENCE] == sequence:
                return msgspec.msgpack.decode(encoded, type=dict[str, int]) if size else {}
        return {}

    def close(self) -> None:
        """Unmap. The file stays until its folder is removed."""
        self.slots.release()
        self._named_head.release()
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
    return _named_start(names) + _NAMED_HEAD_BYTES + NAMED_BYTES_MAX


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
        return page.counted()
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


def _named_start(names: Sequence[str]) -> int:
    end = _start(_table(names)) + 8 * len(names)
    return -(-end // CACHE_LINE_BYTES) * CACHE_LINE_BYTES


def _format(region: mmap.mmap, names: Sequence[str], incarnation: int) -> None:
    table = _table(names)
    region[CACHE_LINE_BYTES : CACHE_LINE_BYTES + len(table)] = table
    with memoryview(region) as whole, whole.cast("Q") as slots:
        slots[VERSION] = COUNTERS_VERSION
        slots[INCARNATION] = incarnation
        slots[COUNT] = len(names)
        slots[NAMES_BYTES] = len(table)
        slots[START] = _start(table)
        slots[NAMED] = _named_start(names)
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


def _read_header(region: mmap.mmap, origin: str) -> tuple[int, int, int, int, int]:
    with memoryview(region) as whole, whole[:CACHE_LINE_BYTES] as line, line.cast("Q") as slots:
        magic, version, incarnation, count, names_bytes, start, named = slots[:7].tolist()
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
        or named % CACHE_LINE_BYTES
        or start + 8 * count > named
        or named + _NAMED_HEAD_BYTES + NAMED_BYTES_MAX > len(region)
    ):
        raise CountersInvalid(
            f"{origin}: {count} counters at byte {start} after {names_bytes} bytes of names "
            f"do not fit into {len(region)} bytes"
        )
    return count, names_bytes, start, named, incarnation
