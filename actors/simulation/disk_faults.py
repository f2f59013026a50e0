"""What a medium does to durable bytes behind everyone's back, one sector at a time.

Owns which sectors can be hit by a kind of rot and what they become. Must not know names' history,
handles or processes. Only sectors that were written and flushed are hit: what is still under way is
the power cut's to lose.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from random import Random

from actors.simulation.disk_file import ZERO_SECTOR, SimulatedFile
from logstore.limits import SECTOR_BYTES


class RotKind(Enum):
    """FAULTS D7, D15, D16, D26."""

    FLIPPED_BIT = auto()
    ZEROED = auto()
    GARBAGE = auto()
    MISDIRECTED = auto()  # two sectors swapped, perhaps of two files
    STALE = auto()  # an older durable version is back; needs `keep_history`
    UNREADABLE = auto()  # EIO until it is written again


def rot(
    files: dict[str, SimulatedFile],
    random: Random,
    kind: RotKind,
    *,
    is_cached_too: bool,
    newest: int = 0,
) -> tuple[str, int] | None:
    """Hit one sector of these files: each file that has a candidate is as likely as any other, so
    that small files are hit too. With `newest` it is one of the so many last candidates of the last
    path. Returns (path, sector), or None if no sector can be hit so."""
    paths = list(files)
    order = random.sample(paths, len(paths)) if not newest else sorted(paths, reverse=True)
    for path in order:
        file = files[path]
        numbers = list(_candidates(file, kind))
        if not numbers:
            continue
        if newest:
            numbers = sorted(numbers)[-newest:]
        number = random.choice(numbers)
        if kind is RotKind.UNREADABLE:
            file.rot_unreadable(number, is_cached_too=is_cached_too)
        elif kind is RotKind.MISDIRECTED:
            other = _other_sector(files, random, file.durable[number])
            if other is None:
                continue
            _swap(file, number, *other, is_cached_too=is_cached_too)
        else:
            content = _rotten(file, number, random, kind)
            file.rot(number, content, is_cached_too=is_cached_too)
        return path, number
    return None


def is_given(file: SimulatedFile, start: int, content: bytes) -> bool:
    """Whether the medium gives these bytes at `start`."""
    end = start + len(content)
    if file.unreadable:
        sectors = range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES))
        if any(number in file.unreadable for number in sectors):
            return False
    return file.durable_bytes(start, len(content)) == content


def _candidates(file: SimulatedFile, kind: RotKind) -> Iterator[int]:
    """Settled sectors that this kind changes."""
    for number, content in file.durable.items():
        if number in file.unreadable or file.is_unsettled(number):
            continue
        if kind is RotKind.ZEROED and content == ZERO_SECTOR:
            continue
        if kind is RotKind.STALE and not _stale(file, number):
            continue
        yield number


def _stale(file: SimulatedFile, number: int) -> list[bytes]:
    """Versions that the medium held before and that differ from what it holds."""
    return [old for old in file.history.get(number, ()) if old != file.durable[number]]


def _rotten(file: SimulatedFile, number: int, random: Random, kind: RotKind) -> bytes:
    if kind is RotKind.ZEROED:
        return ZERO_SECTOR
    if kind is RotKind.GARBAGE:
        return random.randbytes(SECTOR_BYTES)
    if kind is RotKind.STALE:
        return random.choice(_stale(file, number))
    flipped = bytearray(file.durable[number])
    bit = random.randrange(8 * _live_bytes(file, number))
    flipped[bit // 8] ^= 1 << (bit % 8)
    return bytes(flipped)


def _live_bytes(file: SimulatedFile, number: int) -> int:
    """Bytes of the sector that lie below the file's end."""
    return min(SECTOR_BYTES, file.durable_size - number * SECTOR_BYTES)


def _other_sector(
    files: dict[str, SimulatedFile], random: Random, content: bytes
) -> tuple[SimulatedFile, int] | None:
    """A settled sector that holds something else."""
    paths = list(files)
    for path in random.sample(paths, len(paths)):
        file = files[path]
        numbers = [n for n in _candidates(file, RotKind.MISDIRECTED) if file.durable[n] != content]
        if numbers:
            return file, random.choice(numbers)
    return None


def _swap(
    file: SimulatedFile, number: int, other: SimulatedFile, at: int, *, is_cached_too: bool
) -> None:
    mine, theirs = file.durable[number], other.durable[at]
    file.rot(number, theirs, is_cached_too=is_cached_too)
    other.rot(at, mine, is_cached_too=is_cached_too)
