"""One file of the simulated disk: what is cached, what is durable, and what is between the two.

Owns the bytes of a file in 512-byte sectors and what a flush, a failed flush, a lying flush, a
power cut and rot do to them. Must not know names, handles, processes, nor what the bytes mean.

From the page cache down to the medium:

  * `sectors`, `size`: what a reader sees;
  * `pending`: written since the last flush; `older`: what it replaced since then;
  * `stuck`: clean pages of a failed flush, which the device may or may not have (SAFETY F5);
  * `lied`: flushed to a device that kept it in its own cache;
  * `durable`, `durable_size`: the medium.

Invariants: a sector's bytes are immutable objects, shared between levels and crash states; a sector
of no level but `sectors` and `durable` reads the same in both, except those in `apart`; nothing
durable lies at or beyond `durable_size`; `rotten` has every sector in `unreadable` and `apart`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from random import Random

from logstore.limits import SECTOR_BYTES

ZERO_SECTOR = bytes(SECTOR_BYTES)
Sectors = dict[int, bytes]  # sector number -> its bytes; an absent sector reads as zeros
_HISTORY_MAX = 2  # versions of a sector that the medium held before: enough for a stale one
_GARBLED_ONE_IN = 4  # a sector under way at a power cut is garbled with this chance


class SimulatedFile:
    """One file's cached view, its durable state and what is between them."""

    def __init__(
        self, size: int = 0, sectors: Sectors | None = None, unreadable: Iterable[int] = ()
    ) -> None:
        self.size = size
        self.sectors: Sectors = dict(sectors or {})
        self.durable_size = size
        self.durable: Sectors = dict(self.sectors)
        self.pending: Sectors = {}
        self.older: dict[int, list[bytes]] = {}
        self.pending_sizes: list[int] = []
        self.stuck: dict[int, list[bytes]] = {}
        self.lied: dict[int, list[bytes]] = {}
        self.lied_sizes: list[int] = []
        self.unreadable: set[int] = set(unreadable)
        self.apart: dict[int, None] = {}  # the cached copy outlived the medium's
        self.rotten: Sectors = {n: self.durable.get(n, ZERO_SECTOR) for n in self.unreadable}
        self.history: dict[int, list[bytes]] = {}  # what the medium held before, oldest first

    # --- reading and writing ---

    def read(self, offset: int, size: int) -> bytes:
        """Hot. The cached bytes, fewer only at the end of the file."""
        end = min(offset + size, self.size)
        if end <= offset:
            return b""
        first, last = offset // SECTOR_BYTES, (end - 1) // SECTOR_BYTES
        start = offset - first * SECTOR_BYTES
        if first == last:
            return self.sectors.get(first, ZERO_SECTOR)[start : start + end - offset]
        numbers = range(first, last + 1)
        whole = b"".join(map(self.sectors.get, numbers, repeat(ZERO_SECTOR)))
        return whole if len(whole) == end - offset else whole[start : start + end - offset]

    def first_unreadable(self, offset: int, size: int) -> int | None:
        """The first sector of the range that only the medium has and cannot give."""
        end = min(offset + size, self.size)
        for number in range(offset // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
            if number in self.unreadable and not self.is_cached_good(number):
                return number
        return None

    def is_cached_good(self, number: int) -> bool:
        """A read of this sector does not ask the medium."""
        return number in self.apart or self.is_unsettled(number)

    def is_unsettled(self, number: int) -> bool:
        """What is read there is not on the medium for certain."""
        return number in self.pending or number in self.stuck or number in self.lied

    def write(self, offset: int, data: bytes) -> None:
        """Hot. Put `data`, which lies below `size`, into the cache, a whole number of sectors at
        once."""
        if not data:
            return
        sectors, pending = self.sectors, self.pending
        end = offset + len(data)
        first, inside = divmod(offset, SECTOR_BYTES)
        if inside:
            data = sectors.get(first, ZERO_SECTOR)[:inside] + data
        if end % SECTOR_BYTES:
            data += sectors.get(end // SECTOR_BYTES, ZERO_SECTOR)[end % SECTOR_BYTES :]
        number = first
        for at in range(0, len(data), SECTOR_BYTES):
            if number in pending:
                self.older.setdefault(number, []).append(pending[number])
            sectors[number] = pending[number] = data[at : at + SECTOR_BYTES]
            number += 1

    def resize(self, size: int) -> None:
        """Growing costs nothing: what is absent reads as zeros."""
        if size < self.size:
            cut_sectors(self.sectors, size)
            self._forget_beyond(size)
            edge = size // SECTOR_BYTES
            if self.is_cached_good(edge):
                # the cut page is dirty, so that no older tail of it follows the new size
                if edge in self.pending:
                    self.older.setdefault(edge, []).append(self.pending[edge])
                self.pending[edge] = self.sectors.get(edge, ZERO_SECTOR)
        self.size = size
        self.pending_sizes.append(size)

    # --- flushing ---

    def flush(self) -> None:
        """Hot. What is pending becomes durable. The caller has settled what was lied about."""
        if self.pending_sizes:
            self._set_durable_size(self.pending_sizes)
            self.pending_sizes.clear()
        pending = self.pending
        if not pending:
            return
        self.durable.update(pending)
        if self.stuck:
            for number in pending:
                self.stuck.pop(number, None)
        if self.rotten:
            for number in pending:
                self._heal(number)
        pending.clear()
        if self.older:
            self.older.clear()

    def fail_flush(self) -> None:
        """The pages go clean; nobody knows what the device has of them."""
        for number, newest in self.pending.items():
            versions = self.stuck.setdefault(number, [])
            versions.extend(self.older.get(number, ()))
            versions.append(newest)
        self.pending.clear()
        self.older.clear()

    def flush_into_cache(self) -> None:
        """The device says done and keeps it in its own cache."""
        for number, newest in self.pending.items():
            versions = self.lied.setdefault(number, [])
            versions.extend(self.stuck.pop(number, ()))
            versions.extend(self.older.get(number, ()))
            versions.append(newest)
        self.lied_sizes.extend(self.pending_sizes)
        self.pending.clear()
        self.older.clear()
        self.pending_sizes.clear()

    def settle(self) -> None:
        """An honest flush of the device: what it lied about is durable."""
        if self.lied_sizes:
            self._set_durable_size(self.lied_sizes)
            self.lied_sizes.clear()
        for number, versions in self.lied.items():
            self.durable[number] = versions[-1]
            self._heal(number)
        self.lied.clear()

    def remember(self, numbers: Iterable[int]) -> None:
        """Keep what the medium holds now of sectors that are about to be replaced."""
        for number in numbers:
            versions = self.history.setdefault(number, [])
            versions.append(self.durable.get(number, ZERO_SECTOR))
            del versions[:-_HISTORY_MAX]

    def drop_cache(self, end: int | None = None) -> None:
        """Clean pages, below byte `end` if given, are read from the device the next time."""
        for number in [*self.stuck, *self.apart]:
            if end is not None and (number + 1) * SECTOR_BYTES > end:
                continue
            self.stuck.pop(number, None)
            self.apart.pop(number, None)
            if number in self.lied:
                self.sectors[number] = self.pending.get(number, self.lied[number][-1])
            elif number not in self.pending:
                self._show_durable(number)

    # --- power cuts ---

    def survivors(self) -> Iterator[tuple[str, int, list[bytes | int]]]:
        """What may or may not survive: (what, sector number, its versions after the durable
        one)."""
        for number in self._unsettled():
            yield "sector", number, [*self._versions(number)]
        if self.lied_sizes or self.pending_sizes:
            yield "size", 0, [*self.lied_sizes, *self.pending_sizes]

    def power_cut(self, random: Random, *, keep_in_eight: int, garble: bool) -> list[int]:
        """In place: each unsettled sector is kept in one of its versions with `keep_in_eight`
        chances in eight, else dropped; sizes keep a prefix of their changes. Returns the garbled
        sectors. Its cost is that of what is unsettled, unless the file shrank."""
        sizes = [*self.lied_sizes, *self.pending_sizes]
        shrank = bool(sizes) and min(sizes) < max(self.durable_size, self.size, *sizes)
        taken = sizes[: random.randrange(len(sizes) + 1)] if sizes else []
        if taken:
            self._set_durable_size(taken)
        garbled = []
        numbers = self._unsettled()
        for number in numbers:
            is_garbled = garble and not random.randrange(_GARBLED_ONE_IN)
            if is_garbled:
                content = random.randbytes(SECTOR_BYTES)
            elif random.randrange(8) < keep_in_eight:
                versions = self._versions(number)
                content = versions[random.randrange(len(versions))]
            else:
                continue
            room = self.durable_size - number * SECTOR_BYTES
            if room <= 0:
                continue
            before = self.durable.get(number, ZERO_SECTOR)
            self._heal(number)
            self.durable[number] = content[:room].ljust(SECTOR_BYTES, b"\0")
            if is_garbled:
                self.rotten[number] = before
                garbled.append(number)
        self._forget_all_but_durable(numbers, whole=shrank)
        return garbled

    # --- the medium ---

    def rot(self, number: int, content: bytes, *, is_cached_too: bool) -> None:
        """The medium changes a sector behind everyone's back; the page cache may keep its copy."""
        self.rotten.setdefault(number, self.durable.get(number, ZERO_SECTOR))
        self.durable[number] = content
        if is_cached_too:
            self.sectors[number] = content
            self.apart.pop(number, None)
        else:
            self.apart[number] = None

    def rot_unreadable(self, number: int, *, is_cached_too: bool) -> None:
        """The medium refuses the sector until it is written again."""
        self.rotten.setdefault(number, self.durable.get(number, ZERO_SECTOR))
        self.unreadable.add(number)
        if is_cached_too:
            self.apart.pop(number, None)
        else:
            self.apart[number] = None

    def cut_behind(self, size: int) -> None:
        """The tail is gone behind everyone's back."""
        self.size = self.durable_size = size
        self.pending_sizes.clear()
        self.lied_sizes.clear()
        cut_sectors(self.sectors, size)
        cut_sectors(self.durable, size)
        self._forget_beyond(size)

    # --- looking ---

    def is_durable(self, offset: int, size: int, *, counting_lies: bool) -> bool:
        """Whatever a power cut leaves, the range reads as it does now (rot is not counted)."""
        end = offset + size
        base = self.durable_size
        if counting_lies and self.lied_sizes:
            base = self.lied_sizes[-1]
        elif self.lied_sizes:
            base = min(base, *self.lied_sizes)
        if end > base or (self.pending_sizes and end > min(self.pending_sizes)):
            return False
        if not (self.pending or self.stuck or self.lied):
            return True
        for number in range(offset // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
            if self.is_unsettled(number):
                start = number * SECTOR_BYTES
                part = slice(max(0, offset - start), min(SECTOR_BYTES, end - start))
                if not self._is_settled_part(number, part, counting_lies=counting_lies):
                    return False
        return True

    def durable_bytes(self, offset: int, size: int) -> bytes:
        """What the medium has of the range, unreadable or not."""
        end = min(offset + size, self.durable_size)
        if end <= offset:
            return b""
        numbers = range(offset // SECTOR_BYTES, -(-end // SECTOR_BYTES))
        whole = b"".join(map(self.durable.get, numbers, repeat(ZERO_SECTOR)))
        start = offset % SECTOR_BYTES
        return whole[start : start + end - offset]

    # --- inside ---

    def _is_settled_part(self, number: int, part: slice, *, counting_lies: bool) -> bool:
        """Every version that may survive has this part as it is read now."""
        now = self.sectors.get(number, ZERO_SECTOR)[part]
        if counting_lies and number in self.lied:
            later = [*self.stuck.get(number, ()), *self.older.get(number, ())]
            bases = [self.lied[number][-1]]
        else:
            later = self._versions(number)
            bases = [self.durable.get(number, ZERO_SECTOR)]
            if number in self.rotten:
                bases.append(self.rotten[number])
        return any(base[part] == now for base in bases) and all(
            version[part] == now for version in later
        )

    def _unsettled(self) -> list[int]:
        return sorted(self.pending.keys() | self.stuck.keys() | self.lied.keys())

    def _versions(self, number: int) -> list[bytes]:
        """What the sector was given after its durable version, oldest first."""
        versions = [*self.lied.get(number, ()), *self.stuck.get(number, ())]
        versions.extend(self.older.get(number, ()))
        if number in self.pending:
            versions.append(self.pending[number])
        return versions

    def _set_durable_size(self, sizes: list[int]) -> None:
        smallest = min(sizes)
        if smallest < self.durable_size:
            cut_sectors(self.durable, smallest)
            for number in [n for n in self.rotten if n * SECTOR_BYTES >= smallest]:
                self._heal(number)
        self.durable_size = sizes[-1]

    def _heal(self, number: int) -> None:
        """The sector was written to the medium: what was wrong with it is over."""
        self.rotten.pop(number, None)
        self.unreadable.discard(number)
        self.apart.pop(number, None)

    def _show_durable(self, number: int) -> None:
        """A file that was cut meanwhile shows nothing of before beyond the cut."""
        content = self.durable.get(number)
        sizes = [*self.lied_sizes, *self.pending_sizes]
        if content is not None and sizes:
            inside = min(sizes) - number * SECTOR_BYTES
            content = content[:inside].ljust(SECTOR_BYTES, b"\0") if inside > 0 else None
        if content is None:
            self.sectors.pop(number, None)
        else:
            self.sectors[number] = content

    def _forget_beyond(self, size: int) -> None:
        """Nothing that begins at or beyond byte `size` is under way any more."""
        for number in self._unsettled() + list(self.apart):
            if number * SECTOR_BYTES >= size:
                self.pending.pop(number, None)
                self.older.pop(number, None)
                self.stuck.pop(number, None)
                self.lied.pop(number, None)
                self.apart.pop(number, None)

    def _forget_all_but_durable(self, numbers: list[int], *, whole: bool) -> None:
        self.size = self.durable_size
        if whole:
            self.sectors = dict(self.durable)
        else:
            for number in [*numbers, *self.apart]:
                self._show_durable(number)
        self.pending.clear()
        self.older.clear()
        self.stuck.clear()
        self.lied.clear()
        self.apart.clear()
        self.pending_sizes.clear()
        self.lied_sizes.clear()


def crashed_file(file: SimulatedFile, sectors: Sectors, sizes: list[int]) -> SimulatedFile:
    """The file after a power cut that left these unflushed sectors and size changes."""
    content = dict(file.durable)
    if sizes:
        cut_sectors(content, min(sizes))
    content.update(sectors)
    size = sizes[-1] if sizes else file.durable_size
    cut_sectors(content, size)
    return SimulatedFile(size, content, file.unreadable - sectors.keys())


def cut_sectors(sectors: Sectors, size: int) -> None:
    """Drop what lies at or beyond byte `size`."""
    for number in [n for n in sectors if (n + 1) * SECTOR_BYTES > size]:
        inside = size - number * SECTOR_BYTES
        if inside <= 0:
            del sectors[number]
        else:
            sectors[number] = sectors[number][:inside].ljust(SECTOR_BYTES, b"\0")
