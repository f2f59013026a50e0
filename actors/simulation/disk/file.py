"""One file of the simulated disk: what is cached, what is durable, and what is between the two.

Owns the bytes of a file in 512-byte sectors and what a flush, a failed flush, a lying flush, a
power cut and rot do to them. Must not know names, handles, processes, nor what the bytes mean.

From the page cache down to the medium:

  * `sectors`, `size`: what a reader sees;
  * `pending`: written since the last flush began; `older`: what it replaced since then;
  * `landing`: handed over to flushes that are under way, oldest first;
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

from actors.simulation.disk.sectors import ZERO_SECTOR, Landing, Sectors, cut_sectors
from logstore.limits import SECTOR_BYTES

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
        self.landing: list[Landing] = []
        self.is_ahead = False  # the cache has what was to happen later and never did
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
        if number in self.pending or number in self.stuck or number in self.lied:
            return True
        return any(number in landing.newest for landing in self.landing)

    def write(self, offset: int, data: bytes) -> Sectors:
        """Hot. Put `data`, which lies below `size`, into the cache. Returns its sectors as they are
        then, which `dirty` takes."""
        if not data:
            return {}
        sectors = self.sectors
        changes: Sectors = {}
        end = offset + len(data)
        first, inside = divmod(offset, SECTOR_BYTES)
        if inside:
            data = sectors.get(first, ZERO_SECTOR)[:inside] + data
        if end % SECTOR_BYTES:
            data += sectors.get(end // SECTOR_BYTES, ZERO_SECTOR)[end % SECTOR_BYTES :]
        number = first
        for at in range(0, len(data), SECTOR_BYTES):
            changes[number] = data[at : at + SECTOR_BYTES]
            number += 1
        sectors.update(changes)
        return changes

    def dirty(self, changes: Sectors) -> None:
        """Hot. These pages are to be flushed."""
        pending = self.pending
        if not pending.keys().isdisjoint(changes):
            for number in pending.keys() & changes.keys():
                self.older.setdefault(number, []).append(pending[number])
        pending.update(changes)

    def resize(self, size: int) -> bytes:
        """Growing costs nothing: what is absent reads as zeros. Returns the sector of the new end,
        which `resized` takes."""
        if size < self.size:
            cut_sectors(self.sectors, size)
        self.size = size
        return self.sectors.get(size // SECTOR_BYTES, ZERO_SECTOR)

    def resized(self, before: int, size: int, last: bytes) -> None:
        """The size is to be flushed."""
        if size < before:
            self.forget_beyond(size)
            edge = size // SECTOR_BYTES
            if self.is_cached_good(edge):
                # the cut page is dirty, so that no older tail of it follows the new size
                self.dirty({edge: last})
        self.pending_sizes.append(size)

    # --- flushing ---

    def begin_flush(self, landing: Landing) -> None:
        """Hot. What is pending is under way; it lands when the flush ends."""
        landing.newest, self.pending = self.pending, {}
        if self.older:
            landing.older, self.older = self.older, {}
        if self.pending_sizes:
            landing.sizes, self.pending_sizes = self.pending_sizes, []
        self.landing.append(landing)

    def end_flush(self, landing: Landing, *, keep_history: bool) -> None:
        """Hot. What the flush was given, and each that began before it, is durable. The caller has
        settled what was lied about."""
        for landed in self._landed(landing):
            if keep_history:
                self.remember(landed.newest)
            if landed.sizes:
                self._set_durable_size(landed.sizes)
            self.durable.update(landed.newest)
            if self.stuck:
                for number in landed.newest:
                    self.stuck.pop(number, None)
            if self.rotten:
                for number in landed.newest:
                    self._heal(number)

    def fail_flush(self) -> None:
        """The pages go clean; nobody knows what the device has of them."""
        self.begin_flush(Landing())
        for landing in self.landing:
            for number, versions in landing.versions():
                self.stuck.setdefault(number, []).extend(versions)
            self.pending_sizes.extend(landing.sizes)
        self.landing.clear()

    def flush_into_cache(self, landing: Landing) -> None:
        """The device says done and keeps it in its own cache."""
        for landed in self._landed(landing):
            for number, versions in landed.versions():
                kept = self.lied.setdefault(number, [])
                kept.extend(self.stuck.pop(number, ()))
                kept.extend(versions)
            self.lied_sizes.extend(landed.sizes)

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
            versions = self._versions(number)
            if versions:
                self.sectors[number] = versions[-1]
            else:
                self._show_durable(number)

    # --- power cuts ---

    def survivors(self) -> Iterator[tuple[str, int, list[bytes | int]]]:
        """What may or may not survive: (what, sector number, its versions after the durable
        one)."""
        for number in self._unsettled():
            yield "sector", number, [*self._versions(number)]
        if sizes := self._sizes():
            yield "size", 0, [*sizes]

    def power_cut(self, random: Random, *, keep_in_eight: int, garble: bool) -> list[int]:
        """In place: each unsettled sector is kept in one of its versions with `keep_in_eight`
        chances in eight, else dropped; sizes keep a prefix of their changes. Returns the garbled
        sectors. Its cost is that of what is unsettled, unless the file shrank."""
        sizes = self._sizes()
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
        self._forget_all_but_durable(numbers, whole=shrank or self.is_ahead)
        return garbled

    # --- looking ---

    def is_durable(self, offset: int, size: int, *, counting_lies: bool) -> bool:
        """Whatever a power cut leaves, the range reads as it does now (rot is not counted)."""
        end = offset + size
        base = self.durable_size
        if counting_lies and self.lied_sizes:
            base = self.lied_sizes[-1]
        elif self.lied_sizes:
            base = min(base, *self.lied_sizes)
        if end > base:
            return False
        if self.landing or self.pending_sizes:
            later = self._sizes()[len(self.lied_sizes) :]
            if later and end > min(later):
                return False
        if not (self.pending or self.landing or self.stuck or self.lied):
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

    def given_so_far(self, number: int) -> bytes:
        """The sector without what is in the cache ahead of its time."""
        versions = self._versions(number)
        return versions[-1] if versions else self.durable.get(number, ZERO_SECTOR)

    # --- inside ---

    def _is_settled_part(self, number: int, part: slice, *, counting_lies: bool) -> bool:
        """Every version that may survive has this part as it is read now."""
        now = self.sectors.get(number, ZERO_SECTOR)[part]
        if counting_lies and number in self.lied:
            later = self._versions(number)[len(self.lied[number]) :]
            bases = [self.lied[number][-1]]
        else:
            later = self._versions(number)
            bases = [self.durable.get(number, ZERO_SECTOR)]
            if number in self.rotten:
                bases.append(self.rotten[number])
        return any(base[part] == now for base in bases) and all(
            version[part] == now for version in later
        )

    def _landed(self, landing: Landing) -> list[Landing]:
        """It and those before it, which are under way no more; none if something cut it short."""
        if landing not in self.landing:
            return []
        end = self.landing.index(landing) + 1
        landed, self.landing = self.landing[:end], self.landing[end:]
        return landed

    def _unsettled(self) -> list[int]:
        numbers = self.pending.keys() | self.stuck.keys() | self.lied.keys()
        return sorted(numbers.union(*[landing.newest for landing in self.landing]))

    def _sizes(self) -> list[int]:
        """What the size was set to after its durable value, oldest first."""
        landing = [size for each in self.landing for size in each.sizes]
        return [*self.lied_sizes, *landing, *self.pending_sizes]

    def _versions(self, number: int) -> list[bytes]:
        """What the sector was given after its durable version, oldest first."""
        versions = [*self.lied.get(number, ()), *self.stuck.get(number, ())]
        for landing in self.landing:
            versions.extend(landing.versions_of(number))
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
        sizes = self._sizes()
        if content is not None and sizes:
            inside = min(sizes) - number * SECTOR_BYTES
            content = content[:inside].ljust(SECTOR_BYTES, b"\0") if inside > 0 else None
        if content is None:
            self.sectors.pop(number, None)
        else:
            self.sectors[number] = content

    def forget_beyond(self, size: int) -> None:
        """Nothing that begins at or beyond byte `size` is under way any more."""
        for number in self._unsettled() + list(self.apart):
            if number * SECTOR_BYTES >= size:
                self.pending.pop(number, None)
                self.older.pop(number, None)
                for landing in self.landing:
                    landing.forget(number)
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
        self.landing.clear()
        self.is_ahead = False
        self.stuck.clear()
        self.lied.clear()
        self.apart.clear()
        self.pending_sizes.clear()
        self.lied_sizes.clear()
