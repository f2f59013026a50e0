"""How a medium damages durable bytes, one sector at a time, without telling any process.

Owns which sectors a kind of rot can hit and what they become. Must not know names' history, handles
or processes. Only durable sectors are hit: volatile ones are for power cuts to lose.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum, auto
from random import Random
from typing import TypedDict

from actors.simulation.disk.file import SimulatedFile
from actors.simulation.disk.sectors import ZERO_SECTOR, cut_sectors
from logstore.limits import POSITION_MAX, SECTOR_BYTES

EVERYWHERE = range(POSITION_MAX)


class RotKind(Enum):
    """FAULTS D7, D15, D16, D26."""

    FLIPPED_BIT = auto()
    ZEROED = auto()
    GARBAGE = auto()
    MISDIRECTED = auto()  # two sectors swapped, perhaps of two files
    STALE = auto()  # an older durable version is back; needs `keep_history`
    UNREADABLE = auto()  # EIO until it is written again


class RotOptions(TypedDict, total=False):
    """`within`: bytes of the file; the sector has some of them, a flipped bit is one of them.
    `spared`: each (path, sector) that must not be hit."""

    within: range
    spared: Collection[tuple[str, int]]


def rot(
    files: dict[str, SimulatedFile],
    random: Random,
    kind: RotKind,
    *,
    is_cached_too: bool,
    within: range = EVERYWHERE,
    spared: Collection[tuple[str, int]] = (),
) -> tuple[str, int] | None:
    """Damage one sector of these files. Each file is as likely as any other, so that small ones are
    hit too. Returns (path, sector), or None if no sector can be hit in this way."""
    paths = list(files)
    for path in random.sample(paths, len(paths)):
        file = files[path]
        numbers = [
            number
            for number in _candidates(file, kind)
            if _overlap(number, within) and (path, number) not in spared
        ]
        if not numbers:
            continue
        number = random.choice(numbers)
        if kind is RotKind.UNREADABLE:
            make_unreadable(file, number, is_cached_too=is_cached_too)
        elif kind is RotKind.MISDIRECTED:
            other = _other_sector(files, random, file.durable[number], spared)
            if other is None:
                continue
            _swap(file, number, *other, is_cached_too=is_cached_too)
        else:
            content = _rotten_content(file, number, random, kind, within)
            change_content(file, number, content, is_cached_too=is_cached_too)
        return path, number
    return None


def medium_returns(file: SimulatedFile, start: int, content: bytes) -> bool:
    """Whether the medium returns `content` when it is read at `start`."""
    end = start + len(content)
    if file.unreadable:
        sectors = range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES))
        if any(number in file.unreadable for number in sectors):
            return False
    return file.durable_bytes(start, len(content)) == content


def change_content(
    file: SimulatedFile, number: int, content: bytes, *, is_cached_too: bool
) -> None:
    """The medium changes a sector; the page cache may keep its copy."""
    _mark_rotten(file, number, is_cached_too=is_cached_too)
    file.durable[number] = content
    if is_cached_too:
        file.sectors[number] = content


def _mark_rotten(file: SimulatedFile, number: int, *, is_cached_too: bool) -> None:
    file.rotten.setdefault(number, file.durable.get(number, ZERO_SECTOR))
    if is_cached_too:
        file.other_in_cache.pop(number, None)
    else:
        file.other_in_cache[number] = None


def make_unreadable(file: SimulatedFile, number: int, *, is_cached_too: bool) -> None:
    """Reading the sector fails until it is written again."""
    file.unreadable.add(number)
    _mark_rotten(file, number, is_cached_too=is_cached_too)


def cut_tail(file: SimulatedFile, size: int) -> None:
    """Drop everything at or beyond byte `size`."""
    file.size = file.durable_size = size
    file.pending_sizes.clear()
    file.lied_sizes.clear()
    cut_sectors(file.sectors, size)
    cut_sectors(file.durable, size)
    file.discard_beyond(size)


def _candidates(file: SimulatedFile, kind: RotKind) -> Iterator[int]:
    """Durable sectors that this kind changes."""
    for number, content in file.durable.items():
        if number in file.unreadable or file.is_volatile(number):
            continue
        if kind is RotKind.ZEROED and content == ZERO_SECTOR:
            continue
        if kind is RotKind.STALE and not _stale_versions(file, number):
            continue
        yield number


def _stale_versions(file: SimulatedFile, number: int) -> list[bytes]:
    """Former versions of the sector on the medium that differ from its present one."""
    return [old for old in file.history.get(number, ()) if old != file.durable[number]]


def _rotten_content(
    file: SimulatedFile, number: int, random: Random, kind: RotKind, within: range
) -> bytes:
    if kind is RotKind.ZEROED:
        return ZERO_SECTOR
    if kind is RotKind.GARBAGE:
        return random.randbytes(SECTOR_BYTES)
    if kind is RotKind.STALE:
        return random.choice(_stale_versions(file, number))
    flipped = bytearray(file.durable[number])
    live = _overlap(number, within)
    at = random.randrange(live.start, min(live.stop, _live_bytes(file, number)))
    flipped[at] ^= 1 << random.randrange(8)
    return bytes(flipped)


def _overlap(number: int, within: range) -> range:
    """Which bytes of a sector, counted from its begin, are in `within`."""
    start = number * SECTOR_BYTES
    return range(max(0, within.start - start), min(SECTOR_BYTES, within.stop - start))


def _live_bytes(file: SimulatedFile, number: int) -> int:
    """Bytes of the sector that lie below the file's end."""
    return min(SECTOR_BYTES, file.durable_size - number * SECTOR_BYTES)


def _other_sector(
    files: dict[str, SimulatedFile],
    random: Random,
    content: bytes,
    spared: Collection[tuple[str, int]],
) -> tuple[SimulatedFile, int] | None:
    """A durable sector with another content."""
    paths = list(files)
    for path in random.sample(paths, len(paths)):
        file = files[path]
        numbers = [
            number
            for number in _candidates(file, RotKind.MISDIRECTED)
            if file.durable[number] != content and (path, number) not in spared
        ]
        if numbers:
            return file, random.choice(numbers)
    return None


def _swap(
    file: SimulatedFile, number: int, other: SimulatedFile, at: int, *, is_cached_too: bool
) -> None:
    mine, theirs = file.durable[number], other.durable[at]
    change_content(file, number, theirs, is_cached_too=is_cached_too)
    change_content(other, at, mine, is_cached_too=is_cached_too)
