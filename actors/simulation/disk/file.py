"""One file of the simulated disk: what is cached, what is durable, and the levels between.

Owns the bytes of a file in sectors of 512 bytes, and what a flush, a failed flush, a lying flush, a
power cut and rot do to them. Must not know names, handles, processes, nor what the bytes mean.

The levels, from the page cache down to the medium:

  * `sectors`, `size`: what a reader sees;
  * `pending`: written since the last flush began; `replaced`: older versions since then;
  * `flushes`: what each flush in flight was given, oldest first;
  * `failed`: clean pages of a failed flush, which the device may or may not have (SAFETY F5);
  * `lied`: what a lying device has in its own cache and called flushed;
  * `durable`, `durable_size`: the medium.

A sector is volatile while it is on a level between the page cache and the medium: a power cut may
keep any of its versions there.

Invariants: a sector's bytes are never changed in place, so levels and crash states share them; a
sector that is not volatile reads the same in `sectors` and `durable`, unless it is in
`other_in_cache`; nothing durable lies at or beyond `durable_size`; every sector in `unreadable` and
`other_in_cache` is in `rotten`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from random import Random

from actors.simulation.disk.sectors import ZERO_SECTOR, Flush, Sectors, cut_sectors
from logstore.limits import SECTOR_BYTES

_HISTORY_MAX = 2  # former versions of a sector on the medium: enough for a stale one
_GARBLED_ONE_IN = 4  # of the volatile sectors, at a power cut


class SimulatedFile:
    def __init__(
        self, size: int = 0, sectors: Sectors | None = None, unreadable: Iterable[int] = ()
    ) -> None:
        self.size = size
        self.sectors: Sectors = dict(sectors or {})
        self.durable_size = size
        self.durable: Sectors = dict(self.sectors)
        self.pending: Sectors = {}
        self.replaced: dict[int, list[bytes]] = {}
        self.pending_sizes: list[int] = []
        self.flushes: list[Flush] = []
        self.is_ahead = False  # the cache has changes that a power cut prevented
        self.failed: dict[int, list[bytes]] = {}
        self.lied: dict[int, list[bytes]] = {}
        self.lied_sizes: list[int] = []
        self.unreadable: set[int] = set(unreadable)
        self.other_in_cache: dict[int, None] = {}  # the cached copy is not what the medium has
        # what the medium had before it rotted
        self.rotten: Sectors = {n: self.durable.get(n, ZERO_SECTOR) for n in self.unreadable}
        self.history: dict[int, list[bytes]] = {}  # former durable versions, oldest first

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
        """The first sector of the range that has to be read from the medium and cannot be."""
        end = min(offset + size, self.size)
        for number in range(offset // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
            if number in self.unreadable and not self.is_cached_good(number):
                return number
        return None

    def is_cached_good(self, number: int) -> bool:
        """A read of this sector needs no medium."""
        return number in self.other_in_cache or self.is_volatile(number)

    def is_volatile(self, number: int) -> bool:
        """What is read there may be lost in a power cut."""
        if number in self.pending or number in self.failed or number in self.lied:
            return True
        return any(number in flush.newest for flush in self.flushes)

    def write(self, offset: int, data: bytes) -> Sectors:
        """Hot. Put `data`, which lies below `size`, into the cache. Returns the sectors that this
        changed, for `mark_dirty`."""
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

    def mark_dirty(self, changes: Sectors) -> None:
        """Hot. The next flush takes these pages."""
        pending = self.pending
        if not pending.keys().isdisjoint(changes):
            for number in pending.keys() & changes.keys():
                self.replaced.setdefault(number, []).append(pending[number])
        pending.update(changes)

    def resize(self, size: int) -> bytes:
        """Set the cached size; absent sectors read as zeros. Returns the sector at the new end, for
        `mark_resized`."""
        if size < self.size:
            cut_sectors(self.sectors, size)
        self.size = size
        return self.sectors.get(size // SECTOR_BYTES, ZERO_SECTOR)

    def mark_resized(self, before: int, size: int, last: bytes) -> None:
        """The next flush takes the size."""
        if size < before:
            self.discard_beyond(size)
            edge = size // SECTOR_BYTES
            if self.is_cached_good(edge):
                # The cut page is dirty, or an older tail of it would follow the new size.
                self.mark_dirty({edge: last})
        self.pending_sizes.append(size)

    # --- flushing ---

    def begin_flush(self, flush: Flush) -> None:
        """Hot. `flush` takes what is pending."""
        flush.newest, self.pending = self.pending, {}
        if self.replaced:
            flush.replaced, self.replaced = self.replaced, {}
        if self.pending_sizes:
            flush.sizes, self.pending_sizes = self.pending_sizes, []
        self.flushes.append(flush)

    def end_flush(self, flush: Flush, *, keep_history: bool) -> None:
        """Hot. What this flush and each earlier one was given is durable. The caller has called
        `persist_lied`."""
        for ended in self._ended_flushes(flush):
            if keep_history:
                self.record_history(ended.newest)
            if ended.sizes:
                self._set_durable_size(ended.sizes)
            self.durable.update(ended.newest)
            if self.failed:
                for number in ended.newest:
                    self.failed.pop(number, None)
            if self.rotten:
                for number in ended.newest:
                    self._heal(number)

    def fail_flush(self) -> None:
        """The pages are clean, and the device has any of them or none."""
        self.begin_flush(Flush())
        for flush in self.flushes:
            for number, versions in flush.versions():
                self.failed.setdefault(number, []).extend(versions)
            self.pending_sizes.extend(flush.sizes)
        self.flushes.clear()

    def flush_into_cache(self, flush: Flush) -> None:
        """The device reports success and keeps the data in its own cache."""
        for ended in self._ended_flushes(flush):
            for number, versions in ended.versions():
                kept = self.lied.setdefault(number, [])
                kept.extend(self.failed.pop(number, ()))
                kept.extend(versions)
            self.lied_sizes.extend(ended.sizes)

    def persist_lied(self) -> None:
        """The device flushed its own cache: what it lied about is durable."""
        if self.lied_sizes:
            self._set_durable_size(self.lied_sizes)
            self.lied_sizes.clear()
        for number, versions in self.lied.items():
            self.durable[number] = versions[-1]
            self._heal(number)
        self.lied.clear()

    def record_history(self, numbers: Iterable[int]) -> None:
        """Keep the durable versions of sectors that are about to be overwritten."""
        for number in numbers:
            versions = self.history.setdefault(number, [])
            versions.append(self.durable.get(number, ZERO_SECTOR))
            del versions[:-_HISTORY_MAX]

    def drop_cache(self, end: int | None = None) -> None:
        """Drop clean pages, those below byte `end` if given: the next read asks the device."""
        for number in [*self.failed, *self.other_in_cache]:
            if end is not None and (number + 1) * SECTOR_BYTES > end:
                continue
            self.failed.pop(number, None)
            self.other_in_cache.pop(number, None)
            versions = self._versions(number)
            if versions:
                self.sectors[number] = versions[-1]
            else:
                self._read_back(number)

    # --- power cuts ---

    def survivors(self) -> Iterator[tuple[str, int, list[bytes | int]]]:
        """What may survive a power cut: (what, sector number, versions newer than the durable)."""
        for number in self._volatile():
            yield "sector", number, [*self._versions(number)]
        if sizes := self._sizes():
            yield "size", 0, [*sizes]

    def power_cut(self, random: Random, *, keep_in_eight: int, garble: bool) -> list[int]:
        """In place: each volatile sector is kept in one of its versions with `keep_in_eight`
        chances in eight, else dropped; the size keeps a prefix of its changes. Returns the garbled
        sectors. Takes time for volatile sectors only, unless the file shrank."""
        sizes = self._sizes()
        shrank = bool(sizes) and min(sizes) < max(self.durable_size, self.size, *sizes)
        taken = sizes[: random.randrange(len(sizes) + 1)] if sizes else []
        if taken:
            self._set_durable_size(taken)
        garbled = []
        numbers = self._volatile()
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
        self._discard_volatile(numbers, whole=shrank or self.is_ahead)
        return garbled

    # --- looking at the medium ---

    def is_durable(self, offset: int, size: int, *, counting_lies: bool) -> bool:
        """The range reads as now after any power cut. Rot is not counted; `counting_lies`: what the
        device claims to have is."""
        end = offset + size
        base = self.durable_size
        if counting_lies and self.lied_sizes:
            base = self.lied_sizes[-1]
        elif self.lied_sizes:
            base = min(base, *self.lied_sizes)
        if end > base:
            return False
        if self.flushes or self.pending_sizes:
            later = self._sizes()[len(self.lied_sizes) :]
            if later and end > min(later):
                return False
        if not (self.pending or self.flushes or self.failed or self.lied):
            return True
        for number in range(offset // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
            if self.is_volatile(number):
                start = number * SECTOR_BYTES
                part = slice(max(0, offset - start), min(SECTOR_BYTES, end - start))
                if not self._is_durable_part(number, part, counting_lies=counting_lies):
                    return False
        return True

    def durable_bytes(self, offset: int, size: int) -> bytes:
        """The range on the medium, unreadable or not."""
        end = min(offset + size, self.durable_size)
        if end <= offset:
            return b""
        numbers = range(offset // SECTOR_BYTES, -(-end // SECTOR_BYTES))
        whole = b"".join(map(self.durable.get, numbers, repeat(ZERO_SECTOR)))
        start = offset % SECTOR_BYTES
        return whole[start : start + end - offset]

    def written_so_far(self, number: int) -> bytes:
        """The sector without changes that are deferred (`deferred`)."""
        versions = self._versions(number)
        return versions[-1] if versions else self.durable.get(number, ZERO_SECTOR)

    # --- inside ---

    def _is_durable_part(self, number: int, part: slice, *, counting_lies: bool) -> bool:
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

    def _ended_flushes(self, flush: Flush) -> list[Flush]:
        """Remove and return it and all earlier ones; none if it was removed before."""
        if flush not in self.flushes:
            return []
        end = self.flushes.index(flush) + 1
        ended, self.flushes = self.flushes[:end], self.flushes[end:]
        return ended

    def _volatile(self) -> list[int]:
        numbers = self.pending.keys() | self.failed.keys() | self.lied.keys()
        return sorted(numbers.union(*[flush.newest for flush in self.flushes]))

    def _sizes(self) -> list[int]:
        """The sizes set after the durable one, oldest first."""
        flushing = [size for each in self.flushes for size in each.sizes]
        return [*self.lied_sizes, *flushing, *self.pending_sizes]

    def _versions(self, number: int) -> list[bytes]:
        """The sector's versions after the durable one, oldest first."""
        versions = [*self.lied.get(number, ()), *self.failed.get(number, ())]
        for flush in self.flushes:
            versions.extend(flush.versions_of(number))
        versions.extend(self.replaced.get(number, ()))
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
        """The sector was written to the medium: it is not rotten any more."""
        self.rotten.pop(number, None)
        self.unreadable.discard(number)
        self.other_in_cache.pop(number, None)

    def _read_back(self, number: int) -> None:
        """Read the sector from the medium into the cache. Beyond a cut the file made since, there
        are zeros."""
        content = self.durable.get(number)
        sizes = self._sizes()
        if content is not None and sizes:
            inside = min(sizes) - number * SECTOR_BYTES
            content = content[:inside].ljust(SECTOR_BYTES, b"\0") if inside > 0 else None
        if content is None:
            self.sectors.pop(number, None)
        else:
            self.sectors[number] = content

    def discard_beyond(self, size: int) -> None:
        """No sector that begins at or beyond byte `size` is volatile any more."""
        for number in self._volatile() + list(self.other_in_cache):
            if number * SECTOR_BYTES >= size:
                self.pending.pop(number, None)
                self.replaced.pop(number, None)
                for flush in self.flushes:
                    flush.forget(number)
                self.failed.pop(number, None)
                self.lied.pop(number, None)
                self.other_in_cache.pop(number, None)

    def _discard_volatile(self, numbers: list[int], *, whole: bool) -> None:
        self.size = self.durable_size
        if whole:
            self.sectors = dict(self.durable)
        else:
            for number in [*numbers, *self.other_in_cache]:
                self._read_back(number)
        self.pending.clear()
        self.replaced.clear()
        self.flushes.clear()
        self.is_ahead = False
        self.failed.clear()
        self.lied.clear()
        self.other_in_cache.clear()
        self.pending_sizes.clear()
        self.lied_sizes.clear()
